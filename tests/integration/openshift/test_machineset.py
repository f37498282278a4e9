# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules machineset and machineset_info against a real API server with the CRDs of OpenShift, without any Machines."""

from __future__ import annotations

import copy
import itertools
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_mark
from ansible_collections.accel.gpu.plugins.modules import machineset, machineset_info
from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.machine_api import NAMESPACE, Object, worker_machineset
from tests.helpers.modules import run_module
from tests.helpers.openshift import OpenShift
from tests.labs import Lab

pytestmark = [pytest.mark.usual(3)]

SETS = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machinesets"
CAPACITY_LABELS = "capacity.cluster-autoscaler.kubernetes.io/labels"
AUTOSCALERS = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers"
LABELS = ("spec", "template", "spec", "metadata", "labels")
TAINTS = ("spec", "template", "spec", "taints")
VALUE = ("spec", "template", "spec", "providerSpec", "value")
_numbers = itertools.count()


class MachineSets:
    """The MachineSets of a cluster, and the modules for it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.client = OpenShift(lab).client
        self.layout = LabLayout.named(lab.name)

    def source(self, zone: str = "a", replicas: int = 0, **provider_spec: t.Any) -> str:
        """Create a MachineSet of workers as others have made it; returns its name."""
        name = f"source-{next(_numbers)}-us-east-2{zone}"
        placement = {"availabilityZone": f"us-east-2{zone}", "region": "us-east-2"}
        body = worker_machineset(name, placement=placement, **provider_spec)
        for key in ("uid", "resourceVersion", "managedFields", "ownerReferences", "finalizers", "creationTimestamp"):
            del body["metadata"][key]
        body["spec"]["replicas"] = replicas
        self.client.create(SETS, body)
        return name

    def get(self, name: str) -> Object:
        actual = self.client.get(f"{SETS}/{name}")
        assert actual is not None, name
        return actual

    def run(self, *, check: bool = False, **options: t.Any) -> dict[str, t.Any]:
        name = {"gpu_cluster": {"name": self.lab.name}, "confirm": [self.lab.name]}
        options = {"wait_timeout": 60, "wait_sleep": 1, "wait": False, **name, **options}
        return run_module(machineset.main, {"kubeconfig": str(self.lab.kubeconfig), **options}, check=check, diff=True)

    def info(self, **options: t.Any) -> dict[str, t.Any]:
        return run_module(machineset_info.main, {"kubeconfig": str(self.lab.kubeconfig), **options})

    def mutations(self, since: int) -> list[str]:
        """The requests of this collection that change something, without dry runs."""
        sent = audit.requests(self.layout, since, "accel.gpu/")
        return [request.uri for request in sent if request.mutating and "dryRun" not in request.uri]


@pytest.fixture(scope="module")
def sets(openshift_lab: Lab) -> t.Iterator[MachineSets]:
    OpenShift(openshift_lab).empty()
    # No controller changes the MachineSets, so that they can be compared as a whole.
    openshift_lab.command("cloud", "fault", "inject", "machines.paused")
    yield MachineSets(openshift_lab)
    openshift_lab.command("cloud", "fault", "clear", "machines.paused")


def group(name: str, like: str | None, **more: t.Any) -> dict[str, t.Any]:
    """The options of a group as a pool declares them."""
    declared = {
        "name": name,
        "like": like,
        "flavor": "g4dn.xlarge",
        "node_count": 0,
        "node_labels": {"accel.gpu/pool": name, "cluster-api/accelerator": "Tesla-T4-SHARED"},
        "node_taints": [{"key": "restrictedaccess", "value": "yes", "effect": "NoSchedule"}],
        "capacity": {"resources": {"nvidia.com/gpu": 4}, "labels": {"nvidia.com/gpu.product": "Tesla-T4-SHARED"}},
        **more,
    }
    return {key: value for key, value in declared.items() if value is not None}


def test_a_machineset_is_created_as_a_copy_and_a_second_run_sends_no_write(sets: MachineSets) -> None:
    source = sets.source()
    options = group("copied", source)
    before = sets.get(source)
    since = audit.mark(sets.layout)
    predicted = sets.run(check=True, **options)
    assert (predicted["changed"], sets.mutations(since)) == (True, [])
    assert sets.client.get(f"{SETS}/copied") is None

    made = sets.run(**options)
    assert made["changed"], made
    assert made["diff"] == predicted["diff"]
    live = sets.get("copied")
    assert get_nested(live, *VALUE) == {**get_nested(before, *VALUE), "instanceType": "g4dn.xlarge"}
    assert get_nested(live, *LABELS) == {
        "accel.gpu/pool": "copied",
        "cluster-api/accelerator": "Tesla-T4-SHARED",
        "topology.kubernetes.io/zone": "us-east-2a",
        "topology.kubernetes.io/region": "us-east-2",
        "topology.ebs.csi.aws.com/zone": "us-east-2a",
    }
    assert get_nested(live, *TAINTS) == options["node_taints"]
    annotations = live["metadata"]["annotations"]
    assert annotations["capacity.cluster-autoscaler.kubernetes.io/gpu-count"] == "4"
    assert annotations["capacity.cluster-autoscaler.kubernetes.io/gpu-type"] == "nvidia.com/gpu"
    assert sets.get(source) == before, "the source is not touched"

    since = audit.mark(sets.layout)
    assert not sets.run(**options)["changed"]
    assert sets.mutations(since) == []
    assert len(list(audit.requests(sets.layout, since, "accel.gpu/"))) <= 8


def test_hand_tuned_fields_and_entries_of_others_survive(sets: MachineSets) -> None:
    options = group("tuned", sets.source())
    sets.run(**options)
    tuning = {
        "metadata": {"annotations": {"team": "ml"}, "labels": {"team": "ml"}},
        "spec": {
            "deletePolicy": "Newest",
            "template": {
                "spec": {
                    "metadata": {"labels": {"team": "ml"}},
                    "taints": [*options["node_taints"], {"key": "team", "value": "ml", "effect": "NoSchedule"}],
                    "providerSpec": {"value": {"tags": [{"name": "team", "value": "ml"}]}},
                }
            },
        },
    }
    before = sets.client.patch(f"{SETS}/tuned", tuning)
    changed = group("tuned", None, flavor="g4dn.2xlarge", node_labels={"accel.gpu/pool": "tuned"}, node_taints=[])
    assert sets.run(**changed)["changed"]
    expected = copy.deepcopy(before)
    expected["spec"]["template"]["spec"]["providerSpec"]["value"]["instanceType"] = "g4dn.2xlarge"
    del expected["spec"]["template"]["spec"]["metadata"]["labels"]["cluster-api/accelerator"]
    expected["spec"]["template"]["spec"]["taints"] = [{"key": "team", "value": "ml", "effect": "NoSchedule"}]
    after = sets.get("tuned")
    # The annotation for the autoscaler also has the declared labels of the template.
    labels = [machineset["metadata"]["annotations"].pop(CAPACITY_LABELS).split(",") for machineset in (expected, after)]
    assert "accel.gpu/pool=tuned" in labels[1]
    assert any(label.startswith("cluster-api/accelerator=") for label in labels[0])
    assert not any(label.startswith("cluster-api/accelerator=") for label in labels[1])
    for actual in (expected, after):
        del actual["metadata"]["annotations"]["accel.gpu/registration"]
        for key in ("resourceVersion", "generation", "managedFields"):
            actual["metadata"].pop(key)
    assert after == expected


def test_a_machineset_of_others_is_neither_changed_nor_deleted_until_it_is_adopted(sets: MachineSets) -> None:
    foreign = sets.source()
    before = sets.get(foreign)
    for options in (group(foreign, None), {"name": foreign, "state": "absent"}):
        refused = sets.run(**options)
        assert refused["failed"]
        assert f"MachineSet {foreign} in namespace {NAMESPACE} was not created by this collection" in refused["msg"]
        assert "adopt: true" in refused["msg"]
    assert sets.get(foreign) == before
    adopted = sets.run(**group(foreign, None, adopt=True))
    assert adopted["changed"], adopted
    assert sets.get(foreign)["metadata"]["labels"]["accel.gpu/nodegroup"] == foreign
    assert not sets.run(**group(foreign, None))["changed"]
    assert sets.info()["nodegroups"][foreign]["group"] == foreign


def test_a_name_that_looks_like_a_replacement_of_a_group_is_not_one(sets: MachineSets) -> None:
    source = sets.source()
    sets.run(**group("stem", source))
    look_alike = worker_machineset("stem-ab12")
    for key in ("uid", "resourceVersion", "managedFields", "ownerReferences", "finalizers", "creationTimestamp"):
        del look_alike["metadata"][key]
    look_alike["spec"]["replicas"] = 0
    sets.client.create(SETS, look_alike)
    before = sets.get("stem-ab12")
    assert sets.run(name="stem", state="absent")["changed"]
    assert sets.get("stem-ab12") == before


def copied_by_hand(sets: MachineSets, original: str, name: str, *, replace: bool) -> Object:
    """Copy a MachineSet as `oc get -o yaml`, an editor (or `sed`, which replaces every occurrence of the name) and `oc create` do it."""
    text = json.dumps(sets.get(original))
    body: Object = json.loads(text.replace(original, name) if replace else text)
    for key in ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"):
        body["metadata"].pop(key, None)
    body["metadata"]["name"] = name
    body.pop("status", None)
    return sets.client.create(SETS, body)


@pytest.mark.parametrize("replace", [False, True])
def test_a_copy_of_a_managed_machineset_is_never_deleted_or_changed(sets: MachineSets, replace: bool) -> None:
    name = f"burst-{str(replace).lower()}"
    sets.run(**group(name, sets.source()))
    assert sets.get(name)["metadata"]["annotations"]["accel.gpu/nodegroup-mark"].startswith(f"{name}.")
    copies = [copied_by_hand(sets, name, f"{name}-{suffix}", replace=replace) for suffix in ("2026", "beef")]
    names = [item["metadata"]["name"] for item in copies]

    since = audit.mark(sets.layout)
    unchanged = sets.run(**group(name, None), declared_names=[name])
    assert (unchanged["changed"], sets.mutations(since)) == (False, [])
    assert {item["group"] for key, item in sets.info()["nodegroups"].items() if key in names} == {None}

    deleted = sets.run(name=name, state="absent")
    assert deleted["changed"], deleted
    assert deleted["nodegroup"]["deletes"] == [f"{name} (0 nodes)"]
    assert [sets.get(copy) for copy in names] == copies
    assert all(f"/{copy}" not in uri for copy in names for uri in sets.mutations(since))


def test_a_machineset_that_a_killed_run_has_just_created_gets_its_complete_mark(sets: MachineSets) -> None:
    options = group("halfmade", sets.source())
    sets.run(**options)
    live = sets.get("halfmade")
    complete = live["metadata"]["annotations"]["accel.gpu/nodegroup-mark"]
    new = copy.deepcopy(live)
    del new["metadata"]["uid"]
    pending = {"metadata": {"annotations": {"accel.gpu/nodegroup-mark": machine_set_mark(new, "halfmade")}}}
    sets.client.patch(f"{SETS}/halfmade", pending)
    finished = sets.run(**options)
    assert finished["changed"], finished
    assert sets.get("halfmade")["metadata"]["annotations"]["accel.gpu/nodegroup-mark"] == complete
    assert not sets.run(**options)["changed"]


@pytest.mark.parametrize("force", [True, False])
def test_a_field_of_another_manager_is_named_and_treated_as_the_user_chooses(sets: MachineSets, force: bool) -> None:
    name = f"conflict-{str(force).lower()}"
    sets.run(**group(name, sets.source()))
    body = {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"providerSpec": {"value": {"instanceType": "g5.xlarge"}}}}},
    }
    sets.client.apply(f"{SETS}/{name}", body, manager="argocd-controller")
    result = sets.run(**group(name, None), force=force)
    named = "spec.template.spec.providerSpec.value.instanceType (set by argocd-controller)"
    if force:
        assert result["changed"], result
        assert named in str(result["warnings"])
        assert get_nested(sets.get(name), *VALUE, "instanceType") == "g4dn.xlarge"
    else:
        assert result["failed"]
        assert named in result["msg"]
        assert get_nested(sets.get(name), *VALUE, "instanceType") == "g5.xlarge"


def test_the_number_of_nodes_is_left_to_an_autoscaler(sets: MachineSets) -> None:
    sets.run(**group("scaled", sets.source()))
    autoscaler = {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": "scaled-by-me", "namespace": NAMESPACE},
        "spec": {
            "minReplicas": 0,
            "maxReplicas": 4,
            "scaleTargetRef": {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "scaled"},
        },
    }
    sets.client.create(AUTOSCALERS, autoscaler)
    try:
        result = sets.run(**group("scaled", None, node_count=3))
        assert not result["changed"]
        assert "MachineAutoscaler scaled-by-me controls its number of nodes (0)" in str(result["warnings"])
        ranged = sets.run(**group("scaled", None, node_count=2, min_node_count=0, max_node_count=4))
        assert not ranged["changed"]
        assert sets.info(names=["scaled"])["nodegroups"]["scaled"]["autoscaler"] == "scaled-by-me"
    finally:
        sets.client.delete(f"{AUTOSCALERS}/scaled-by-me")


def test_one_impossible_group_keeps_all_of_them_from_being_changed(sets: MachineSets) -> None:
    source = sets.source()
    since = audit.mark(sets.layout)
    result = sets.run(nodegroups=[group("good", source), group("bad", "no-such-set")])
    assert result["failed"]
    assert "Node group bad: like: MachineSet no-such-set does not exist." in result["msg"]
    assert sets.mutations(since) == []


def test_a_group_in_another_zone_is_copied_from_the_machineset_there(sets: MachineSets) -> None:
    name, other = sets.source("c"), sets.source("d")
    predicted = sets.run(check=True, **group("zoned", name, zone="us-east-2d"))
    assert predicted["nodegroup"]["like"] == other
    assert sets.run(**group("zoned", name, zone="us-east-2d"))["changed"]
    assert get_nested(sets.get("zoned"), *VALUE, "placement", "availabilityZone") == "us-east-2d"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "t", "flavor": None}, "template: AWS machines have a machine type; set flavor instead."),
        ({"accelerators": {"type": "t", "count": 1}}, "accelerators: only GCP machines have them"),
        ({"zone": "us-east-2z"}, 'zone: no worker MachineSet is in "us-east-2z"'),
        (
            {"node_count": 5, "min_node_count": 0, "max_node_count": 4},
            "node_count (5) is not between min_node_count (0)",
        ),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(sets: MachineSets, options: dict[str, t.Any], message: str) -> None:
    source = sets.source()
    since = audit.mark(sets.layout)
    for check in (True, False):
        result = sets.run(check=check, **group("mistaken", source, **options))
        assert result["failed"]
        assert message in result["msg"]
    assert sets.mutations(since) == []


def test_absent_machinesets_are_no_change(sets: MachineSets) -> None:
    since = audit.mark(sets.layout)
    assert not sets.run(name="never-existed", state="absent")["changed"]
    assert sets.mutations(since) == []
