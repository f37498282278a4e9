# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specs of node groups from the module's options."""

from __future__ import annotations

import copy
import typing as t
from unittest.mock import Mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import autoscaler_rules
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import (
    Cluster,
    MachineApi,
    MachineObjects,
    MachineSetProvider,
    option_problems,
    spec_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import copy_of, provider_spec_of
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested
from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import name_of
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import CREATE, plan_group_changes
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_owner
from tests.helpers.machine_api import Object, machine, marked, worker_machineset

RULES = autoscaler_rules((4, 18))


def options(**more: t.Any) -> dict[str, t.Any]:
    return {"name": "train", "state": "present", "recreate": False, **more}


def cluster(*machinesets: Object) -> Cluster:
    return Cluster(machinesets or (worker_machineset(),), RULES, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "Train"}, "name is not a DNS label"),
        ({"name": "x" * 58}, "name has 58 characters; the name of a MachineSet can have at most 57"),
        ({"node_count": -1}, "node_count is -1; it must not be negative"),
        ({"min_node_count": 1}, "min_node_count and max_node_count must be set together"),
        ({"min_node_count": 3, "max_node_count": 2}, "min_node_count (3) must not exceed max_node_count (2)"),
        ({"min_node_count": 0, "max_node_count": 0}, "max_node_count is 0, but an autoscaler needs 1 or more"),
        (
            {"min_node_count": 1, "max_node_count": 2, "node_count": 3},
            "node_count (3) is not between min_node_count (1)",
        ),
        ({"flavor": "a", "template": "b"}, "flavor and template are mutually exclusive"),
        (
            {"capacity": {"resources": {"nvidia.com/gpu": "many"}}},
            "capacity.resources.nvidia.com/gpu: 'many' is not an amount",
        ),
        ({"node_labels": {"a b": "c"}}, "node_labels: 'a b' is not a label key"),
        ({"accelerators": {"type": "t", "count": 0}}, "accelerators.count: 0 is not allowed"),
    ],
)
def test_mistakes_in_the_options(given: dict[str, t.Any], message: str) -> None:
    (actual,) = option_problems(options(**given))
    assert message in actual


def test_the_options_of_a_group_to_delete_are_not_checked() -> None:
    assert list(option_problems(options(state="absent", node_count=-1))) == []
    spec, problems, dummy = spec_of(options(state="absent"), None, Cluster((), RULES, None))
    assert (spec.present, problems) == (False, [])


@pytest.mark.parametrize(
    ("platform", "given", "message"),
    [
        (
            "vSphere",
            {"flavor": "g4dn.xlarge"},
            "flavor: vSphere machines are clones of a virtual machine; set template instead",
        ),
        ("AWS", {"template": "t"}, "template: AWS machines have a machine type; set flavor instead"),
        ("Azure", {"accelerators": {"type": "t", "count": 1}}, "accelerators: only GCP machines have them"),
    ],
)
def test_settings_that_the_platform_does_not_have(platform: str, given: dict[str, t.Any], message: str) -> None:
    dummy, (problem,), dummy2 = spec_of(options(**given), None, cluster(worker_machineset(platform=platform)))
    assert problem.startswith(f"Node group train: {message}")


def test_a_new_group_is_shown_with_the_machineset_that_it_is_copied_from() -> None:
    spec, problems, reason = spec_of(options(flavor="g4dn.xlarge", node_count=2), None, cluster())
    assert (problems, spec.fields["like"], spec.fields["flavor"]) == ([], "prod-worker-a", "g4dn.xlarge")
    assert reason == "it is the only worker MachineSet"
    created = spec.created("train", 2, RULES)
    assert (created["spec"]["replicas"], provider_spec_of(created)["instanceType"]) == (2, "g4dn.xlarge")
    assert spec.differences(created, RULES) == {}, "nothing is left to change"


def test_machines_with_gpus_of_google_cloud_are_not_migrated() -> None:
    google = worker_machineset(platform="GCP")
    spec, dummy, dummy2 = spec_of(options(flavor="a2-highgpu-1g"), None, cluster(google))
    assert provider_spec_of(spec.created("train", 1, RULES))["onHostMaintenance"] == "Terminate"
    declared = options(provider_spec={"onHostMaintenance": "Other"})
    spec, dummy, dummy2 = spec_of(declared, None, cluster(google))
    assert provider_spec_of(spec.created("train", 1, RULES))["onHostMaintenance"] == "Other"


