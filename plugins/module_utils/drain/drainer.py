# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains nodes before their machines are removed from the cluster, and uncordons them if the drain fails.

All nodes are cordoned before the first pod is evicted, so no pod moves from one of these nodes to another. An annotation on each node
(cluster_state.cordon) records the cordon, so that after a killed run, the next run drains or uncordons the same nodes.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import typing as t
from dataclasses import dataclass, field, replace

from ..cluster_state import cordon, scale_down
from ..cluster_state.eviction_rules import (
    Keep,
    blocking_pods,
    eviction_of,
    join_remedies,
    option_names,
    pods_to_await,
    pods_to_evict,
)
from ..cluster_state.gpu_pods import parse_pods
from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import NodeEdit
from ..common.parallel import DEFAULT_LIMIT, run_bounded
from ..common.wait import WaitTimeout
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES
from ..schema.messages import abbreviate
from .eviction import MAX_PROGRESS, EvictionRefused, evict_and_await
from .pods_on_nodes import claims_of, pods_on
from .removal import NodeRemoval

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.drain_options import DrainOptions

T = t.TypeVar("T")
# The number of nodes that are drained at the same time; disruption budgets limit the evictions.
PARALLEL = 4

# Messages mention both the pool's variable and the module's option.
_OPTION_NAMES = option_names(
    "rollout.{key} of the pool, or drain.{option} of the module",
    "rollout.drain: gpu-pods of the pool, or drain.evict: true of the module",
)


class SharedLease:
    """A Lease that several users share: the first user acquires it, and the last one releases it."""

    def __init__(self, make: t.Callable[[], Lease]) -> None:
        """Store `make`, which returns a Lease that has not been entered; nothing is acquired yet."""
        self._make = make
        self._lock = threading.Lock()
        self._users = 0
        self._lease: Lease | None = None

    def check(self) -> None:
        """Raise LeaseLost if the Lease was acquired and then lost."""
        lease = self._lease
        if lease is not None:
            lease.check()

    @contextlib.contextmanager
    def held(self) -> t.Iterator[Lease]:
        """Hold the Lease inside the block; raises LeaseHeld if another run holds it, and LeaseLost at the end of the last block if it was lost."""
        with self._lock:
            if self._lease is None:
                lease = self._make()
                lease.__enter__()
                self._lease = lease
            lease = self._lease
            self._users += 1
        try:
            yield lease
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._lease = None
                    lease.__exit__(None, None, None)


