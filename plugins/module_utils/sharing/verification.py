# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restarts operands, and verifies that each node has what its pool declares."""

from __future__ import annotations

import collections
import contextlib
import datetime
import functools
import math
import time
import typing as t
from dataclasses import dataclass, replace

from ..catalog import operands
from ..catalog.names import (
    CONFIG_LABEL,
    GPU_TAINT_KEY,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    OWN_PREFIX,
    REFRESH_ANNOTATION,
)
from ..catalog.taints import format_taint, is_temporary, untolerated_taints
from ..core.messages import MAX_NAMED, abbreviate
from ..core.waits import WaitTimeout, run_bounded, run_within, wait_until
from ..gpu_operator.cluster_policy import active_policy, plugin_configmap, policy_tolerations
from ..helm.preparation import unready_reasons
from ..kube.errors import ApiError
from ..kube.paths import CLUSTER_POLICIES, NAMESPACES, NODES, PODS, object_path
from ..nodes.node import Node, parse_node
from ..nodes.node_check import (
    FAILED,
    NOT_READY,
    NodeDrift,
    all_final,
    check_node,
    paused_operands,
    progress_text,
    repair_reason,
)
from ..nodes.ownership import assign_pools, awaited_nodes
from ..nodes.pods import (
    CONFIGMAP_PODS_SELECTOR,
    OPERANDS_INTERVAL,
    ContainerFailure,
    Pod,
    app_of,
    container_failures,
    failing_operands,
    is_ready,
    log_end,
    node_of,
    operand_failures,
    pod_of,
    read_operand_pods,
)
from ..nodes.pool_edit import check_whole_gpus, membership_edit, working_configuration
from ..nodes.warnings import awaited_by_nfd, gpu_sign, taint_cause
from ..sharing_modes import mig_parted
from .change_plan import PRESENT
from .reader import ClusterState, NodeFailure, NodeResult, RolloutContext

if t.TYPE_CHECKING:
    from ..catalog.taints import Taint
    from ..core.waits import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import PoolPlan, RebootPlan
    from .change_plan import NodeChange
    from .reader import RunContext, WatchedNode

# Makes NVIDIA's operands read a changed configuration: refreshes ConfigMaps, and restarts the MIG manager or gpu-feature-discovery.

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
        pod["metadata"]["name"]: values[node_of(pod)]
        for pod in client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=CONFIGMAP_PODS_SELECTOR)
        if node_of(pod) in values
    }

    def annotate(name: str) -> None:
        patch = {"metadata": {"annotations": {REFRESH_ANNOTATION: values_by_pod[name]}}}
        client.strategic_merge(object_path("v1", "Pod", name, namespace), patch)

    # Pods that no longer exist need no annotation, because the pods that replace them mount the current ConfigMap.
    return _for_each(values_by_pod, annotate, lease)