def test_a_group_with_a_range_keeps_the_number_of_nodes_that_the_autoscaler_has_chosen() -> None:
    live = copy_of(worker_machineset(), "train", "train")
    for replicas, expected in ((0, 1), (3, 3), (9, 4)):
        live["spec"]["replicas"] = replicas
        spec, dummy, dummy2 = spec_of(options(min_node_count=1, max_node_count=4, node_count=2), live, cluster(live))
        differences = spec.differences(live, RULES)
        assert differences.get("node_count", (replicas, replicas))[1] == expected
        assert not {"min_node_count", "max_node_count"} & set(differences)


def test_a_replacement_keeps_the_fields_of_the_group_that_it_replaces() -> None:
    live = copy_of(worker_machineset(), "train", "train")
    provider_spec_of(live)["spotMarketOptions"] = {}
    get_nested(live, "spec", "template", "metadata", "labels")["tuned"] = "yes"
    spec, dummy, dummy2 = spec_of(options(flavor="p4d.24xlarge", like="gone", recreate=True), live, cluster(live))
    created = spec.created("train-ab12", 2, RULES)
    assert provider_spec_of(created)["spotMarketOptions"] == {}
    assert get_nested(created, "spec", "template", "metadata", "labels")["tuned"] == "yes"
    assert created["metadata"]["labels"]["accel.gpu/nodegroup"] == "train"
    assert created["metadata"]["name"] == "train-ab12"


def test_a_machineset_of_others_is_marked_when_it_is_adopted() -> None:
    spec, dummy, dummy2 = spec_of(options(), worker_machineset("train"), cluster())
    assert spec.fields["managed"] is True


def test_labels_and_amounts_of_a_future_node_may_be_of_any_type() -> None:
    capacity = {"resources": {"nvidia.com/gpu": "4"}, "labels": {"a": 1, "b": True, "gone": None}}
    spec, dummy, dummy2 = spec_of(options(capacity=capacity), None, cluster())
    assert spec.capacity is not None
    assert spec.capacity.resources == {"nvidia.com/gpu": 4}
    assert spec.capacity.labels == {"a": "1", "b": "true"}


WRITTEN: Object = {
    "operation": "Update",
    "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, "f:accel.gpu/nodegroup-mark": {}}}},
}
WRITTEN_BY_THE_COLLECTION = [{"manager": "accel.gpu", **WRITTEN}]


class StubApi:
    """The Machine API of a cluster with these MachineSets, which assigns UIDs; `sent` records what would change."""

    namespace = "openshift-machine-api"

    def __init__(self, *machinesets: Object, machines: t.Sequence[Object] = ()) -> None:
        self.objects, self.machines = {item["metadata"]["name"]: item for item in machinesets}, machines
        self.sent: list[str] = []

    def read(self) -> MachineObjects:
        return MachineObjects(tuple(self.objects.values()), tuple(self.machines))

    def autoscalers(self) -> dict[str, list[Object]]:
        return {}

    def infrastructure(self) -> None:
        return None

    def machine_configuration(self) -> None:
        return None

    def release(self) -> tuple[int, int]:
        return (4, 18)

    def create(self, machineset: Object, *, dry_run: bool = False) -> Object:
        name = machineset["metadata"]["name"]
        self.sent.append(f"create {name}")
        server = {"uid": f"uid of {name}", "managedFields": WRITTEN_BY_THE_COLLECTION}
        self.objects[name] = {**machineset, "metadata": {**machineset["metadata"], **server}}
        return self.objects[name]

    def patch(self, name: str, make_patch: t.Any, *, dry_run: bool = False, live: Object | None = None) -> None:
        patch = make_patch(live or self.objects[name])
        self.sent.append(f"patch {name} {sorted(patch['metadata'])}")
        self.objects[name]["metadata"]["annotations"] |= patch["metadata"].get("annotations") or {}

    def delete(self, name: str, uid: str | None = None) -> None:
        self.sent.append(f"delete {name} {uid}")


def provider_of(api: StubApi) -> MachineSetProvider:
    return MachineSetProvider(t.cast("MachineApi", api))


