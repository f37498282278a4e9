# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of an installation: when the catalogs are needed, what is applied, and which runs fail before they send anything."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import (
    OlmOptions,
    desired_version,
    existing_subscription,
    installed_entry,
    plan_installation,
)
from ansible_collections.accel.gpu.plugins.module_utils.olm.observed import (
    CatalogVersion,
    ChannelEntry,
    Observed,
    OlmFailure,
    choose_version,
    parse_package,
)
from tests.helpers.olm_objects import (
    NAMESPACE,
    NEW,
    OLD,
    PACKAGE,
    csv,
    group,
    installed,
    manifest,
    observed,
    plan,
    subscription,
)

EMPTY = observed(groups=[], subscriptions=[], plans=[], csvs=[], deployments=[])


def options(**more: Any) -> OlmOptions:
    return OlmOptions(NAMESPACE, PACKAGE, **more)


def available(version: str = "v25.10.1", channel: str = "", current: str = "") -> CatalogVersion:
    actual = choose_version(
        [parse_package(manifest())],
        package=PACKAGE,
        version=version,
        channel=channel,
        sources=[],
        source_namespace="openshift-marketplace",
        current_channel=current,
    )
    assert isinstance(actual, CatalogVersion)
    return actual


def test_a_first_installation() -> None:
    result = plan_installation(EMPTY, options(version="v25.3.2"), None, available("v25.3.2"))
    assert result.subscription["spec"] == {
        "name": PACKAGE,
        "channel": "v25.3",
        "source": "certified-operators",
        "sourceNamespace": "openshift-marketplace",
        "installPlanApproval": "Manual",
        "startingCSV": OLD,
    }
    assert result.group
    assert result.group["spec"] == {"targetNamespaces": [NAMESPACE]}
    assert result.desired
    assert (result.desired.csv, result.desired.steps) == (OLD, frozenset({OLD}))
    assert not result.repairs


def test_check_mode_before_the_catalogs_can_be_read() -> None:
    result = plan_installation(EMPTY, options(version="v25.3.2", channel="stable"), None, None)
    assert result.desired is None
    assert result.after_discovery == ("version", "source")
    assert result.subscription["spec"]["channel"] == "stable"


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({}, False),
        ({"version": "v25.10.1"}, False),
        ({"version": NEW}, False),
        ({"version": "v25.10.1", "channel": "stable", "source": ("other", "certified-operators")}, False),
        ({"version": "v25.3.2"}, True),
        ({"channel": "v25.10"}, True),
        ({"source": ("other",)}, True),
        ({"source_namespace": "other", "source": ("certified-operators",)}, True),
        ({"version": "v25.3.2", "approval": "Automatic"}, False),
        ({"version": "v25.11.0", "approval": "Automatic"}, True),
    ],
)
def test_the_catalogs_are_read_only_if_needed(given: dict[str, Any], needed: bool) -> None:
    actual = installed_entry(observed(), options(**given), installed())
    assert (actual is None) is needed
    assert needed or actual == ChannelEntry(NEW, "25.10.1")


def test_an_installed_version_is_kept() -> None:
    live = installed(spec={"startingCSV": OLD})
    result = plan_installation(observed(), options(), live, ChannelEntry(NEW, "25.10.1"))
    assert (result.channel, result.source) == ("stable", "certified-operators")
    assert result.subscription["spec"]["startingCSV"] == OLD
    assert result.group is None
    assert result.desired
    assert result.desired.csv == NEW


def test_an_upgrade() -> None:
    live = installed(OLD, spec={"startingCSV": OLD})
    state = observed(subscriptions=[live], csvs=[csv(OLD)])
    result = plan_installation(state, options(version="v25.10.1"), live, available(current="stable"))
    assert result.subscription["spec"]["channel"] == "stable"
    assert result.subscription["spec"]["startingCSV"] == OLD
    assert result.desired
    assert result.desired.steps == frozenset({NEW})


@pytest.mark.parametrize(
    ("state", "version", "expected"),
    [
        (EMPTY, "v25.3.2", "v25.3.2"),
        (EMPTY, "", ""),
        # Killed before the InstallPlan was approved.
        (observed(subscriptions=[subscription(spec={"startingCSV": OLD})], csvs=[]), "", OLD),
        # The ClusterServiceVersion was deleted.
        (observed(csvs=[]), "", NEW),
        # The Subscription was deleted.
        (observed(subscriptions=[]), "", NEW),
    ],
)
def test_without_a_version_an_unfinished_or_lost_one_is_installed_again(
    state: Observed, version: str, expected: str
) -> None:
    live = state.subscription(PACKAGE)
    assert desired_version(state, options(version=version), live) == expected