def restart_feature_discovery(client: Client, namespace: str, nodes: t.Collection[str], lease: Lease) -> None:
    """Delete the pods of gpu-feature-discovery on these nodes; their DaemonSet creates new ones.

    NFD's master writes GFD's labels on a node when they change. If the master cannot read the node at that moment (because the API server
    restarts), it drops the update and tries again only after an hour (NFD v0.19.0, pkg/nfd-master/updater-pool.go: an error of getNode()
    other than "not found" leads to no update). A new GFD pod counts as a change.
    """
    pods = client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=f"app={operands.DISCOVERY}")
    _delete_pods(client, namespace, [pod for pod in pods if node_of(pod) in nodes], lease)


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
        return [pod for pod in listed if node_of(pod) in names]

    pods = list_pods()
    managed = {node_of(pod) for pod in pods}
    labeled = [node for node in nodes if node.name in managed and node.mig_config]

    def remove_state(name: str) -> None:
        client.patch(f"{NODES}/{name}", {"metadata": {"labels": {MIG_STATE_LABEL: None}}})

    _for_each([node.name for node in labeled if node.mig_state], remove_state, lease)
    _delete_pods(client, namespace, pods, lease)
    old = {pod["metadata"]["uid"] for pod in pods}
    latest: list[Pod] = []

    def not_ready() -> list[str]:
        latest[:] = [pod for pod in list_pods() if pod["metadata"]["uid"] not in old]
        return sorted(managed - {node_of(pod) for pod in latest if is_ready(pod)})

    wait_until(
        not_ready,
        lambda names: not names,
        timeout=_TIMEOUT,
        interval=_INTERVAL,
        describe=lambda names: (
            f"The MIG manager is not ready after its restart on {abbreviate(names)}"
            f"{''.join(f'; {reason}' for reason in unready_reasons(latest))}: check its pods with kubectl -n {namespace} get pods -l {selector} -o wide."
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


# Explains why nodes do not match their pools' declarations: the differences and their duration, failing pods, and the remedy.

# The name of the main container, if it is not the pod's label app.
_CONTAINERS = {operands.PLUGIN: "nvidia-device-plugin"}


def diagnose(context: RunContext, findings: t.Mapping[str, NodeDrift], undiscovered: t.Sequence[Node] = ()) -> str:
    """The message about these nodes and about undiscovered nodes; it describes only the first few nodes in detail."""
    client, namespace = context.client, context.namespace
    pods = list(client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=CONFIGMAP_PODS_SELECTOR))
    failures = container_failures(pods)
    lines: list[str] = []
    for name in sorted(findings)[:MAX_NAMED]:
        finding = findings[name]
        parts = [str(finding)]
        seconds = context.since.seconds(name, finding.differences)
        if not finding.final:
            parts.append(f"unchanged for {seconds:.0f} s")
        parts += [_describe_failure(client, namespace, failure) for failure in failures.get(name, ())]
        if pod_of(pods, operands.PLUGIN, name) is None:
            parts.append(
                f"no {operands.PLUGIN} pod runs there: check the node's label nvidia.com/gpu.deploy.device-plugin and its taints"
            )
        elif finding.lost and _is_ready(pods, operands.PLUGIN, name):
            parts.append(
                f"its {operands.PLUGIN} pod is ready, so the GPUs that are missing are unhealthy: look for Xid errors in the log of the pod and in "
                "the kernel log of the node, and run nvidia-smi in its driver pod"
            )
        operand = finding.operand or (operands.PLUGIN if finding.lost else "")
        blamed = pod_of(pods, operand, name)
        if blamed:
            log = log_end(client, namespace, blamed, _CONTAINERS.get(operand, operand), previous=False)
            parts.append(
                f"the log of {blamed} ends: {log or '(empty)'}; correct the reported problem, then retry with "
                f"kubectl -n {namespace} delete pod {blamed}"
            )
        lines.append("; ".join(parts))
    if len(findings) > MAX_NAMED:
        lines.append(f"and {len(findings) - MAX_NAMED} more node(s)")
    by_nfd = [node.name for node in undiscovered if node.has_nfd_labels]
    if by_nfd:
        lines.append(f"{len(by_nfd)} GPU node(s) that gpu-feature-discovery has not labeled: {abbreviate(by_nfd)}")
    without = [node.name for node in undiscovered if not node.has_nfd_labels]
    if without:
        lines.append(
            f"{len(without)} node(s) that NFD has not labeled although its worker runs there: {abbreviate(without)}; check the logs of the workers"
        )
    if undiscovered or not all(finding.final for finding in findings.values()):
        # A final finding contains its own remedy.
        lines.append(_pods_advice(context, bool(failures)))
    return "\n".join(lines)


def _is_ready(pods: t.Iterable[Pod], app: str, node: str) -> bool:
    return any(app_of(pod) == app and node_of(pod) == node and is_ready(pod) for pod in pods)


def _describe_failure(client: Client, namespace: str, failure: ContainerFailure) -> str:
    log = log_end(client, namespace, failure.pod, failure.container, previous=True) if failure.restarts else ""
    return f"{failure}" + (f"; its log ends: {log}" if log else "")


def _pods_advice(context: RunContext, pods_fail: bool) -> str:
    namespace, configmap = context.namespace, context.plan.config.name
    try:
        named = plugin_configmap(active_policy(context.client.list(CLUSTER_POLICIES)))
    except ApiError:
        # Even without permission to read the ClusterPolicy, the rest of the advice is useful.
        named = configmap
    if named != configmap:
        return (
            f"The ClusterPolicy names {named or 'no device plugin ConfigMap'}, and not {configmap}, so the node labels have no effect: "
            "run the role gpu_operator (module cluster_policy) first."
        )
    if pods_fail:
        return (
            f"Check these pods with kubectl -n {namespace} describe pod and kubectl -n {namespace} logs --previous, "
            "then run the playbook again."
        )
    return (
        f"Check the pods of {operands.PLUGIN} and {operands.DISCOVERY} in namespace {namespace}; "
        "increase wait_timeout if they are only slow. The next run continues from here."
    )


# Watches the nodes until each node matches its pool's declaration.

# Seconds during which newly discovered nodes are collected before they are compared.
_COLLECT = 3.0
# A node alternates between states if it has entered each of them this number of times.
_ALTERNATIONS = 3
# The maximum time, in seconds, that a run waits for NFD to label a node on which its worker has just started. The next constant contains the labels of the
# workers, as NFD's Helm chart and its operator for OpenShift set them.
_NFD_WAIT = 60.0
_NFD_WORKERS = ("app.kubernetes.io/name=node-feature-discovery,role=worker", "app=nfd-worker")


class ObservedNodes(t.NamedTuple):
    """The cluster at the end of a wait, the nodes that do not match their declaration, and the GPU nodes that are not discovered.

    wait_timeout: the limit of the wait in seconds; 0 without a wait.
    """

    state: ClusterState
    findings: dict[str, NodeDrift]
    undiscovered: list[str]
    wait_timeout: float = 0.0


@dataclass
class _Seen:
    """What a wait has seen of the nodes since `state` was read. compared_at: when newly discovered nodes are compared with the pools; infinite without any."""

    state: ClusterState
    nodes: dict[str, Node]
    findings: dict[str, NodeDrift]
    undiscovered: set[str]
    version: str
    compared_at: float = math.inf

    @property
    def settled(self) -> bool:
        """Whether no further event can change the result."""
        return all_final(self.findings) and not self.undiscovered


class ReadinessWatch:
    """Verifies nodes and waits for them; nodes outside the scope are not verified."""

    def __init__(self, context: RunContext) -> None:
        """Store the context; nothing is read yet."""
        self._context = context
        # Restarts gpu-feature-discovery on some nodes, once for each node; set only if the run may change the cluster.
        self.restart_discovery: t.Callable[[t.Collection[str]], None] | None = None
        self._restarted: set[str] = set()
        # How often each node has entered each state, described by its differences.
        self._entered: dict[str, collections.Counter[tuple[str, ...]]] = {}
        # Undiscovered nodes on which NVIDIA's pods fail, with the reason; the run does not wait for them.
        self.failing: dict[str, str] = {}
        # Nodes that have just joined, or on which NFD's worker has just started, without a label of NFD.
        self.late: set[str] = set()

    def wait(self, state: ClusterState, changed_at: float) -> ObservedNodes:
        """Wait until each node matches its pool's declaration, a new node must be changed, or the time limit after the last change is reached.

        changed_at: the time of the last change, on the clock of time.monotonic().
        """
        limit = self._context.wait_timeout
        seen = self._seen(state)
        ends_at, nfd_until, looks_at = changed_at + limit, time.monotonic() + _NFD_WAIT, -math.inf
        while not seen.settled:
            now = time.monotonic()
            unlabeled = {name for name in seen.undiscovered if not seen.nodes[name].has_nfd_labels}
            if unlabeled and now >= nfd_until:
                # NFD may be configured to set no label on nodes without GPUs.
                seen.undiscovered -= unlabeled
                continue
            waiting = self._waiting_for_discovery(seen.nodes, seen.findings, seen.undiscovered)
            if waiting and now >= looks_at:
                self._find_failing(seen.nodes, seen.state, seen.findings, seen.undiscovered)
                looks_at = time.monotonic() + OPERANDS_INTERVAL
                continue
            if now >= seen.compared_at:
                seen = self._seen(self._context.reader.compare(seen.nodes, seen.version))
                if seen.state.changes.changed:
                    return ObservedNodes(seen.state, seen.findings, sorted(seen.undiscovered), limit)
                continue
            if now >= ends_at:
                break
            wake_ups = [
                ends_at,
                seen.compared_at,
                nfd_until if unlabeled else math.inf,
                looks_at if waiting else math.inf,
            ]
            wake_ups.append(now + self._until_labels_are_late(seen.findings))
            seen = self._follow(seen, min(wake_ups))
        if seen.compared_at < math.inf:
            fresh = self._context.reader.compare(seen.nodes, seen.version)
            return ObservedNodes(fresh, self.findings(fresh), sorted(seen.undiscovered), limit)
        end = replace(seen.state, nodes=seen.nodes, resource_version=seen.version)
        return ObservedNodes(end, seen.findings, sorted(seen.undiscovered), limit)

    def _seen(self, state: ClusterState) -> _Seen:
        nodes = dict(state.nodes)
        return _Seen(state, nodes, self.findings(state), self._undiscovered(nodes, state), state.resource_version)

    def _follow(self, seen: _Seen, until: float) -> _Seen:
        """Update what was seen with the events of the nodes until all are settled, a discovered node must be compared, or this time is reached."""
        total = len(seen.state.changes.pool_of)
        self._context.progress.report(progress_text(seen.undiscovered), total - len(seen.findings), total)
        try:
            for event in self._context.client.watch(
                NODES, resource_version=seen.version, timeout=max(until - time.monotonic(), 1.0)
            ):
                self._apply(event, seen)
                if seen.settled:
                    return seen
                self._context.progress.report(progress_text(seen.undiscovered), total - len(seen.findings), total)
                if time.monotonic() > seen.compared_at:
                    return seen
        except ApiError as error:
            if not error.gone:
                raise
            # The server no longer has this version, so start again with a list.
            return replace(self._seen(self._context.reader.read()), compared_at=seen.compared_at)
        return seen

    def _apply(self, event: t.Mapping[str, t.Any], seen: _Seen) -> None:
        seen.version = event["object"]["metadata"]["resourceVersion"]
        node = parse_node(event["object"])
        previous = seen.nodes.get(node.name)
        if event["type"] == "DELETED":
            seen.nodes.pop(node.name, None)
            seen.findings.pop(node.name, None)
            seen.undiscovered.discard(node.name)
            return
        seen.nodes[node.name] = node
        if node.discovered:
            self.failing.pop(node.name, None)
        self._update(node, seen.state, seen.findings)
        self._update_undiscovered(node, seen.state, seen.undiscovered)
        if node.discovered and not (previous and previous.discovered):
            seen.compared_at = min(seen.compared_at, time.monotonic() + _COLLECT)

    def findings(self, state: ClusterState) -> dict[str, NodeDrift]:
        """The differences from the declaration, by node. Nodes that are not ready are omitted, because they are reported elsewhere."""
        findings: dict[str, NodeDrift] = {}
        for node in state.nodes.values():
            self._update(node, state, findings)
        return findings

    def alternating(self, names: t.Iterable[str]) -> list[str]:
        """The nodes that have changed back and forth between at least two states during the waits."""
        return sorted(
            name
            for name in names
            if sum(count >= _ALTERNATIONS for count in self._entered.get(name, collections.Counter()).values()) > 1
        )

    def findings_of_reported(self, state: ClusterState) -> dict[str, NodeDrift]:
        """The differences of nodes that verification and waits exclude because these nodes have already been reported, by node."""
        findings: dict[str, NodeDrift] = {}
        for name in self._context.scope.excluded:
            node, pool = state.nodes.get(name), state.pool_of(name)
            finding = check_node(node, pool) if node and node.ready and pool else None
            if finding:
                findings[name] = finding
        return findings

    def _until_labels_are_late(self, findings: t.Mapping[str, NodeDrift]) -> float:
        """Restart gpu-feature-discovery on nodes where only labels have differed for too long; returns the seconds until the next node reaches this limit."""
        if self.restart_discovery is None:
            return math.inf
        ages = {
            name: self._context.since.seconds(name, finding.differences)
            for name, finding in findings.items()
            if finding.labels_only and name not in self._restarted
        }
        late = [name for name, seconds in ages.items() if seconds >= LABELS_LATE]
        if late:
            self._context.progress.report(f"restarting gpu-feature-discovery on {len(late)} nodes")
            self._restarted.update(late)
            self.restart_discovery(late)
        return min((LABELS_LATE - ages[name] for name in ages.keys() - set(late)), default=math.inf)

    def _undiscovered(self, nodes: t.Mapping[str, Node], state: ClusterState) -> set[str]:
        plan = self._context.plan
        names = awaited_nodes(plan.pools, nodes.values(), state.membership)
        without_nfd = awaited_by_nfd(plan, list(nodes.values()), state.membership)
        if without_nfd and self._context.scope.state == PRESENT:
            # NFD's worker may not have a pod yet on a node that has just joined.
            joined = [name for name in without_nfd if _age(nodes[name].created) < 2 * _NFD_WAIT]
            late = [*joined, *self._with_nfd_worker(set(without_nfd) - set(joined))]
            names += late
            self.late.update(late)
        return {name for name in names if self._context.scope.contains(nodes[name], None) and name not in self.failing}

    def _update_undiscovered(self, node: Node, state: ClusterState, undiscovered: set[str]) -> None:
        """Stop waiting for a node that is discovered, or on which NFD has found no GPU; wait for a node on which NFD has found one."""
        if node.discovered or (node.has_nfd_labels and not node.has_gpu):
            undiscovered.discard(node.name)
        elif node.has_gpu and node.name not in undiscovered and node.name not in state.membership.undiscovered:
            awaited = awaited_nodes(state.plan.pools, [node], assign_pools(state.plan.pools, [node]))
            if awaited and node.name not in self.failing and self._context.scope.contains(node, None):
                undiscovered.add(node.name)

    def _with_nfd_worker(self, names: t.Collection[str]) -> list[str]:
        """The nodes on which a worker of NFD has just started; only these will be labeled soon."""
        if not names:
            return []
        pods = [
            pod
            for selector in _NFD_WORKERS
            for pod in self._context.client.list(PODS, label_selector=selector)
            if node_of(pod) in names and _age(pod["metadata"].get("creationTimestamp") or "") < 2 * _NFD_WAIT
        ]
        failing = operand_failures(pods, time.time())
        return sorted({node_of(pod) for pod in pods} - failing.keys())

    def late_warnings(self, state: ClusterState) -> list[str]:
        """A warning about the nodes that NFD has not labeled during the wait, without a sign of a GPU, which is reported in any case."""
        nodes = [state.nodes[name] for name in sorted(self.late) if name in state.nodes]
        names = [node.name for node in nodes if not node.has_nfd_labels and not node.discovered and not gpu_sign(node)]
        if not names:
            return []
        return [
            f"{abbreviate(names)} joined the cluster, or started NFD's worker, shortly before this run, and had no label of NFD "
            "(feature.node.kubernetes.io/...) at its end, so the hardware is unknown. Check NFD's worker there (kubectl get pods -A --field-selector "
            f"spec.nodeName={names[0]}). Once NFD and gpu-feature-discovery have labeled a node with GPUs, the next run configures it."
        ]

    def look_for_failures(self, state: ClusterState) -> None:
        """Find the undiscovered nodes on which NVIDIA's pods fail, without waiting (for a preview)."""
        findings, undiscovered = self.findings(state), self._undiscovered(state.nodes, state)
        self._find_failing(state.nodes, state, findings, undiscovered)

    def _waiting_for_discovery(
        self, nodes: t.Mapping[str, Node], findings: t.Mapping[str, NodeDrift], undiscovered: t.Collection[str]
    ) -> set[str]:
        """The undiscovered nodes that the run waits for, including nodes that belong to pools."""
        members = {name for name, finding in findings.items() if not finding.final and not nodes[name].discovered}
        return members | set(undiscovered)

    def _find_failing(
        self, nodes: t.Mapping[str, Node], state: ClusterState, findings: dict[str, NodeDrift], undiscovered: set[str]
    ) -> None:
        """Record the nodes that cannot be discovered because an NVIDIA pod fails on them."""
        waiting = self._waiting_for_discovery(nodes, findings, undiscovered)
        failing = self._kept_away([nodes[name] for name in waiting if name in nodes])
        waiting -= failing.keys()
        # The watch may not have delivered a label yet that this run has written.
        labeled = {edit.name for edit in state.changes.edits if CONFIG_LABEL in edit.labels}
        configured = {
            name
            for name in waiting
            if (pool := state.pool_of(name)) is not None
            and (name in labeled or nodes[name].labels.get(CONFIG_LABEL) == pool.config_key)
        }
        client, namespace = self._context.client, self._context.namespace
        failing |= failing_operands(client, namespace, waiting, time.time(), configured)
        self.failing.update(failing)
        undiscovered.difference_update(failing)
        for name in failing:
            self._update(nodes[name], state, findings)

    def _kept_away(self, nodes: t.Iterable[Node]) -> dict[str, str]:
        """The nodes with a taint that the ClusterPolicy does not tolerate, so that NVIDIA's pods never run there, with the reason."""
        tainted = {node.name: node.taints for node in nodes if any(map(_may_keep_away, node.taints))}
        # A pod that runs already stays there.
        pods = read_operand_pods(self._context.client, self._context.namespace, tainted) if tainted else ()
        tainted = {name: taints for name, taints in tainted.items() if name not in set(map(node_of, pods))}
        return untolerated_reasons(self._context, tainted)

    def _update(self, node: Node, state: ClusterState, findings: dict[str, NodeDrift]) -> None:
        pool = state.pool_of(node.name)
        verified = pool is not None and node.ready and self._context.scope.contains(node, pool)
        finding = check_node(node, pool) if verified and pool else None
        if finding and not node.discovered and node.name in self.failing:
            finding = NodeDrift(node.name, finding.pool, (self.failing[node.name],), final=True)
        previous = findings.get(node.name)
        states = (previous.differences if previous else (), finding.differences if finding else ())
        if states[0] != states[1]:
            self._entered.setdefault(node.name, collections.Counter())[states[1]] += 1
        if finding:
            findings[node.name] = finding
            self._context.since.seconds(node.name, finding.differences)
        else:
            findings.pop(node.name, None)
            self._context.since.forget(node.name)


def _age(created: str) -> float:
    """The seconds since the creation of an object; infinite if the time is unknown."""
    return time.time() - datetime.datetime.fromisoformat(created).timestamp() if created else math.inf


def untolerated_reasons(context: RunContext, taints_of: t.Mapping[str, t.Iterable[Taint]]) -> dict[str, str]:
    """For each node with a taint that the ClusterPolicy does not tolerate, the reason why NVIDIA's pods cannot start there."""
    tainted = {name: kept for name, taints in taints_of.items() if (kept := list(filter(_may_keep_away, taints)))}
    policy = active_policy(context.client.list_known(CLUSTER_POLICIES)) if tainted else None
    if policy is None:
        return {}
    tolerations = [*policy_tolerations(policy), *context.reader.expected_tolerations]
    declared = {format_taint(taint) for pool in context.plan.pools for taint in pool.taints}
    reasons = {}
    for name, taints in tainted.items():
        untolerated = untolerated_taints(tolerations, taints)
        listed = ", ".join(map(format_taint, untolerated))
        if untolerated and declared.issuperset(map(format_taint, untolerated)):
            reasons[name] = (
                f"the ClusterPolicy does not tolerate its taint {listed} yet, because this would restart drivers: allow the driver rollout with "
                "gpu_operator_allow_driver_rollout"
            )
        elif untolerated:
            reasons[name] = ": ".join(taint_cause(untolerated))
    return reasons


def _may_keep_away(taint: Taint) -> bool:
    """Whether NVIDIA's pods may not tolerate this taint although it stays on the node."""
    key = str(taint.get("key") or "")
    return key != GPU_TAINT_KEY and not key.startswith(OWN_PREFIX) and not is_temporary(taint)


# Waits until a changed node matches its declaration, and repairs operands that are known to get stuck.

_LABELS_LATE = "its labels are late"


class NodeVerifier:
    """Verifies one node, and records repairs in `result`."""

    def __init__(self, context: RolloutContext, node: WatchedNode, pool: PoolPlan | None, result: NodeResult) -> None:
        """Store the arguments; nothing is read yet."""
        self._context = context
        self._node = node
        self._pool = pool
        self._result = result
        self._discovery_restarted = False
        self._operands_checked = 0.0

    def verify(self, change: NodeChange | None) -> None:
        """Wait until the node matches its pool's declaration; raises NodeFailure if it does not. A node without a pool must have no MIG devices.

        If `rollout.reboot` is set, a node whose MIG change has failed is rebooted once. A stuck MIG manager is restarted once, and a repair also
        resets the layout once.
        """
        pool = self._pool
        awaited = "for NVIDIA's operands" if pool else "until its MIG devices are removed"
        self._context.report(self._node.name, f"waiting {awaited}")
        # This delays the first check, so that no pods are listed for a node that is discovered in the usual time.
        self._operands_checked = time.monotonic()
        reboot = pool.rollout.reboot if pool and change and change.transition.repartitions else None
        may_restart, may_reset = True, pool is not None and self._context.scope.repairs
        while True:
            verdict = self._node.wait(self._verdict, self._check_operands)
            node = self._node.latest
            if verdict == "" or node is None:
                return
            stuck = repair_reason(node, pool)
            if verdict == _LABELS_LATE:
                self._restart_discovery()
            elif node.mig_state == FAILED and reboot is not None:
                self._reboot(reboot)
                reboot = None
            elif stuck and may_restart:
                may_restart = False
                self.restart_mig_manager(stuck)
            elif stuck and may_reset:
                may_reset = False
                self._reset_layout(node)
            else:
                finding = self._check(node)
                if pool and finding and finding.final and not stuck:
                    # Neither waiting nor a rollback would change this, so it is reported when the whole pool is verified.
                    return
                message = diagnose(self._context, {node.name: finding}) if finding else f"{node.name} {NOT_READY}"
                advice = _node_advice(change, node) if pool and change else ""
                raise NodeFailure("mig-failed" if stuck else "not-verified", f"{message}{advice}")

    def is_declared_after_wait(self) -> bool:
        """Wait for a change that is in progress, and return whether the node then matches its declaration."""
        return bool(self._node.wait(self._verdict) == "")

    def restart_mig_manager(self, stuck: str = "") -> None:
        """Restart the node's MIG manager; `stuck` is the problem that the restart is meant to repair."""
        self._result.repaired = stuck or self._result.repaired
        restart_mig_manager_of(self._context, self._node)

    def _check(self, node: Node) -> NodeDrift | None:
        return check_node(node, self._pool) if self._pool else check_whole_gpus(node)

    def _verdict(self, node: Node | None) -> str | None:
        """The reason why waiting does not help, which is _LABELS_LATE at most once; None if the wait must continue.

        The result is empty if the node matches its declaration or is gone.
        """
        if node is None:
            return ""
        finding = self._check(node)
        if finding is None:
            self._context.since.forget(node.name)
            return "" if node.ready else None
        seconds = self._context.since.seconds(node.name, finding.differences)
        if self._pool and self._context.scope.repairs and membership_edit(node, self._pool, self._context.held_back):
            # A repair does not change the desired configuration of the node.
            return "" if working_configuration(node) and not repair_reason(node, self._pool) else None
        if not self._discovery_restarted and finding.labels_only and seconds >= LABELS_LATE:
            return _LABELS_LATE
        return str(finding) if finding.final else None

    def _check_operands(self) -> None:
        """Raise NodeFailure if a failing NVIDIA pod prevents the discovery of a pool's node."""
        node = self._node.latest
        if (
            not self._pool
            or node is None
            or node.discovered
            or time.monotonic() - self._operands_checked < OPERANDS_INTERVAL
        ):
            return
        self._operands_checked = time.monotonic()
        configured = [node.name] if node.labels.get(CONFIG_LABEL) == self._pool.config_key else []
        client, namespace = self._context.client, self._context.namespace
        failing = failing_operands(client, namespace, [node.name], time.time(), configured)
        if failing:
            raise NodeFailure("not-verified", f"{node.name}: {failing[node.name]}")

    def _restart_discovery(self) -> None:
        self._context.report(self._node.name, "restarting its gpu-feature-discovery")
        self._discovery_restarted = True
        context = self._context
        restart_feature_discovery(context.client, context.namespace, [self._node.name], context.lease)
        self._result.repaired = self._result.repaired or DISCOVERY_RESTARTED

    def _reboot(self, reboot: RebootPlan) -> None:
        """Run the user's reboot command, and wait until the node is ready and has a new boot ID."""
        name, program = self._node.name, reboot.command[0]
        self._context.report(name, "rebooting")
        # The response contains the current boot ID. The latest known version may be older than a reboot that the MIG manager has
        # started.
        node = self._node.write(lambda dummy: {"metadata": {"labels": {MIG_STATE_LABEL: None}}})
        before = node.boot_id if node else ""
        self._run_reboot_command([word.replace("{node}", name) for word in reboot.command], reboot.timeout)

        def is_rebooted(actual: Node | None) -> bool | None:
            return True if actual is not None and actual.ready and actual.boot_id != before else None

        if not self._node.wait(is_rebooted, timeout=reboot.timeout):
            raise NodeFailure(
                "reboot",
                f"{name} was not ready with a new boot ID within {reboot.timeout} s after {program} (rollout.reboot.timeout): "
                "check its console",
            )
        self._result.repaired = "rebooted"

    def _run_reboot_command(self, command: list[str], timeout: float) -> None:
        """Run the command. Only one reboot command runs at a time. Raises NodeFailure if it fails or does not finish in time."""
        call = f"{command[0]} (rollout.reboot.command)"
        try:
            with self._context.reboot_lock:
                # Without these two options, run_command would expand $ and ~ in words. If the program could not be started, it would only end this thread.
                status, dummy, stderr = run_within(
                    self._context.run_command, command, timeout, expand_user_and_vars=False, handle_exceptions=False
                )
        except TimeoutError:
            raise NodeFailure(
                "reboot",
                f"{call} was stopped for {self._node.name} because it did not finish within {timeout} s (rollout.reboot.timeout): "
                "check whether it can reach the node without a password",
            ) from None
        except (OSError, ValueError) as error:
            # ValueError: a word contains a NUL character.
            reason = getattr(error, "strerror", None) or error
            raise NodeFailure("reboot", f"{call} cannot be started for {self._node.name}: {reason}") from None
        if status:
            output = stderr.strip()[-300:] or "nothing"
            raise NodeFailure(
                "reboot",
                f"{call} failed for {self._node.name} with exit status {status} and wrote to stderr: {output}",
            )

    def _reset_layout(self, node: Node) -> None:
        """Remove a partly applied layout by setting NVIDIA's configuration for whole GPUs, and apply the layout again."""
        layout = node.mig_config
        self._set_mig_config(mig_parted.DISABLED)
        self._node.wait(_layout_removed)
        self._set_mig_config(layout)
        self._result.repaired = f"its MIG layout was removed, and {layout} was applied again"

    def _set_mig_config(self, name: str) -> None:
        self._node.write(lambda dummy: {"metadata": {"labels": {MIG_CONFIG_LABEL: name, MIG_STATE_LABEL: None}}})


def restart_mig_manager_of(context: RolloutContext, node: WatchedNode) -> None:
    """Restart the node's MIG manager, so that it reads new entries and retries failed changes."""
    actual = node.latest
    if actual is not None:
        context.report(node.name, "restarting its MIG manager")
        restart_mig_manager(context.client, context.namespace, [actual], context.lease)
        node.read()


def _layout_removed(node: Node | None) -> bool | None:
    """Whether the MIG manager has removed the MIG devices; None if it has not finished yet."""
    if node is None or node.mig_state == FAILED:
        return False
    return True if node.mig_state == "success" and not paused_operands(node) and not node.mig_devices else None


def _node_advice(change: NodeChange, node: Node) -> str:
    """Additional advice after a failed MIG change: the pods that may hold the GPUs, and whether a reboot may help."""
    if node.mig_state != FAILED:
        return ""
    advice = ""
    if change.possible_holders:
        names = abbreviate([f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in change.possible_holders])
        advice = f"\nIf its GPUs are in use, these pods, which no drain evicts, may hold them: {names}."
    if change.transition.resets and change.rollout.reboot is None:
        advice += "\nIf its GPUs cannot be reset for another MIG mode, a reboot helps: set rollout.reboot of the pool."
    return advice
