# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group in VKS's responses, and the requests that create and change it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_groups import (
    change_body,
    create_body,
    is_shown,
    listed_of,
    state_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupSpec,
    NodeGroupState,
    field_differences,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import group_mark

ROW = {
    "id": "ng-1",
    "clusterId": "k8s-1",
    "name": "train",
    "status": "ACTIVE",
    "numNodes": 2,
    "imageId": "img-1",
    "kubernetesVersion": "v1.35.6",
    "flavorId": "flav-1",
    "diskSize": 100,
    "diskType": "vtype-1",
    "enablePrivateNodes": False,
    "sshKeyId": "ssh-1",
    "imageOS": "Ubuntu with containerd",
    "securityGroups": ["secg-2", "secg-1"],
    "autoScaleConfig": {"minSize": 1, "maxSize": 4},
    "upgradeConfig": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
    "labels": {"theirs": "stays"},
    "taints": [{"key": "nvidia.com/gpu", "value": None, "effect": "NoSchedule"}],
    "subnetId": "sub-1",
    "tags": {"vng.vks.cluster": "x"},
}
FIELDS = state_of(ROW).fields


def test_the_mark_is_valid_only_for_the_group_that_was_created_with_it() -> None:
    body = create_body(NodeGroupSpec("train", fields=NEEDED), "train-00ff", 1, "sub-1", "k8s-1")
    made = {**ROW, "name": "train-00ff", "labels": body["labels"]}
    assert state_of(made, cluster="k8s-1").owner == "train"
    # Copies in the same cluster and in another one, and the group of a second inventory that declares such a name.
    assert state_of({**made, "name": "train-2026"}, cluster="k8s-1").owner == ""
    assert state_of(made, cluster="k8s-2").owner == ""
    declared = create_body(NodeGroupSpec("train-2026", fields=NEEDED), "train-2026", 1, "sub-1", "k8s-1")
    state = state_of({**ROW, "name": "train-2026", "labels": declared["labels"]}, cluster="k8s-1")
    assert (state.owner, state.marked) == ("train-2026", True)
    assert state_of({**ROW, "name": "train-2026"}, cluster="k8s-1").marked is False


def state(**more: Any) -> NodeGroupState:
    return state_of({**ROW, **more})


def differences(spec: NodeGroupSpec, current: NodeGroupState) -> Any:
    return field_differences(spec, current)


def test_a_group_with_the_names_of_the_options() -> None:
    group = state()
    assert (group.id, group.count, group.min_count, group.max_count, group.settled, group.failed) == (
        "ng-1",
        2,
        1,
        4,
        True,
        False,
    )
    assert group.fields["os"] == "ubuntu"
    assert group.fields["security_groups"] == ["secg-1", "secg-2"]
    assert group.fields["node_taints"] == {"nvidia.com/gpu:NoSchedule": ""}
    assert group.fields["upgrade_strategy"] == {"max_surge": 1, "max_unavailable": 0}


@pytest.mark.parametrize(
    ("row", "field", "value"),
    [
        ({"imageOS": None}, "os", "ubuntu"),
        ({"imageOS": "Container-Optimized OS with containerd"}, "os", "linux"),
        ({"labels": None}, "node_labels", {}),
        ({"taints": None}, "node_taints", {}),
        ({"tags": None}, "tags", {}),
        ({"secondarySubnets": None}, "secondary_subnets", []),
        ({"upgradeConfig": None}, "upgrade_strategy", {"max_surge": 1, "max_unavailable": 0}),
        ({"subnetId": None}, "subnet", "sub-of-cluster"),
    ],
)
def test_missing_fields_have_defaults(row: dict[str, Any], field: str, value: Any) -> None:
    assert state_of({**ROW, **row}, "sub-of-cluster").fields[field] == value


@pytest.mark.parametrize(
    ("row", "range_", "count"),
    [
        ({"autoScaleConfig": None}, (0, None), 2),
        ({"numNodes": 5}, (1, 4), 5),
    ],
)
def test_numbers(row: dict[str, Any], range_: tuple[int, int | None], count: int) -> None:
    group = state(**row)
    assert ((group.min_count, group.max_count), group.count) == (range_, count)


@pytest.mark.parametrize(
    ("status", "nodes", "settled", "failed"),
    [
        ("ACTIVE", None, True, False),
        ("ACTIVE", [{"ready": True}, {"ready": True}], True, False),
        ("ACTIVE", [{"ready": True}, {"ready": False}], False, False),
        ("ACTIVE", [{"ready": True}], False, False),
        ("ACTIVE", [{}, {}], True, False),
        ("UPDATING", None, False, False),
        ("DEGRADED", None, False, False),
        ("RECONCILING", None, False, False),
        ("", None, False, False),
        ("ERROR", [], True, True),
        ("FAILED", None, True, True),
    ],
)
def test_a_group_is_settled_when_active_with_all_nodes_ready(
    status: str, nodes: Any, settled: bool, failed: bool
) -> None:
    group = state_of({**ROW, "status": status}, nodes=nodes)
    assert (group.settled, group.failed) == (settled, failed)


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        ("ACTIVE", True),
        ("ERROR", True),
        ("FAILED", True),
        ("CREATING", False),
        ("UPDATING", False),
        ("DEGRADED", False),
        ("SOMETHING_NEW", False),
    ],
)
def test_the_list_and_the_details_agree(status: str, settled: bool) -> None:
    row: dict[str, Any] = {"id": "ng-1", "name": "train", "status": status, "numNodes": 2}
    assert listed_of(row).settled is settled
    assert state_of(row).settled is settled