def test_a_version_without_a_subscription_is_replaced() -> None:
    state = observed(subscriptions=[], plans=[])
    result = plan_installation(state, options(), None, available())
    assert [(item.kind, item.name) for item in result.repairs] == [("ClusterServiceVersion", NEW)]
    assert result.subscription["spec"]["startingCSV"] == NEW


def test_a_deleted_version_is_installed_again() -> None:
    live = subscription(
        state="UpgradePending", currentCSV=NEW, installedCSV=NEW, plan="install-1", spec={"startingCSV": OLD}
    )
    state = observed(subscriptions=[live], csvs=[])
    result = plan_installation(state, options(), live, available())
    assert [(item.kind, item.name) for item in result.repairs] == [("Subscription", PACKAGE)]
    assert result.subscription["spec"]["startingCSV"] == NEW


@pytest.mark.parametrize(
    ("state", "given", "actual", "code"),
    [
        (observed(), {"version": "v25.3.2"}, available("v25.3.2"), "downgrade"),
        (observed(subscriptions=[]), {"version": "v25.3.2"}, available("v25.3.2"), "downgrade"),
        (observed(groups=[group("a"), group("b")]), {}, ChannelEntry(NEW, "25.10.1"), "operator_group_multiple"),
        (observed(groups=[group(upgradeStrategy="Default")]), {}, ChannelEntry(NEW, "25.10.1"), "install_mode"),
        (
            Observed(NAMESPACE, {"metadata": {"name": NAMESPACE, "deletionTimestamp": "now"}}),
            {},
            available(),
            "namespace_terminating",
        ),
    ],
)
def test_refused_before_anything_is_sent(state: Observed, given: dict[str, Any], actual: Any, code: str) -> None:
    with pytest.raises(OlmFailure) as error:
        plan_installation(state, options(**given), state.subscription(PACKAGE), actual)
    assert error.value.code == code


def test_the_subscription_of_the_package_is_adopted() -> None:
    named = installed(metadata={"name": "gpu"})
    state = observed(subscriptions=[named])
    assert existing_subscription(state, options()) == named
    assert existing_subscription(state, options(name="gpu")) == named
    assert existing_subscription(EMPTY, options()) is None


@pytest.mark.parametrize(
    ("state", "name"),
    [
        # Another Subscription of the package.
        (observed(subscriptions=[installed(metadata={"name": "gpu"})]), "other"),
        # The name belongs to another package.
        (observed(subscriptions=[installed(metadata={"name": "gpu"}, spec={"name": "nfd"})]), "gpu"),
        (observed(subscriptions=[installed(spec={"name": "nfd"})]), ""),
    ],
)
def test_two_subscriptions_are_refused(state: Observed, name: str) -> None:
    with pytest.raises(OlmFailure) as error:
        existing_subscription(state, options(name=name))
    assert error.value.code == "subscription_name"


def test_a_pending_plan_does_not_change_the_target() -> None:
    live = subscription(state="UpgradePending", currentCSV=NEW, installedCSV=OLD, plan="install-2")
    state = observed(subscriptions=[live], csvs=[csv(OLD)], plans=[plan(NEW, name="install-2")])
    result = plan_installation(state, options(), live, installed_entry(state, options(), live))
    assert result.desired
    assert result.desired.csv == OLD


@pytest.mark.parametrize(
    ("metadata", "created"),
    [({}, None), ({"annotations": {"accel.gpu/created": "true"}}, "true")],
    ids=["the operator of others", "the operator of this collection"],
)
def test_a_new_subscription_for_an_operator_of_others_is_not_marked_as_created(
    metadata: dict[str, Any], created: str | None
) -> None:
    """Otherwise an uninstallation would remove an operator that the collection has only adopted."""
    groups = [{**group(), "metadata": {**group()["metadata"], **metadata}}]
    planned = plan_installation(observed(subscriptions=[], groups=groups), options(), None, available())
    assert [repair.kind for repair in planned.repairs] == ["ClusterServiceVersion"]
    annotations = planned.subscription["metadata"].get("annotations") or {}
    assert annotations.get("accel.gpu/created") == created


def test_a_subscription_where_no_operator_was_is_marked_as_created() -> None:
    planned = plan_installation(EMPTY, options(), None, available())
    assert planned.subscription["metadata"]["annotations"]["accel.gpu/created"] == "true"
