# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the operator has carried a ClusterPolicy over into its DaemonSets' templates, by what it copies as it stands: pure.

An operator that has just been started has not looked at anything yet, and all that its predecessor has left looks ready. The
chart writes its version among the labels that the operator gives to every pod, so an upgrade shows in each template.
Source: gpu-operator v25.10.1 controllers/object_controls.go (applyCommonDaemonsetMetadata, transformDriverContainer).
"""

from __future__ import annotations

import typing as t

from .cluster_policy import is_driver

Document = t.Mapping[str, t.Any]

# The operator keeps its own values of these, since pods are selected by them.
_NOT_COPIED = frozenset({"app", "app.kubernetes.io/part-of"})
_DRIVER_CONTAINER = "nvidia-driver-ctr"


def stale_by(spec: Document, daemonset: Document) -> list[str]:
    """What of the policy's spec the template does not have yet, in words; `spec` is the ClusterPolicy's."""
    name = daemonset["metadata"]["name"]
    if _lacks_labels(spec, daemonset):
        return [f"DaemonSet {name} does not have the policy's labels yet"]
    if is_driver(daemonset) and _lacks_driver(spec.get("driver") or {}, daemonset):
        return [f"DaemonSet {name} does not have the policy's driver yet"]
    return []


def _lacks_labels(spec: Document, daemonset: Document) -> bool:
    there = daemonset["spec"]["template"]["metadata"].get("labels") or {}
    wanted = (spec.get("daemonsets") or {}).get("labels") or {}
    return any(there.get(key) != value for key, value in wanted.items() if key not in _NOT_COPIED)


def _lacks_driver(driver: Document, daemonset: Document) -> bool:
    containers = daemonset["spec"]["template"]["spec"].get("containers") or []
    found = next((item for item in containers if item.get("name") == _DRIVER_CONTAINER), None)
    if found is None:
        return False
    # The operator appends the node's system to the version; a digest stands behind an @.
    if str(driver.get("version") or "") not in str(found.get("image") or ""):
        return True
    there = {item["name"]: item.get("value", "") for item in found.get("env") or []}
    return any(there.get(item["name"]) != item.get("value", "") for item in driver.get("env") or [])
