# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Empties nodes whose machines are to be taken out of a cluster, and opens them again where that does not come about.

All of them are cordoned before anybody is evicted, so that no pod comes from one to the next. Whatever a killed run has left is told
by the note on the node (cluster_state.cordon): the next run takes the same nodes, or opens them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
import typing as t

from ..cluster_state import cordon
from ..cluster_state.eviction_order import blocking_pods, pods_to_evict
from ..cluster_state.eviction_order import scale_down_candidates as victims
from ..cluster_state.gpu_pods import all_pods
from ..cluster_state.node import UNREAD, Node, parse
from ..common.parallel import DEFAULT_LIMIT, run_bounded
from ..common.wait import WaitTimeout
from ..kube.paths import NODES
from ..nodegroups.provider import ClusterNode
from .eviction import EvictionRefused
from .node_patcher import NodePatcher
from .pod_eviction import PARALLEL, DrainOptions, await_termination, evict_pods
from .pods_on_nodes import claims_of, pods_on

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..kube.client import Client
    from ..kube.lease import Lease
    from .shared_lease import SharedLease

T = t.TypeVar("T")
_TOLD = 5


class NodeDrainer:
    """Empties nodes of one cluster; may be used by many threads. `say` takes a node's name and what is going on there."""

    def __init__(
        self,
        client: Client,
        rules: DrainOptions,
        lease: SharedLease,
        say: t.Callable[[str, str], None],
        *,
        parallel: int = PARALLEL,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Send nothing yet."""
        self._client = client
        self._rules = rules
        self._lease = lease
        self._say = say
        self._parallel = parallel
        self._clock = clock
        self._held = contextlib.ExitStack()

    def __enter__(self) -> NodeDrainer:
        """Take the right to change the cluster, until the block's end."""
        self._held.enter_context(self._lease.held())
        return self

    def __exit__(self, *why: object) -> None:
        """Give it back."""
        self._held.close()

    def check(self) -> None:
        """Raise LeaseLost where the right to change the cluster was lost meanwhile."""
        self._lease.check()

    def machines(self) -> list[ClusterNode]:
        """All nodes of the cluster, as a cloud can tell its machines among them."""
        return [
            ClusterNode(node.name, node.ready, node.addresses, node.provider_id, node.labels) for node in self._listed()
        ]

    def victims(self, names: t.Collection[str], count: int) -> list[str]:
        """So many of these nodes, those whose end costs least (cluster_state.eviction_order.victims)."""
        nodes = [node for node in self._listed() if node.name in names]
        pods = pods_on(self._client)
        present = all_pods(pods, claims_of(self._client, pods))
        return [node.name for node in victims(nodes, present, count, force=self._rules.force)]

    def empty(self, names: t.Collection[str]) -> list[str]:
        """Cordon the nodes, and evict every pod that would end with them; returns those pods.

        Nothing is done when a pod is in the way that may not be evicted. When a node does not become empty, all are opened again.
        A name that no node has is passed over. Raises TimeoutStory (EvictionRefused where waiting is in vain) with `pods_left`.
        """
        if not names:
            return []
        with self._lease.held() as lease:
            known = _NodeCache(node for node in self._listed() if node.name in names)
            by_node = all_pods(pods_on(self._client))
            self._require_willing({name: by_node.get(name, ()) for name in known.names})
            try:
                self._each(
                    known, lambda name: NodePatcher(self._client, lease, known, name).write(cordon.cordon_for_removal)
                )
                evicted = self._each(known, lambda name: self._without_pods(name, lease), self._parallel)
            except Exception as error:
                self._open_after(error, known, lease)
                raise
        return sorted(pod for pods in evicted for pod in pods)

    def reopen(self, names: t.Collection[str]) -> list[str]:
        """Take back the cordons with which a run has begun to empty these nodes; returns the nodes. Others' cordons stay."""
        left = _NodeCache(
            node for node in self._listed() if node.name in names and cordon.is_cordoned_for_removal(node)
        )
        if left.names:
            with self._lease.held() as lease:
                self._open(left, lease)
        return left.names

    def _listed(self) -> t.Iterator[Node]:
        return map(parse, self._client.list(NODES, without=UNREAD))

    def _open(self, known: _NodeCache, lease: Lease) -> None:
        self._each(known, lambda name: NodePatcher(self._client, lease, known, name).write(cordon.cancel_removal))

    def _open_after(self, error: Exception, known: _NodeCache, lease: Lease) -> None:
        """The same after a failure, which is what is told; a node that stays closed is named beside it."""
        try:
            self._open(known, lease)
        except Exception:
            partial = getattr(error, "partial", None)
            if partial is not None:
                partial["left_cordoned"] = known.leaving

    def _each(self, known: _NodeCache, work: t.Callable[[str], T], limit: int = DEFAULT_LIMIT) -> list[T]:
        """Do it for each node; when one fails no other begins, and what all have to say is raised as one failure."""
        calls = [(name, functools.partial(work, name)) for name in known.names]
        outcomes = run_bounded(calls, limit)
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            raise _together(errors)
        return [t.cast("T", outcome.value) for outcome in outcomes]

    def _require_willing(self, present: t.Mapping[str, t.Sequence[PodOnNode]]) -> None:
        """Nobody on these nodes is in the way for good."""
        force = self._rules.force or not self._rules.evict
        stay = {name: found for name, pods in present.items() if (found := blocking_pods(pods, force=force))}
        if stay:
            told = [f"node {name}: {', '.join(pods[:_TOLD])}" for name, pods in sorted(stay.items())]
            raise EvictionRefused(
                f"Not emptied, because of {'; '.join(told)}. Save what they have done and delete them, or set drain.force, and they are "
                "evicted and gone.",
                {"pods_left": [pod.partition(" ")[0] for pods in stay.values() for pod in pods]},
            )

    def _without_pods(self, name: str, lease: Lease) -> list[str]:
        """Until nobody is left who may go; those who came between the first look and the cordon go, too."""
        say = functools.partial(self._say, name)
        end = self._clock() + self._rules.drain_timeout
        gone: list[str] = []
        while pods := self._going(name):
            left = end - self._clock()
            if left <= 0:
                names = [user.shown for user in pods]
                raise WaitTimeout(
                    f"Node {name} has not become empty within {self._rules.drain_timeout:.0f} s (drain_timeout): pods come to it although "
                    f"it is cordoned, now {', '.join(names[:_TOLD])}. Take the toleration of node.kubernetes.io/unschedulable from "
                    "them, or scale down what makes them.",
                    {"pods_left": names},
                )
            rules = dataclasses.replace(self._rules, drain_timeout=left)
            if rules.evict:
                evict_pods(self._client, name, pods, rules, lease, say)
                gone += [user.shown for user in pods]
            else:
                say(f"{len(pods)} pod(s) have to end by themselves")
                uids = {user.uid for user in pods}
                why = "drain.evict is false: wait for their end, raise drain.drain_timeout, or let them be evicted."
                await_termination(functools.partial(self._going, name), uids, left, lease, why)
        return gone

    def _going(self, name: str) -> tuple[PodOnNode, ...]:
        """Who is on the node and has to go."""
        present = all_pods(pods_on(self._client, name)).get(name, ())
        self._require_willing({name: present})
        return pods_to_evict(present, force=True)


class _NodeCache:
    """The nodes as they are known, for many threads."""

    def __init__(self, nodes: t.Iterable[Node]) -> None:
        self._lock = threading.Lock()
        self._nodes = {node.name: node for node in nodes}

    @property
    def names(self) -> list[str]:
        return sorted(self._nodes)

    @property
    def leaving(self) -> list[str]:
        return [name for name in self.names if cordon.is_cordoned_for_removal(self._nodes[name])]

    def get(self, name: str) -> Node | None:
        with self._lock:
            return self._nodes.get(name)

    def note(self, node: Node) -> None:
        with self._lock:
            self._nodes[node.name] = node


def _together(errors: t.Sequence[Exception]) -> Exception:
    """One failure for all: what nothing survives comes first; stories are told one after the other."""
    stories = [error for error in errors if isinstance(error, WaitTimeout)]
    if len(stories) < len(errors):
        return next(error for error in errors if not isinstance(error, WaitTimeout))
    kind = EvictionRefused if all(isinstance(error, EvictionRefused) for error in stories) else WaitTimeout
    left = [pod for error in stories for pod in error.partial.get("pods_left", ())]
    return kind(" ".join(str(error) for error in stories), {"pods_left": left})
