# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which InstallPlans are approved: exactly those that lead to the declared version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.olm.assessment import awaits_approval, decide_approval
from tests.helpers.olm_objects import NEW, OLD, PACKAGE, plan

NFD = "nfd.v4.12.0"
NAMES = [OLD, NEW, NFD, "other.v1.0.0"]


def decide(*csvs: str, **options: Any) -> Any:
    usual = {"package": PACKAGE, "desired": NEW, "steps": {NEW}, "additional": set()}
    return decide_approval(plan(*csvs), **{**usual, **options})


@pytest.mark.parametrize(
    ("csvs", "options"),
    [
        ((NEW,), {}),
        ((OLD,), {"steps": {OLD, NEW}}),
        ((NEW, NFD), {"additional": {NFD}}),
    ],
)
def test_approved(csvs: tuple[str, ...], options: dict[str, Any]) -> None:
    decision = decide(*csvs, **options)
    assert (decision.approve, decision.discard, decision.problem) == ("install-1", "", None)


def test_a_plan_for_other_operators_is_reported() -> None:
    problem = decide(NEW, NFD).problem
    assert problem
    assert problem.code == "install_plan_others"
    assert f"also install {NFD}" in str(problem)
    assert f"add {NFD} to olm.additional_csvs (option additional_csvs of the module)" in problem.remedy


def test_a_plan_for_another_version_is_discarded_once() -> None:
    assert decide(NEW, desired=OLD, steps={OLD}).discard == "install-1"
    problem = decide(NEW, desired=OLD, steps={OLD}, discarded=True).problem
    assert problem
    assert problem.code == "upgrade_path"


def test_a_plan_without_a_step_is_left_alone() -> None:
    decision = decide(NFD, additional={NFD})
    assert (decision.approve, decision.discard, decision.problem) == ("", "", None)


@pytest.mark.parametrize(
    ("phase", "awaits"), [("RequiresApproval", True), ("Installing", False), ("Complete", False), ("", False)]
)
def test_awaits_approval(phase: str, awaits: bool) -> None:
    assert awaits_approval(plan(NEW, phase=phase)) is awaits
    assert awaits_approval(None) is False


def test_an_approved_plan_whose_phase_is_late_is_not_approved_again() -> None:
    late = plan(NEW)
    late["spec"]["approved"] = True
    assert not awaits_approval(late)


@given(
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    st.sets(st.sampled_from([OLD, NEW])),
    st.sets(st.sampled_from(NAMES[2:])),
)
def test_nothing_undeclared_is_ever_approved(names: list[str], steps: set[str], additional: set[str]) -> None:
    decision = decide(*names, steps=steps, additional=additional)
    if decision.approve:
        assert set(names) <= steps | additional
        assert len(steps & set(names)) == 1
    assert sum(map(bool, (decision.approve, decision.discard, decision.problem))) <= 1
