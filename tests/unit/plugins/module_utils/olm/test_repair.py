# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The states from which OLM does not recover, and what is deleted then."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.olm.assessment import DesiredVersion, assess
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import (
    is_resolution_prevented,
    references_deleted_plan,
    repairs,
)
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import FINAL, LONG
from tests.helpers.olm_objects import NEW, OLD, PACKAGE, condition, csv, installed, observed, plan, subscription

LOST = subscription(state="UpgradePending", currentCSV=NEW, installedCSV=NEW, plan="install-1")
DELETED_PLAN = condition("BundleUnpackFailed", "EnsureInstallPlanFailed", 'installplans "install-1" not found')
PENDING = csv(phase="Pending", reason="RequirementsNotMet")


@pytest.mark.parametrize(
    ("objects", "deleted"),
    [
        ({}, []),
        ({"subscriptions": []}, [("ClusterServiceVersion", NEW)]),
        ({"subscriptions": [subscription()]}, [("ClusterServiceVersion", NEW)]),
        ({"subscriptions": [LOST], "csvs": []}, [("Subscription", PACKAGE)]),
        ({"subscriptions": [LOST], "csvs": [], "plans": []}, [("Subscription", PACKAGE)]),
        (
            {"subscriptions": [subscription(conditions=[DELETED_PLAN])], "csvs": [], "plans": []},
            [("Subscription", PACKAGE)],
        ),
        # OLM has not executed the plan yet.
        ({"subscriptions": [LOST], "csvs": [], "plans": [plan(NEW, phase="Installing")]}, []),
        ({"subscriptions": [LOST], "csvs": [], "plans": [plan(NEW)]}, []),
        (
            {"plans": [plan(NEW, phase="Failed")], "csvs": [PENDING]},
            [("ClusterServiceVersion", NEW), ("Subscription", PACKAGE)],
        ),
        ({"plans": [plan(NEW, phase="Failed")], "csvs": []}, [("Subscription", PACKAGE)]),
        # A step failed that the operator does not need.
        ({"plans": [plan(NEW, phase="Failed")]}, []),
        # In the middle of an upgrade.
        (
            {
                "subscriptions": [subscription(currentCSV=NEW, installedCSV=OLD, plan="install-1")],
                "csvs": [csv(OLD, "Replacing"), csv(NEW, "Installing", spec={"replaces": OLD})],
            },
            [],
        ),
        ({"subscriptions": [installed()], "csvs": [csv(), csv(OLD, "Deleting", "Replaced")]}, []),
        # Before the Subscription's status names the new version.
        ({"subscriptions": [installed(OLD)], "csvs": [csv(OLD)], "plans": [plan(OLD, phase="Complete")]}, []),
        ({"csvs": [csv("nfd.v4.12.0"), csv()]}, []),
    ],
)
def test_repairs(objects: dict[str, Any], deleted: list[tuple[str, str]]) -> None:
    state = observed(**objects)
    actual = repairs(state, PACKAGE, state.subscription(PACKAGE))
    assert [(item.kind, item.name) for item in actual] == deleted
    assert all(str(item).startswith(item.kind) and item.reason for item in actual)


def test_an_object_that_is_being_deleted_is_not_deleted_again() -> None:
    gone = {"deletionTimestamp": "2026-11-24T05:00:00Z"}
    assert not repairs(observed(subscriptions=[], csvs=[csv(metadata=gone)]), PACKAGE, None)


def test_a_failed_upgrade_starts_again_from_the_version_that_runs() -> None:
    live = subscription(currentCSV=NEW, installedCSV=NEW, plan="install-2")
    failed = plan(NEW, phase="Failed", name="install-2")
    state = observed(subscriptions=[live], csvs=[csv(OLD), csv(NEW, "Pending", spec={"replaces": OLD})], plans=[failed])
    actual = repairs(state, PACKAGE, live)
    assert [(item.kind, item.name, item.previous) for item in actual] == [
        ("ClusterServiceVersion", NEW, ""),
        ("Subscription", PACKAGE, OLD),
    ]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ({"subscriptions": [LOST], "csvs": [], "plans": []}, True),
        # OLM has written the reference again, before it has chosen a version.
        ({"subscriptions": [subscription(plan="install-1")], "csvs": [], "plans": []}, True),
        ({"subscriptions": [LOST], "csvs": [], "plans": [plan(NEW)]}, False),
        # An old InstallPlan of a version that runs may be deleted.
        ({"subscriptions": [LOST], "csvs": [csv()], "plans": []}, False),
        ({"subscriptions": [subscription()], "csvs": [], "plans": []}, False),
    ],
)
def test_a_reference_to_a_deleted_plan(objects: dict[str, Any], expected: bool) -> None:
    state = observed(**objects)
    assert references_deleted_plan(state, objects["subscriptions"][0]) is expected


@pytest.mark.parametrize(
    ("reason", "expected"), [("ErrorPreventedResolution", True), ("ConstraintsNotSatisfiable", False)]
)
def test_only_a_catalog_that_could_not_be_read_is_resolved_again(reason: str, expected: bool) -> None:
    assert is_resolution_prevented(subscription(conditions=[condition("ResolutionFailed", reason, "x")])) is expected
    assert not is_resolution_prevented(subscription())


@pytest.mark.parametrize("csvs", [[], [PENDING]])
@pytest.mark.parametrize(("failed_plans", "seconds"), [((), FINAL), (("install-1",), LONG)])
def test_a_failed_plan_from_before_the_repair_is_a_problem_only_if_olm_keeps_it(
    csvs: list[Any], failed_plans: tuple[str, ...], seconds: float
) -> None:
    """OLM may write its reference again, from its cache."""
    live = subscription(state="UpgradePending", currentCSV=NEW, plan="install-1")
    state = observed(subscriptions=[live], csvs=csvs, plans=[plan(NEW, phase="Failed")])
    desired = DesiredVersion(PACKAGE, PACKAGE, NEW, None, frozenset({NEW}), failed_plans=frozenset(failed_plans))
    step = assess(state, desired)
    assert step.problem is not None
    assert (step.problem.code, step.problem.minimum_seconds) == ("install_plan_failed", seconds)
    assert ("OLM has not created a new one yet" in step.text) is bool(failed_plans)