def test_the_mark_of_a_new_machineset_contains_its_uid_and_only_that_object_is_deleted() -> None:
    api = StubApi(worker_machineset())
    provider = provider_of(api)
    (spec,) = provider.specs_of([options(flavor="g4dn.xlarge", node_count=2)])
    provider.create(spec, "train-1a2b", 2)
    assert api.sent == ["create train-1a2b", "patch train-1a2b ['annotations']"]
    assert machine_set_owner(api.objects["train-1a2b"]) == "train"
    (state,) = provider_of_read(api, options(flavor="g4dn.xlarge"))
    assert (state.name, state.owner) == ("train-1a2b", "train")
    again = provider_of(api)
    again.specs_of([options(state="absent")])
    (state,) = again.read("train-1a2b".__eq__)
    again.delete(state)
    assert api.sent[-1] == "delete train-1a2b uid of train-1a2b"


def provider_of_read(api: StubApi, given: dict[str, t.Any]) -> list[t.Any]:
    """The groups that a later run finds for these options."""
    provider = provider_of(api)
    provider.specs_of([given])
    return [state for state in provider.read(lambda dummy: True) if state.owner == given["name"]]


@pytest.mark.parametrize("state", ["present", "absent"])
def test_copies_and_groups_of_others_are_not_read_as_groups(state: str) -> None:
    own = marked(worker_machineset("train"), "train")
    plain, renamed = copy.deepcopy(own), copy.deepcopy(own)
    plain["metadata"] |= {"name": "train-2026", "uid": "2"}
    renamed["metadata"] |= {"name": "train-beef", "uid": "3", "labels": {"accel.gpu/nodegroup": "train-beef"}}
    api = StubApi(worker_machineset(), own, plain, renamed, worker_machineset("train-0002"))
    assert [group.name for group in provider_of_read(api, options(state=state))] == ["train"]


@pytest.mark.parametrize("name", ["train", "train-1a2b"])
def test_a_machineset_that_a_killed_run_created_is_finished_and_never_doubled(name: str) -> None:
    """The run is killed between the request that creates the MachineSet and the request that completes its mark."""
    api = StubApi(worker_machineset(), *([marked(worker_machineset("train"), "train")] if name != "train" else []))
    given = options(flavor="g4dn.xlarge", recreate=True, node_count=3)
    provider = provider_of(api)
    (spec,) = provider.specs_of([given])
    api.patch = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        provider.create(spec, name, 3)
    del api.patch
    assert machine_set_owner(api.objects[name]) is None

    again = provider_of(api)
    (spec,) = again.specs_of([given])
    states = again.read(lambda group: group.startswith("train"))
    (change,), problems = plan_group_changes([spec], states, again.immutable_fields, 63, again.machine_fields)
    assert (change.name, problems) == (name, [])
    assert [old.name for old in change.superseded] == (["train"] if name != "train" else [])
    assert change.current is not None
    (request,) = again.requests(change.current, spec, [])
    assert request.description == "change managed"
    request.send()
    assert machine_set_owner(api.objects[name]) == "train"
    third = provider_of(api)
    (spec,) = third.specs_of([given])
    (current,) = third.read(name.__eq__)
    assert third.requests(current, spec, []) == []


