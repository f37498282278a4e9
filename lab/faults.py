# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fault injection: annotations on nodes, which the simulator reads, and on a namespace, which the operators' runner reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .api import Api, Object, in_parallel
from .errors import LabError

FAULTS_ANNOTATION = "lab.accel.gpu/faults"
# Faults of the whole cluster are annotations of this namespace, which `reset` recreates.
FAULTS_NAMESPACE = "kube-system"
CLUSTER_FAULT = "operator-broken"

# Name -> (meaning of the argument, or None; effect).
NODE_FAULTS: dict[str, tuple[str | None, str]] = {
    "plugin-crash": (None, "the device plugin's pod crash-loops and its GPUs disappear"),
    "gfd-stalled": (None, "GFD stops publishing labels"),
    "nfd-stalled": (None, "the NFD worker stops publishing labels"),
    "operand-pending": ("a DaemonSet's name", "the pods of all operand DaemonSets (or of one) stay Pending"),
    "validator-fails": (None, "the operator validator's pod never becomes ready"),
    "node-not-ready": (None, "the node's heartbeats stop"),
    "mig-failed": (None, "a process outside Kubernetes holds the GPUs and every MIG change fails"),
    "mig-pending": (None, "the operands' pods do not terminate for the MIG manager, which stays pending"),
    "mig-reboot": (None, "GPUs cannot be reset: a change of the MIG mode reboots the node"),
    "mig-watch-hung": (None, "the MIG manager receives no label changes until its pod is replaced"),
    "driver-broken": (
        "the last line of the driver's log",
        "the driver's pod crash-loops and NVIDIA's other pods on the node wait for it",
    ),
    "mig-partial": (None, "the MIG manager creates only the first device of each GPU and reports success"),
    "mig-paused": (
        None,
        "after a successful MIG change the operands stay paused until the MIG manager's pod is replaced",
    ),
    "kernel-wrong-result": ("the number of a GPU", "CUDA kernels on all GPUs (or on one) compute wrong results"),
    "kernel-hang": (
        "the number of a GPU, or unkillable",
        "CUDA kernels on all GPUs (or on one) do not end; unkillable ones do not react to SIGKILL either",
    ),
    "kernel-driver-old": (None, "CUDA reports that the driver is too old for every program"),
    "license-unreachable": (
        "dns, tcp or tls",
        "the license server cannot be reached: a node gets no license, and keeps its lease until it ends",
    ),
    "license-clock-skew": ("the number of seconds by which the node's clock is fast", "the node's clock is wrong"),
    "license-denied": (None, "the license server has no license left for the node"),
    "link-slow": (None, "GPUs exchange data at a tenth of the usual bandwidth, also with other nodes"),
}
CLUSTER_FAULTS = {CLUSTER_FAULT: "the GPU operator finds no /host-etc/os-release and every reconcile fails"}


def parse(text: str) -> dict[str, str]:
    """Return the faults of an annotation by name, each with its argument or an empty string."""
    named = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return {name: argument for name, _equals, argument in named}


def render(faults: dict[str, str]) -> str:
    """Return the value of the annotation."""
    return ",".join(f"{name}={argument}" if argument else name for name, argument in sorted(faults.items()))


def inject(api: Api, fault: str, nodes: Iterable[str]) -> int:
    """Inject a fault (`name` or `name=argument`) into nodes or, for a cluster fault, the cluster; return the number changed."""
    name, _equals, argument = fault.partition("=")
    _known(name, argument)
    return _change(api, name, nodes, lambda faults: faults | {name: argument})


def clear(api: Api, fault: str | None, nodes: Iterable[str]) -> int:
    """Clear a fault (None: all) on nodes and, for a cluster fault, the cluster; return the number changed."""
    name = fault.partition("=")[0] if fault else None
    if name:
        _known(name, "")

    def without(faults: dict[str, str]) -> dict[str, str]:
        return {other: argument for other, argument in faults.items() if name and other != name}

    return _change(api, name, nodes, without)


def current(api: Api) -> dict[str, str]:
    """Return the annotation of every node with faults, and of the cluster if it has faults."""
    by_node = {node["metadata"]["name"]: _annotation(node) for node in api.list("/api/v1/nodes")}
    by_node["(cluster)"] = _annotation(api.get(f"/api/v1/namespaces/{FAULTS_NAMESPACE}") or {"metadata": {}})
    return {name: text for name, text in by_node.items() if text}


def _change(
    api: Api, name: str | None, nodes: Iterable[str], change: Callable[[dict[str, str]], dict[str, str]]
) -> int:
    """Change the annotation of nodes, of the cluster, or of both without a name; return the number changed."""
    paths = [] if name in CLUSTER_FAULTS else [f"/api/v1/nodes/{node}" for node in nodes]
    if name is None or name in CLUSTER_FAULTS:
        paths.append(f"/api/v1/namespaces/{FAULTS_NAMESPACE}")

    def one(path: str) -> bool:
        target = api.get(path)
        if target is None:
            raise LabError(f"node '{path.rpartition('/')[2]}' does not exist")
        before = parse(_annotation(target))
        after = change(before)
        if after != before:
            api.merge(path, {"metadata": {"annotations": {FAULTS_ANNOTATION: render(after) or None}}})
        return after != before

    return sum(in_parallel(one, paths))


def _known(name: str, argument: str) -> None:
    if name not in NODE_FAULTS and name not in CLUSTER_FAULTS:
        raise LabError(f"unknown fault '{name}'; known: {', '.join([*NODE_FAULTS, *CLUSTER_FAULTS])}")
    if argument and (name in CLUSTER_FAULTS or NODE_FAULTS[name][0] is None):
        raise LabError(f"the fault '{name}' takes no argument")


def _annotation(target: Object) -> str:
    return str(target["metadata"].get("annotations", {}).get(FAULTS_ANNOTATION, ""))
