# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the progress of the GPU operator's driver upgrade from the label that the operator maintains on each node (pure).

Source: k8s-operator-libs v0.0.0-20251027171627, pkg/upgrade (consts.go, upgrade_inplace.go, common_manager.go).
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import DRIVER_UPGRADE_LABEL, DRIVER_UPGRADE_SKIP_LABEL
from ..common.results import MAX_LISTED
from ..schema.messages import MAX_NAMED, abbreviate

REQUIRED, DONE, FAILED = "upgrade-required", "upgrade-done", "upgrade-failed"
# The label selector of nodes with an unfinished upgrade; the operator does not upgrade nodes without the label.
UNFINISHED = f"{DRIVER_UPGRADE_LABEL},{DRIVER_UPGRADE_LABEL}!={DONE}"

Labels = t.Mapping[str, str]


@dataclass(frozen=True)
class DriverUpgrade:
    """The names of nodes with an unfinished upgrade; `working` also contains the state of each node's upgrade."""

    waiting: tuple[str, ...] = ()
    working: t.Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, t.Any]:
        """The upgrade in the format of a result: the number of nodes in each state, and the names of nodes that need the user's attention."""
        idle = {REQUIRED: len(self.waiting) + len(self.skipped), FAILED: len(self.failed)}
        return {
            "states": dict(+(Counter(idle) + Counter(self.working.values()))),
            "failed": list(self.failed[:MAX_LISTED]),
            "skipped": list(self.skipped[:MAX_LISTED]),
        }

    def is_stuck(self, max_parallel: int) -> bool:
        """Whether the upgrade cannot continue although nodes have failed or are skipped.

        This is the case if no node is being upgraded, and either no node is waiting or failed nodes occupy the slots that waiting nodes need.
        """
        if self.working or not (self.failed or self.skipped):
            return False
        return not self.waiting or len(self.failed) >= max_parallel

    def messages(self) -> list[str]:
        """One line for each group of nodes with an unfinished upgrade, the most severe first."""
        lines = []
        if self.failed:
            lines.append(f"the driver upgrade failed on {abbreviate(self.failed)}")
        if self.working:
            nodes = [f"{name} ({state})" for name, state in sorted(self.working.items())]
            lines.append(f"the driver is being upgraded on {abbreviate(nodes)}")
        if self.waiting:
            lines.append(f"{len(self.waiting)} node(s) are waiting for the upgrade")
        if self.skipped:
            lines.append(
                f"the old driver is kept on {abbreviate(self.skipped)} because of the label {DRIVER_UPGRADE_SKIP_LABEL}"
            )
        return lines


def driver_upgrade(nodes: t.Iterable[tuple[str, Labels]]) -> DriverUpgrade:
    """Find the nodes with an unfinished upgrade; each node is given by its name and its labels."""
    waiting, working, failed, skipped = [], {}, [], []
    for name, labels in nodes:
        state = labels.get(DRIVER_UPGRADE_LABEL) or DONE
        if state == DONE:
            continue
        if state == FAILED:
            failed.append(name)
        elif state != REQUIRED:
            working[name] = state
        elif labels.get(DRIVER_UPGRADE_SKIP_LABEL) == "true":
            skipped.append(name)
        else:
            waiting.append(name)
    return DriverUpgrade(tuple(sorted(waiting)), working, tuple(sorted(failed)), tuple(sorted(skipped)))


def remedies(upgrade: DriverUpgrade) -> list[str]:
    """Instructions for the user about nodes whose upgrade does not continue."""
    lines = []
    if upgrade.failed:
        lines.append(
            "A common cause is a pod without a controller that uses a GPU, or a pod that cannot be evicted: run kubectl describe node "
            f"{upgrade.failed[0]}. Fix the cause, run kubectl label node --overwrite {' '.join(upgrade.failed[:MAX_NAMED])} "
            f"{DRIVER_UPGRADE_LABEL}={REQUIRED}, and run the playbook again"
        )
    if upgrade.skipped:
        lines.append(
            f"Once the driver on these nodes can be upgraded, remove the label {DRIVER_UPGRADE_SKIP_LABEL} from them, and run the playbook again"
        )
    return lines
