# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vks_nodegroup in one order: bad arguments, check mode, create, create again, each field, zero nodes, delete, delete again."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import group_mark
from ansible_collections.accel.gpu.plugins.modules import vks_nodegroup
from tests.helpers.polling import until
from tests.helpers.vks_modules import CLUSTER, Account, Object

GROUP = "POST /v1/clusters/ID/node-groups"
PUT = "PUT /v1/clusters/ID/node-groups/ID"
PATCH = "PATCH /v1/clusters/ID/node-groups/ID/metadata"
UPGRADE = "POST /v1/clusters/ID/node-groups/ID/upgrade-version"
DELETE = "DELETE /v1/clusters/ID/node-groups/ID"
NEW = {"flavor": "g3-standard-16x128-1A40", "disk_type": "nvme-iops3000", "ssh_key": "lab"}


def options(**more: Any) -> Object:
    return {"cluster": CLUSTER, "name": "train", "confirm": [CLUSTER], "wait_sleep": 1, "wait_timeout": 60, **more}


def mark_in(account: Account, declared: str = "train", name: str = "") -> dict[str, str]:
    """The label that marks a group of the account's cluster."""
    cluster_id = next(iter(account.fake.state.clusters))
    return {"accel.gpu/nodegroup-mark": group_mark(cluster_id, declared, name or declared)}


def converge(account: Account, *writes: str, **args: Any) -> Object:
    """Check mode, run, run again: the first sends nothing and predicts the second, the third has nothing to do."""
    start = account.mark()
    predicted = account.run(vks_nodegroup.main, check=True, **args)
    assert account.writes(start) == []
    done = account.run(vks_nodegroup.main, **args)
    assert not done.get("failed"), done
    assert account.writes(start) == list(writes)
    assert (predicted["changed"], predicted["diff"]) == (done["changed"], done["diff"])
    assert done["changed"] is bool(writes)
    second = account.mark()
    again = account.run(vks_nodegroup.main, **args)
    assert again["changed"] is False
    assert account.writes(second) == []
    return done