NEEDED = {"flavor": "flav-1", "disk_type": "vtype-1", "ssh_key": "ssh-1"}


def test_the_creation_of_a_minimal_group() -> None:
    assert create_body(NodeGroupSpec("train", fields=NEEDED), "train", None, "sub-1") == {
        "name": "train",
        "numNodes": 1,
        "os": "ubuntu",
        "flavorId": "flav-1",
        "diskSize": 100,
        "diskType": "vtype-1",
        "enablePrivateNodes": False,
        "securityGroups": [],
        "sshKeyId": "ssh-1",
        "upgradeConfig": {"strategy": "SURGE", "maxSurge": 1, "maxUnavailable": 0},
        "enabledEncryptionVolume": False,
        "subnetId": "sub-1",
        "labels": {"accel.gpu/nodegroup-mark": group_mark("", "train", "train")},
    }


def test_the_creation_of_a_full_group() -> None:
    fields = {
        **NEEDED,
        "subnet": "sub-2",
        "secondary_subnets": ["10.9.0.0/24"],
        "node_labels": {"a": "1", "gone": None},
        "node_taints": {"k:NoSchedule": "", "k:NoExecute": "v"},
        "upgrade_strategy": {"max_surge": 2},
        "tags": {},
    }
    body = create_body(NodeGroupSpec("train", min_count=0, max_count=4, fields=fields), "train-00ff", 0, "sub-1")
    assert (body["name"], body["numNodes"], body["subnetId"]) == ("train-00ff", 0, "sub-2")
    assert body["autoScaleConfig"] == {"minSize": 0, "maxSize": 4}
    mark = body["labels"].pop("accel.gpu/nodegroup-mark")
    assert body["labels"] == {"a": "1"}
    assert mark == group_mark("", "train", "train-00ff")
    assert body["taints"] == [{"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k", "effect": "NoSchedule"}]
    assert body["upgradeConfig"]["maxSurge"] == 2
    assert body["secondarySubnets"] == ["10.9.0.0/24"]
    assert "tags" not in body


@pytest.mark.parametrize(
    ("spec", "body"),
    [
        (NodeGroupSpec("train", count=3), {"numNodes": 3}),
        (NodeGroupSpec("train", count=3, no_range=True), {"numNodes": 3, "autoScaleConfig": None}),
        (NodeGroupSpec("train", min_count=2, max_count=4), {"autoScaleConfig": {"minSize": 2, "maxSize": 4}}),
        (NodeGroupSpec("train", fields={"security_groups": ["secg-3"]}), {"securityGroups": ["secg-3"]}),
        (
            NodeGroupSpec("train", fields={"upgrade_strategy": {"max_surge": 3}}),
            {"upgradeConfig": {"strategy": "SURGE", "maxSurge": 3, "maxUnavailable": 0}},
        ),
        (NodeGroupSpec("train", fields={"security_groups": ["secg-1", "secg-2"]}), {}),
    ],
)
def test_put_has_differences_only(spec: NodeGroupSpec, body: dict[str, Any]) -> None:
    assert change_body(differences(spec, state()), state()) == body


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({"node_labels": {"a": "1"}}, {"labels": {"theirs": "stays", "a": "1"}}),
        ({"node_labels": {"theirs": None}}, {"labels": {}}),
        ({"node_taints": {"nvidia.com/gpu:NoSchedule": None}}, {"taints": None}),
        (
            {"node_taints": {"k:NoExecute": "v"}},
            {
                "taints": [
                    {"key": "k", "value": "v", "effect": "NoExecute"},
                    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
                ]
            },
        ),
        ({"tags": {"team": "x"}}, {"tags": {"team": "x"}}),
    ],
)
def test_maps_are_written_whole_without_the_services_tags(fields: Any, body: Any) -> None:
    assert change_body(differences(NodeGroupSpec("train", fields=fields), state()), state()) == body


_MAPS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]))
_DESIRED = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2", None]), min_size=1)


@given(_MAPS, _DESIRED, _MAPS)
def test_a_written_map_is_shown_as_declared(have: Any, want: Any, own: dict[str, str]) -> None:
    """`own` are entries that the service adds under keys of its own."""
    before = state(labels=have)
    spec = NodeGroupSpec("train", fields={"node_labels": want})
    actual = differences(spec, before)
    if not actual:
        return
    sent = change_body(actual, before)["labels"]
    now = state(labels={**sent, **{f"own/{key}": value for key, value in own.items()}})
    assert is_shown(actual, now)
    assert not differences(spec, now)
    assert is_shown(actual, before) is False
