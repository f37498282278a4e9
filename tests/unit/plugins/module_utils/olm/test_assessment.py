# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of an installation from the statuses that OLM 0.46 writes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.olm.assessment import Assessment, DesiredVersion, assess
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import FINAL, LONG, MEDIUM, Observed, parse_version
from tests.helpers.olm_objects import (
    NAMESPACE,
    NEW,
    OLD,
    PACKAGE,
    condition,
    csv,
    deployment,
    group,
    installed,
    observed,
    plan,
    subscription,
)

UNHEALTHY = condition("CatalogSourcesUnhealthy", "AllCatalogSourcesHealthy", status="False")
TRANSIENT = condition(
    "ResolutionFailed",
    "ConstraintsNotSatisfiable",
    f"constraints not satisfiable: @existing/{NAMESPACE}//{NEW} and @existing/{NAMESPACE}//{OLD} provide NVIDIADriver "
    f"(nvidia.com/v1alpha1), clusterserviceversion {OLD} exists and is not referenced by a subscription",
)


def desired(csv_name: str = NEW, **more: Any) -> DesiredVersion:
    version = parse_version(csv_name.partition(".v")[2])
    return DesiredVersion(PACKAGE, PACKAGE, csv_name, version, frozenset({csv_name, *more.pop("steps", ())}), **more)


def progress(**objects: Any) -> Observed:
    """An installation before the ClusterServiceVersion exists."""
    return observed(**{"csvs": [], "deployments": [], "plans": [], "subscriptions": [subscription()], **objects})


INSTALLING = 'installing: waiting for deployment gpu-operator to become ready: deployment "gpu-operator" not available'


@pytest.mark.parametrize(
    ("state", "goal", "text"),
    [
        # The Subscription was just created; OLM has only looked at the catalogs.
        (progress(subscriptions=[subscription(conditions=[UNHEALTHY])]), desired(), "has not created an InstallPlan"),
        (
            progress(subscriptions=[subscription(conditions=[condition("BundleUnpacking", "UnpackingInProgress")])]),
            desired(),
            "OLM is unpacking the bundle",
        ),
        (
            progress(
                subscriptions=[subscription(state="UpgradePending", currentCSV=NEW, plan="install-1")],
                plans=[plan(NEW, phase="Installing")],
            ),
            desired(),
            "InstallPlan install-1 is Installing",
        ),
        (
            progress(
                subscriptions=[subscription(state="UpgradePending", currentCSV=NEW, plan="install-1")],
                plans=[plan(NEW, phase="Installing", message="retrying execution due to error: no GVK")],
            ),
            desired(),
            "retrying execution due to error: no GVK",
        ),
        (observed(csvs=[csv(phase="")]), desired(), "is new"),
        (
            observed(
                csvs=[
                    csv(
                        phase="Pending",
                        reason="RequirementsNotMet",
                        message="one or more requirements couldn't be found",
                        status={
                            "requirementStatus": [
                                {"kind": "CustomResourceDefinition", "name": "x", "status": "NotPresent"}
                            ]
                        },
                    )
                ]
            ),
            desired(),
            "missing: CustomResourceDefinition x (NotPresent)",
        ),
        (
            observed(csvs=[csv(phase="Installing", reason="InstallWaiting", message=INSTALLING)]),
            desired(),
            "not available",
        ),
        # OLM's own limit of 5 minutes: the phase is Failed for a moment.
        (
            observed(csvs=[csv(phase="Failed", reason="InstallCheckFailed", message="install timeout")]),
            desired(),
            "install timeout",
        ),
        # Succeeded before the Subscription names it, before the Deployment has the configuration, and while the plan is executed.
        (
            observed(subscriptions=[subscription(currentCSV=NEW, plan="install-1")]),
            desired(),
            "does not name it as installed",
        ),
        (
            observed(subscriptions=[installed(spec={"config": {"nodeSelector": {"infra": ""}}})]),
            desired(),
            "does not have the Subscription's nodeSelector yet",
        ),
        (observed(plans=[plan(NEW, phase="Installing", plan=[{"status": "Unknown"}])]), desired(), "is Installing"),
        # The first step of an upgrade is not ready yet.
        (
            observed(subscriptions=[installed(OLD)], csvs=[csv(OLD, "Installing", "InstallWaiting", INSTALLING)]),
            desired(steps=[OLD]),
            "not available",
        ),
    ],
)
def test_waiting(state: Observed, goal: DesiredVersion, text: str) -> None:
    step = assess(state, goal)
    assert not (step.done)
    assert not (step.problem)
    assert not (step.approve)
    assert not (step.discard)
    assert text in step.text


