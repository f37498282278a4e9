# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of a change, node by node: what is done to each, who has to go, whose turn comes when (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import CORDONED_ANNOTATION, FAILED_KEY, POOL_LABEL
from ..catalog.taints import STARTUP_TAINT_KEY
from ..cluster_state import expected_state
from ..cluster_state.eviction_order import blocking_pods, pods_to_evict
from ..cluster_state.mig_repair import remedy
from ..cluster_state.node_check import clients_paused
from ..cluster_state.pool_release import ABANDONED, is_abandoned, left_pool
from ..cluster_state.rollout_record import DEFAULT, recorded
from ..cluster_state.transition import LABELS, Transition, displaced_pods, transition
from ..drain.pods_on_nodes import PodsByNode
from ..schema import rollout as rollout_fields

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..cluster_state.node import Node
    from ..cluster_state.ownership import NodeEdit
    from ..pools.plan import PoolPlan, RolloutPlan


@dataclass(frozen=True)
class NodeChange:
    """What becomes of one node. `turn`: it takes its turn in the window; else it is changed at once, with all like it.

    `goes`: the users of its GPUs that cannot stay; `evicted`: the pods that a drain evicts for it; `joins`: no pod of the pool
    can be there yet, so that the pool loses nothing while it is worked on. `remedy`: what is wrong that is mended without a change.
    `marks`: the annotations by which a run has told that it had begun; they are taken back. `leaves`: the pool from which the node
    is released (empty: its label is gone), None where it is not released; `recorded`: the rollout settings of that pool.
    """

    node: str
    pool: PoolPlan | None
    edit: NodeEdit | None
    transition: Transition
    goes: tuple[PodOnNode, ...] = ()
    evicted: tuple[PodOnNode, ...] = ()
    turn: bool = False
    joins: bool = False
    remedy: str = ""
    marks: t.Mapping[str, str] = field(default_factory=dict)
    # Pods of the cluster itself that may hold a GPU, where that would make the change fail.
    possible: tuple[PodOnNode, ...] = ()
    leaves: str | None = None
    recorded: RolloutPlan = DEFAULT

    @property
    def stopped(self) -> tuple[PodOnNode, ...]:
        """The DaemonSets' pods that leave the node for the time of the change, since its label nvidia.com/gpu.deploy.client is changed."""
        return tuple(user for user in self.goes if user.pausable) if self.transition.cuts else ()

    @property
    def rollout(self) -> RolloutPlan:
        """The rollout settings that the step follows."""
        return self.pool.rollout if self.pool else self.recorded

    @property
    def queue(self) -> str:
        """The steps with which it shares a rolling update: those of its pool, or of the nodes released from the same pool."""
        return self.pool.name if self.pool else f"released from {self.leaves or 'no pool'}"

    @property
    def blocked(self) -> list[str]:
        """The pods that must go and are left alone, each with the reason; while there are any, the change cannot be made."""
        force = self.rollout.force or self.rollout.drain == rollout_fields.NONE
        found = [f"{user.shown} ({self._reason(user)})" for user in self.goes if self._stays(user)]
        return found + blocking_pods(self.goes, force=force)

    def _stays(self, user: PodOnNode) -> bool:
        """Whether no drain takes the pod off the node although the change cannot be made with it.

        GPUs cannot be cut under an open device file; for all other changes it counts who holds a resource.
        """
        return bool(user.kept) and not user.pausable and (self.transition.cuts or bool(user.resources))

    def _reason(self, user: PodOnNode) -> str:
        return user.kept if user.resources else f"{user.kept}, {', '.join(user.ways)}"

    def told(self) -> dict[str, t.Any]:
        """The step as results show it, before it is made and after."""
        more = {
            "blocked_by": self.blocked,
            "stops": [user.shown for user in self.stopped],
            "possible_holders": [f"{user.shown} ({', '.join(user.possible)})" for user in self.possible],
        }
        return {
            "pool": self.pool.name if self.pool else None,
            "change": self.transition.kind,
            "evicts": [user.shown for user in self.evicted],
            "reboot": "may" if self.transition.may_reboot else "no",
            **({} if self.leaves is None else {"leaves": self.leaves}),
            **{key: found for key, found in more.items() if found},
        }


