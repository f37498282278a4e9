# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far the GPU operator has brought a driver upgrade, by the label that it keeps on each node: pure.

Source: k8s-operator-libs v0.0.0-20251027171627, pkg/upgrade (consts.go, upgrade_inplace.go, common_manager.go).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import DRIVER_UPGRADE_LABEL, DRIVER_UPGRADE_SKIP_LABEL
from ..schema.messages import abbreviate

REQUIRED, DONE, FAILED = "upgrade-required", "upgrade-done", "upgrade-failed"
# The nodes of which something is left to do; a node without the label has not been looked at, or nothing upgrades it.
UNFINISHED = f"{DRIVER_UPGRADE_LABEL},{DRIVER_UPGRADE_LABEL}!={DONE}"
_NAMED = 5

Labels = t.Mapping[str, str]


@dataclass(frozen=True)
class Upgrade:
    """The nodes of which something is left to do, by name: those that wait, work (with their state), failed, are skipped."""

    waiting: tuple[str, ...] = ()
    working: t.Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def finished(self) -> bool:
        """Nothing is left to do."""
        return not (self.waiting or self.working or self.failed or self.skipped)

    @property
    def states(self) -> dict[str, int]:
        """How many nodes are in which state, as the label says it."""
        counted: dict[str, int] = {}
        for state in (*(REQUIRED for dummy in (*self.waiting, *self.skipped)), *self.working.values()):
            counted[state] = counted.get(state, 0) + 1
        return {**counted, **({FAILED: len(self.failed)} if self.failed else {})}

    def as_dict(self) -> dict[str, t.Any]:
        """For a result: counts by state, and by name the nodes that need somebody."""
        return {"states": self.states, "failed": list(self.failed[:100]), "skipped": list(self.skipped[:100])}

    def stuck(self, at_most: int) -> bool:
        """Whether nothing will go on by itself: nobody works, and who waits gets no turn, since a failed node keeps its own.

        `at_most` is how many nodes may be at work at a time.
        """
        if self.working or not (self.failed or self.skipped):
            return False
        return not self.waiting or len(self.failed) >= at_most

    def told(self) -> list[str]:
        """One line for each thing to say, the worst first."""
        lines = []
        if self.failed:
            lines.append(f"the driver's upgrade failed on {abbreviate(self.failed)}")
        if self.working:
            shown = [f"{name} ({state})" for name, state in sorted(self.working.items())]
            lines.append(f"the driver is being upgraded on {abbreviate(shown)}")
        if self.waiting:
            lines.append(f"{len(self.waiting)} nodes wait for their turn")
        if self.skipped:
            lines.append(f"{abbreviate(self.skipped)} keep the old driver, by their label {DRIVER_UPGRADE_SKIP_LABEL}")
        return lines


def state_of(labels: Labels) -> str:
    """What the operator says of a node's driver upgrade; empty where it says nothing."""
    return labels.get(DRIVER_UPGRADE_LABEL, "")


def upgrade_of(nodes: t.Iterable[tuple[str, Labels]]) -> Upgrade:
    """Sort nodes, given by name and labels; those that are done, or have no state, are left out."""
    waiting, working, failed, skipped = [], {}, [], []
    for name, labels in nodes:
        state = state_of(labels)
        if state in ("", DONE):
            continue
        if state == FAILED:
            failed.append(name)
        elif state != REQUIRED:
            working[name] = state
        elif labels.get(DRIVER_UPGRADE_SKIP_LABEL) == "true":
            skipped.append(name)
        else:
            waiting.append(name)
    return Upgrade(tuple(sorted(waiting)), working, tuple(sorted(failed)), tuple(sorted(skipped)))


def remedies(upgrade: Upgrade) -> list[str]:
    """What a user can do about nodes that do not go on by themselves."""
    lines = []
    if upgrade.failed:
        lines.append(
            "Often a pod that no controller owns holds a GPU, or a pod may not be evicted: see kubectl describe node "
            f"{upgrade.failed[0]}. Mend that, then kubectl label node --overwrite {' '.join(upgrade.failed[:_NAMED])} "
            f"{DRIVER_UPGRADE_LABEL}={REQUIRED}, and run again"
        )
    if upgrade.skipped:
        lines.append(
            f"Take the label {DRIVER_UPGRADE_SKIP_LABEL} off those nodes when their driver may change, and run again"
        )
    return lines