@pytest.mark.parametrize(
    ("state", "goal"),
    [
        (observed(), desired()),
        # OLM sets Complete some seconds after the last step.
        (
            observed(plans=[plan(NEW, phase="Installing", plan=[{"status": "Created"}, {"status": "Present"}])]),
            desired(),
        ),
        (observed(plans=[]), desired()),
        # A newer version is offered, and not approved.
        (
            observed(
                subscriptions=[
                    subscription(state="UpgradePending", currentCSV=NEW, installedCSV=OLD, plan="install-2")
                ],
                plans=[plan(NEW, name="install-2"), plan(OLD, phase="Complete")],
                csvs=[csv(OLD)],
            ),
            desired(OLD),
        ),
        # The transient failure of a resolution during an upgrade.
        (
            observed(
                subscriptions=[installed(conditions=[TRANSIENT])], csvs=[csv(), csv(OLD, "Replacing", "BeingReplaced")]
            ),
            desired(),
        ),
        # With automatic approval, a newer version is accepted.
        (observed(), desired(OLD, automatic=True)),
    ],
)
def test_done(state: Observed, goal: DesiredVersion) -> None:
    step = assess(state, goal)
    assert step.done, step.text
    assert step.csv == (NEW if goal.csv == NEW or goal.automatic else OLD)


def test_the_first_plan_and_each_step_are_approved() -> None:
    pending = subscription(state="UpgradePending", currentCSV=NEW, plan="install-1")
    assert assess(progress(subscriptions=[pending], plans=[plan(NEW)]), desired()).approve == "install-1"
    between = subscription(state="UpgradePending", currentCSV=NEW, installedCSV=OLD, plan="install-2")
    state = observed(
        subscriptions=[between], csvs=[csv(OLD)], plans=[plan(NEW, name="install-2"), plan(OLD, phase="Complete")]
    )
    assert assess(state, desired(steps=[OLD])).approve == "install-2"
    assert assess(state, desired(automatic=True)).approve == ""


def test_a_plan_for_another_version_is_discarded() -> None:
    pending = subscription(state="UpgradePending", currentCSV=NEW, plan="install-1")
    assert assess(progress(subscriptions=[pending], plans=[plan(NEW)]), desired(OLD)).discard == "install-1"


RESOLUTION = "constraints not satisfiable: no operators found in"
UNREACHABLE = (
    'error using catalogsource t/broken: failed to list bundles: rpc error: code = Unavailable desc = connection error: desc = "transport: Error while '
    'dialing: dial tcp 127.0.0.1:35999: connect: connection refused"'
)
NO_KIND = "Unable to find GVK in discovery: monitoring.coreos.com v1 ServiceMonitor"
TOO_MANY = "csv created in namespace with multiple operatorgroups, can't pick one automatically"
ALL_NAMESPACES = "AllNamespaces InstallModeType not supported, cannot configure to watch all namespaces"

