# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizes states from which OLM does not recover automatically, and plans their repairs (pure).

Repairs remove only what OLM creates again: ClusterServiceVersions that no Subscription references or that never ran, and the status of a
Subscription whose ClusterServiceVersion is gone. Custom resources and their CRDs are kept. If the ClusterServiceVersion is gone, deleting the
InstallPlan would not help, because OLM then only compares the conditions, and keeps its reference to the plan (operator-lifecycle-manager
pkg/controller/operators/catalog/subscription/state.go, InstallPlanNotFound).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from ..kube.metadata import is_deleting, name_of
from .failures import PLAN_NOT_FOUND
from .observed import (
    COMPLETE,
    FAILED,
    SUCCEEDED,
    Document,
    Object,
    Observed,
    conditions,
    csv_phase,
    plan_csvs,
    plan_phase,
)


@dataclass(frozen=True)
class Repair:
    """An object to delete, or a Subscription whose status must be reset, and the reason for this."""

    kind: str
    item: Object
    reason: str
    # The ClusterServiceVersion that the reset status shows as installed; empty if there is none.
    previous: str = ""

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.item)

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.reason}"


def repairs(observed: Observed, package: str, subscription: Object | None) -> list[Repair]:
    """The required repairs, in the order in which they must be made."""
    needed = [
        Repair(
            "ClusterServiceVersion",
            csv,
            "no Subscription references it, and it prevents OLM from installing the package",
        )
        for csv in observed.unreferenced_csvs(package)
        if not is_deleting(csv) and csv_phase(csv)[0] not in ("Replacing", "Deleting")
    ]
    if subscription is None:
        return needed
    plan = observed.plan_of(subscription)
    current = str(get_nested(subscription, "status", "currentCSV") or "")
    if plan is not None and plan_phase(plan) == FAILED and _has_unfinished(observed, plan):
        reason = f"its InstallPlan {name_of(plan)} has failed, and OLM does not retry it"
        csvs = [csv for name in plan_csvs(plan) if (csv := observed.csv(name)) and csv_phase(csv)[0] != SUCCEEDED]
        needed += [Repair("ClusterServiceVersion", csv, reason) for csv in csvs if not is_deleting(csv)]
        previous = previous_csv(observed, package, plan_csvs(plan))
        needed.append(Repair("Subscription", subscription, f"InstallPlan {name_of(plan)} has failed", previous))
    elif plan is None and looks_for_deleted_plan(subscription):
        needed.append(Repair("Subscription", subscription, "OLM needs an InstallPlan that was deleted"))
    elif is_lost(current, observed.csv(current), plan, subscription):
        reason = f"ClusterServiceVersion {current} was deleted, and OLM does not install it again"
        needed.append(Repair("Subscription", subscription, reason, previous_csv(observed, package, (current,))))
    return needed


def previous_csv(observed: Observed, package: str, lost: t.Collection[str]) -> str:
    """The package's ClusterServiceVersion that the upgrade to the `lost` ones has not replaced yet; empty unless there is exactly one."""
    remaining = [csv for csv in observed.package_csvs(package) if name_of(csv) not in lost and not is_deleting(csv)]
    return name_of(remaining[0]) if len(remaining) == 1 else ""


def looks_for_deleted_plan(subscription: Document) -> bool:
    """Whether OLM has stopped because the InstallPlan of a deleted Subscription is gone. OLM continues only after the Subscription has changed."""
    condition = conditions(subscription).get("BundleUnpackFailed")
    return condition is not None and condition.is_true and condition.reason == PLAN_NOT_FOUND


def is_resolution_prevented(subscription: Document) -> bool:
    """Whether OLM could not read a catalog. After a few attempts, OLM does not retry, even if the catalog of another package becomes available."""
    condition = conditions(subscription).get("ResolutionFailed")
    return condition is not None and condition.is_true and condition.reason == "ErrorPreventedResolution"


def references_deleted_plan(observed: Observed, subscription: Document) -> bool:
    """Whether a Subscription references an InstallPlan and a ClusterServiceVersion, neither of which exists.

    If the status was reset or the InstallPlan was deleted while OLM processed the Subscription, OLM writes the reference again from its cache. OLM then
    creates no other InstallPlan ("skipping update: installplan already created").
    """
    if not get_nested(subscription, "status", "installPlanRef") or observed.plan_of(subscription) is not None:
        return False
    return observed.csv(str(get_nested(subscription, "status", "currentCSV") or "")) is None


def is_lost(current: str, csv: Document | None, plan: Document | None, subscription: Document) -> bool:
    """Whether an installed ClusterServiceVersion is gone, and OLM does not install it again because the InstallPlan is complete or gone."""
    if not current or csv is not None or not get_nested(subscription, "status", "installPlanRef"):
        return False
    return plan is None or (current in plan_csvs(plan) and plan_phase(plan) == COMPLETE)


def _has_unfinished(observed: Observed, plan: Object) -> bool:
    """Whether a ClusterServiceVersion of the plan has not succeeded. A plan can also fail in a step that its operators do not need."""
    return any(csv_phase(observed.csv(name))[0] != SUCCEEDED for name in plan_csvs(plan))