def test_a_restored_or_copied_replacement_is_neither_adopted_nor_doubled() -> None:
    """A backup gives objects other UIDs and another field manager."""
    original = provider_of(api := StubApi(worker_machineset()))
    (spec,) = original.specs_of([options(flavor="g4dn.xlarge")])
    api.patch = Mock(side_effect=KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        original.create(spec, "train-1a2b", 2)
    for finished in (False, True):
        metadata = api.objects["train-1a2b"]["metadata"]
        if finished:
            metadata["uid"] = "before the backup"
            marked(api.objects["train-1a2b"], "train")
        metadata |= {"uid": "restored", "managedFields": [{"manager": "velero-server", **WRITTEN}]}
        restored = provider_of(StubApi(*api.objects.values()))
        (spec,) = restored.specs_of([options(flavor="g4dn.xlarge")])
        states = restored.read(lambda group: group.startswith("train"))
        (change,), (problem,) = plan_group_changes([spec], states, restored.immutable_fields, 63)
        assert change.action == CREATE
        for text in ("train-1a2b", "label accel.gpu/nodegroup and annotation accel.gpu/nodegroup-mark", "or delete it"):
            assert text in problem
        absent = provider_of(StubApi(*api.objects.values()))
        (spec,) = absent.specs_of([options(state="absent")])
        (change,), problems = plan_group_changes([spec], absent.read(lambda dummy: True), frozenset(), 63)
        assert (change.superseded, problems, list(change.unproven)) == ((), [], ["train-1a2b"])


def test_a_machineset_is_adopted_with_a_mark_even_if_it_is_the_copy_of_another_group() -> None:
    copied = marked(worker_machineset("other"), "other")
    copied["metadata"] |= {"name": "train", "uid": "2"}
    api = StubApi(worker_machineset(), copied)
    with pytest.raises(InvalidOptions, match="was not created by this collection"):
        provider_of(api).specs_of([options()])
    provider = provider_of(api)
    (spec,) = provider.specs_of([options(adopt=True)])
    (state,) = provider.read("train".__eq__)
    (request,) = provider.requests(state, spec, [])
    request.send()
    assert (
        machine_set_owner({"metadata": {**copied["metadata"], "labels": {"accel.gpu/nodegroup": "train"}}}) == "train"
    )


@pytest.mark.parametrize(
    ("platform", "leaving", "waits", "sent"),
    [
        # The GPUs of a virtual machine that is being deleted are not free yet, and the new one would be started only once.
        ("vSphere", True, True, []),
        ("vSphere", False, True, ["change node_count"]),
        ("vSphere", True, False, ["change node_count"]),
        ("AWS", True, True, ["change node_count"]),
    ],
)
def test_clones_are_added_once_the_leaving_ones_are_gone(
    platform: str, leaving: bool, waits: bool, sent: list[str]
) -> None:
    live = marked(worker_machineset("train", platform), "train")
    old = machine("train-a", live)
    if leaving:
        old["metadata"]["deletionTimestamp"] = "2026-11-24T05:19:00Z"
    provider = MachineSetProvider(t.cast("MachineApi", StubApi(live, machines=[old])), waits=waits)
    (spec,) = provider.specs_of([options(node_count=4)])
    (state,) = provider.read("train".__eq__)
    assert [request.description for request in provider.requests(state, spec, [])] == sent


def test_the_machines_that_will_be_outdated_once_the_machineset_has_its_new_template() -> None:
    live = marked(worker_machineset("train", "vSphere"), "train")
    machines = [machine(f"train-{name}", live) for name in "abc"]
    machines[0]["spec"]["providerSpec"]["value"]["template"] = "new"
    machines[2]["metadata"]["deletionTimestamp"] = "2026-11-24T05:19:00Z"
    provider = MachineSetProvider(t.cast("MachineApi", StubApi(live, machines=machines)))
    declared = options(node_count=4, template="new", recreate=True)
    (spec,) = provider.specs_of([declared], replaces_outdated=True)
    assert (spec.recreate, spec.replaces_outdated, spec.can_replace_machines) == (False, True, True)
    (group,) = provider.outdated_machines().values()
    assert [name_of(each) for each in group.outdated] == ["train-b"]
    assert (group.machineset, group.count, group.nodes) == ("train", 4, ("train-a", "train-b"))


@pytest.mark.parametrize(
    ("cloned", "declared", "outdated"),
    [
        ("vdi-418.94-d38938", "vdi-418.94-d38938-2", False),
        ("vdi-418.94-d38938-2", "vdi-418.94-d38938-12", False),
        ("vdi-418.94-d38938-2", "vdi-418.94-d38938", False),
        ("vdi-418.94-d38938", "vdi-419.96-d38938-2", True),
        ("vdi-418.94-d38938", "vdi-418.94-d38939-2", True),
        ("other-418.94-d38938", "vdi-418.94-d38938-2", True),
        # Not the names of this collection.
        ("rhcos-418", "rhcos-418-2", True),
        ("rhcos-1", "rhcos-2", True),
    ],
)
def test_machines_of_a_template_with_equal_content_are_not_outdated(cloned: str, declared: str, outdated: bool) -> None:
    live = marked(worker_machineset("train", "vSphere"), "train")
    old = machine("train-a", live)
    old["spec"]["providerSpec"]["value"]["template"] = f"/DC1/vm/accel-gpu/{cloned}"
    provider = MachineSetProvider(t.cast("MachineApi", StubApi(live, machines=[old])))
    template = f"/DC1/vm/accel-gpu/{declared}"
    (spec,) = provider.specs_of([options(node_count=1, template=template)], replaces_outdated=True)
    (group,) = provider.outdated_machines().values()
    assert [name_of(each) for each in group.outdated] == (["train-a"] if outdated else [])
    # The MachineSet names the new template all the same.
    assert spec.fields["template"] == template
