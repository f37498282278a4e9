# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluates NVIDIADriver objects: the nodes that they select, their state, and the taints that their pods do not tolerate (pure).

Sources: gpu-operator v25.10.1 and v26.7.0, api/nvidia/v1alpha1/nvidiadriver_types.go, internal/validator/validator.go and
internal/nvidiadriver/nvidiadriver.go.
"""

from __future__ import annotations

import typing as t

from ..catalog import releases
from ..catalog.names import DRIVER_DEPLOY_LABEL, FIELD_MANAGER, GPU_PRESENT_LABEL, GPU_TAINT_KEY, POOL_LABEL
from ..catalog.taints import Taint, untolerated_taints
from ..common.nested import get_nested

Document = t.Mapping[str, t.Any]
Labels = t.Mapping[str, str]

API_VERSION, KIND = "nvidia.com/v1alpha1", "NVIDIADriver"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
# The reasons that the operator gives if the only problem is that operands are not ready (gpu-operator internal/conditions).
NOT_READY_REASONS = ("OperandNotReady", "DriverNotReady")
# Every driver DaemonSet has this toleration (manifests/state-driver/0500_daemonset.yaml).
_GPU_TOLERATION = {"key": GPU_TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
# The default selector.
_ALL_GPU_NODES = {GPU_PRESENT_LABEL: "true"}


def node_selector(driver: Document) -> Labels:
    """The labels that the object requires of a node; without a selector, the label of all GPU nodes."""
    return get_nested(driver, "spec", "nodeSelector") or _ALL_GPU_NODES


def is_default(driver: Document) -> bool:
    """Whether the object applies to the nodes that no other object selects (since v26.7)."""
    return get_nested(driver, "spec", "default") is True


def follows_own_policies(drivers: t.Iterable[Document], version: str) -> bool:
    """Whether the operator supports an upgrade policy in each object, and default objects; v26.7 introduced both.

    Since v26.7, the API server sets the field `default` in each object. If no object has this field, the result depends on the operator's `version`,
    and is False if the version is unknown (empty).
    """
    if any("default" in (item.get("spec") or {}) for item in drivers):
        return True
    return bool(version) and releases.release_of(version) >= releases.OWN_UPGRADE_POLICY_SINCE


def is_managed(driver: Document) -> bool:
    """Whether this collection has created the object."""
    return (driver["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == FIELD_MANAGER


def driver_of_nodes(drivers: t.Sequence[Document], nodes: t.Iterable[tuple[str, Labels]]) -> dict[str, list[str]]:
    """For each GPU node whose driver the operator installs, the names of the objects that select the node.

    The default object is included only if no other object selects the node.
    """
    default = [item["metadata"]["name"] for item in drivers if is_default(item)]
    selectors = [(item["metadata"]["name"], node_selector(item)) for item in drivers if not is_default(item)]
    by_node: dict[str, list[str]] = {}
    for name, labels in nodes:
        if labels.get(GPU_PRESENT_LABEL) != "true" or labels.get(DRIVER_DEPLOY_LABEL) != "true":
            continue
        selecting = [
            driver for driver, selector in selectors if all(labels.get(key) == value for key, value in selector.items())
        ]
        by_node[name] = selecting or default
    return by_node


def state_message(driver: Document) -> str:
    """The reason why the operator does not report the object as ready; empty if the operator reports it as ready."""
    status = driver.get("status") or {}
    state = str(status.get("state") or "")
    if state == "ready":
        return ""
    error = _error(driver)
    details, reason = str(error.get("message") or "").strip(), str(error.get("reason") or "")
    return ": ".join(filter(None, (f"state {state or 'none'}" + (f" ({reason})" if reason else ""), details)))


def reports_only_pods(driver: Document) -> bool:
    """Whether the operator reports only that driver pods are not ready."""
    state = (driver.get("status") or {}).get("state")
    return state == "notReady" and _error(driver).get("reason") in (None, *NOT_READY_REASONS)


def _error(driver: Document) -> Document:
    """The condition Error if it is true; otherwise, an empty map."""
    conditions = {item.get("type"): item for item in (driver.get("status") or {}).get("conditions") or []}
    error: Document = conditions.get("Error") or {}
    return error if error.get("status") == "True" else {}


def driver_results(drivers: t.Sequence[Document], nodes: t.Iterable[tuple[str, Labels]]) -> list[dict[str, t.Any]]:
    """The objects in the format of a report, with pool (None if the selector has no pool label), version, number of nodes and state."""
    selecting = driver_of_nodes(drivers, nodes)
    return [
        {
            "name": item["metadata"]["name"],
            "managed": is_managed(item),
            "pool": get_nested(item, "spec", "nodeSelector", POOL_LABEL),
            "default": is_default(item),
            "version": get_nested(item, "spec", "version"),
            "nodes": sum(item["metadata"]["name"] in names for names in selecting.values()),
            "state": get_nested(item, "status", "state"),
            "message": state_message(item),
        }
        for item in sorted(drivers, key=lambda item: item["metadata"]["name"])
    ]


def untolerated_by_driver(
    drivers: t.Sequence[Document], pool: str, taints: t.Sequence[Taint], expected: t.Iterable[Document] = ()
) -> list[Taint]:
    """The taints of a pool that the driver pods on its nodes do not tolerate; managed objects count as having the `expected` tolerations.

    The pods belong to the objects that select the pool's label or, if there are none, to the default object and the objects for all GPU nodes.
    """
    own = [item for item in drivers if node_selector(item).get(POOL_LABEL) == pool]
    for_all = [item for item in drivers if is_default(item) or node_selector(item) == _ALL_GPU_NODES]
    missing: list[Taint] = []
    for item in own or for_all:
        tolerations = [_GPU_TOLERATION, *(get_nested(item, "spec", "tolerations") or ())]
        tolerations += expected if is_managed(item) else ()
        missing += [taint for taint in untolerated_taints(tolerations, taints) if taint not in missing]
    return missing
