# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node's turn ends: what is told of it, and what becomes of the node when it has failed."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import MIG_CONFIG_LABEL
from ..cluster_state.node import Node
from ..cluster_state.node_check import CHANGING, FAILED, Finding, paused
from ..cluster_state.pool_edit import last_good
from ..common.wait import WaitTimeout
from ..schema import rollout as rollout_fields
from . import node_edits
from .mig_manager import ensure_config_read

if t.TYPE_CHECKING:
    from ..cluster_state.pool_edit import LastGood
    from ..common.wait import Since
    from ..drain.pods_on_nodes import PodsByNode
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import RolloutPlan
    from .reboot import Rebooter
    from .watched_node import WatchedNode
    from .watched_nodes import WatchedNodes

DONE, ROLLED_BACK, LEFT, REOPENED, GONE = "done", "rolled-back", "left", "reopened", "gone"
# What stopped the run stopped this turn, too, with the node closed by us.
BROKEN_OFF = "broken-off"


@dataclass
class NodeResult:
    """What became of a node's turn; `failed` says why it did not end as declared, and is empty where it did."""

    node: str
    outcome: str = DONE
    failed: str = ""
    changed: bool = False
    evicted: list[str] = field(default_factory=list)
    repaired: str = ""


class RunnerContext(t.NamedTuple):
    """What every turn of a run works with. `look` reads who is on a node, `tell` asks for the story of a finding; `since` remembers
    how long each node has had its finding."""

    client: Client
    lease: Lease
    live: WatchedNodes
    look: t.Callable[[str], PodsByNode]
    tell: t.Callable[[Finding], str]
    since: Since
    say: t.Callable[[str, str], None]
    reboot: Rebooter
    held: t.Collection[str]
    namespace: str
    wait_timeout: float
    repair: bool


class NodeFailure(Exception):
    """The turn cannot be ended as declared; `reason` is one word for a taint's value."""

    def __init__(self, reason: str, story: str) -> None:
        """Keep both."""
        super().__init__(story)
        self.reason = reason


def quarantine(
    tools: RunnerContext, node: WatchedNode, rollout: RolloutPlan, failure: NodeFailure, *, changed: bool
) -> str:
    """Back to what was, or left as it is, as the rollout settings say; in both cases the node says why. Returns the outcome.

    A node that was not `changed` yet is only opened again.
    """
    live = node.read()
    if live is None:
        return GONE
    leave = rollout.on_failure == rollout_fields.LEAVE
    good = last_good(live)
    if not leave and not changed:
        node.write(node_edits.uncordon_patch)
        return REOPENED
    if not leave and good is not None and _went_back(tools, node, good):
        node.write(lambda fresh: node_edits.uncordon_patch(fresh, failed=str(failure)))
        return ROLLED_BACK
    node.write(lambda fresh: node_edits.cordon_patch(fresh, str(failure)))
    node.write(lambda fresh: node_edits.quarantine_patch(fresh, failure.reason, str(failure)))
    return LEFT


def restart_mig_manager(tools: RunnerContext, node: WatchedNode) -> None:
    """Start the node's MIG manager anew, so that it knows what is new, and takes up what it has given up."""
    live = node.now
    if live is not None:
        tools.say(node.name, "starting its MIG manager anew")
        ensure_config_read(tools.client, tools.namespace, [live], tools.lease)
        node.read()


def _went_back(tools: RunnerContext, node: WatchedNode, good: LastGood) -> bool:
    tools.say(node.name, "going back to its last good profile")
    live = node.now
    patch = node_edits.rollback_patch(live, good) if live else None
    try:
        if patch and MIG_CONFIG_LABEL in patch["metadata"]["labels"]:
            restart_mig_manager(tools, node)
        node.write(lambda fresh: node_edits.rollback_patch(fresh, good))
        return bool(node.wait(lambda of: _works(of, good), tools.wait_timeout))
    except WaitTimeout:
        return False


def _works(node: Node | None, good: LastGood) -> bool | None:
    """Whether a node offers again what it did; None: not yet."""
    if node is None or node.mig_state == FAILED:
        return False
    same = all(node.allocatable.get(name, 0) == count for name, count in good.offers.items())
    return True if same and node.ready and not paused(node) and node.mig_state not in CHANGING else None
