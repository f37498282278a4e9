# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults on demand: an annotation on nodes that the simulator obeys, and one on a namespace for the operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .api import Api, Object, in_parallel
from .errors import LabError

FAULTS_ANNOTATION = "lab.accel.gpu/faults"
# Faults of the cluster as a whole are written on this namespace, which `reset` makes anew.
FAULTS_NAMESPACE = "kube-system"
CLUSTER_FAULT = "operator-broken"

# Name -> (what its argument is, or None; what it does).
NODE_FAULTS: dict[str, tuple[str | None, str]] = {
    "plugin-crash": (None, "the device plugin's pod crash-loops, and its GPUs vanish"),
    "gfd-stalled": (None, "GFD publishes nothing any more"),
    "nfd-stalled": (None, "the NFD worker publishes nothing any more"),
    "operand-pending": ("a DaemonSet's name", "pods of the operator's DaemonSets (or of one) stay Pending"),
    "validator-fails": (None, "the operator validator's pod never becomes ready"),
    "node-not-ready": (None, "the node's heartbeats stop"),
    "mig-failed": (None, "something outside Kubernetes holds the GPUs, and every MIG change fails"),
    "mig-pending": (None, "the MIG manager sees operands that do not vanish, and stays pending"),
    "mig-reboot": (None, "GPUs cannot be reset: a change of the MIG mode reboots the node"),
    "mig-deaf": (None, "the MIG manager hears of its label no more, until its pod is new"),
    "driver-broken": (
        "what the driver's log ends with",
        "the driver's pod crash-loops, and NVIDIA's other pods on the node wait for it",
    ),
    "mig-partial": (None, "the MIG manager makes only the first device of each GPU, and calls that a success"),
    "mig-paused": (
        None,
        "after a MIG change that succeeded the operands stay paused, until the MIG manager's pod is new",
    ),
}
CLUSTER_FAULTS = {CLUSTER_FAULT: "the GPU operator finds no /host-etc/os-release, and every reconcile fails"}


def parse(text: str) -> dict[str, str]:
    """Return the faults of an annotation by name, each with its argument or an empty string."""
    named = (part.strip().partition("=") for part in text.split(",") if part.strip())
    return {name: argument for name, _equals, argument in named}


def render(faults: dict[str, str]) -> str:
    """Return the annotation's text."""
    return ",".join(f"{name}={argument}" if argument else name for name, argument in sorted(faults.items()))


def put(api: Api, fault: str, nodes: Iterable[str]) -> int:
    """Put a fault (`name` or `name=argument`) on nodes or, if it is of that kind, the cluster; return the changes."""
    name, _equals, argument = fault.partition("=")
    _known(name, argument)
    return _change(api, name, nodes, lambda faults: faults | {name: argument})


def clear(api: Api, fault: str | None, nodes: Iterable[str]) -> int:
    """Take a fault (None: all) from nodes and, if it is of that kind, the cluster; return how many changed."""
    name = fault.partition("=")[0] if fault else None
    if name:
        _known(name, "")

    def without(faults: dict[str, str]) -> dict[str, str]:
        return {other: argument for other, argument in faults.items() if name and other != name}

    return _change(api, name, nodes, without)


def current(api: Api) -> dict[str, str]:
    """Return the annotation of every node, and of the cluster, that has faults."""
    found = {node["metadata"]["name"]: _annotation(node) for node in api.list("/api/v1/nodes")}
    found["(cluster)"] = _annotation(api.get(f"/api/v1/namespaces/{FAULTS_NAMESPACE}") or {"metadata": {}})
    return {name: text for name, text in found.items() if text}


def _change(
    api: Api, name: str | None, nodes: Iterable[str], change: Callable[[dict[str, str]], dict[str, str]]
) -> int:
    """Change the annotation of nodes, of the cluster, or of both when no fault is named; return how many changed."""
    paths = [] if name in CLUSTER_FAULTS else [f"/api/v1/nodes/{node}" for node in nodes]
    if name is None or name in CLUSTER_FAULTS:
        paths.append(f"/api/v1/namespaces/{FAULTS_NAMESPACE}")

    def one(path: str) -> bool:
        thing = api.get(path)
        if thing is None:
            raise LabError(f"there is no node '{path.rpartition('/')[2]}'")
        before = parse(_annotation(thing))
        after = change(before)
        if after != before:
            api.merge(path, {"metadata": {"annotations": {FAULTS_ANNOTATION: render(after) or None}}})
        return after != before

    return sum(in_parallel(one, paths))


def _known(name: str, argument: str) -> None:
    if name not in NODE_FAULTS and name not in CLUSTER_FAULTS:
        raise LabError(f"there is no fault '{name}': known are {', '.join([*NODE_FAULTS, *CLUSTER_FAULTS])}")
    if argument and (name in CLUSTER_FAULTS or NODE_FAULTS[name][0] is None):
        raise LabError(f"the fault '{name}' takes no argument")


def _annotation(thing: Object) -> str:
    return str(thing["metadata"].get("annotations", {}).get(FAULTS_ANNOTATION, ""))
