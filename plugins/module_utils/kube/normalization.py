# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares values that an API server may return in a different form: quantities, numbers as strings, defaults and omitted zeros."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

# This is needed because parse_quantity() also accepts strings that an API server rejects, such as "inf" and "1_000".
_QUANTITY = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?([KMGTPE]i|[numkMGTPE])?")
# Fields whose values, or the values of their keys, are quantities (such as ResourceList in k8s.io/api core/v1).
QUANTITY_FIELDS = frozenset(
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

# Maps in which every value is a string, never a number.
TEXT_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector", "data", "binaryData", "selector"})

# Defaults that the API server writes into elements of atomic lists (k8s.io/kubernetes pkg/apis/*/v1/defaults.go).
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

# API groups of Kubernetes itself, whose objects omit fields that are false, 0 or an empty string.
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
    """Whether a kind belongs to Kubernetes itself and not to a CRD."""
    return (api_version.rpartition("/")[0]) in _BUILT_IN


def is_default(key: str, value: t.Any) -> bool:
    """Whether the server may have added the field to an element of an atomic list."""
    return value in (None, "", [], {}) or value in _DEFAULTS.get(key, ())


def quantity(value: t.Any) -> Decimal | None:
    """The amount of a quantity ("500m", "1Gi", 2, "1e3"); None for other values."""
    # Imported here, because this file is also loaded if the library is missing, which kube/module.py reports.
    from kubernetes.utils.quantity import parse_quantity

    if isinstance(value, bool) or not _QUANTITY.fullmatch(str(value)):
        return None
    return t.cast("Decimal", parse_quantity(str(value)))


def same_scalar(live: t.Any, desired: t.Any, *, quantities: bool, text: bool) -> bool:
    """Whether the API server treats both values as equal, in a field that contains quantities, only strings, or neither."""
    if type(live) is type(desired) and live == desired:
        return True
    if text:
        return False
    if quantities:
        live_amount, desired_amount = quantity(live), quantity(desired)
        return live_amount is not None and live_amount == desired_amount
    if isinstance(live, bool) or isinstance(desired, bool):
        return False
    if isinstance(live, (int, float)) and isinstance(desired, (int, float)):
        return live == desired
    # An int-or-string (such as a port or maxUnavailable) can be a number or a string.
    return {type(live), type(desired)} == {int, str} and str(live) == str(desired)
