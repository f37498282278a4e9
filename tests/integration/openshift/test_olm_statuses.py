# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The statuses of OLM in every situation that the collection has to recognize: the lab's OLM is the real one.

The Subscriptions are created together, each in its own namespace, because OLM works on them one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.helpers.openshift import GPU_CSV, GPU_PACKAGE, OLD_GPU_CSV, OpenShift
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = [pytest.mark.usual(10), pytest.mark.sampled(2, group="statuses of OLM")]

# The Subscriptions that do not resolve: fields, reason of ResolutionFailed and part of its message.
UNRESOLVED: dict[str, tuple[dict[str, str], str, str]] = {
    "wrong-channel": (
        {"channel": "no-such-channel"},
        "ConstraintsNotSatisfiable",
        f"no operators found in channel no-such-channel of package {GPU_PACKAGE} in the catalog referenced by subscription",
    ),
    "wrong-package": (
        {"name": "no-such-package"},
        "ConstraintsNotSatisfiable",
        "no operators found in package no-such-package in the catalog referenced by subscription",
    ),
    "wrong-version": (
        {"startingCSV": f"{GPU_PACKAGE}.v99.0.0"},
        "ConstraintsNotSatisfiable",
        f"no operators found with name {GPU_PACKAGE}.v99.0.0 in channel stable of package {GPU_PACKAGE}",
    ),
    "wrong-source": (
        {"source": "no-such-source"},
        "ConstraintsNotSatisfiable",
        "no operators found from catalog no-such-source in namespace openshift-marketplace referenced by subscription",
    ),
    "unreachable": (
        {"source": "unreachable", "sourceNamespace": "unreachable"},
        "ErrorPreventedResolution",
        "error using catalogsource unreachable/unreachable: failed to list bundles: rpc error: code = Unavailable",
    ),
}
MANUAL = {"installPlanApproval": "Manual"}


@pytest.fixture(scope="module")
def cluster(openshift_lab: Lab) -> OpenShift:
    actual = OpenShift(openshift_lab).empty()
    for name, (fields, _reason, _message) in UNRESOLVED.items():
        namespace(actual, name)
        if name == "unreachable":
            actual.catalog_source(name, name, address="127.0.0.1:1")
        actual.subscribe(name, GPU_PACKAGE, **fields)
    actual.namespace("no-group")
    actual.subscribe("no-group", GPU_PACKAGE, **MANUAL)
    namespace(actual, "two-groups", "one", "two")
    actual.subscribe("two-groups", GPU_PACKAGE, **MANUAL)
    actual.namespace("all-namespaces")
    actual.operator_group("all-namespaces")
    actual.subscribe("all-namespaces", GPU_PACKAGE)
    return actual


@pytest.fixture
def settings(openshift_lab: Lab) -> Iterator[Callable[..., str]]:
    """Run `lab cloud` commands; afterwards the settings have their defaults again."""
    yield lambda *words: openshift_lab.command("cloud", *words)
    openshift_lab.command("cloud", "fault", "clear")
    openshift_lab.command("cloud", "set", "olm.gpu-operator=v25.3.2,v25.10.1")
    openshift_lab.command("cloud", "set", "olm.bundles=inline")


def namespace(cluster: OpenShift, name: str, *groups: str) -> str:
    """A namespace with OperatorGroups for itself."""
    cluster.namespace(name)
    for group in groups or ("group",):
        cluster.operator_group(name, [name], group)
    return name


@pytest.mark.parametrize("name", UNRESOLVED)
def test_a_subscription_that_cannot_be_resolved(cluster: OpenShift, name: str) -> None:
    _fields, reason, message = UNRESOLVED[name]
    failed = until(lambda: cluster.condition(name, GPU_PACKAGE, "ResolutionFailed"))
    assert failed["reason"] == reason
    assert message in failed["message"]
    assert not cluster.subscription(name, GPU_PACKAGE).get("state")
    assert cluster.plans(name) == []


