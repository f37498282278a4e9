# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a group is told as, in each generation, and what is sent to change it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.plan import field_edits
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState
from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.decode import WORDS, live_of
from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.encode import (
    create_body,
    full_put_body,
    is_shown,
    metadata_body,
    old_metadata_body,
    put_body,
)

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
FIELDS = live_of(ROW).fields


def live(**more: Any) -> NodeGroupState:
    return live_of({**ROW, **more})


def found(wish: NodeGroupSpec, there: NodeGroupState) -> Any:
    return field_edits(wish, there, WORDS)


def test_a_group_in_the_words_of_the_options() -> None:
    there = live()
    assert (there.id, there.count, there.low, there.high, there.settled, there.failed) == ("ng-1", 2, 1, 4, True, False)
    assert there.fields["os"] == "ubuntu"
    assert there.fields["security_groups"] == ["secg-1", "secg-2"]
    assert there.fields["taints"] == {"nvidia.com/gpu:NoSchedule": ""}
    assert there.fields["upgrade_strategy"] == {"max_surge": 1, "max_unavailable": 0}


@pytest.mark.parametrize(
    ("told", "field", "value"),
    [
        ({"imageOS": None}, "os", "ubuntu"),
        ({"imageOS": None, "os": "rocky"}, "os", "rocky"),
        ({"imageOS": "Container-Optimized OS with containerd"}, "os", "linux"),
        ({"diskSize": None, "diskType": None, "disk": {"size": 50, "type": "vtype-2"}}, "disk_size", 50),
        ({"sshKeyId": None, "sshKey": "ssh-9"}, "ssh_key", "ssh-9"),
        ({"labels": None}, "labels", {}),
        ({"taints": None}, "taints", {}),
        ({"tags": None}, "tags", {}),
        ({"secondarySubnets": None}, "secondary_subnets", []),
        ({"upgradeConfig": None}, "upgrade_strategy", {"max_surge": 1, "max_unavailable": 0}),
        ({"subnetId": None}, "subnet", "sub-of-cluster"),
    ],
)
def test_what_a_generation_leaves_out_or_calls_otherwise(told: dict[str, Any], field: str, value: Any) -> None:
    assert live_of({**ROW, **told}, "sub-of-cluster").fields[field] == value


@pytest.mark.parametrize(
    ("row", "range_", "count"),
    [
        ({"autoScaleConfig": None}, (0, None), 2),
        ({"autoScaleConfig": None, "autoscale": {"minSize": 2, "maxSize": 3}}, (2, 3), 2),
        ({"numNodes": None, "nodeCount": 5}, (1, 4), 5),
    ],
)
def test_numbers(row: dict[str, Any], range_: tuple[int, int | None], count: int) -> None:
    there = live(**row)
    assert ((there.low, there.high), there.count) == (range_, count)


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
def test_settled_is_believed_of_active_with_all_nodes(status: str, nodes: Any, settled: bool, failed: bool) -> None:
    there = live_of({**ROW, "status": status}, nodes=nodes)
    assert (there.settled, there.failed) == (settled, failed)


NEEDED = {"flavor": "flav-1", "disk_type": "vtype-1", "ssh_key": "ssh-1"}


def test_the_creation_of_a_group_that_says_little() -> None:
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
    }


def test_the_creation_of_a_group_that_says_all() -> None:
    fields = {
        **NEEDED,
        "subnet": "sub-2",
        "secondary_subnets": ["10.9.0.0/24"],
        "labels": {"a": "1", "gone": None},
        "taints": {"k:NoSchedule": "", "k:NoExecute": "v"},
        "upgrade_strategy": {"max_surge": 2},
        "tags": {},
    }
    body = create_body(NodeGroupSpec("train", low=0, high=4, fields=fields), "train-00ff", 0, "sub-1")
    assert (body["name"], body["numNodes"], body["subnetId"]) == ("train-00ff", 0, "sub-2")
    assert body["autoScaleConfig"] == {"minSize": 0, "maxSize": 4}
    assert body["labels"] == {"a": "1"}
    assert body["taints"] == [{"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k", "effect": "NoSchedule"}]
    assert body["upgradeConfig"]["maxSurge"] == 2
    assert body["secondarySubnets"] == ["10.9.0.0/24"]
    assert "tags" not in body


