# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines whether an InstallPlan may be approved (pure).

OLM puts all pending changes of a namespace into one InstallPlan, so approving this plan for one operator may also upgrade others.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested
from ..kube.metadata import name_of
from ..schema.messages import join_words, option_of_role
from .observed import REQUIRES_APPROVAL, Document, plan_csvs, plan_phase
from .problem import MEDIUM, Problem

_ADDITIONAL_CSVS = option_of_role("olm.additional_csvs", "additional_csvs")


@dataclass(frozen=True)
class ApprovalDecision:
    """The InstallPlan to approve or to discard, by name. Both names are empty if there is a problem, or if there is nothing to do."""

    approve: str = ""
    discard: str = ""
    problem: Problem | None = None


def awaits_approval(plan: Document | None) -> bool:
    """Whether an InstallPlan waits for approval."""
    return (
        plan is not None and plan_phase(plan) == REQUIRES_APPROVAL and get_nested(plan, "spec", "approved") is not True
    )


def decide_approval(
    plan: Document,
    *,
    package: str,
    desired: str,
    steps: t.Collection[str],
    additional: t.Collection[str],
    discarded: bool = False,
) -> ApprovalDecision:
    """Decide whether to approve or discard an InstallPlan that is waiting for approval.

    steps: the ClusterServiceVersions on the upgrade path to the desired one. additional: other ClusterServiceVersions that the user lists. OLM
    creates no other plan while this one is waiting, so a plan for a different version of the package is discarded, but only once (`discarded`).
    """
    names = plan_csvs(plan)
    own = [name for name in names if name in steps]
    others = [name for name in names if name not in steps and name not in additional]
    other_versions = [name for name in others if name.startswith(f"{package}.")]
    if other_versions:
        if not discarded:
            return ApprovalDecision(discard=name_of(plan))
        return ApprovalDecision(problem=_other_version(plan, other_versions, desired))
    if others:
        return ApprovalDecision(problem=_brings_others(plan, others, desired))
    if len(own) != 1:
        return ApprovalDecision()
    return ApprovalDecision(approve=name_of(plan))


def _subject(plan: Document) -> str:
    return f"InstallPlan {plan['metadata'].get('namespace', '')}/{name_of(plan)}"


def _brings_others(plan: Document, others: t.Sequence[str], desired: str) -> Problem:
    return Problem(
        code="install_plan_others",
        subject=_subject(plan),
        field="spec.clusterServiceVersionNames",
        value=join_words(plan_csvs(plan)),
        rule=f"Only {desired} is declared, but approving the plan would also install {join_words(others)}.",
        remedy=(
            f"If that is intended, add {join_words(others)} to {_ADDITIONAL_CSVS}, or approve the plan yourself. Otherwise, use a separate "
            "namespace for the operator."
        ),
    )


def _other_version(plan: Document, versions: t.Sequence[str], desired: str) -> Problem:
    return Problem(
        code="upgrade_path",
        subject=_subject(plan),
        field="spec.clusterServiceVersionNames",
        value=join_words(plan_csvs(plan)),
        rule=f"OLM offers {join_words(versions)}, which is not on the upgrade path to {desired}.",
        remedy="Set channel to a channel with an upgrade path to the version, or set version to the one that OLM offers.",
        minimum_seconds=MEDIUM,
    )
