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
from ..common.wait import TimeoutStory
from ..schema import rollout as rollout_fields
from . import node_edits
from .mig_manager import renew

if t.TYPE_CHECKING:
    from ..cluster_state.pool_edit import LastGood
    from ..common.wait import Since
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import RolloutPlan
    from .node_change import Asked
    from .reboot import Rebooter
    from .watched_node import LiveNode
    from .watched_nodes import LiveNodes

DONE, ROLLED_BACK, LEFT, REOPENED, GONE = "done", "rolled-back", "left", "reopened", "gone"
# What stopped the run stopped this turn, too, with the node closed by us.
BROKEN_OFF = "broken-off"


@dataclass
class Fate:
    """What became of a node's turn; `failed` says why it did not end as declared, and is empty where it did."""

    node: str
    outcome: str = DONE
    failed: str = ""
    changed: bool = False
    evicted: list[str] = field(default_factory=list)
    repaired: str = ""


class Tools(t.NamedTuple):
    """What every turn of a run works with. `look` reads who is on a node, `tell` asks for the story of a finding; `since` remembers
    how long each node has had its finding."""

    client: Client
    lease: Lease
    live: LiveNodes
    look: t.Callable[[str], Asked]
    tell: t.Callable[[Finding], str]
    since: Since
    say: t.Callable[[str, str], None]
    reboot: Rebooter
    held: t.Collection[str]
    namespace: str
    wait_timeout: float
    repair: bool


class Failed(Exception):
    """The turn cannot be ended as declared; `reason` is one word for a taint's value."""

    def __init__(self, reason: str, story: str) -> None:
        """Keep both."""
        super().__init__(story)
        self.reason = reason


def end_badly(tools: Tools, node: LiveNode, rollout: RolloutPlan, failure: Failed, *, changed: bool) -> str:
    """Back to what was, or left as it is, as the rollout settings say; in both cases the node says why. Returns the outcome.

    A node that was not `changed` yet is only opened again.
    """
    live = node.read()
    if live is None:
        return GONE
    leave = rollout.on_failure == rollout_fields.LEAVE
    good = last_good(live)
    if not leave and not changed:
        node.write(node_edits.reopen)
        return REOPENED
    if not leave and good is not None and _went_back(tools, node, good):
        node.write(lambda fresh: node_edits.reopen(fresh, failed=str(failure)))
        return ROLLED_BACK
    node.write(lambda fresh: node_edits.close(fresh, str(failure)))
    node.write(lambda fresh: node_edits.leave(fresh, failure.reason, str(failure)))
    return LEFT


def renewed(tools: Tools, node: LiveNode) -> None:
    """Start the node's MIG manager anew, so that it knows what is new, and takes up what it has given up."""
    live = node.now
    if live is not None:
        tools.say(node.name, "starting its MIG manager anew")
        renew(tools.client, tools.namespace, [live], tools.lease)
        node.read()


def _went_back(tools: Tools, node: LiveNode, good: LastGood) -> bool:
    tools.say(node.name, "going back to its last good profile")
    live = node.now
    patch = node_edits.back(live, good) if live else None
    try:
        if patch and MIG_CONFIG_LABEL in patch["metadata"]["labels"]:
            renewed(tools, node)
        node.write(lambda fresh: node_edits.back(fresh, good))
        return bool(node.wait(lambda of: _works(of, good), tools.wait_timeout))
    except TimeoutStory:
        return False


def _works(node: Node | None, good: LastGood) -> bool | None:
    """Whether a node offers again what it did; None: not yet."""
    if node is None or node.mig_state == FAILED:
        return False
    same = all(node.allocatable.get(name, 0) == count for name, count in good.offers.items())
    return True if same and node.ready and not paused(node) and node.mig_state not in CHANGING else None
