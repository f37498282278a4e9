# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of OLM's objects that a plan shows."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.installation import (
    Installation,
    InstallationFinding,
    olm_changes,
    read_olm_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import ComponentPlan
from tests.helpers.olm_objects import NAMESPACE, NEW, OLD, PACKAGE, Object, csv, subscription

CREATED = {"annotations": {"accel.gpu/created": "true"}}
TITLE = f"Subscription {NAMESPACE}/{PACKAGE}"
TAKES_OVER = f"manages {TITLE}, which this collection did not create"


def planned(**olm: Any) -> ComponentPlan:
    return derive({"name": "c", "distribution": "openshift", "operator": {"olm": olm}}, {}, []).operator


@pytest.mark.parametrize(
    ("olm", "subscriptions", "csvs", "changes"),
    [
        ({}, [subscription(metadata=CREATED)], [csv()], []),
        ({}, [subscription()], [csv()], [TAKES_OVER]),
        (
            {},
            [subscription(spec={"installPlanApproval": "Automatic"})],
            [csv()],
            [TAKES_OVER, f"{TITLE}: installPlanApproval Automatic becomes Manual"],
        ),
        (
            {"channel": "v25.10", "source": ["mirror"]},
            [subscription(metadata=CREATED)],
            [csv()],
            [f"{TITLE}: channel stable becomes v25.10", f"{TITLE}: source certified-operators becomes mirror"],
        ),
        (
            {"channel": "v25.10", "source": ["mirror", "staging"], "source_namespace": "catalogs"},
            [subscription(metadata=CREATED, spec={"channel": ""})],
            [csv()],
            [
                f"{TITLE}: channel (not set) becomes v25.10",
                f"{TITLE}: source certified-operators becomes mirror or staging",
                f"{TITLE}: sourceNamespace openshift-marketplace becomes catalogs",
            ],
        ),
        ({}, [], [], []),
        ({}, [subscription("other", spec={"name": "other"})], [csv("other.v1.0.0")], []),
    ],
)
def test_changes(olm: Object, subscriptions: list[Object], csvs: list[Object], changes: list[str]) -> None:
    assert olm_changes(planned(**olm), subscriptions, csvs) == changes


INFRA = {"key": "infra", "operator": "Exists"}


@pytest.mark.parametrize(
    ("current", "changed"),
    [
        (None, True),
        ({"tolerations": [{"key": "other"}], "nodeSelector": {"infra": ""}}, True),
        ({"tolerations": [{"key": "other"}, INFRA], "nodeSelector": {"infra": "", "a": "b"}}, False),
    ],
)
def test_a_declared_configuration_is_compared_without_the_entries_of_others(
    current: Object | None, changed: bool
) -> None:
    live = subscription(metadata=CREATED, spec={"config": current} if current else {})
    config = {"tolerations": [INFRA], "nodeSelector": {"infra": ""}}
    changes = olm_changes(planned(subscription_config=config), [live], [csv()])
    assert any("config changes" in change for change in changes) == changed


def test_a_csv_without_a_subscription_is_deleted_and_installed_again() -> None:
    (change,) = olm_changes(planned(), [], [csv(NEW), csv(OLD, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})])
    assert change.startswith(f"deletes ClusterServiceVersion {NEW}, which no Subscription references")


class Cluster:
    def __init__(self, status: int) -> None:
        self._status = status

    def list_known(self, path: str) -> tuple[Object, ...]:
        raise ApiError("no", status=self._status, reason="Forbidden", method="GET", path=path)

    list_once = list_known


FOUND = Installation("operator", "gpu-operator", NAMESPACE, "olm", "OLM", "v25.10.1")


def test_without_the_right_to_list_them_the_changes_are_unknown() -> None:
    finding = InstallationFinding(FOUND, managed=True, planned=planned())
    (change,) = read_olm_changes(cast("Client", Cluster(403)), finding)
    assert "you do not have permission to list OLM objects" in change
    with pytest.raises(ApiError):
        read_olm_changes(cast("Client", Cluster(500)), finding)


@pytest.mark.parametrize(
    "finding",
    [
        InstallationFinding(FOUND, managed=False),
        InstallationFinding(None, managed=True, planned=planned()),
        InstallationFinding(FOUND, managed=False, problem="two", planned=planned()),
    ],
    ids=["adopted", "missing", "problem"],
)
def test_nothing_is_read_if_a_run_changes_no_installed_operator(finding: InstallationFinding) -> None:
    assert read_olm_changes(cast("Client", Cluster(500)), finding) == []


class Subscriptions:
    """A cluster with these Subscriptions; `narrow`: the user may list only those of the operator's namespace."""

    def __init__(self, *items: Object, narrow: bool = False) -> None:
        self.items, self.narrow = items, narrow
        self.paths: list[str] = []

    def list_known(self, path: str) -> tuple[Object, ...]:
        self.paths.append(path)
        if path.endswith("clusterserviceversions"):
            return (csv(),)
        if self.narrow and "/namespaces/" not in path:
            raise ApiError("no", status=403, reason="Forbidden", method="GET", path=path)
        return self.items

    list_once = list_known


def test_a_second_subscription_in_another_namespace_is_found_with_the_same_requests() -> None:
    other = subscription(metadata={"namespace": "openshift-operators"})
    other["status"] = {"state": "UpgradeFailed"}
    cluster = Subscriptions(subscription(metadata={**CREATED, "namespace": NAMESPACE}), other)
    finding = InstallationFinding(FOUND, managed=True, planned=planned())
    (change,) = read_olm_changes(cast("Client", cluster), finding)
    assert change.startswith(f"Subscription openshift-operators/{PACKAGE} is a second one of package {PACKAGE}")
    assert "state UpgradeFailed" in change
    assert len(cluster.paths) == 2
    narrow = Subscriptions(subscription(metadata=CREATED), narrow=True)
    assert read_olm_changes(cast("Client", narrow), finding) == []


def test_the_plan_says_who_reverts_the_changes_of_a_subscription() -> None:
    argo = {"labels": {"argocd.argoproj.io/instance": "gpu"}}
    changed = olm_changes(planned(channel="v25.10"), [subscription(metadata={**CREATED, **argo})], [csv()])
    assert "Argo CD application gpu reconciles Subscription" in changed[-1]
    assert "group operators.coreos.com, kind Subscription" in changed[-1]
    assert olm_changes(planned(), [subscription(metadata={**CREATED, **argo})], [csv()]) == [], "nothing changes"
