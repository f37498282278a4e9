# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each way in which OLM fails is reported with the object, field, value, rule and remedy; nothing is sent if it is known before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.faults.api_proxy import Request
from tests.helpers.olm import CERTIFIED, OlmNamespace
from tests.helpers.openshift import GPU_CSV, GPU_PACKAGE, OLD_GPU_CSV, OpenShift
from tests.helpers.polling import until

pytestmark = [pytest.mark.usual(10), pytest.mark.sampled(1, group="failures of OLM")]


@pytest.mark.parametrize(
    ("code", "options", "text"),
    [
        ("channel", {"channel": "no-such-channel"}, "stable, v25.10, v25.3"),
        ("package", {"package": "no-such-package"}, "No package with this name"),
        ("version", {"version": "v99.0.0"}, "25.10.1"),
        ("version", {"version": "v25.3.2", "channel": "v25.10"}, "It is in channel stable or v25.3"),
        ("source", {"source": ["no-such-source"]}, "does not exist"),
        ("package", {"source": ["redhat-operators"]}, "It is in certified-operators"),
        ("install_mode", {"target_namespaces": []}, "supports only OwnNamespace"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(
    olm: OlmNamespace, code: str, options: dict[str, Any], text: str
) -> None:
    assert text in olm.refused(code, **options)["message"]


def test_a_missing_source_is_replaced_by_the_next_one(olm: OlmNamespace) -> None:
    done = olm.install(source=["no-such-source", CERTIFIED], version="v25.10.1")
    assert (done["source"], done["installed"]) == (CERTIFIED, True)


def test_two_operator_groups(olm: OlmNamespace) -> None:
    for name in ("one", "two"):
        olm.cluster.operator_group(olm.namespace, [olm.namespace], name=name)
    assert "one, two" in olm.refused("operator_group_multiple")["message"]


def test_a_group_for_unsupported_namespaces(olm: OlmNamespace) -> None:
    olm.cluster.operator_group(olm.namespace, [], name="all")
    assert olm.refused("install_mode")["value"] == "all namespaces"


def test_groups_that_others_make_after_the_installation(olm: OlmNamespace) -> None:
    """The ClusterServiceVersion fails while its Subscription is AtLatestKnown; the check of the groups finds it first."""
    olm.install(version="v25.3.2")
    olm.cluster.operator_group(olm.namespace, [olm.namespace], name="second")
    until(lambda: (olm.csv(OLD_GPU_CSV) or {}).get("status", {}).get("reason") == "TooManyOperatorGroups")
    olm.refused("operator_group_multiple")
    olm.kube.client.delete(f"/apis/operators.coreos.com/v1/namespaces/{olm.namespace}/operatorgroups/second")
    assert olm.install(version="v25.3.2")["phase"] == "Succeeded"


def test_a_group_that_is_deleted_during_the_run_is_reported(olm: OlmNamespace) -> None:
    groups = f"/apis/operators.coreos.com/v1/namespaces/{olm.namespace}/operatorgroups"

    def delete() -> None:
        until(lambda: list(olm.kube.client.list(groups)))
        olm.kube.client.delete(f"{groups}/{olm.namespace}")

    other = threading.Thread(target=delete)
    other.start()
    result = olm.run(version="v25.3.2", wait_timeout=40)
    other.join()
    # The InstallPlan may exist before the group is deleted.
    assert result.get("failed"), result
    assert result["code"] in ("operator_group_missing", "operator_group"), result["msg"]
    assert olm.install(version="v25.3.2")["phase"] == "Succeeded"


def test_an_upgrade_by_someone_else_is_reported(olm: OlmNamespace) -> None:
    olm.install(version="v25.3.2", channel="stable")
    until(lambda: olm.has_pending_plan(GPU_CSV))
    olm.cluster.approve(olm.namespace, GPU_CSV)
    olm.cluster.wait_succeeded(olm.namespace, GPU_CSV)
    until(lambda: olm.csv(OLD_GPU_CSV) is None)
    assert olm.refused("downgrade", version="v25.3.2")["value"] == "25.10.1"
    olm.unchanged(version="v25.10.1")


def test_an_upgrade_by_someone_else_during_the_run_is_reported(olm: OlmNamespace) -> None:
    """As soon as the Subscription exists, someone removes its version and lets OLM approve its InstallPlans."""
    path = olm.path("subscriptions", GPU_PACKAGE)
    others = {"startingCSV": None, "channel": "v25.10", "installPlanApproval": "Automatic"}

    def interfere(request: Request, status: int) -> None:
        if request.mutating and status < 300 and request.path.startswith(path):
            olm.kube.client.patch(path, {"spec": others})

    with olm.kube.watched() as watched:
        watched.proxy.after = interfere
        problem = olm.fails("upgraded_by_other", kubeconfig=watched.kubeconfig, version="v25.3.2", channel="stable")
    assert GPU_CSV in problem["message"]
    olm.cluster.wait_succeeded(olm.namespace, GPU_CSV)
    olm.refused("downgrade", version="v25.3.2")
    assert olm.install(version="v25.10.1")["phase"] == "Succeeded"


def test_a_namespace_that_is_being_deleted(olm: OlmNamespace) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": olm.namespace, "finalizers": ["example.com/held"]},
    }
    path = f"/api/v1/namespaces/{olm.namespace}/configmaps"
    olm.kube.client.create(path, body)
    olm.kube.client.delete(f"/api/v1/namespaces/{olm.namespace}")
    try:
        assert "kubectl get namespace" in olm.refused("namespace_terminating")["remedy"]
    finally:
        olm.kube.client.patch(f"{path}/held", {"metadata": {"finalizers": None}})


@pytest.mark.sampled(1, group="catalog faults")
@pytest.mark.usual(60)
def test_an_unreachable_catalog(olm: OlmNamespace) -> None:
    with olm.fault("olm.catalog-unreachable"):
        problem = olm.fails("catalog_unreachable", source=[CERTIFIED], version="v25.3.2", wait_timeout=5)
        assert problem["object"] == f"CatalogSource openshift-marketplace/{CERTIFIED}"
        assert not problem["changed"]
    assert olm.install(version="v25.3.2")["phase"] == "Succeeded"


@pytest.fixture
def new_olm(openshift: OpenShift, request: pytest.FixtureRequest) -> OlmNamespace:
    """A namespace of an OLM that has not read any catalog: for some minutes, it does not notice that a catalog it has read is unreachable."""
    openshift.empty()
    actual: OlmNamespace = request.getfixturevalue("olm")
    return actual


@pytest.mark.soak
@pytest.mark.usual(90)
def test_the_unreachable_catalog_of_another_package(new_olm: OlmNamespace) -> None:
    """OLM stops after a few attempts, and does not try again when the other catalog becomes available, so that the next run must make it."""
    olm = new_olm
    with olm.fault("olm.catalog-unreachable", "redhat-operators"):
        problem = olm.fails("catalog_unreachable", source=[CERTIFIED], version="v25.3.2")
        assert "openshift-marketplace get pods -l olm.catalogSource=redhat-operators" in problem["remedy"]
    assert olm.install(source=[CERTIFIED], version="v25.3.2")["phase"] == "Succeeded"


@pytest.mark.sampled(1, group="catalog faults")
@pytest.mark.usual(60)
def test_a_deployment_that_never_becomes_ready(olm: OlmNamespace) -> None:
    with olm.fault("olm.broken-deployment"):
        problem = olm.fails("deployment_not_ready", version="v25.10.1", wait_timeout=25)
        assert "gpu-operator" in problem["remedy"]


@pytest.mark.soak
@pytest.mark.usual(120)
def test_a_step_of_the_plan_that_fails_in_an_upgrade(olm: OlmNamespace) -> None:
    """The next run repairs the Subscription, even if OLM writes its former status again from its cache."""
    olm.install(version="v25.3.2")
    with olm.fault("olm.broken-step"):
        problem = olm.fails("install_plan_failed", version="v25.10.1", wait_timeout=150)
        assert problem["object"].startswith(f"InstallPlan {olm.namespace}/")
    path = f"{olm.path('subscriptions', GPU_PACKAGE)}/status"
    former = [olm.cluster.get(path)["status"]]

    def write_former_status(request: Request, status: int) -> None:
        if request.mutating and request.path.startswith(path) and status < 300 and former:
            olm.kube.client.patch(path, {"status": former.pop()})

    assert olm.run(version="v25.10.1", check=True)["olm_subscription"]["repaired"]
    with olm.kube.watched() as watched:
        watched.proxy.after = write_former_status
        # Without a wait, the run still approves the new InstallPlan.
        done = olm.install(kubeconfig=watched.kubeconfig, version="v25.10.1", wait=False)
    assert not former
    assert (done["approved"], len(done["repaired"])) == ([GPU_CSV], 2)
    assert olm.install(version="v25.10.1")["phase"] == "Succeeded"
    until(lambda: olm.csv(OLD_GPU_CSV) is None)
    olm.unchanged(version="v25.10.1")


@pytest.mark.sampled(1, group="catalog faults")
@pytest.mark.usual(60)
def test_a_bundle_that_cannot_be_unpacked(olm: OlmNamespace) -> None:
    with olm.setting("olm.bundles", "images", "inline"):
        olm.cluster.lab.command("cloud", "fault", "inject", "olm.unpack-hangs")
        try:
            problem = olm.fails("unpack_failed", version="v25.3.2", wait_timeout=20)
            assert problem["field"] == "condition BundleUnpacking"
        finally:
            olm.cluster.lab.command("cloud", "fault", "clear")


@pytest.mark.sampled(1, group="catalog faults")
@pytest.mark.usual(60)
def test_bundles_of_images_are_unpacked(olm: OlmNamespace) -> None:
    with olm.setting("olm.bundles", "images", "inline"):
        assert olm.install(version="v25.3.2")["approved"] == [OLD_GPU_CSV]


@pytest.mark.soak
@pytest.mark.usual(110)
def test_a_catalog_of_an_image_that_does_not_start_is_replaced_by_the_next_one(olm: OlmNamespace) -> None:
    name = f"staging-{olm.namespace}"
    path = f"/apis/operators.coreos.com/v1alpha1/namespaces/openshift-marketplace/catalogsources/{name}"
    options = {"source": [name, CERTIFIED], "catalog_image": "registry.example/catalog:v1", "version": "v25.3.2"}
    assert olm.run(check=True, **options)["olm_subscription"]["after_discovery"]
    done = olm.install(wait_timeout=240, **options)
    assert (done["source"], done["phase"]) == (CERTIFIED, "Succeeded")
    # A CatalogSource that does not start would stop all other installations.
    assert olm.kube.client.get(path) is None
    assert done["repaired"][0].startswith(f"CatalogSource {name}")
    olm.unchanged(**options)
    problem = olm.fails("source", **{**options, "source": [CERTIFIED], "version": "v25.10.1"})
    assert problem["field"] == "spec.image"


def test_a_second_subscription_of_the_package(olm: OlmNamespace) -> None:
    olm.cluster.operator_group(olm.namespace, [olm.namespace])
    olm.cluster.subscribe(olm.namespace, GPU_PACKAGE, installPlanApproval="Manual")
    assert olm.refused("subscription_name", name="other")["value"] == GPU_PACKAGE