def node_change(
    node: Node, pool: PoolPlan | None, edit: NodeEdit | None, asked: PodsByNode, *, repair: bool = False
) -> NodeChange | None:
    """What is to be done to a node; None when nothing is.

    A node with marks of ours is in the middle of a change that was begun, and goes on from there.
    """
    marked = is_marked(node)
    mend = remedy(node, pool) if repair or marked else ""
    abandoned = pool is None and is_abandoned(node)
    mend = ABANDONED if abandoned else mend
    if edit is None and not marked and not mend:
        return None
    change = transition(node, pool, edit, again=bool(mend) or marked)
    goes = displaced_pods(change, asked.gpu_pods.get(node.name, ()))
    present = bool(goes) or any(count for name, count in node.allocatable.items() if expected_state.of_gpus(name))
    possible = pool is None or not expected_state.incapable_devices(node, pool)
    turn = possible and bool(marked or mend or goes or change.cuts or (change.everybody and present))
    rollout = pool.rollout if pool else recorded(node)
    evicted = _evicted(rollout, goes, asked.other_pods.get(node.name, ())) if turn else ()
    new = pool is not None and (node.labels.get(POOL_LABEL) != pool.name or node.tainted(STARTUP_TAINT_KEY))
    joins = new and not goes
    marks = {key: node.annotations[key] for key in (CORDONED_ANNOTATION, FAILED_KEY) if key in node.annotations}
    may_hold = tuple(asked.possible_holders.get(node.name, ())) if turn and change.cuts else ()
    leaves = left_pool(node) if pool is None and edit is not None and not abandoned else None
    return NodeChange(node.name, pool, edit, change, goes, evicted, turn, joins, mend, marks, may_hold, leaves, rollout)


def needs_pods(of: NodeChange, node: Node) -> bool:
    """Whether pods on the node may make the step another one; no list of them is taken for changes that nobody feels."""
    if of.turn:
        return True
    offers = of.transition.offers
    return of.transition.kind != LABELS and any(
        count > offers.get(name, 0) for name, count in node.allocatable.items() if expected_state.of_gpus(name)
    )


def is_marked(node: Node) -> bool:
    """Whether a run of ours has begun something on the node and not ended it, or waits to be asked in (the startup taint)."""
    noted = CORDONED_ANNOTATION in node.annotations or FAILED_KEY in node.annotations or clients_paused(node)
    return noted or node.tainted(FAILED_KEY) or node.tainted(STARTUP_TAINT_KEY)


def in_rollout_order(steps: t.Iterable[NodeChange]) -> list[NodeChange]:
    """The turns of one pool: what was begun comes first, then idle nodes or all by name, as the pool says."""

    def place(of: NodeChange) -> tuple[bool, int, str]:
        idle_first = of.rollout.order == rollout_fields.IDLE_FIRST
        return of.edit is not None, len(of.goes) if idle_first else 0, of.node

    return sorted(steps, key=place)


def limit_changes(steps: t.Sequence[NodeChange], nodes: int) -> tuple[list[NodeChange], list[str]]:
    """Of one pool's steps (of so many nodes): those of this run, and the nodes that `rollout.limit` leaves for another."""
    turns = in_rollout_order(of for of in steps if of.turn)
    most = turns[0].rollout.most(nodes) if turns else 0
    return [of for of in steps if not of.turn] + turns[:most], [of.node for of in turns[most:]]


def _evicted(rollout: RolloutPlan, goes: tuple[PodOnNode, ...], others: t.Sequence[PodOnNode]) -> tuple[PodOnNode, ...]:
    chosen = {
        rollout_fields.NONE: (),
        rollout_fields.GPU_PODS: goes,
        rollout_fields.ALL: (*goes, *others),
    }[rollout.drain]
    return pods_to_evict(chosen, force=rollout.force)