@pytest.mark.parametrize(
    ("wish", "body"),
    [
        (NodeGroupSpec("train", count=3), {"numNodes": 3}),
        (NodeGroupSpec("train", count=3, unranged=True), {"numNodes": 3, "autoScaleConfig": None}),
        (NodeGroupSpec("train", low=2, high=4), {"autoScaleConfig": {"minSize": 2, "maxSize": 4}}),
        (NodeGroupSpec("train", fields={"security_groups": ["secg-3"]}), {"securityGroups": ["secg-3"]}),
        (
            NodeGroupSpec("train", fields={"upgrade_strategy": {"max_surge": 3}}),
            {"upgradeConfig": {"strategy": "SURGE", "maxSurge": 3, "maxUnavailable": 0}},
        ),
        (NodeGroupSpec("train", fields={"labels": {"a": "1"}, "security_groups": ["secg-1", "secg-2"]}), {}),
    ],
)
def test_only_what_differs_is_put(wish: NodeGroupSpec, body: dict[str, Any]) -> None:
    assert put_body(found(wish, live()), live()) == body


def test_what_an_older_service_demands_is_as_the_group_has_it() -> None:
    assert full_put_body({"numNodes": 3}, ROW) == {
        "numNodes": 3,
        "imageId": "img-1",
        "securityGroups": ["secg-2", "secg-1"],
        "upgradeConfig": ROW["upgradeConfig"],
    }


@pytest.mark.parametrize(
    ("fields", "body", "explicit"),
    [
        (
            {"labels": {"a": "1"}},
            {"labels": {"theirs": "stays", "a": "1"}},
            {"labels": {"theirs": "stays", "a": "1"}},
        ),
        ({"labels": {"theirs": None}}, {"labels": {}}, {"labels": {"theirs": None}}),
        ({"taints": {"nvidia.com/gpu:NoSchedule": None}}, {"taints": None}, {"taints": []}),
        (
            {"taints": {"k:NoExecute": "v"}},
            {
                "taints": [
                    {"key": "k", "value": "v", "effect": "NoExecute"},
                    {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
                ]
            },
            None,
        ),
        ({"tags": {"team": "x"}}, {"tags": {"team": "x"}}, None),
    ],
)
def test_maps_are_written_whole_without_what_is_the_services(fields: Any, body: Any, explicit: Any) -> None:
    changed = found(NodeGroupSpec("train", fields=fields), live())
    assert metadata_body(changed) == body
    assert metadata_body(changed, explicit=True) == (explicit or body)


def test_before_there_was_a_request_of_their_own() -> None:
    changed = found(NodeGroupSpec("train", fields={"labels": {"theirs": None}, "tags": {"team": "x"}}), live())
    assert old_metadata_body(changed) == {"labels": {}}


_MAPS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2"]))
_WISHED = st.dictionaries(st.sampled_from("abcd"), st.sampled_from(["1", "2", None]), min_size=1)


@given(_MAPS, _WISHED, _MAPS, st.booleans())
def test_replacing_and_merging_come_to_what_was_wished(have: Any, want: Any, own: dict[str, str], merges: bool) -> None:
    """`own` are entries that the service adds by itself, under keys of its own."""
    there = live(labels=have)
    wish = NodeGroupSpec("train", fields={"labels": want})
    changed = found(wish, there)
    if not changed:
        return
    sent = metadata_body(changed, explicit=merges)["labels"]
    after = {key: value for key, value in ({**have, **sent} if merges else sent).items() if value is not None}
    now = live(labels={**after, **{f"own/{key}": value for key, value in own.items()}})
    assert is_shown(changed, now)
    assert not found(wish, now)
    assert is_shown(changed, dataclasses.replace(there)) is False
