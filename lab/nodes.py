# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reconciles a cluster's nodes with a fleet, and reboots and selects nodes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .api import Api, ApiError, Object, in_parallel
from .errors import LabError
from .fleet import SPEC_ANNOTATION, Fleet

NODES = "/api/v1/nodes"
_LOGS = "/apis/kwok.x-k8s.io/v1alpha1"
_LOG_FILES = ("logsFile", "previousLogsFile")
# On a node that a cloud created: the label contains the cloud, the annotation the id of the node group.
CLOUD_LABEL = "lab.accel.gpu/cloud"
NODE_GROUP_ANNOTATION = "lab.accel.gpu/node-group"
# kwok keeps a node with this annotation NotReady. The simulator sets it to the end time of the reboot, and removes it.
REBOOT_ANNOTATION = "lab.accel.gpu/rebooting"


@dataclass(frozen=True)
class Applied:
    """The number of nodes, by what `apply` did."""

    created: int
    replaced: int
    deleted: int
    unchanged: int


def apply(api: Api, fleet: Fleet, kubelet_port: int) -> Applied:
    """Create missing machines, delete those that are not in the fleet, and replace those that changed.

    A changed machine is replaced by a new one, without the labels, taints and faults that were added to the old one.
    Nodes that were not created from a fleet file are not changed: those of clouds (lab/machines.py), and foreign nodes.
    """
    desired = {node["metadata"]["name"]: node for node in fleet.nodes(kubelet_port)}
    live = {node["metadata"]["name"]: _spec(node) for node in api.list(NODES) if _spec(node)}
    gone = [name for name in live if name not in desired]
    changed = [name for name in desired if name in live and live[name] != _spec(desired[name])]
    missing = [name for name in desired if name not in live]
    in_parallel(lambda name: api.request("DELETE", f"{NODES}/{name}"), [*gone, *changed])
    # A POST of a Node keeps its status, so one request creates the complete node.
    in_parallel(lambda name: api.request("POST", NODES, desired[name]), [*missing, *changed])
    return Applied(len(missing), len(changed), len(gone), len(desired) - len(missing) - len(changed))


def wait_ready(api: Api, count: int, limit: float = 300.0) -> None:
    """Wait until `count` nodes of the fleet are ready for pods: heartbeats arrive and the not-ready taint is gone."""
    deadline = time.monotonic() + limit
    while (ready := sum(is_ready(node) for node in api.list(NODES) if _spec(node))) < count:
        if time.monotonic() > deadline:
            raise LabError(f"only {ready} of {count} nodes are ready after {limit:.0f} s: see 'lab/lab logs kwok'")
        time.sleep(0.2)


def is_ready(node: Object) -> bool:
    """Return whether pods can be scheduled to a node."""
    conditions = node.get("status", {}).get("conditions", [])
    taints = node["spec"].get("taints", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions) and not any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in taints
    )


def reboot(api: Api, names: Iterable[str]) -> None:
    """Start the reboot of all nodes, or of none if a name is invalid; like `reboot` on a real machine, do not wait."""
    named = list(dict.fromkeys(names))
    for name in named:
        node = api.get(f"{NODES}/{name}")
        if node is None:
            raise LabError(f"node '{name}' does not exist")
        if not _is_managed(node):
            raise LabError(f"node '{name}' is not managed by the lab: the lab cannot reboot it")
    # A unique value distinguishes one reboot request from the next.
    request = {"metadata": {"annotations": {REBOOT_ANNOTATION: f"requested-{uuid.uuid4()}"}}}
    in_parallel(lambda name: api.merge(f"{NODES}/{name}", request), named)


def update_kubelet_port(api: Api, kubelet_port: int) -> None:
    """Update the kubelet port in all nodes, for a cluster that was restarted on other ports."""
    patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}}
    names = [node["metadata"]["name"] for node in api.list(NODES) if _is_managed(node)]
    in_parallel(lambda name: api.merge(f"{NODES}/{name}/status", patch), names)


def update_log_paths(api: Api, folder: Path) -> None:
    """Set the folder of the pod logs in kwok, after a cluster of another lab was loaded."""

    def update(logs: Object) -> None:
        files = [
            {key: _below(folder, value) if key in _LOG_FILES else value for key, value in entry.items()}
            for entry in logs["spec"]["logs"]
        ]
        if files != logs["spec"]["logs"]:
            metadata = logs["metadata"]
            api.merge(f"{_LOGS}/namespaces/{metadata['namespace']}/logs/{metadata['name']}", {"spec": {"logs": files}})

    in_parallel(update, api.list(f"{_LOGS}/logs"))


def _below(folder: Path, path: str) -> str:
    return f"{folder}/{path.rpartition(f'/{folder.name}/')[2]}"


def select(api: Api, names: str | None, selector: str | None) -> list[str]:
    """Return the nodes that `--nodes a,b` or `--selector k=v` selects; all nodes without either."""
    if names:
        return [name.strip() for name in names.split(",") if name.strip()]
    query = {"labelSelector": selector} if selector else {}
    try:
        selected = [node["metadata"]["name"] for node in api.list(NODES, **query)]
    except ApiError as error:
        raise LabError(f"invalid selector '{selector}': {error}") from error
    if not selected:
        raise LabError(f"no node matches the selector '{selector}'" if selector else "the cluster has no nodes")
    return selected


def _is_managed(node: Object) -> bool:
    """Return whether the node was created from a fleet file or by a cloud of the lab."""
    return bool(_spec(node)) or CLOUD_LABEL in node["metadata"].get("labels", {})


def _spec(node: Object) -> str:
    return str(node["metadata"].get("annotations", {}).get(SPEC_ANNOTATION, ""))