FAILURES = {
    "no group": (progress(groups=[]), "operator_group_missing", None, "Without an OperatorGroup"),
    "two groups": (
        progress(groups=[group("a"), group("b")]),
        "operator_group_multiple",
        FINAL,
        "OperatorGroups are a, b",
    ),
    "two groups after the installation": (
        observed(csvs=[csv(phase="Failed", reason="TooManyOperatorGroups", message=TOO_MANY)]),
        "operator_group",
        MEDIUM,
        "except one",
    ),
    "unsupported group": (
        observed(csvs=[csv(phase="Failed", reason="UnsupportedOperatorGroup", message=ALL_NAMESPACES)]),
        "operator_group",
        MEDIUM,
        "spec.targetNamespaces",
    ),
    "wrong channel": (
        progress(
            subscriptions=[
                subscription(
                    conditions=[condition("ResolutionFailed", "ConstraintsNotSatisfiable", f"{RESOLUTION} channel x")]
                )
            ]
        ),
        "resolution_failed",
        MEDIUM,
        "channel x",
    ),
    "unreachable catalog": (
        progress(
            subscriptions=[
                subscription(conditions=[condition("ResolutionFailed", "ErrorPreventedResolution", UNREACHABLE)])
            ]
        ),
        "catalog_unreachable",
        MEDIUM,
        "connection refused",
    ),
    "missing catalog": (
        progress(
            subscriptions=[
                subscription(
                    conditions=[
                        condition(
                            "CatalogSourcesUnhealthy",
                            "UnhealthyCatalogSourceFound",
                            "targeted catalogsource a/no missing",
                        )
                    ]
                )
            ]
        ),
        "source",
        MEDIUM,
        "targeted catalogsource a/no missing",
    ),
    "unreferenced ClusterServiceVersion": (
        progress(subscriptions=[subscription(conditions=[TRANSIENT])]),
        "csv_unreferenced",
        MEDIUM,
        "without a Subscription",
    ),
    "unpacking failed": (
        progress(
            subscriptions=[
                subscription(
                    conditions=[
                        condition(
                            "BundleUnpackFailed", "BundleUnpackFailed", "Bundle unpacking failed - DeadlineExceeded"
                        )
                    ]
                )
            ]
        ),
        "unpack_failed",
        None,
        "DeadlineExceeded",
    ),
    "failed plan": (
        observed(
            plans=[plan(NEW, phase="Failed", message=NO_KIND)],
            csvs=[
                csv(phase="Pending", reason="RequirementsNotMet", message="one or more requirements couldn't be found")
            ],
        ),
        "install_plan_failed",
        FINAL,
        NO_KIND,
    ),
    "failed plan before the ClusterServiceVersion": (
        progress(
            subscriptions=[subscription(currentCSV=NEW, plan="install-1")],
            plans=[plan(NEW, phase="Failed", conditions=[{"type": "Installed", "message": NO_KIND}])],
        ),
        "install_plan_failed",
        FINAL,
        NO_KIND,
    ),
    "deleted ClusterServiceVersion": (
        observed(
            csvs=[],
            deployments=[],
            subscriptions=[subscription(state="UpgradePending", currentCSV=NEW, installedCSV=NEW, plan="install-1")],
        ),
        "csv_deleted",
        MEDIUM,
        "does not install it again",
    ),
    "other failure": (
        observed(csvs=[csv(phase="Failed", reason="ComponentFailed", message="no permission")]),
        "csv_failed",
        MEDIUM,
        "no permission",
    ),
    "deleted Subscription": (observed(subscriptions=[]), "subscription_deleted", None, "not by this module"),
    "terminating namespace": (
        Observed(NAMESPACE, {"metadata": {"name": NAMESPACE, "deletionTimestamp": "2026-11-24T05:00:00Z"}}),
        "namespace_terminating",
        FINAL,
        "2026-11-24T05:00:00Z",
    ),
    "no upgrade": (
        observed(subscriptions=[installed(OLD)], csvs=[csv(OLD)], plans=[plan(OLD, phase="Complete")]),
        "upgrade_path",
        LONG,
        f"no upgrade path from {OLD} to {NEW}",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures(name: str) -> None:
    state, code, minimum_seconds, text = FAILURES[name]
    problem = assess(state, desired()).problem
    assert problem
    assert problem.code == code
    assert minimum_seconds is None or problem.minimum_seconds == minimum_seconds
    assert text in str(problem)
    assert all(problem.as_dict().values())


def test_an_upgrade_by_someone_else() -> None:
    problem = assess(observed(), desired(OLD)).problem
    assert problem
    assert problem.code == "upgraded_by_other"
    assert problem.minimum_seconds == FINAL


def test_conditions_are_matched_by_type_in_any_order() -> None:
    failed = condition("ResolutionFailed", "ConstraintsNotSatisfiable", f"{RESOLUTION} package x")
    for conditions in ([UNHEALTHY, failed], [failed, UNHEALTHY]):
        problem = assess(progress(subscriptions=[subscription(conditions=conditions)]), desired()).problem
        assert problem
        assert problem.code == "resolution_failed"


PHASES = ["", "Pending", "InstallReady", "Installing", "Succeeded", "Failed", "Replacing", "Deleting", "Unknown"]


@given(
    st.sampled_from(PHASES),
    st.sampled_from(["", "InstallCheckFailed", "RequirementsNotMet", "TooManyOperatorGroups"]),
    st.sampled_from(["", "Installing", "Complete", "Failed", "RequiresApproval"]),
    st.sampled_from(["", "AtLatestKnown", "UpgradePending"]),
    st.booleans(),
    st.integers(0, 1),
)
def test_only_a_succeeded_version_whose_deployment_is_ready_is_done(
    phase: str, reason: str, plan_phase: str, state: str, is_installed: bool, ready: int
) -> None:
    status: dict[str, Any] = {
        "state": state,
        "currentCSV": NEW,
        "plan": "install-1",
        **({"installedCSV": NEW} if is_installed else {}),
    }
    step = assess(
        observed(
            subscriptions=[subscription(**status)],
            csvs=[csv(phase=phase, reason=reason)],
            plans=[plan(NEW, phase=plan_phase)],
            deployments=[deployment(ready=ready)],
        ),
        desired(),
    )
    assert step.done is (phase == "Succeeded" and plan_phase == "Complete" and is_installed and ready == 1)
    assert not (step.done and step.problem)
    assert step.done or step.text
    assert isinstance(step, Assessment)
