# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""boot_images: the selection of MachineSets whose templates OpenShift replaces, against a real API server with OpenShift's CRDs.

The tests write the status of the MachineConfiguration as the Machine Config Operator does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import (
    CLUSTER_VERSION_PATH,
    INFRASTRUCTURE_PATH,
    MACHINE_CONFIGURATION_PATH,
    machine_sets_path,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.modules import boot_images, machineset
from tests.helpers.kube import Kube, Object
from tests.helpers.machine_api import CLUSTER_LABEL, GROUP_LABEL, NAMESPACE, worker_machineset
from tests.helpers.openshift import OpenShift
from tests.programs import REPO

pytestmark = [pytest.mark.usual(4), pytest.mark.timeout(300)]

SETS = machine_sets_path(NAMESPACE)
OBJECTS = MACHINE_CONFIGURATION_PATH.rpartition("/")[0]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"
ALL, NONE = {"mode": "All"}, {"mode": "None"}
OWN = {"key": GROUP_LABEL, "operator": "DoesNotExist"}


def partial(*expressions: Object, **labels: str) -> Object:
    selector = {"matchLabels": labels, "matchExpressions": list(expressions)}
    return {
        "mode": "Partial",
        "partial": {"machineResourceSelector": {key: value for key, value in selector.items() if value}},
    }


GUARD = partial(OWN)


def entry(selection: Object, resource: str = "machinesets") -> Object:
    return {"resource": resource, "apiGroup": "machine.openshift.io", "selection": selection}


class BootImages:
    """A cluster on vSphere, its MachineConfiguration, and the module."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.kube, self.client, self.name = kube, kube.client, name

    def release(self, version: str, platform: str = "VSphere") -> None:
        """Make the cluster report this version and this platform."""
        self.client.patch(f"{CLUSTER_VERSION_PATH}/status", {"status": {"desired": {"version": version}}})
        status = {"platform": platform, "platformStatus": {"type": platform}}
        self.client.patch(f"{INFRASTRUCTURE_PATH}/status", {"status": status})

    def declare(self, *managers: Object) -> None:
        """Create or replace the MachineConfiguration, as an administrator does."""
        self.client.delete(MACHINE_CONFIGURATION_PATH)
        body = {
            "apiVersion": "operator.openshift.io/v1",
            "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed", "logLevel": "Normal"},
        }
        if managers != (None,):
            body["spec"]["managedBootImages"] = {"machineManagers": list(managers)}  # type: ignore[index]
        self.client.create(OBJECTS, body, manager="oc")

    def managers(self) -> Any:
        """The entries in the spec."""
        actual = self.client.get(MACHINE_CONFIGURATION_PATH) or {}
        return actual.get("spec", {}).get("managedBootImages", {}).get("machineManagers")

    def adopt(self) -> None:
        """Write the status for the current version of the spec, as the operator of the releases with boot images by default does."""
        actual = self.client.get(MACHINE_CONFIGURATION_PATH)
        if actual is None or actual.get("status", {}).get("observedGeneration") == actual["metadata"]["generation"]:
            return
        managers = actual["spec"].get("managedBootImages", {}).get("machineManagers")
        if managers != [] and not any(each["resource"] == "machinesets" for each in managers or ()):
            managers = [*(managers or []), entry(ALL)]
        status = {
            "observedGeneration": actual["metadata"]["generation"],
            "managedBootImagesStatus": {"machineManagers": managers},
        }
        self.client.patch(f"{MACHINE_CONFIGURATION_PATH}/status", {"status": status})

    @contextmanager
    def operator(self) -> Iterator[None]:
        """Keep the status current until the block ends."""
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(0.2):
                try:
                    self.adopt()
                except ApiError:
                    continue

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def run(self, *, check: bool = False, **options: Any) -> Object:
        given: Object = {"gpu_cluster": {"name": self.name}, "wait_timeout": 30, "wait_sleep": 1, **options}
        return self.kube.run(boot_images.main, check=check, **given)

    def done(self, **options: Any) -> Object:
        """A successful run with the operator, which check mode predicts, and which a second run does not repeat."""
        before = self.managers()
        predicted = self.run(check=True, **options)
        assert self.managers() == before
        with self.operator():
            result = self.run(**options)
        assert not result.get("failed"), result["msg"]
        for key in ("changed", "boot_images", "diff"):
            assert predicted[key] == result[key], key
        with self.kube.watched() as watched:
            again = self.run(kubeconfig=watched.kubeconfig, **options)
            requests = [each for each in watched.new_requests() if "kube-system" not in each]
        assert not again["changed"]
        assert again["boot_images"] == {**result["boot_images"], "narrowed": False}
        assert requests == [f"GET {MACHINE_CONFIGURATION_PATH}"]
        return result


@pytest.fixture
def images(openshift: OpenShift, openshift_kube: Kube) -> Iterator[BootImages]:
    """A cluster on vSphere with OpenShift 5.0 and without a MachineConfiguration; the previous state is restored afterwards."""
    client = openshift.client
    before = {path: openshift.get(path)["status"] for path in (CLUSTER_VERSION_PATH, INFRASTRUCTURE_PATH)}
    state = BootImages(openshift_kube, openshift.lab.name)
    state.release("5.0.0")
    client.delete(MACHINE_CONFIGURATION_PATH)
    yield state
    client.delete(MACHINE_CONFIGURATION_PATH)
    for path, status in before.items():
        client.patch(f"{path}/status", {"status": status})


def test_the_default_of_new_releases_is_restricted(images: BootImages) -> None:
    images.declare(None)
    images.adopt()
    result = images.done(names=["train"])
    assert result["boot_images"] == {"mode": "Partial", "guarded": True, "narrowed": False}
    assert images.managers() == [entry(GUARD)]
    assert result["diff"]["before"]["machineManagers"] == []
    assert result["diff"]["after"]["machineManagers"] == [entry(GUARD)]
    spec = images.kube.require(MACHINE_CONFIGURATION_PATH)["spec"]
    assert (spec["managementState"], spec["logLevel"]) == ("Managed", "Normal")


def test_a_missing_object_is_created_with_only_this_field(images: BootImages) -> None:
    images.done(names=["train"])
    spec = images.kube.require(MACHINE_CONFIGURATION_PATH)["spec"]
    assert spec["managedBootImages"] == {"machineManagers": [entry(GUARD)]}
    assert spec.keys() <= {"managedBootImages", "logLevel", "operatorLogLevel"}, "the others are defaults of the CRD"


def test_entries_for_other_resources_are_kept(images: BootImages) -> None:
    other = entry(ALL, "controlplanemachinesets")
    images.declare(other)
    images.done(names=["train"])
    assert images.managers() == [other, entry(GUARD)]


@pytest.mark.parametrize("selection", [NONE, GUARD, None])
def test_selections_that_exclude_all_are_not_changed(images: BootImages, selection: Object | None) -> None:
    images.declare(*([entry(selection)] if selection else []))
    with images.kube.watched() as watched, images.operator():
        result = images.run(names=["train"], kubeconfig=watched.kubeconfig)
        assert [each for each in watched.new_requests() if each.startswith(("PATCH", "POST", "PUT"))] == []
    assert not result["changed"]
    assert result["boot_images"] == {"mode": (selection or NONE)["mode"], "guarded": True, "narrowed": False}


def test_a_selection_of_others_is_restricted_only_if_this_is_allowed(images: BootImages) -> None:
    images.declare(entry(ALL), entry(NONE, "controlplanemachinesets"))
    for check in (True, False):
        refused = images.run(names=["train"], check=check)
        assert (refused["failed"], refused["code"], refused["changed"]) == (True, "invalid", False)
        assert 'selection for machinesets is {"mode": "All"}' in refused["msg"]
        assert "(train)" in refused["msg"]
        assert "narrow: true" in refused["msg"]
    # The message contains the entry that an administrator can set instead.
    text = refused["msg"].rpartition("set this entry yourself: ")[2]
    assert yaml.safe_load(text) == entry(GUARD)

    result = images.done(names=["train"], narrow=True)
    assert result["boot_images"] == {"mode": "Partial", "guarded": True, "narrowed": True}
    assert images.managers() == [entry(GUARD), entry(NONE, "controlplanemachinesets")]


def test_a_selector_of_others_gets_one_more_condition(images: BootImages) -> None:
    source = worker_machineset("boot-source")
    created = {"metadata": {key: source["metadata"][key] for key in ("name", "namespace", "labels")}}
    images.client.create(SETS, {**source, **created})
    images.kube.delete_afterwards(f"{SETS}/boot-source")
    labels = {CLUSTER_LABEL: source["metadata"]["labels"][CLUSTER_LABEL]}
    expression = {"key": "team", "operator": "NotIn", "values": ["a"]}
    images.declare(entry(partial(expression, **labels)))

    refused = images.run(names=["train"])
    assert yaml.safe_load(refused["msg"].rpartition("yourself: ")[2]) == entry(partial(expression, OWN, **labels))
    result = images.done(names=["train"], narrow=True)
    assert result["boot_images"]["narrowed"]
    assert images.managers() == [entry(partial(expression, OWN, **labels))]


def test_a_selector_that_does_not_include_the_machinesets_is_not_changed(images: BootImages) -> None:
    selection = partial(update="yes")
    images.declare(entry(selection))
    with images.operator():
        result = images.run(names=["train"])
    assert (result["changed"], result["boot_images"]["mode"]) == (False, "Partial")
    assert images.managers() == [entry(selection)]


def test_releases_without_this_default_are_not_changed_but_an_upgrade_needs_another_run(images: BootImages) -> None:
    images.release("4.21.3")
    images.declare(None)
    result = images.run(names=["train"])
    assert (result["changed"], images.managers()) == (False, None)
    assert result["boot_images"] == {"mode": "None", "guarded": False, "narrowed": False}
    assert str(result["warnings"]).count("as soon as an upgrade to 4.22 or later has started") == 1
    # The ClusterVersion names the new release before its operators run.
    images.release("4.22.0")
    assert images.done(names=["train"])["changed"]


@pytest.mark.parametrize(("version", "platform"), [("4.18.28", "VSphere"), ("5.0.0", "AWS")])
def test_other_releases_and_platforms_need_nothing(images: BootImages, version: str, platform: str) -> None:
    images.release(version, platform)
    images.declare(entry(ALL))
    result = images.run(names=["train"])
    assert not result["changed"]
    assert result["boot_images"] == {"mode": "None", "guarded": False, "narrowed": False}
    assert result.get("warnings", []) == []
    assert images.managers() == [entry(ALL)]


def test_the_run_ends_only_when_the_operator_has_adopted_the_selection(images: BootImages) -> None:
    images.declare(None)
    images.adopt()
    failed = images.run(names=["train"], wait_timeout=2)
    assert (failed["code"], failed["changed"]) == ("timeout", True)
    assert failed["boot_images"]["mode"] == "Partial"
    assert "status.observedGeneration is 1, metadata.generation is 2" in failed["msg"]
    assert 'shows the selection {"mode": "All"}' in failed["msg"]
    assert "oc get co machine-config" in failed["msg"]

    # The next run still waits, although there is nothing to change.
    assert images.run(names=["train"], wait_timeout=1)["code"] == "timeout"
    assert not images.run(names=["train"], wait=False)["changed"]
    with images.operator():
        assert not images.run(names=["train"])["changed"]


def test_the_lease_is_acquired_only_for_a_change(images: BootImages) -> None:
    images.declare(None)
    with images.kube.watched() as watched, images.operator():
        images.run(names=["train"], kubeconfig=watched.kubeconfig)
        assert any(LEASE in each for each in watched.new_requests() if each.startswith("PUT"))
        images.run(names=["train"], kubeconfig=watched.kubeconfig)
        assert [each for each in watched.new_requests() if not each.startswith("GET")] == []


def test_a_selection_that_appears_during_the_run_is_not_replaced(images: BootImages) -> None:
    images.declare(None)
    with images.kube.watched() as watched:

        def before(request: Any) -> None:
            if request.method == "PATCH" and "machineconfigurations" in request.path:
                watched.proxy.before = lambda request: None
                images.client.patch(
                    MACHINE_CONFIGURATION_PATH, {"spec": {"managedBootImages": {"machineManagers": [entry(ALL)]}}}
                )

        watched.proxy.before = before
        refused = images.run(names=["train"], kubeconfig=watched.kubeconfig)
    assert (refused["code"], refused["changed"]) == ("invalid", False)
    assert images.managers() == [entry(ALL)]


def test_an_invalid_name_is_refused_before_any_request(images: BootImages) -> None:
    refused = images.run(names=["Not Valid"], kubeconfig=images.kube.kubeconfig)
    assert refused["code"] == "invalid"
    assert refused["msg"].startswith('names[0]: "Not Valid" ')


def test_the_shipped_rights_are_sufficient(images: BootImages) -> None:
    shipped = yaml.safe_load((REPO / "examples" / "rbac" / "nodegroups.yaml").read_text())
    rules = [rule for item in shipped["items"] for rule in item.get("rules") or ()]
    kubeconfig = images.kube.limited_user(rules)
    with images.operator():
        created = images.run(names=["train"], kubeconfig=kubeconfig)
        assert created["changed"], created
        images.declare(entry(ALL))
        assert images.run(names=["train"], narrow=True, kubeconfig=kubeconfig)["changed"]


def test_machineset_warns_about_templates_that_are_not_excluded(images: BootImages) -> None:
    source = worker_machineset("boot-vsphere", "vSphere")
    created = {"metadata": {key: source["metadata"][key] for key in ("name", "namespace", "labels")}}
    images.client.create(SETS, {**source, **created})
    images.kube.delete_afterwards(f"{SETS}/boot-vsphere")
    group = {"name": "desktops", "like": "boot-vsphere", "template": "rhcos-a100-10c", "node_count": 0}

    def warnings() -> str:
        result = images.kube.run(machineset.main, check=True, gpu_cluster={"name": images.name}, **group)
        assert not result.get("failed"), result["msg"]
        return str(result.get("warnings", ""))

    images.declare(None)
    images.adopt()
    assert "would replace template rhcos-a100-10c" in warnings()
    images.done(names=["desktops"])
    assert "rhcos-a100-10c" not in warnings()
    # A new MachineSet is judged by the labels that it will have.
    images.declare(entry(partial({"key": GROUP_LABEL, "operator": "Exists"})))
    assert "would replace template rhcos-a100-10c" in warnings()
    images.declare(entry(NONE))
    assert "rhcos-a100-10c" not in warnings()
