# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The copy of a MachineSet, and the settings of a node group in it."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import (
    LABELS,
    TAINTS,
    configured,
    copy_of,
    decode,
    finished_mark,
    nodegroup_of,
    paths_in,
    provider_spec_of,
    record_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested, merge_patch
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupSpec,
    NodeGroupState,
    field_differences,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import machine_set_owner
from tests.helpers.machine_api import (
    CLUSTER_LABEL,
    GROUP_MARK,
    MACHINESET_LABEL,
    ROLE_LABEL,
    Object,
    marked,
    worker_machineset,
)

GROUP = "accel.gpu/nodegroup"


def texts(value: t.Any) -> t.Iterator[str]:
    """All keys and texts in a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def changed(machineset: Object, declared: dict[str, t.Any], **fields: t.Any) -> Object:
    """The MachineSet with these fields, as a request would leave it; declared is the part of the providerSpec."""
    paths = paths_in(declared)
    if declared:
        fields["provider_spec"] = {name: get_nested(declared, *path) for name, path in paths.items()}
    count = machineset["spec"]["replicas"]
    state = NodeGroupState("x", "x", "", settled=True, failed=False, count=count, fields=decode(machineset, paths))
    return configured(machineset, field_differences(NodeGroupSpec("x", fields=fields), state), paths, "x")


def test_a_copy_has_a_new_identity_and_the_same_machines() -> None:
    source = worker_machineset()
    source["spec"]["template"]["spec"]["metadata"] = {"labels": {"team": "infra", "accel.gpu/pool": "other"}}
    new = copy_of(source, "train", "train")
    assert new["metadata"] == {
        "name": "train",
        "namespace": "openshift-machine-api",
        "labels": {CLUSTER_LABEL: "prod-7x2kd", GROUP: "train"},
        "annotations": {GROUP_MARK: new["metadata"]["annotations"][GROUP_MARK]},
    }
    assert nodegroup_of(new) == "train"
    assert set(new) == {"apiVersion", "kind", "metadata", "spec"}, "no status"
    assert new["spec"]["replicas"] == 0
    assert new["spec"]["deletePolicy"] == "Oldest"
    assert new["spec"]["selector"]["matchLabels"] == {CLUSTER_LABEL: "prod-7x2kd", MACHINESET_LABEL: "train"}
    template = new["spec"]["template"]
    assert template["metadata"]["labels"][MACHINESET_LABEL] == "train"
    assert template["metadata"]["labels"][ROLE_LABEL] == "worker"
    assert template["spec"]["metadata"] == {"labels": {"team": "infra"}}, "without the labels of another pool"
    assert provider_spec_of(new) == provider_spec_of(source)


def test_own_taints_and_those_for_the_start_are_not_copied() -> None:
    source = worker_machineset()
    foreign = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    startup = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu", "effect": "NoSchedule"}
    source["spec"]["template"]["spec"]["taints"] = [
        foreign,
        startup,
        {"key": "accel.gpu/failed", "effect": "NoSchedule"},
    ]
    assert get_nested(copy_of(source, "train", "train"), *TAINTS) == [foreign]


_NAME = st.text("abcdefghij", min_size=4, max_size=12)
_TEXT = st.text("klmnopqrst-./", min_size=1, max_size=12)


@given(
    _NAME,
    st.dictionaries(_TEXT, _TEXT, max_size=4),
    st.dictionaries(_TEXT, _TEXT, max_size=4),
    st.dictionaries(_TEXT, _TEXT | st.dictionaries(_TEXT, _TEXT), max_size=3),
)
def test_nothing_identifies_the_source(
    name: str, labels: dict[str, str], annotations: dict[str, str], extra: dict[str, t.Any]
) -> None:
    source = worker_machineset(f"{name}-source")
    source["metadata"]["labels"].update(labels, own=f"{name}-source")
    source["metadata"]["annotations"].update(annotations)
    source["spec"]["template"]["metadata"]["labels"].update(labels, twice=f"{name}-source")
    source["spec"]["selector"]["matchLabels"].update(labels)
    before = copy.deepcopy(source)
    source["spec"].update({f"z{key}": value for key, value in extra.items()})
    new = copy_of(source, "copy", "group")
    assert f"{name}-source" not in set(texts(new))
    metadata = source["metadata"]
    assert not {metadata["uid"], metadata["resourceVersion"], *metadata["annotations"]} & set(texts(new["metadata"]))
    assert not {
        "uid",
        "resourceVersion",
        "generation",
        "ownerReferences",
        "finalizers",
        "managedFields",
    } & set(new["metadata"])
    assert new["spec"]["selector"]["matchLabels"].items() <= new["spec"]["template"]["metadata"]["labels"].items()
    assert source["metadata"] == before["metadata"], "the source is not changed"
    assert copy_of(source, "copy", "group") == new


@pytest.mark.parametrize(
    ("platform", "fields", "declared", "expected"),
    [
        ("AWS", {"flavor": "g4dn.xlarge"}, {}, {"instanceType": "g4dn.xlarge"}),
        ("Azure", {"flavor": "Standard_NC4as_T4_v3"}, {}, {"vmSize": "Standard_NC4as_T4_v3"}),
        (
            "GCP",
            {"flavor": "n1-standard-8", "accelerators": {"type": "nvidia-tesla-t4", "count": 2}},
            {"onHostMaintenance": "Terminate"},
            {
                "machineType": "n1-standard-8",
                "gpus": [{"type": "nvidia-tesla-t4", "count": 2}],
                "onHostMaintenance": "Terminate",
            },
        ),
        ("vSphere", {"template": "rhcos-a100-10c"}, {"numCPUs": 16}, {"template": "rhcos-a100-10c", "numCPUs": 16}),
        ("AWS", {}, {"ami": {"id": "ami-2"}}, {"ami": {"id": "ami-2"}}),
        (
            "AWS",
            {},
            {"placement": {"tenancy": "dedicated"}},
            {"placement": {"availabilityZone": "us-east-2a", "region": "us-east-2", "tenancy": "dedicated"}},
        ),
        ("AWS", {}, {"ami": {"id": None}}, {"ami": {}}),
    ],
)
def test_settings_of_the_machines(platform: str, fields: dict[str, t.Any], declared: Object, expected: Object) -> None:
    source = worker_machineset(platform=platform)
    result = changed(source, declared, **fields)
    assert provider_spec_of(result) == {**provider_spec_of(source), **expected}
    assert changed(result, declared, **fields) == result, "a second run changes nothing"


def test_taints_of_others_keep_their_place_and_fields() -> None:
    source = worker_machineset()
    foreign = {"key": "b", "value": "x", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    source["spec"]["template"]["spec"]["taints"] = [foreign, {"key": "a", "value": "old", "effect": "NoSchedule"}]
    result = changed(source, {}, node_taints={"a:NoSchedule": "new", "c:NoExecute": "", "gone:NoSchedule": None})
    assert get_nested(result, *TAINTS) == [
        foreign,
        {"key": "a", "value": "new", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    ]


def test_an_adopted_machineset_gets_the_mark() -> None:
    source = worker_machineset()
    result = changed(source, {}, managed=True)
    assert nodegroup_of(source) is None
    assert nodegroup_of(result) == "x"
    mark = result["metadata"]["annotations"][GROUP_MARK]
    assert merge_patch(source, result) == {"metadata": {"labels": {GROUP: "x"}, "annotations": {GROUP_MARK: mark}}}


def by_hand(source: Object, name: str, *, replace: bool = False) -> Object:
    """A copy as `oc get -o yaml`, an editor and `oc create` make it. replace: every occurrence of the source's name is replaced, as `sed` does."""
    old = source["metadata"]["name"]
    copied: Object = json.loads(json.dumps(source).replace(old, name) if replace else json.dumps(source))
    copied["metadata"] |= {"name": name, "uid": "11111111-1111-1111-1111-111111111111"}
    return copied


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("name", ["experiments-2026", "experiments-beef", "burst-0002"])
def test_a_copy_of_a_managed_machineset_belongs_to_no_group_of_another_name(name: str, replace: bool) -> None:
    for owned in ("experiments", "experiments-1a2b"):
        original = marked(worker_machineset(owned), "experiments")
        assert nodegroup_of(original) == "experiments"
        copied = by_hand(original, name, replace=replace)
        assert nodegroup_of(copied) in (None, name)
        assert machine_set_owner(copied, new=True) is None
        assert decode(copied, {})["managed"] is False


