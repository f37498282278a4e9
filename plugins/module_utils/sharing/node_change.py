# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the change to one node: its patch, the pods to evict, and whether the node is part of the rolling update (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CORDONED_ANNOTATION, FAILED_KEY, POOL_LABEL
from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state import expected_state
from ..cluster_state.eviction_rules import BlockingPod, blocking_gpu_pods, gpu_pods_to_evict
from ..cluster_state.gpu_pods import PodOnNode, PodsByNode
from ..cluster_state.impact import LABELS, Transition, displaced_pods, transition
from ..cluster_state.node_check import clients_paused, repair_reason
from ..cluster_state.pool_edit import DEFAULT_ROLLOUT, membership_edit, recorded_rollout
from ..cluster_state.pool_release import ABANDONED, is_abandoned
from ..schema import rollout as rollout_fields

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..cluster_state.ownership import NodeEdit
    from ..pools.plan import PoolPlan, RolloutPlan


@dataclass(frozen=True)
class NodeChange:
    """The change to one node.

    rolling: whether the node is part of the rolling update; all other nodes are patched immediately and in parallel.
    displaced: the pods that cannot keep their GPUs. pods_to_evict: the pods that the drain evicts.
    is_new: whether no pod of the pool can run on the node yet, so that the pool loses no capacity during the change.
    stuck: the problem that is repaired without changing labels, if any. marks: the annotations of a run that did not finish.
    possible_holders: the cluster's own pods that may hold a GPU; listed only if this would make the change fail.
    released_from: the pool that the node is released from, empty if the node's pool label is missing, None if the node is not released.
    recorded_rollout: the rollout settings for a node without a pool, as recorded on the node.
    """

    node: str
    pool: PoolPlan | None
    edit: NodeEdit | None
    transition: Transition
    displaced: tuple[PodOnNode, ...] = ()
    pods_to_evict: tuple[PodOnNode, ...] = ()
    rolling: bool = False
    is_new: bool = False
    stuck: str = ""
    marks: t.Mapping[str, str] = field(default_factory=dict)
    possible_holders: tuple[PodOnNode, ...] = ()
    released_from: str | None = None
    recorded_rollout: RolloutPlan = DEFAULT_ROLLOUT

    @property
    def pods_to_pause(self) -> tuple[PodOnNode, ...]:
        """The DaemonSet pods that the label nvidia.com/gpu.deploy.client stops during the change."""
        return tuple(pod for pod in self.displaced if pod.pausable) if self.transition.repartitions else ()

    @property
    def rollout(self) -> RolloutPlan:
        """The rollout settings for the change."""
        return self.pool.rollout if self.pool else self.recorded_rollout

    @property
    def queue(self) -> str:
        """The name of the queue that contains the change. Each pool has one queue, and the nodes released from each pool have one."""
        return self.pool.name if self.pool else f"released from {self.released_from or 'no pool'}"

    @property
    def blocking_pods(self) -> list[BlockingPod]:
        """The pods that prevent the change because a drain cannot evict them."""
        return blocking_gpu_pods(self.displaced, self.rollout, device_files=self.transition.repartitions)

    def as_dict(self) -> dict[str, t.Any]:
        """The change in the format of the module's result."""
        optional = {
            "blocked_by": [str(pod) for pod in self.blocking_pods],
            "stops": [pod.full_name for pod in self.pods_to_pause],
            "possible_holders": [
                f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in self.possible_holders
            ],
        }
        return {
            "pool": self.pool.name if self.pool else None,
            "change": self.transition.kind,
            "evicts": [pod.full_name for pod in self.pods_to_evict],
            "reboot": "may" if self.transition.may_reboot else "no",
            **({} if self.released_from is None else {"released_from": self.released_from}),
            **{key: pods for key, pods in optional.items() if pods},
        }