def test_a_missing_source_is_also_unhealthy_and_an_unreachable_one_is_not(cluster: OpenShift) -> None:
    unhealthy = until(lambda: cluster.condition("wrong-source", GPU_PACKAGE, "CatalogSourcesUnhealthy"))
    assert unhealthy["message"] == "targeted catalogsource openshift-marketplace/no-such-source missing"
    until(lambda: cluster.condition("unreachable", GPU_PACKAGE, "ResolutionFailed"))
    assert not cluster.condition("unreachable", GPU_PACKAGE, "CatalogSourcesUnhealthy")


@pytest.mark.parametrize("name", ["no-group", "two-groups"])
def test_without_exactly_one_operator_group_nothing_happens_and_the_subscription_does_not_say_so(
    cluster: OpenShift, name: str
) -> None:
    # All Subscriptions that were created with it have been resolved.
    until(lambda: cluster.condition("unreachable", GPU_PACKAGE, "ResolutionFailed"))
    until(lambda: cluster.csv("all-namespaces", GPU_CSV))
    status = cluster.subscription(name, GPU_PACKAGE)
    assert not status.get("state")
    assert {one["type"] for one in status["conditions"]} == {"CatalogSourcesUnhealthy"}
    groups = f"/apis/operators.coreos.com/v1/namespaces/{name}/operatorgroups"
    reasons = [
        condition["reason"]
        for group in cluster.client.list(groups)
        for condition in group.get("status", {}).get("conditions", [])
    ]
    assert reasons == (["MultipleOperatorGroupsFound"] * 2 if name == "two-groups" else [])
    # With one group, it proceeds.
    if name == "no-group":
        cluster.operator_group(name, [name])
    else:
        cluster.client.delete(f"{groups}/two")
    until(lambda: cluster.condition(name, GPU_PACKAGE, "InstallPlanPending").get("reason") == "RequiresApproval")


def test_an_operator_group_that_the_operator_does_not_support(cluster: OpenShift) -> None:
    failed = until(lambda: (csv := cluster.csv("all-namespaces", GPU_CSV)).get("phase") == "Failed" and csv)
    assert failed["reason"] == "UnsupportedOperatorGroup"
    assert failed["message"].startswith("AllNamespaces InstallModeType not supported")
    # The Subscription says the contrary.
    until(lambda: cluster.subscription("all-namespaces", GPU_PACKAGE).get("state") == "AtLatestKnown")
    assert cluster.subscription("all-namespaces", GPU_PACKAGE)["installedCSV"] == GPU_CSV


def test_manual_approval_upgrade_and_a_second_operator_group(cluster: OpenShift, settings: Callable[..., str]) -> None:
    settings("set", "olm.gpu-operator=v25.3.2")
    until(lambda: cluster.channels(GPU_PACKAGE).get("stable") == OLD_GPU_CSV)
    name = namespace(cluster, "manual")
    cluster.subscribe(name, GPU_PACKAGE, **MANUAL)
    until(lambda: cluster.condition(name, GPU_PACKAGE, "InstallPlanPending").get("reason") == "RequiresApproval")
    status = cluster.subscription(name, GPU_PACKAGE)
    assert (status["state"], status["currentCSV"], status.get("installedCSV")) == ("UpgradePending", OLD_GPU_CSV, None)
    plan = cluster.plans(name)[0]
    assert (plan["status"]["phase"], plan["spec"]["approved"]) == ("RequiresApproval", False)
    assert not cluster.csv(name, OLD_GPU_CSV)
    cluster.approve(name, OLD_GPU_CSV)
    cluster.wait_succeeded(name, OLD_GPU_CSV)
    # The catalog offers a newer version, which waits for its approval.
    settings("set", "olm.gpu-operator=v25.3.2,v25.10.1")
    until(lambda: any(GPU_CSV in one["spec"]["clusterServiceVersionNames"] for one in cluster.plans(name)))
    until(lambda: cluster.subscription(name, GPU_PACKAGE).get("currentCSV") == GPU_CSV)
    status = cluster.subscription(name, GPU_PACKAGE)
    assert (status["state"], status["installedCSV"]) == ("UpgradePending", OLD_GPU_CSV)
    cluster.approve(name, GPU_CSV)
    cluster.wait_succeeded(name, GPU_CSV)
    until(lambda: not cluster.csv(name, OLD_GPU_CSV))
    # A second OperatorGroup breaks the installed operator, and its deletion repairs it.
    cluster.operator_group(name, [name], "second")
    failed = until(lambda: (csv := cluster.csv(name, GPU_CSV)).get("phase") == "Failed" and csv)
    assert failed["reason"] == "TooManyOperatorGroups"
    cluster.client.delete(f"/apis/operators.coreos.com/v1/namespaces/{name}/operatorgroups/second")
    cluster.wait_succeeded(name, GPU_CSV)


