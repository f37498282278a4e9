# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shared context of a run, and the result of one node's change."""

from __future__ import annotations

import threading
import typing as t
from dataclasses import dataclass, field

from ..common.time_limit import RunCommand
from ..common.wait import StateTimer

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Plan
    from .reader import StateReader
    from .scope import Scope
    from .watched_nodes import WatchedNodes

DONE, ROLLED_BACK, QUARANTINED, UNCORDONED, GONE = "done", "rolled-back", "quarantined", "uncordoned", "gone"
# The outcome if the run was stopped during the change and the node is still cordoned.
INTERRUPTED = "interrupted"


@dataclass
class NodeResult:
    """The result of one node's change; `failure` is the message if the node does not match its declaration, otherwise empty.

    written: whether a patch of the node, or the eviction of a pod, was accepted or may have been accepted.
    error: the error that stopped the change and would also stop all other changes.
    """

    node: str
    outcome: str = DONE
    failure: str = ""
    written: bool = False
    evicted: list[str] = field(default_factory=list)
    repaired: str = ""
    error: Exception | None = None

    @property
    def completed(self) -> bool:
        """Whether the change was made; a node that failed or disappeared does not count, even if it was patched."""
        return self.outcome == DONE and not self.failure


class NodeFailure(Exception):
    """Raised if a change cannot be completed; `reason` is the value of the taint that a quarantined node gets."""

    def __init__(self, reason: str, message: str) -> None:
        """Store the reason and the message."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The context that all parts of a run share.

    run_command: runs a program, waits until it exits, and returns its exit status, stdout and stderr. reboot_lock: held while a reboot command runs.
    since: measures how long each node has had its current differences.
    """

    client: Client
    plan: Plan
    scope: Scope
    reader: StateReader
    progress: Progress
    run_id: str
    run_command: RunCommand
    wait_timeout: float
    since: StateTimer = field(default_factory=StateTimer)
    reboot_lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def namespace(self) -> str:
        """The namespace of the operator."""
        return self.plan.config.namespace


@dataclass(frozen=True, kw_only=True)
class RolloutContext(RunContext):
    """The context that all changes of a rolling update share; `report` takes a node's name and a progress message."""

    lease: Lease
    nodes: WatchedNodes
    held_back: t.Collection[str]
    report: t.Callable[[str, str], None]
