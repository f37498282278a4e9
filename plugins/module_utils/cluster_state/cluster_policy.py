# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the ClusterPolicy that the operator uses, and reads its tolerations and the recorded previous values of changed fields (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import (
    DEFAULT_MIG_CONFIGMAP,
    FORMER_ANNOTATION,
    OWNED_TOLERATIONS_ANNOTATION,
)
from ..common.nested import get_nested, parse_json

Document = t.Mapping[str, t.Any]
Spec = dict[str, t.Any]


def active_policy(policies: t.Iterable[Document]) -> Document | None:
    """The ClusterPolicy that the operator uses: the oldest one, or the first by name if two have the same age."""
    return min(
        policies, key=lambda policy: (policy["metadata"]["creationTimestamp"], policy["metadata"]["name"]), default=None
    )


def uses_driver_objects(spec: Document) -> bool:
    """Whether, under this spec, NVIDIADriver objects describe the driver instead of the ClusterPolicy."""
    driver = spec.get("driver") or {}
    return driver.get("enabled") is not False and driver.get("useNvidiaDriverCRD") is True


def policy_tolerations(policy: Document) -> list[dict[str, t.Any]]:
    """The tolerations that a ClusterPolicy sets on the operands' DaemonSets."""
    return list(((policy.get("spec") or {}).get("daemonsets") or {}).get("tolerations") or [])


def plugin_configmap(policy: Document | None) -> str:
    """The name of the device plugin's ConfigMap according to a ClusterPolicy; empty if the ClusterPolicy does not set it."""
    return str(get_nested(policy, "spec", "devicePlugin", "config", "name") or "")


def mig_configmap(policy: Document | None) -> str:
    """The name of the MIG manager's ConfigMap according to this ClusterPolicy, or the default name if the ClusterPolicy does not set it."""
    return str(get_nested(policy, "spec", "migManager", "config", "name") or DEFAULT_MIG_CONFIGMAP)


def recorded_tolerations(policy: Document) -> list[dict[str, t.Any]] | None:
    """The tolerations that the annotation records as set by the collection; None without the annotation, empty if it cannot be parsed."""
    text = (policy["metadata"].get("annotations") or {}).get(OWNED_TOLERATIONS_ANNOTATION)
    if text is None:
        return None
    return [entry for entry in parse_json(text, list) or () if isinstance(entry, dict)]


def recorded_previous_spec(policy: Document) -> Spec:
    """The part of the previous spec that is recorded in the annotation; empty if nothing is recorded or the record cannot be parsed."""
    return parse_json((policy["metadata"].get("annotations") or {}).get(FORMER_ANNOTATION), dict) or {}


def restore_previous_spec(spec: Spec, previous: Spec) -> Spec:
    """Restore the previous values in a spec without the collection's fields; a field that has been set to another value since then keeps that value."""
    result = dict(spec)
    for key, value in previous.items():
        below = result.get(key)
        if isinstance(value, dict) and isinstance(below or {}, dict):
            result[key] = restore_previous_spec(below or {}, value)
        elif key not in result:
            result[key] = value
    return result