def test_a_new_machineset_is_recognized_before_its_mark_is_complete_and_a_copy_of_it_is_not() -> None:
    """The run is killed between the creation and the patch that writes the UID."""
    new = copy_of(worker_machineset(), "train-1a2b", "train")
    fields: Object = {"f:metadata": {"f:annotations": {"f:accel.gpu/nodegroup-mark": {}}}}
    written = {"managedFields": [{"manager": "accel.gpu", "operation": "Update", "fieldsV1": fields}]}
    created = {**new, "metadata": {**new["metadata"], "uid": "22222222-2222-2222-2222-222222222222", **written}}
    assert nodegroup_of(created) == "train"
    assert machine_set_owner(created) is None, "so that the next run completes the mark"
    assert decode(created, {})["managed"] is False
    assert nodegroup_of(by_hand(created, "train-2026")) is None
    applied = {**created["metadata"], "managedFields": [{**written["managedFields"][0], "manager": "kubectl-create"}]}
    assert nodegroup_of({**created, "metadata": applied}) is None, "it was exported and applied again"
    finished = copy.deepcopy(created)
    finished["metadata"]["annotations"] |= finished_mark("train", created)["metadata"]["annotations"]
    assert machine_set_owner(finished) == "train"
    assert finished_mark("train", finished) == {}
    assert finished_mark("other", created) == {}
    again = by_hand(finished, "train-1a2b")
    assert machine_set_owner(again, new=True) is None, "not even a copy with the same name"


