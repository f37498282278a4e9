# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""States from which OLM does not recover without help, and the objects to delete so that it does (pure).

Only objects that OLM makes again are deleted: InstallPlans, and ClusterServiceVersions that no Subscription references or that never ran. Custom
resources and their CRDs stay.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from .observed import (
    COMPLETE,
    FAILED,
    SUCCEEDED,
    Document,
    Object,
    Observed,
    csv_phase,
    is_deleting,
    name_of,
    plan_csvs,
    plan_phase,
)


@dataclass(frozen=True)
class Repair:
    """An object to delete, and the reason."""

    kind: str
    item: Object
    reason: str

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.item)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


def repairs(observed: Observed, package: str, subscription: Document | None) -> list[Repair]:
    """The repairs in their order."""
    found = [
        Repair("ClusterServiceVersion", csv, "no Subscription references it, and OLM installs nothing beside it")
        for csv in observed.unreferenced_csvs(package)
        if not is_deleting(csv) and csv_phase(csv)[0] not in ("Replacing", "Deleting")
    ]
    plan = observed.plan_of(subscription)
    if subscription is None or plan is None or is_deleting(plan):
        return found
    if plan_phase(plan) == FAILED:
        return [*found, *_failed_plan(observed, plan)]
    current = str(get_nested(subscription, "status", "currentCSV") or "")
    if current in plan_csvs(plan) and plan_phase(plan) == COMPLETE and observed.csv(current) is None:
        reason = (
            f"OLM has executed it, ClusterServiceVersion {current} was deleted since, and OLM does not install it again"
        )
        found.append(Repair("InstallPlan", plan, reason))
    return found


def _failed_plan(observed: Observed, plan: Object) -> t.Iterator[Repair]:
    unfinished = [csv for name in plan_csvs(plan) if (csv := observed.csv(name)) and csv_phase(csv)[0] != SUCCEEDED]
    if not unfinished and any(observed.csv(name) for name in plan_csvs(plan)):
        return
    for csv in unfinished:
        if not is_deleting(csv):
            yield Repair("ClusterServiceVersion", csv, f"its InstallPlan {name_of(plan)} has failed")
    yield Repair("InstallPlan", plan, "it has failed, and OLM does not execute it again")
