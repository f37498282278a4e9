# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Forms in which an API server gives back what it was sent: quantities, numbers as text, defaults, dropped zeros."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

_SUFFIXES = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}

_QUANTITY = re.compile(
    rf"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?P<suffix>{'|'.join(filter(None, _SUFFIXES))})?"
)

# Fields whose values (or whose keys' values) are quantities: k8s.io/api core/v1 ResourceList and its like.
_QUANTITY_FIELDS = frozenset(
    {
        "allocatable",
        "capacity",
        "default",
        "defaultRequest",
        "divisor",
        "hard",
        "limits",
        "max",
        "maxLimitRequestRatio",
        "min",
        "overhead",
        "podFixed",
        "requests",
        "sizeLimit",
        "averageValue",
    }
)

# Fields that are maps of plain text: what looks like a number in them is none.
_TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector", "data", "binaryData", "selector"})

# What the API server writes into elements of atomic lists by itself (k8s.io/kubernetes pkg/apis/*/v1/defaults.go).
_DEFAULTS: dict[str, tuple[t.Any, ...]] = {
    "apiGroup": ("", "rbac.authorization.k8s.io"),
    "apiVersion": ("v1",),
    "defaultMode": (420,),
    "divisor": ("0",),
    "listKind": (),
    "pathType": ("ImplementationSpecific",),
    "protocol": ("TCP",),
    "scope": ("*",),
    "singular": (),
}

# API groups of Kubernetes itself: their objects leave out fields that are false, 0 or empty text.
_BUILT_IN = frozenset(
    {
        "",
        "apps",
        "autoscaling",
        "batch",
        "policy",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
    }
)


def is_built_in(api_version: str) -> bool:
    """True for a kind of Kubernetes itself, False for one that a CRD brought."""
    return (api_version.rpartition("/")[0]) in _BUILT_IN


def is_default(key: str, value: t.Any) -> bool:
    """True for a field that the server may have added to an element of an atomic list."""
    return value in (None, "", [], {}) or value in _DEFAULTS.get(key, ())


def is_text_map(key: str) -> bool:
    """True for a map whose values are text whatever they look like."""
    return key in _TEXT_MAPS


def is_quantity_field(key: str) -> bool:
    """True for a field that holds a quantity or a map of quantities."""
    return key in _QUANTITY_FIELDS


def quantity(value: t.Any) -> Decimal | None:
    """The amount that a quantity names, or None when it is none ("500m", "1Gi", 2, "1e3")."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return None
    return Decimal(found["number"]) * _SUFFIXES[found["suffix"] or ""]


def same_scalar(live: t.Any, wanted: t.Any, *, quantities: bool, text: bool) -> bool:
    """Equal as the API server understands it at that place."""
    if type(live) is type(wanted) and live == wanted:
        return True
    if text:
        return False
    if quantities:
        left, right = quantity(live), quantity(wanted)
        return left is not None and left == right
    if isinstance(live, bool) or isinstance(wanted, bool):
        return False
    if isinstance(live, (int, float)) and isinstance(wanted, (int, float)):
        return live == wanted
    # An int-or-string (a port, maxUnavailable) may be written either way.
    return {type(live), type(wanted)} == {int, str} and str(live) == str(wanted)