def test_an_unknown_field_is_an_error_of_the_program() -> None:
    with pytest.raises(NotImplementedError, match="color"):
        configured(worker_machineset(), {"color": (None, "red")}, {}, "x")


@given(st.dictionaries(_TEXT, _TEXT, max_size=3), st.dictionaries(_TEXT, _TEXT, max_size=3))
def test_a_change_keeps_all_other_fields(foreign: dict[str, str], declared: dict[str, str]) -> None:
    """The patch of a change only has the declared fields, so that every other field survives it."""
    source = worker_machineset()
    source["spec"]["template"]["spec"]["metadata"] = {"labels": {f"f{key}": value for key, value in foreign.items()}}
    source["spec"]["minReadySeconds"] = 7
    fields = {"node_labels": {f"d{key}": value for key, value in declared.items()}, "flavor": "p4d.24xlarge"}
    patch = merge_patch(source, changed(source, {}, **fields))
    assert patch.pop("spec")["template"]["spec"] == {
        "providerSpec": {"value": {"instanceType": "p4d.24xlarge"}},
        **({"metadata": {"labels": fields["node_labels"]}} if declared else {}),
    }
    assert patch == {}


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"labels": "x"}'])
def test_a_damaged_record_counts_as_none(text: str) -> None:
    source = worker_machineset()
    source["metadata"]["annotations"]["accel.gpu/registration"] = text
    assert record_of(source) == {}


def test_a_record() -> None:
    source = worker_machineset()
    source["metadata"]["annotations"]["accel.gpu/registration"] = json.dumps({"labels": ["a"], "taints": []})
    assert record_of(source) == {"labels": ["a"], "taints": []}
    assert get_nested(source, *LABELS) is None