def declared_edit(
    node: Node, pool: PoolPlan | None, held_back: t.Collection[str] = (), *, repair: bool = False
) -> NodeEdit | None:
    """The edit that the pool's declaration requires; a repair edits only nodes that a release has abandoned (see is_abandoned())."""
    if repair and not (pool is None and is_abandoned(node)):
        return None
    return membership_edit(node, pool, held_back)


def node_change(
    node: Node,
    pool: PoolPlan | None,
    pods: PodsByNode,
    held_back: t.Collection[str] = (),
    *,
    repair: bool = False,
) -> NodeChange | None:
    """The change to a node; None if nothing must change. A node with marks of an unfinished run always has a change."""
    edit, marked = declared_edit(node, pool, held_back, repair=repair), is_marked(node)
    stuck = repair_reason(node, pool) if repair or marked else ""
    abandoned = pool is None and is_abandoned(node)
    stuck = ABANDONED if abandoned else stuck
    if edit is None and not marked and not stuck:
        return None
    change = transition(node, pool, edit, repeat=bool(stuck) or marked)
    displaced = displaced_pods(change, pods.gpu_pods.get(node.name, ()))
    in_use = bool(displaced) or any(
        count for name, count in node.allocatable.items() if expected_state.is_gpu_resource(name)
    )
    capable = pool is None or not expected_state.lacks_mig_support(node, pool)
    rolling = capable and bool(marked or stuck or displaced or change.repartitions or (change.evicts_all and in_use))
    rollout = pool.rollout if pool else recorded_rollout(node)
    unassigned = pool is not None and (node.labels.get(POOL_LABEL) != pool.name or node.has_taint(STARTUP_TAINT_KEY))
    return NodeChange(
        node.name,
        pool,
        edit,
        change,
        displaced=displaced,
        pods_to_evict=gpu_pods_to_evict(displaced, pods.other_pods.get(node.name, ()), rollout) if rolling else (),
        rolling=rolling,
        is_new=unassigned and not displaced,
        stuck=stuck,
        marks={key: node.annotations[key] for key in (CORDONED_ANNOTATION, FAILED_KEY) if key in node.annotations},
        possible_holders=tuple(pods.possible_holders.get(node.name, ())) if rolling and change.repartitions else (),
        released_from=node.pin if pool is None and edit is not None and not abandoned else None,
        recorded_rollout=rollout,
    )


def depends_on_pods(change: NodeChange, node: Node) -> bool:
    """Whether the change may depend on the pods on the node, in which case they must be listed."""
    if change.rolling:
        return True
    offers = change.transition.offers
    return change.transition.kind != LABELS and any(
        count > offers.get(name, 0) for name, count in node.allocatable.items() if expected_state.is_gpu_resource(name)
    )


def is_marked(node: Node) -> bool:
    """Whether a run has started but not finished changing the node, or the node has the startup taint."""
    annotated = CORDONED_ANNOTATION in node.annotations or FAILED_KEY in node.annotations or clients_paused(node)
    return annotated or node.has_taint(FAILED_KEY) or node.has_taint(STARTUP_TAINT_KEY)


def in_rollout_order(changes: t.Iterable[NodeChange]) -> list[NodeChange]:
    """Sort the changes of one pool by node name: unfinished changes come first, then, if `rollout.order` requires it, idle nodes."""

    def position(change: NodeChange) -> tuple[bool, int, str]:
        idle_first = change.rollout.order == rollout_fields.IDLE_FIRST
        return change.edit is not None, len(change.displaced) if idle_first else 0, change.node

    return sorted(changes, key=position)


def limit_changes(changes: t.Sequence[NodeChange], pool_size: int) -> tuple[list[NodeChange], list[str]]:
    """Split the changes of one pool into those that this run makes and the nodes that `rollout.limit` leaves for another run."""
    rolling = in_rollout_order(change for change in changes if change.rolling)
    limit = rolling[0].rollout.max_nodes(pool_size) if rolling else 0
    immediate = [change for change in changes if not change.rolling]
    return immediate + rolling[:limit], [change.node for change in rolling[limit:]]