@pytest.mark.usual(12)
def test_the_lifecycle_of_a_group(account: Account) -> None:
    created = converge(account, GROUP, **options(**NEW, node_count=2, node_labels={"accel.gpu/pool": "train"}))
    assert created["nodegroup"] == created["nodegroups"]["train"]
    assert (created["nodegroup"]["action"], created["nodegroup"]["status"]) == ("create", "ACTIVE")
    live = account.groups()["train"]
    assert (live["numNodes"], live["labels"], live["imageOS"]) == (
        2,
        {"accel.gpu/pool": "train", **mark_in(account)},
        "ubuntu",
    )
    # The same with ids, which need no lookup.
    ids = {"flavor": live["flavorId"], "disk_type": live["diskType"], "ssh_key": live["sshKeyId"]}
    start = account.mark()
    assert account.run(vks_nodegroup.main, **options(**ids, node_count=2))["changed"] is False
    assert len(account.requests(start)) == 3, "clusters, the cluster's groups, the group"

    for more, write, field, value in (
        (
            {"node_labels": {"accel.gpu/pool": "train", "team": "x"}},
            PATCH,
            "labels",
            {"accel.gpu/pool": "train", "team": "x", **mark_in(account)},
        ),
        ({"node_labels": {"team": None}}, PATCH, "labels", {"accel.gpu/pool": "train", **mark_in(account)}),
        (
            {"node_taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
            PATCH,
            "taints",
            [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
        ),
        (
            {"node_taints": [{"key": "nvidia.com/gpu", "value": "v", "effect": "NoSchedule"}]},
            PATCH,
            "taints",
            [{"key": "nvidia.com/gpu", "value": "v", "effect": "NoSchedule"}],
        ),
        ({"node_taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "state": "absent"}]}, PATCH, "taints", []),
        ({"tags": {"cost": "7"}}, PATCH, "tags", {"cost": "7"}),
        (
            {"upgrade_strategy": {"max_surge": 2}},
            PUT,
            "upgradeConfig",
            {"strategy": "SURGE", "maxSurge": 2, "maxUnavailable": 0},
        ),
        ({"node_count": 3}, PUT, "numNodes", 3),
        ({"node_count": 1}, PUT, "numNodes", 1),
        ({"node_count": 0}, PUT, "numNodes", 0),
        ({"min_node_count": 1, "max_node_count": 4}, PUT, "numNodes", 1),
        ({"min_node_count": 2, "max_node_count": 4}, PUT, "autoScaleConfig", {"minSize": 2, "maxSize": 4}),
    ):
        converge(account, write, **options(**more))
        assert account.groups()["train"][field] == value, more
    # A count without limits removes the limits first.
    converge(account, PUT, PUT, **options(node_count=1))
    assert account.groups()["train"]["autoScaleConfig"] is None

    gone = converge(account, DELETE, **options(state="absent"))
    assert gone["nodegroup"]["action"] == "delete"
    assert list(account.groups()) == ["default-worker"]


def test_a_deletion_needs_a_confirmation(account: Account) -> None:
    assert account.run(vks_nodegroup.main, **options(**NEW))["changed"]
    start = account.mark()
    for confirm in ([], ["other"]):
        refused = account.run(vks_nodegroup.main, **{**options(state="absent"), "confirm": confirm})
        assert refused["code"] == "not_confirmed"
        assert f"This deletes 1 node group(s) of cluster {CLUSTER}, with all their nodes: train (" in refused["msg"]
        preview = account.run(vks_nodegroup.main, check=True, **{**options(state="absent"), "confirm": confirm})
        assert preview["changed"]
        assert f"requires the confirmation -e gpu_confirm={CLUSTER}" in str(preview["warnings"])
    assert account.writes(start) == []
    assert account.run(vks_nodegroup.main, **options(state="absent"))["changed"]
    gone = account.run(vks_nodegroup.main, **{**options(state="absent"), "confirm": []})
    assert (gone["changed"], gone.get("warnings", [])) == (False, [])


def test_security_groups_are_a_set(account: Account) -> None:
    (twin, dummy) = [row["id"] for row in account.fake.state.data["security_groups"] if row["name"] == "twin"]
    converge(account, GROUP, **options(**NEW, security_groups=["gpu-nodes", twin]))
    converge(account, **options(security_groups=[twin, "gpu-nodes"]))
    converge(account, PUT, **options(security_groups=[twin]))
    assert account.groups()["train"]["securityGroups"] == [twin]
    converge(account, PUT, **options(security_groups=[]))


def test_all_nodes_get_the_version_of_the_control_plane(account: Account) -> None:
    converge(account, GROUP, **options(**NEW))
    with account.fake.state.lock:
        (cluster,) = account.fake.state.clusters.values()
        cluster["version"] = "v1.36.0"
    refused = account.run(vks_nodegroup.main, **options(kubernetes_version="v1.37.1"))
    assert "v1.37.1 is not the cluster's version, v1.36.0" in refused["msg"]
    converge(account, UPGRADE, **options(kubernetes_version="v1.36.0"))
    assert account.groups()["train"]["kubernetesVersion"] == "v1.36.0"


def test_undeclared_settings_of_a_group_stay(account: Account) -> None:
    converge(account, GROUP, **options(**NEW, node_labels={"a": "1"}, tags={"t": "1"}))
    group = next(group for group in account.fake.state.groups.values() if group["name"] == "train")
    group["spec"]["labels"]["console"] = "put this"
    group["spec"]["taints"].append({"key": "console", "effect": "NoExecute"})
    group["spec"]["labels"]["a"] = "changed"
    taint = {"key": "managed", "value": "x", "effect": "NoSchedule"}
    done = converge(account, PATCH, **options(node_labels={"a": "1"}, node_taints=[taint]))
    assert done["diff"]["before"]["train"]["node_labels"] == {"a": "changed", "console": "put this", **mark_in(account)}
    live = account.groups()["train"]
    assert live["labels"] == {"a": "1", "console": "put this", **mark_in(account)}
    assert live["taints"] == [{"key": "console", "effect": "NoExecute"}, taint]
    assert live["tags"] == {"t": "1"}


def test_the_autoscaler_sets_the_number_of_nodes_within_its_limits(account: Account) -> None:
    scaled = options(**NEW, node_count=1, min_node_count=0, max_node_count=4)
    converge(account, GROUP, **scaled)
    account.put("autoscaler", 2)
    until(lambda: account.groups()["train"]["numNodes"] == 3)
    # The status stays ACTIVE while the autoscaler works, and a change meanwhile would be refused and sent again.
    until(lambda: not any(group["operation"] for group in account.fake.state.groups.values()))
    converge(account, **scaled)
    converge(account, PUT, **{**scaled, "max_node_count": 2})
    assert account.groups()["train"]["numNodes"] == 2


@pytest.mark.usual(4)
def test_twenty_groups_are_created_in_parallel(account: Account) -> None:
    account.set("delay", "1.0")
    many = [{"name": f"train-{at:02}", **NEW, "node_count": 1} for at in range(18)]
    args: Object = {"cluster": CLUSTER, "nodegroups": many, "wait_sleep": 1}
    created = account.run(vks_nodegroup.main, **args)
    assert sorted(created["nodegroups"]) == [group["name"] for group in many]
    assert account.writes().count(GROUP) == 18
    account.put("page-limit", 7)
    start = account.mark()
    assert account.run(vks_nodegroup.main, **args)["changed"] is False
    assert account.writes(start) == []


def test_an_operation_without_wait_is_awaited_by_the_next_run(account: Account) -> None:
    account.set("delay", "2")
    begun = account.run(vks_nodegroup.main, **options(**NEW, node_count=2), wait=False)
    assert (begun["changed"], account.groups()["train"]["status"]) == (True, "CREATING")
    start = account.mark()
    ended = account.run(vks_nodegroup.main, **options(**NEW, node_count=2))
    assert (ended["changed"], ended["nodegroup"]["status"], account.writes(start)) == (False, "ACTIVE", [])


def test_a_group_in_deletion_is_deleted_once_and_recreated_by_one_run(account: Account) -> None:
    assert account.run(vks_nodegroup.main, **options(**NEW))["changed"]
    account.set("delay", "2")
    gone = options(state="absent")
    assert account.run(vks_nodegroup.main, **gone, wait=False)["changed"]
    start = account.mark()
    assert account.run(vks_nodegroup.main, **gone, wait=False)["changed"] is False
    assert account.writes(start) == []
    recreated = account.run(vks_nodegroup.main, **options(**NEW, node_count=2))
    assert (recreated["changed"], recreated["nodegroup"]["node_count"], recreated["nodegroup"]["status"]) == (
        True,
        2,
        "ACTIVE",
    )


def test_two_inventories_and_a_person_share_a_cluster(account: Account) -> None:
    """The names of the others' groups are those that a replacement of train could have, and one of them is even a copy of a replacement."""
    mark = mark_in(account, name="train-1a2b")
    account.run(vks_nodegroup.main, **options(**NEW, node_count=1))
    others = {"train-2026": {}, "train-1a2b": mark, "train-beef": mark, "train-0002": {}}
    for name, labels in others.items():
        # A person creates them, and not the collection, which marks its own groups.
        for given in ({}, {"node_labels": {"accel.gpu/nodegroup-mark": None, **labels}}):
            made = account.run(vks_nodegroup.main, **{**options(**NEW, node_count=1, **given), "name": name})
            assert made["changed"], made
    before = account.groups()
    own = {"train", "train-1a2b"}

    unchanged = account.run(vks_nodegroup.main, **options(**NEW, node_count=1))
    assert (unchanged["changed"], unchanged["nodegroup"]["name"]) == (False, "train")
    assert "train-1a2b" in str(unchanged["warnings"]), "an interrupted replacement is reported"
    assert not any(name in str(unchanged["warnings"]) for name in set(others) - own)
    # The second inventory finds its own group, and cannot take the replacement of the first one by its name.
    second = account.run(vks_nodegroup.main, **{**options(**NEW, node_count=1), "name": "train-2026"})
    assert second["changed"] is False
    taken = account.run(vks_nodegroup.main, **{**options(state="absent"), "name": "train-1a2b"})
    assert "replaces node group train" in taken["msg"]

    start = account.mark()
    predicted = account.run(vks_nodegroup.main, check=True, **options(state="absent"))
    assert account.writes(start) == []
    deleted = account.run(vks_nodegroup.main, **options(state="absent"))
    assert account.writes(start) == [DELETE, DELETE]
    assert deleted["diff"] == predicted["diff"]
    for shown in (predicted["nodegroup"], deleted["nodegroup"], deleted["diff"]["before"]["train"]):
        assert shown["deletes"] == ["train (1 node)", "train-1a2b (1 node)"]
    assert account.groups() == {name: group for name, group in before.items() if name not in own}
    assert all(name in str(deleted["warnings"]) for name in set(others) - own)
    # Only the copy of the mark may be train after a restore, so train is not created beside it until the user decides.
    start = account.mark()
    for check in (True, False):
        refused = account.run(vks_nodegroup.main, check=check, **options(**NEW, node_count=1))
        assert "train-beef has the label accel.gpu/nodegroup-mark with the name train" in refused["msg"]
        assert not any(name in refused["msg"] for name in ("train-2026", "train-0002"))
    absent = account.run(vks_nodegroup.main, **options(state="absent"))
    assert absent["changed"] is False
    assert "train-beef" in str(absent["warnings"])
    assert account.writes(start) == []
    unmarked = {"node_labels": {"accel.gpu/nodegroup-mark": None}}
    assert account.run(vks_nodegroup.main, **{**options(**unmarked), "name": "train-beef"})["changed"]
    created = account.run(vks_nodegroup.main, **options(**NEW, node_count=1))
    assert (created["changed"], created["nodegroup"]["name"]) == (True, "train")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"flavor": "g2-standard-16x64-1rtx4090"}, "flavor is "),
        ({"os": "rocky"}, "os is 'ubuntu', not 'rocky'"),
        ({"disk_size": 200}, "disk_size is 100, not 200"),
        ({"disk_type": "nvme-iops5000"}, "disk_type is "),
        ({"ssh_key": "other"}, "ssh_key is "),
        ({"private_nodes": True}, "private_nodes is False, not True"),
        ({"encrypted_volume": True}, "encrypted_volume is False, not True"),
    ],
)
def test_immutable_fields_are_named(account: Account, more: Object, message: str) -> None:
    account.run(vks_nodegroup.main, **options(**NEW))
    start = account.mark()
    for check in (True, False):
        refused = account.run(vks_nodegroup.main, check=check, **options(**{**NEW, **more}))
        assert refused["code"] == "invalid"
        assert f"Node group train: {message}" in refused["msg"]
        assert "recreate: true" in refused["msg"]
    assert account.writes(start) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"cluster": CLUSTER}, "one of the following is required: name, nodegroups"),
        ({"cluster": CLUSTER, "name": "train", "nodegroups": []}, "mutually exclusive: nodegroups|name"),
        ({"name": "train"}, "missing required arguments: cluster"),
        (options(name="x", node_labels={"a b": "c"}), "name is not a VKS node group name; use 5 to 15"),
        (options(cluster="other"), "cluster: there is no 'other' in this account and region. Available: demo."),
        ({"cluster": CLUSTER, "nodegroups": [{"name": "train"}, {"name": "train"}]}, "declared more than once"),
        (options(vks_url="http://example.org"), "vks_url: 'http://example.org' would send the token unencrypted"),
        (options(client_secret=""), "client_secret: missing"),
    ],
)
def test_bad_arguments(account: Account, args: Object, message: str) -> None:
    refused = account.run(vks_nodegroup.main, **args)
    assert refused["failed"]
    assert message in refused["msg"]
    assert account.writes() == []
