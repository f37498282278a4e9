# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of one node's change, and what all changes of a run share."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from ..common.wait import Since
    from ..drain.pods_on_nodes import PodsByNode
    from ..kube.client import Client
    from ..kube.lease import Lease
    from .reboot import Rebooter
    from .watched_nodes import WatchedNodes

DONE, ROLLED_BACK, QUARANTINED, UNCORDONED, GONE = "done", "rolled-back", "quarantined", "uncordoned", "gone"
# The run was stopped during the change, and the node is still cordoned.
INTERRUPTED = "interrupted"


@dataclass
class NodeResult:
    """The result of one node's change; `failure` is the message if the node is not as declared, else empty."""

    node: str
    outcome: str = DONE
    failure: str = ""
    changed: bool = False
    evicted: list[str] = field(default_factory=list)
    repaired: str = ""


class NodeFailure(Exception):
    """The change cannot be completed; `reason` is the value of the taint that a quarantined node gets."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep both."""
        super().__init__(message)
        self.reason = reason


class RunnerContext(t.NamedTuple):
    """What all changes of a rolling update share.

    list_pods reads the pods of a node, describe returns the message for a finding, since remembers for how long each node has had its
    finding, report takes a node's name and a line of progress.
    """

    client: Client
    lease: Lease
    nodes: WatchedNodes
    list_pods: t.Callable[[str], PodsByNode]
    describe: t.Callable[[Finding], str]
    since: Since
    report: t.Callable[[str, str], None]
    rebooter: Rebooter
    held_back: t.Collection[str]
    namespace: str
    wait_timeout: float
    repair: bool