@dataclass(eq=False)
class NodeDrainer:
    """Drains nodes of one cluster; safe for use by several threads. `report` takes a node's name and a line of progress."""

    client: Client
    options: DrainOptions
    lease: SharedLease
    report: t.Callable[[str, str], None]
    parallel: int = PARALLEL
    removal: NodeRemoval = field(default_factory=NodeRemoval)
    _held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> NodeDrainer:
        """Hold the cluster's Lease until the end of the block."""
        self._held.enter_context(self.lease.held())
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Release the Lease."""
        self._held.close()

    def check(self) -> None:
        """Raise LeaseLost if the Lease was lost."""
        self.lease.check()

    def cluster_nodes(self) -> list[Node]:
        """Return all nodes of the cluster."""
        return [parse_node(item) for item in self.client.list(NODES)]

    def scale_down_candidates(self, names: t.Collection[str], count: int) -> list[str]:
        """Return the `count` nodes among these whose removal has the smallest impact (cluster_state.scale_down)."""
        nodes = [node for node in self.cluster_nodes() if node.name in names]
        pods = pods_on(self.client)
        by_node = parse_pods(pods, claims_of(self.client, pods))
        return [node.name for node in scale_down.scale_down_candidates(nodes, by_node, count, self.options)]

    def drain(self, names: t.Collection[str]) -> list[str]:
        """Cordon the nodes and evict all pods that would be lost with them; returns the evicted pods.

        Nothing is changed while a blocking pod is on one of the nodes. If one of the nodes cannot be drained, all nodes are uncordoned again.
        Unknown names are ignored. Raises WaitTimeout (or EvictionRefused if waiting cannot help) with `pods_left`.
        """
        if not names:
            return []
        with self.lease.held() as lease:
            nodes = {node.name: node for node in self.cluster_nodes() if node.name in names}
            by_node = parse_pods(pods_on(self.client))
            self._require_no_blocking_pods({name: by_node.get(name, ()) for name in nodes})
            try:
                self._patch_all(nodes, cordon.cordon_for_removal, lease)
                evicted = _for_each(nodes, lambda name: self._drain_node(name, lease), self.parallel)
                self.removal.prepare(list(nodes.values()))
            except Exception as error:
                self._uncordon_after(error, nodes, lease)
                raise
        return sorted(pod for pods in evicted for pod in pods)

    def uncordon(self, names: t.Collection[str]) -> list[str]:
        """Remove the cordons that drain() has set, and return the names of the affected nodes. Foreign cordons remain."""
        nodes = {node.name: node for node in self.cluster_nodes() if node.name in names}
        cordoned = {name: node for name, node in nodes.items() if cordon.is_cordoned_for_removal(node)}
        if cordoned:
            with self.lease.held() as lease:
                # If a run is killed here, the cordons remain, and the next run finds the nodes by these cordons.
                self.removal.cancel(list(cordoned.values()))
                self._patch_all(cordoned, cordon.cancel_removal, lease)
        return sorted(cordoned)

    def _patch_all(
        self, nodes: dict[str, Node], make_patch: t.Callable[[Node], cordon.Patch | None], lease: Lease
    ) -> None:
        """Patch the nodes in parallel, and store their new versions in `nodes`."""

        def make_edit(node: Node) -> NodeEdit | None:
            nodes[node.name] = node
            patch = make_patch(node)
            return NodeEdit(node.name, patch) if patch is not None else None

        def send(name: str) -> None:
            edit = make_edit(nodes[name])
            if edit is not None:
                result = patch_node(self.client, edit, lambda raw: make_edit(parse_node(raw)), lease.check, answer=True)
                if result.node is not None:
                    nodes[name] = parse_node(result.node)

        _for_each(nodes, send)

    def _uncordon_after(self, error: Exception, nodes: dict[str, Node], lease: Lease) -> None:
        """Uncordon the nodes after a failure; nodes that cannot be uncordoned are added to the error's partial result."""
        try:
            self._patch_all(nodes, cordon.cancel_removal, lease)
        except Exception:
            partial = getattr(error, "partial", None)
            if partial is not None:
                partial["left_cordoned"] = sorted(
                    name for name, node in nodes.items() if cordon.is_cordoned_for_removal(node)
                )

    def _require_no_blocking_pods(self, by_node: t.Mapping[str, t.Sequence[PodOnNode]]) -> None:
        blocking = {name: pods for name in by_node if (pods := blocking_pods(by_node[name], self.options))}
        if blocking:
            all_blocking = [pod for pods in blocking.values() for pod in pods]
            remedy = join_remedies((pod.remedy for pod in all_blocking), _OPTION_NAMES)
            listed = [f"node {name}: {abbreviate(list(map(str, pods)))}" for name, pods in sorted(blocking.items())]
            raise EvictionRefused(
                f"Pods block the drain: {abbreviate(listed, separator='; ')}. {remedy}",
                {"pods_left": [pod.name for pod in all_blocking]},
            )

    def _drain_node(self, name: str, lease: Lease) -> list[str]:
        """Evict the node's pods or wait for them, including those that were scheduled to it before the cordon; returns the evicted pods."""
        report = functools.partial(self.report, name)
        deadline = time.monotonic() + self.options.drain_timeout
        evicted: list[str] = []
        while pods := self._pods_to_drain(name):
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                shown = [pod.full_name for pod in pods]
                raise WaitTimeout(
                    f"Node {name} was not drained within {self.options.drain_timeout:.0f} s ({_OPTION_NAMES['drain_timeout']}): pods are "
                    f"scheduled to it even though it is cordoned, currently {abbreviate(shown)}. Remove their toleration for "
                    "node.kubernetes.io/unschedulable, or scale down their controller.",
                    {"pods_left": shown},
                )
            to_evict = pods_to_evict(pods, self.options)
            evict_and_await(
                self.client,
                name,
                to_evict,
                pods_to_await(pods, self.options),
                replace(self.options, drain_timeout=seconds_left),
                _OPTION_NAMES,
                lease.check,
                report,
                list_pods=functools.partial(self._pods_to_drain, name),
            )
            evicted += [pod.full_name for pod in to_evict]
        return evicted

    def _pods_to_drain(self, name: str) -> list[PodOnNode]:
        """The node's pods that the drain evicts or awaits; raises EvictionRefused if a pod blocks the drain."""
        pods = parse_pods(pods_on(self.client, name)).get(name, ())
        self._require_no_blocking_pods({name: pods})
        return [pod for pod in pods if not isinstance(eviction_of(pod, self.options), Keep)]


def _for_each(names: t.Iterable[str], work: t.Callable[[str], T], limit: int = DEFAULT_LIMIT) -> list[T]:
    """Call `work` for each node in parallel; if there are errors, one exception is raised for all of them."""
    outcomes = run_bounded([(name, functools.partial(work, name)) for name in sorted(names)], limit)
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise _merge_errors(errors)
    return [t.cast("T", outcome.value) for outcome in outcomes]


def _merge_errors(errors: t.Sequence[Exception]) -> Exception:
    """The error to raise for these errors: the first one that is not a timeout, or else all timeouts joined into one."""
    timeouts = [error for error in errors if isinstance(error, WaitTimeout)]
    if len(timeouts) < len(errors):
        return next(error for error in errors if not isinstance(error, WaitTimeout))
    kind = EvictionRefused if all(isinstance(error, EvictionRefused) for error in timeouts) else WaitTimeout
    pods_left = [pod for error in timeouts for pod in error.partial.get("pods_left", ())]
    return kind(" ".join(map(str, timeouts)), {"pods_left": pods_left})


def progress_by_node(progress: Progress) -> t.Callable[[str, str], None]:
    """Return a function that reports the progress of one node; the progress line shows the nodes reported most recently."""
    texts: dict[str, str] = {}
    lock = threading.Lock()

    def report(name: str, text: str) -> None:
        with lock:
            texts.pop(name, None)
            texts[name] = text
            latest = list(texts.items())[-MAX_PROGRESS:]
        progress.report("; ".join(f"{node}: {shown}" for node, shown in latest))

    return report
