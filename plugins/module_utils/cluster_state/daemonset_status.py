# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers in the status of a DaemonSet (pure)."""

from __future__ import annotations

import typing as t


class DaemonSetStatus(t.NamedTuple):
    """The controller's own counts of nodes; `current`: they are about the current generation."""

    scheduled: int
    desired: int
    updated: int
    available: int
    current: bool

    @property
    def is_outdated(self) -> bool:
        """Whether pods of an older template remain."""
        return self.updated < self.desired


def daemonset_status(daemonset: t.Mapping[str, t.Any]) -> DaemonSetStatus:
    """The status of a DaemonSet; a count that is not written yet is 0."""
    status = daemonset.get("status") or {}
    return DaemonSetStatus(
        scheduled=int(status.get("currentNumberScheduled") or 0),
        desired=int(status.get("desiredNumberScheduled") or 0),
        updated=int(status.get("updatedNumberScheduled") or 0),
        available=int(status.get("numberAvailable") or 0),
        current=int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0),
    )
