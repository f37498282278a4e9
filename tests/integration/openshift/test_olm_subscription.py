# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""olm_subscription against the real OLM: installation, upgrade, adoption, repairs and removal."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import (
    CREATED_ANNOTATION,
    SUBSCRIPTION_CONFIG_ANNOTATION,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from tests.helpers.olm import OlmNamespace
from tests.helpers.openshift import GPU_CSV, GPU_PACKAGE, NFD_CSV, NFD_PACKAGE, OLD_GPU_CSV
from tests.helpers.polling import until

pytestmark = [pytest.mark.usual(20), pytest.mark.sampled(2, group="subscriptions")]

INFRA = {"key": "infra", "operator": "Exists"}
TEAM = {"key": "team", "operator": "Exists"}
PROXY = {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/clusterpolicies.nvidia.com"


def test_only_the_declared_version_is_approved_and_upgraded(olm: OlmNamespace) -> None:
    first = olm.converge(version="v25.3.2", channel="stable")
    assert first["approved"] == [OLD_GPU_CSV]
    assert (first["installed"], first["phase"], first["created"]) == (True, "Succeeded", True)
    assert CREATED_ANNOTATION in olm.subscription()["metadata"]["annotations"]
    # OLM offers the newer version, and no run approves it.
    until(lambda: olm.has_pending_plan(GPU_CSV))
    requests = olm.unchanged(version="v25.3.2", channel="stable")
    assert len([request for request in requests if "/leases/" not in request]) <= 9, requests
    olm.unchanged()
    assert olm.has_pending_plan(GPU_CSV)
    assert olm.csv(GPU_CSV) is None

    upgraded = olm.converge(version="v25.10.1")
    assert upgraded["approved"] == [GPU_CSV]
    assert upgraded["channel"] == "stable"
    until(lambda: olm.csv(OLD_GPU_CSV) is None)
    olm.unchanged(version="v25.10.1")
    assert olm.refused("downgrade", version="v25.3.2")["value"] == "25.10.1"

    removed = olm.converge(state="absent")
    assert removed["removed"] == [f"Subscription {GPU_PACKAGE}", f"ClusterServiceVersion {GPU_CSV}"]
    assert olm.kube.client.get(CRD) is not None


def test_the_channel_follows_the_version(olm: OlmNamespace) -> None:
    assert olm.install(version="v25.3.2")["channel"] == "v25.3"
    upgraded = olm.converge(version=GPU_CSV)
    assert (upgraded["channel"], upgraded["approved"]) == ("v25.10", [GPU_CSV])


def test_an_adopted_subscription_keeps_what_others_have_set(olm: OlmNamespace) -> None:
    olm.cluster.operator_group(olm.namespace, [olm.namespace], name="foreign")
    olm.cluster.subscribe(olm.namespace, GPU_PACKAGE, config={"tolerations": [TEAM], "env": [PROXY]})
    olm.cluster.wait_succeeded(olm.namespace, GPU_CSV)
    config = {"tolerations": [INFRA], "nodeSelector": {"kubernetes.io/os": "linux"}}
    done = olm.converge(version="v25.10.1", subscription_config=config)
    assert (done["channel"], done["approved"], done["created"]) == ("stable", [], False)
    live = olm.subscription()
    assert live["spec"]["installPlanApproval"] == "Manual"
    assert live["spec"]["config"] == {**config, "tolerations": [TEAM, INFRA], "env": [PROXY]}
    assert json.loads(live["metadata"]["annotations"][SUBSCRIPTION_CONFIG_ANNOTATION]) == {"tolerations": [INFRA]}
    pod = olm.pod_spec()
    assert INFRA in pod["tolerations"]
    assert pod["nodeSelector"] == config["nodeSelector"]
    # Without the option, nothing changes; with an empty map, the collection's entries go, also from the Deployment.
    olm.unchanged(version="v25.10.1")
    olm.converge(subscription_config={})
    assert olm.subscription()["spec"]["config"] == {"tolerations": [TEAM], "env": [PROXY]}
    assert INFRA not in olm.pod_spec()["tolerations"]
    groups = f"/apis/operators.coreos.com/v1/namespaces/{olm.namespace}/operatorgroups"
    assert [group["metadata"]["name"] for group in olm.kube.client.list(groups)] == ["foreign"]


def test_conflicts_are_named_without_force(olm: OlmNamespace) -> None:
    olm.cluster.operator_group(olm.namespace, [olm.namespace])
    olm.cluster.subscribe(olm.namespace, GPU_PACKAGE)
    result = olm.run(version="v25.10.1", force=False)
    assert result["code"] == 409
    assert "accel-gpu-tests" in result["msg"] or "conflict" in result["msg"], result["msg"]
    assert olm.subscription()["spec"]["installPlanApproval"] == "Automatic"


def test_lost_objects_are_repaired(olm: OlmNamespace) -> None:
    olm.install(version="v25.3.2", channel="stable")
    olm.wait_settled()
    olm.kube.client.delete(olm.path("subscriptions", GPU_PACKAGE))
    without_subscription = olm.converge()
    assert (without_subscription["csv"], without_subscription["phase"]) == (OLD_GPU_CSV, "Succeeded")
    assert len(without_subscription["repaired"]) == 1

    olm.wait_settled()
    olm.lose(OLD_GPU_CSV)
    without_csv = olm.converge()
    assert (without_csv["csv"], without_csv["phase"]) == (OLD_GPU_CSV, "Succeeded")
    assert "was deleted" in without_csv["repaired"][0]


def test_a_pending_plan_for_another_version_gives_way(olm: OlmNamespace) -> None:
    """OLM makes no other plan while one waits for its approval."""
    olm.cluster.operator_group(olm.namespace, [olm.namespace])
    olm.cluster.subscribe(olm.namespace, GPU_PACKAGE, installPlanApproval="Manual")
    until(lambda: olm.has_pending_plan(GPU_CSV))
    done = olm.install(version="v25.3.2")
    assert (done["approved"], done["phase"]) == ([OLD_GPU_CSV], "Succeeded")
    deleted, *resets = done["repaired"]
    assert deleted.startswith("InstallPlan ")
    # OLM may have written the reference to the deleted plan again from its cache; the module then removes this reference, too.
    assert [text for text in resets if not text.endswith("OLM needs an InstallPlan that was deleted")] == []


def test_a_plan_with_other_operators_needs_their_names(olm: OlmNamespace) -> None:
    for package in (GPU_PACKAGE, NFD_PACKAGE):
        olm.cluster.subscribe(olm.namespace, package, installPlanApproval="Manual", channel="stable")
    problem = olm.fails("install_plan_others")
    assert NFD_CSV in problem["rule"]
    assert olm.csv(NFD_CSV) is None
    done = olm.install(additional_csvs=[NFD_CSV])
    assert sorted(done["approved"]) == sorted([GPU_CSV, NFD_CSV])


def test_automatic_approval_is_left_to_olm(olm: OlmNamespace) -> None:
    done = olm.install(version="v25.3.2", channel="stable", approval="Automatic")
    assert done["approved"] == []
    until(lambda: (olm.csv(GPU_CSV) or {}).get("status", {}).get("phase") == "Succeeded")
    # A newer version than the declared one is accepted.
    until(lambda: olm.csv(OLD_GPU_CSV) is None)
    olm.unchanged(version="v25.3.2", channel="stable", approval="Automatic")


def test_check_mode_before_the_namespace_exists(olm: OlmNamespace) -> None:
    name = f"{olm.namespace}-later"
    options: dict[str, Any] = {"namespace": name, "version": "v25.3.2"}
    assert olm.run(check=True, **options)["code"] == "invalid"
    predicted = olm.run(check=True, expected={"namespaces": [name]}, **options)
    olm.cluster.namespace(name)
    olm.kube.delete_afterwards(f"/api/v1/namespaces/{name}")
    done = olm.run(**options)
    assert (predicted["changed"], predicted["diff"]) == (done["changed"], done["diff"])


@pytest.mark.alone
def test_it_returns_within_a_second_after_the_version_is_stable(olm: OlmNamespace) -> None:
    """A thread reads what the module watches. The version has become stable after the start of the last read in which it was not."""
    ended = threading.Event()
    unstable: list[float] = []

    def is_stable() -> bool:
        phase = (olm.csv(GPU_CSV) or {}).get("status", {}).get("phase")
        status = olm.cluster.subscription(olm.namespace, GPU_PACKAGE)
        plans = olm.cluster.plans(olm.namespace)
        steps = [step["status"] for plan in plans for step in plan.get("status", {}).get("plan", [])]
        return phase == "Succeeded" and status.get("installedCSV") == GPU_CSV and set(steps) <= {"Created", "Present"}

    def look() -> None:
        while not ended.wait(0.02):
            begun = time.monotonic()
            if not is_stable():
                unstable.append(begun)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        olm.install(version="v25.10.1")
        done = time.monotonic()
        until(is_stable)
    finally:
        ended.set()
        reader.join()
    print(f"returned {done - unstable[-1]:.2f} s after the last read of an unstable version")
    # Not before it is stable, either.
    assert 0 <= done - unstable[-1] < 1


def test_without_waiting_the_first_run_still_approves(olm: OlmNamespace) -> None:
    done = olm.install(version="v25.10.1", wait=False)
    assert done["approved"] == [GPU_CSV], "nothing would be installed without an approval"
    until(lambda: get_nested(olm.csv(GPU_CSV), "status", "phase") == "Succeeded", limit=120)
    olm.unchanged(version="v25.10.1", wait=False)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("targets", "expected"), [({"target_namespaces": ""}, "own"), ({}, "own"), ({"target_namespaces": []}, "all")]
)
def test_only_an_explicit_empty_list_means_all_namespaces(
    olm: OlmNamespace, targets: dict[str, Any], expected: str
) -> None:
    predicted = olm.run(check=True, package=NFD_PACKAGE, **targets)
    (group,) = [diff for diff in predicted["diff"] if "OperatorGroup" in diff["after_header"]]
    assert group["after"]["spec"] == ({"targetNamespaces": [olm.namespace]} if expected == "own" else {})
