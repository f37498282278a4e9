# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes NVIDIA's operands read a changed configuration: refreshes ConfigMaps, and restarts the MIG manager or gpu-feature-discovery."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ..catalog import operands
from ..catalog.names import MIG_STATE_LABEL, REFRESH_ANNOTATION
from ..cluster_state import operand_pods
from ..common.parallel import run_bounded
from ..common.wait import WaitTimeout, wait_until
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, NODES, object_path
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease

# The seconds for which only the labels of a node may differ. The kubelet's update of a ConfigMap, GFD and NFD take less time.
LABELS_LATE = 90.0
DISCOVERY_RESTARTED = "gpu-feature-discovery was restarted, because its labels had not reached the node"
_TIMEOUT, _INTERVAL = 120.0, 0.5
# Selects nodes whose MIG manager has finished a change.
_CHANGE_ENDED = f"{MIG_STATE_LABEL},{MIG_STATE_LABEL} notin (pending,rebooting)"


def refresh_configmaps(client: Client, namespace: str, values: t.Mapping[str, str], lease: Lease) -> int:
    """Annotate the operand pods on the nodes in `values` with the value for their node; returns the number of pods.

    The kubelet updates a mounted ConfigMap with a delay of a minute or more, but immediately if an annotation of the pod changes. The pods must be
    annotated before a label selects a new entry.
    """
    values_by_pod = {
        pod["metadata"]["name"]: values[operand_pods.node_of(pod)]
        for pod in client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=operand_pods.CONFIGMAP_PODS_SELECTOR)
        if operand_pods.node_of(pod) in values
    }

    def annotate(name: str) -> None:
        patch = {"metadata": {"annotations": {REFRESH_ANNOTATION: values_by_pod[name]}}}
        client.strategic_merge(object_path("v1", "Pod", name, namespace), patch)

    # Pods that no longer exist need no annotation, because the pods that replace them mount the current ConfigMap.
    return _for_each(values_by_pod, annotate, lease)


def restart_discovery(client: Client, namespace: str, nodes: t.Collection[str], lease: Lease) -> None:
    """Delete the pods of gpu-feature-discovery on these nodes; their DaemonSet creates new ones.

    NFD's master writes GFD's labels on a node when they change. If the master cannot read the node at that moment (because the API server
    restarts), it drops the update and tries again only after an hour (NFD v0.19.0, pkg/nfd-master/updater-pool.go: an error of getNode()
    other than "not found" leads to no update). A new GFD pod counts as a change.
    """
    pods = client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=f"app={operands.DISCOVERY}")
    _delete_pods(client, namespace, [pod for pod in pods if operand_pods.node_of(pod) in nodes], lease)


def restart_mig_manager(
    client: Client, namespace: str, nodes: t.Collection[Node], lease: Lease, progress: Progress | None = None
) -> None:
    """Restart the MIG manager on these nodes and wait until it has processed their current labels.

    The MIG manager looks up an entry only once, in a copy of the ConfigMap that may be outdated, and a missing entry is a permanent failure (mig-parted
    cmd/nvidia-mig-manager). A new pod mounts the current ConfigMap. It first processes the current label, finds that the layout is already
    applied, and writes the state again. If the next label were already set, this state would be mistaken for the state of that label. Therefore
    the old state is removed before the restart, and the new state is awaited. Nodes without a MIG manager are not changed.
    """
    path, selector = f"{NAMESPACES}/{namespace}/pods", f"app={operands.MIG_MANAGER}"
    names = {node.name for node in nodes}
    # For a single node, this avoids listing the pods on thousands of other nodes.
    fields = f"spec.nodeName={next(iter(names))}" if len(names) == 1 else None

    def list_pods() -> list[t.Mapping[str, t.Any]]:
        listed = client.list(path, label_selector=selector, field_selector=fields)
        return [pod for pod in listed if operand_pods.node_of(pod) in names]

    pods = list_pods()
    managed = {operand_pods.node_of(pod) for pod in pods}
    labeled = [node for node in nodes if node.name in managed and node.mig_config]

    def remove_state(name: str) -> None:
        client.patch(f"{NODES}/{name}", {"metadata": {"labels": {MIG_STATE_LABEL: None}}})

    _for_each([node.name for node in labeled if node.mig_state], remove_state, lease)
    _delete_pods(client, namespace, pods, lease)
    old = {pod["metadata"]["uid"] for pod in pods}

    def not_ready() -> list[str]:
        ready = [pod for pod in list_pods() if pod["metadata"]["uid"] not in old and operand_pods.is_ready(pod)]
        return sorted(managed - set(map(operand_pods.node_of, ready)))

    wait_until(
        not_ready,
        lambda names: not names,
        timeout=_TIMEOUT,
        interval=_INTERVAL,
        describe=lambda names: (
            f"The MIG manager is not ready after its restart on {abbreviate(names)}: check its pods with "
            f"kubectl -n {namespace} get pods -l {selector} -o wide."
        ),
        progress=progress,
        progress_text=lambda names: f"{len(names)} MIG managers starting with the new configuration",
    )
    if labeled:
        _await_mig_states(client, {node.name for node in labeled}, progress)


def _await_mig_states(client: Client, names: t.Collection[str], progress: Progress | None) -> None:
    """Wait until the MIG manager of each node has reported a state; continue without an error after a limited time.

    A MIG manager that is working on an impossible layout may take much longer; it processes the next label afterwards.
    """
    fields = f"metadata.name={next(iter(names))}" if len(names) == 1 else None

    def without_state() -> set[str]:
        ended = client.list(NODES, label_selector=_CHANGE_ENDED, field_selector=fields, metadata_only=True)
        return set(names) - {node["metadata"]["name"] for node in ended}

    with contextlib.suppress(WaitTimeout):
        wait_until(
            without_state,
            lambda waiting: not waiting,
            timeout=_TIMEOUT,
            interval=_INTERVAL,
            describe=lambda waiting: "",
            progress=progress,
            progress_text=lambda waiting: f"{len(waiting)} MIG managers reading the current configuration",
        )


def _delete_pods(client: Client, namespace: str, pods: t.Iterable[t.Mapping[str, t.Any]], lease: Lease) -> None:
    def delete(name: str) -> None:
        client.delete(object_path("v1", "Pod", name, namespace))

    _for_each([pod["metadata"]["name"] for pod in pods], delete, lease)


def _for_each(names: t.Iterable[str], send: t.Callable[[str], None], lease: Lease) -> int:
    """Send one request for each name while the lease is held; returns the number of successful requests. Objects that no longer exist are ignored."""

    def call(name: str) -> None:
        lease.check()
        send(name)

    outcomes = run_bounded([(name, functools.partial(call, name)) for name in names], stop=lease.lost)
    for outcome in outcomes:
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error
    return sum(1 for outcome in outcomes if outcome.ok)