@pytest.mark.soak
def test_an_install_plan_with_a_failing_step(cluster: OpenShift, settings: Callable[..., str]) -> None:
    # OLM retries for a minute.
    settings("fault", "inject", "olm.broken-step")
    name = namespace(cluster, "failing-step")
    cluster.subscribe(name, GPU_PACKAGE)
    failed = until(lambda: cluster.condition(name, GPU_PACKAGE, "InstallPlanFailed"), limit=120)
    assert failed["reason"] == "InstallComponentFailed"
    assert "VerticalPodAutoscaler" in failed["message"]
    status = cluster.subscription(name, GPU_PACKAGE)
    assert (status["state"], status["installedCSV"]) == ("AtLatestKnown", GPU_CSV)
    until(lambda: cluster.plans(name)[0]["status"]["phase"] == "Failed", limit=120)


def test_a_deployment_that_never_becomes_ready(cluster: OpenShift, settings: Callable[..., str]) -> None:
    settings("fault", "inject", "olm.broken-deployment", "--group", "certified-operators")
    name = namespace(cluster, "never-ready")
    cluster.subscribe(name, GPU_PACKAGE)
    # Before, OLM waits until the Deployment's controller has seen it.
    message = 'deployment "gpu-operator" not available'
    waiting = until(lambda: message in (csv := cluster.csv(name, GPU_CSV)).get("message", "") and csv)
    assert (waiting["phase"], waiting["reason"]) == ("Installing", "InstallWaiting")
    pods = cluster.client.list(f"/api/v1/namespaces/{name}/pods")
    [state] = [status["state"] for pod in pods for status in pod.get("status", {}).get("containerStatuses", [])]
    assert state["waiting"]["reason"] in ("ErrImagePull", "ImagePullBackOff")


def test_an_unreachable_catalog(cluster: OpenShift, settings: Callable[..., str]) -> None:
    settings("fault", "inject", "olm.catalog-unreachable", "--group", "redhat-operators")
    until(lambda: cluster.catalog_state("redhat-operators") == "TRANSIENT_FAILURE")
    assert cluster.catalog_state("certified-operators") == "READY"
    settings("fault", "clear")
    until(lambda: cluster.catalog_state("redhat-operators") == "READY")


def test_a_catalog_with_images_and_one_whose_bundles_cannot_be_unpacked(
    cluster: OpenShift, settings: Callable[..., str]
) -> None:
    settings("fault", "inject", "olm.unpack-hangs")
    settings("set", "olm.bundles=images")
    name = namespace(cluster, "unpacking")
    cluster.subscribe(name, GPU_PACKAGE, **MANUAL)
    unpacking = until(lambda: cluster.condition(name, GPU_PACKAGE, "BundleUnpacking"))
    assert unpacking["reason"] == "UnpackingInProgress"
    settings("fault", "clear")
    until(lambda: cluster.condition(name, GPU_PACKAGE, "InstallPlanPending").get("reason") == "RequiresApproval")
    assert cluster.plans(name)[0]["status"]["bundleLookups"]


def test_a_catalog_source_with_an_image(cluster: OpenShift) -> None:
    image = {"image": "registry.example.com/nvidia/staging-operators:v4.18"}
    cluster.catalog_source("openshift-marketplace", "from-image", **image)
    cluster.catalog_source("openshift-marketplace", "no-such-image", image="registry.example.com/nvidia/other:v4.18")
    until(lambda: cluster.catalog_state("from-image") == "READY")
    until(lambda: cluster.catalog_state("no-such-image") == "TRANSIENT_FAILURE")
    for name in ("from-image", "no-such-image"):
        sources = "/apis/operators.coreos.com/v1alpha1/namespaces/openshift-marketplace/catalogsources"
        cluster.client.delete(f"{sources}/{name}")
