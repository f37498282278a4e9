# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making a cluster's nodes equal to a fleet."""

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
# Who made a machine that no fleet file asks for: the label holds the cloud, the annotation the id of its node group.
CLOUD_LABEL = "lab.accel.gpu/cloud"
NODE_GROUP_ANNOTATION = "lab.accel.gpu/node-group"
# As long as it is there, kwok keeps the node NotReady; the simulator writes into it until when, and takes it off.
REBOOT_ANNOTATION = "lab.accel.gpu/rebooting"


@dataclass(frozen=True)
class Applied:
    """What became of the nodes."""

    created: int
    replaced: int
    deleted: int
    unchanged: int


def apply(api: Api, fleet: Fleet, kubelet_port: int) -> Applied:
    """Create the machines that are missing, remove those that are not in the fleet, replace those that changed.

    A machine that changed is another machine: labels, taints and faults that somebody put on it go with it.
    Nodes that no fleet file made are left alone: those of clouds (lab/machines.py), and other people's.
    """
    wanted = {node["metadata"]["name"]: node for node in fleet.nodes(kubelet_port)}
    live = {node["metadata"]["name"]: _spec(node) for node in api.list(NODES) if _spec(node)}
    gone = [name for name in live if name not in wanted]
    changed = [name for name in wanted if name in live and live[name] != _spec(wanted[name])]
    missing = [name for name in wanted if name not in live]
    in_parallel(lambda name: api.request("DELETE", f"{NODES}/{name}"), [*gone, *changed])
    # A POST keeps the status that it carries, so that one request makes a whole node.
    in_parallel(lambda name: api.request("POST", NODES, wanted[name]), [*missing, *changed])
    return Applied(len(missing), len(changed), len(gone), len(wanted) - len(missing) - len(changed))


def wait_ready(api: Api, count: int, limit: float = 60.0) -> None:
    """Wait until that many nodes of the fleet are ready for pods: heartbeats arrive, and the not-ready taint is off."""
    deadline = time.monotonic() + limit
    while (ready := sum(is_ready(node) for node in api.list(NODES) if _spec(node))) < count:
        if time.monotonic() > deadline:
            raise LabError(f"only {ready} of {count} nodes became ready in {limit:.0f} s: see 'lab/lab logs kwok'")
        time.sleep(0.2)


def is_ready(node: Object) -> bool:
    """Tell whether pods can be scheduled to a node."""
    conditions = node.get("status", {}).get("conditions", [])
    taints = node["spec"].get("taints", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions) and not any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in taints
    )


def reboot(api: Api, names: Iterable[str]) -> None:
    """Reboot machines, all or (when a name is wrong) none; like the command on a real machine, this waits for nothing."""
    named = list(dict.fromkeys(names))
    for name in named:
        node = api.get(f"{NODES}/{name}")
        if node is None:
            raise LabError(f"there is no node '{name}'")
        if not _is_ours(node):
            raise LabError(f"node '{name}' is none of the lab's machines, and cannot be rebooted by it")
    # A text of its own tells one reboot from the next.
    asked = {"metadata": {"annotations": {REBOOT_ANNOTATION: f"asked-{uuid.uuid4()}"}}}
    in_parallel(lambda name: api.merge(f"{NODES}/{name}", asked), named)


def repoint(api: Api, kubelet_port: int) -> None:
    """Tell the API server where the nodes' kubelet is, for a cluster that came up on other ports than before."""
    patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}}}}
    names = [node["metadata"]["name"] for node in api.list(NODES) if _is_ours(node)]
    in_parallel(lambda name: api.merge(f"{NODES}/{name}/status", patch), names)


def repoint_logs(api: Api, folder: Path) -> None:
    """Tell kwok where the logs of the pods are, for a cluster that another lab has saved."""

    def point(logs: Object) -> None:
        files = [
            {key: _below(folder, value) if key in _LOG_FILES else value for key, value in entry.items()}
            for entry in logs["spec"]["logs"]
        ]
        if files != logs["spec"]["logs"]:
            metadata = logs["metadata"]
            api.merge(f"{_LOGS}/namespaces/{metadata['namespace']}/logs/{metadata['name']}", {"spec": {"logs": files}})

    in_parallel(point, api.list(f"{_LOGS}/logs"))


def _below(folder: Path, path: str) -> str:
    return f"{folder}/{path.rpartition(f'/{folder.name}/')[2]}"


def select(api: Api, names: str | None, selector: str | None) -> list[str]:
    """Return the nodes that `--nodes a,b` and `--selector k=v` name; both missing: all of them."""
    if names:
        return [name.strip() for name in names.split(",") if name.strip()]
    query = {"labelSelector": selector} if selector else {}
    try:
        found = [node["metadata"]["name"] for node in api.list(NODES, **query)]
    except ApiError as error:
        raise LabError(f"the selector '{selector}' cannot be used: {error}") from error
    if not found:
        raise LabError(f"no node matches the selector '{selector}'" if selector else "the cluster has no nodes")
    return found


def _is_ours(node: Object) -> bool:
    """Tell whether the machine is the lab's, by a fleet file or by a cloud of the lab."""
    return bool(_spec(node)) or CLOUD_LABEL in node["metadata"].get("labels", {})


def _spec(node: Object) -> str:
    return str(node["metadata"].get("annotations", {}).get(SPEC_ANNOTATION, ""))
