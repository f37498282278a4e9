# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifecycle of a node group in the fake VKS, with the default guesses and without faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.vks import seed
from lab.vks.fake import FakeVks
from tests.helpers.vks import Account, group, running, until


def test_initial_group_without_gpus(account: Account) -> None:
    actual = account.groups()
    assert list(actual) == ["default-worker"]
    detail = account.vks("GET", account.path("default-worker")).body
    assert (detail["status"], detail["numNodes"]) == ("ACTIVE", 2)
    nodes = account.vks("GET", f"{account.path('default-worker')}/nodes").body["items"]
    assert [node["ready"] for node in nodes] == [True, True]
    assert detail["flavorId"] in [row["flavorId"] for row in seed.flavors_offered() if not row["gpu"]]


def test_create_group(account: Account) -> None:
    desired = group(labels={"pool": "a"}, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}], numNodes=2)
    answer = account.create(**desired)
    assert (answer.status, answer.body["status"], answer.body["numNodes"]) == (202, "CREATING", 2)
    path = account.path("gpus-1")
    detail = account.settled(path)
    expected = {name: value for name, value in desired.items() if name not in ("os",)}
    assert {name: detail[name] for name in expected} == expected
    assert detail["imageOS"] == "ubuntu"
    nodes = account.vks("GET", f"{path}/nodes").body["items"]
    assert [node["ready"] for node in nodes] == [True, True]
    assert all(node["name"].startswith("vks-demo-gpus-1-") for node in nodes)
    assert all(node["fixedIp"].startswith("10.81.1") for node in nodes)


def test_list_has_fewer_fields_than_get(account: Account) -> None:
    path = account.created()
    listed, detail = account.groups()["gpus-1"], account.vks("GET", path).body
    assert listed.items() <= detail.items()
    assert not {"flavorId", "labels", "autoScaleConfig"} & listed.keys()


def test_scale_group(account: Account) -> None:
    path = account.created(numNodes=2)
    before = {node["id"] for node in account.vks("GET", f"{path}/nodes").body["items"]}
    assert account.vks("PUT", path, {"numNodes": 4}).status == 202
    assert account.vks("GET", path).body["status"] == "UPDATING"
    account.settled(path)
    more = {node["id"] for node in account.vks("GET", f"{path}/nodes").body["items"]}
    assert before < more
    assert len(more) == 4
    account.vks("PUT", path, {"numNodes": 1})
    account.settled(path)
    assert {node["id"] for node in account.vks("GET", f"{path}/nodes").body["items"]} < more
    account.vks("PUT", path, {"numNodes": 0})
    assert account.settled(path)["numNodes"] == 0
    assert account.vks("GET", f"{path}/nodes").body == {"items": [], "total": 0, "page": 0, "pageSize": 10}


def test_put_changes_only_fields_of_the_body(account: Account) -> None:
    path = account.created(autoScaleConfig={"minSize": 1, "maxSize": 3})
    chosen = [seed.stable_id("secg", "gpu-nodes")]
    account.vks("PUT", path, {"securityGroups": chosen})
    detail = account.settled(path)
    assert detail["securityGroups"] == chosen
    assert detail["autoScaleConfig"] == {"minSize": 1, "maxSize": 3}
    account.vks("PUT", path, {"autoScaleConfig": None})
    assert account.settled(path)["autoScaleConfig"] is None


def test_patch_metadata_replaces_maps_of_the_body(account: Account) -> None:
    path = account.created(labels={"a": "1"}, tags={"x": "y"})
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    account.vks("PATCH", f"{path}/metadata", {"labels": {"b": "2"}, "taints": [taint]})
    detail = account.settled(path)
    assert (detail["labels"], detail["taints"], detail["tags"]) == ({"b": "2"}, [taint], {"x": "y"})
    account.vks("PATCH", f"{path}/metadata", {"labels": {}, "taints": None})
    detail = account.settled(path)
    assert (detail["labels"], detail["taints"], detail["tags"]) == ({}, [], {"x": "y"})


def test_reserved_tags_are_ignored(account: Account) -> None:
    path = account.created(tags={"vng.vks.mine": "1", "vks-a": "1", "mine": "1"})
    assert account.vks("GET", path).body["tags"] == {"mine": "1"}


def test_upgrade_replaces_all_nodes(account: Account) -> None:
    path = account.created()
    old = account.vks("GET", f"{path}/nodes").body["items"][0]["id"]
    newer = seed.VERSIONS[1]
    refused = account.vks("POST", f"{path}/upgrade-version", {"kubernetesVersion": newer})
    assert refused.status == 400
    assert seed.VERSIONS[0] in refused.body["error"]["message"]
    assert account.vks("PUT", account.cluster, {"version": newer}).status == 202
    assert account.vks("POST", f"{path}/upgrade-version", {"kubernetesVersion": newer}).status == 202
    assert account.settled(path)["kubernetesVersion"] == newer
    assert account.vks("GET", f"{path}/nodes").body["items"][0]["id"] != old


def test_delete_group(account: Account) -> None:
    path = account.created()
    assert account.vks("DELETE", path).body["status"] == "DELETING"
    assert account.vks("GET", path).body["status"] == "DELETING"
    assert until(lambda: account.vks("GET", path), lambda answer: answer.status == 404).body["error"]["message"]
    assert account.vks("DELETE", path).status == 404
    assert "gpus-1" not in account.groups()


def test_writes_during_an_operation_are_rejected(account: Account) -> None:
    account.set("delay", "1")
    assert account.create().status == 202
    path = account.path("gpus-1")
    for method, below, body in (
        ("PUT", "", {"numNodes": 2}),
        ("PATCH", "/metadata", {"labels": {}}),
        ("DELETE", "", None),
    ):
        answer = account.vks(method, f"{path}{below}", body)
        assert (answer.status, answer.body["error"]["message"]) == (409, "Resource is being processed")
    assert account.vks("DELETE", f"{path}?forceDelete=true").status == 202


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "default-worker"}, "already exists"),
        ({"flavorId": "flav-none"}, "flavor flav-none does not exist"),
        ({"subnetId": seed.stable_id("sub", "a")}, "is not available in zone HCM03-1A"),
        ({"subnetId": seed.stable_id("sub", "elsewhere")}, "is not an active subnet of the cluster's VPC"),
        ({"subnetId": seed.stable_id("sub", "going")}, "is not an active subnet of the cluster's VPC"),
        ({"diskType": "vtype-none"}, "volume type vtype-none does not exist"),
        ({"diskType": "SSD"}, "volume type SSD does not exist"),
        ({"sshKeyId": "ssh-none"}, "ssh key ssh-none does not exist"),
        ({"securityGroups": [seed.stable_id("secg", "going")]}, "is not ACTIVE"),
        ({"numNodes": 11}, "quota exceeded: at most 10 nodes"),
        ({"autoScaleConfig": {"minSize": 2, "maxSize": 5}}, "numNodes must be between"),
        ({"numNodes": 3, "autoScaleConfig": {"minSize": 4, "maxSize": 3}}, "minSize must not be greater"),
        ({"disk": 1}, "disk: unknown field"),
    ],
)
def test_invalid_groups_are_rejected(account: Account, change: dict[str, Any], problem: str) -> None:
    answer = account.create(**change)
    assert answer.status == 400
    assert problem in answer.body["error"]["message"]
    assert list(account.groups()) == ["default-worker"]


def test_pages(account: Account) -> None:
    for number in range(12):
        account.create(name=f"group-{number:02}", numNodes=0)
    first = account.vks("GET", f"{account.cluster}/node-groups").body
    assert (len(first["items"]), first["total"], first["page"], first["pageSize"]) == (10, 13, 0, 10)
    second = account.vks("GET", f"{account.cluster}/node-groups?page=1").body
    assert len(second["items"]) == 3
    assert not {one["id"] for one in first["items"]} & {one["id"] for one in second["items"]}
    assert account.vks("GET", f"{account.cluster}/node-groups?page=2").body["items"] == []
    assert account.vks("GET", f"{account.cluster}/node-groups?pagesize=5").status == 400


def test_events(account: Account) -> None:
    account.created()
    events = account.vks("GET", f"{account.cluster}/events?action=CREATE").body["items"]
    assert events[0]["message"] == "node group gpus-1: create succeeded"


def test_state_survives_a_restart(tmp_path: Path) -> None:
    with running(tmp_path / "demo") as first:
        account = Account(first)
        path = account.created(labels={"a": "b"})
        detail = account.vks("GET", path).body
        lab = first.state._file
    with restarted(lab) as second:
        assert Account(second).vks("GET", path).body == detail


def restarted(file: Path) -> Any:
    folder = file.parent.parent.parent
    (folder / "log").rename(folder / "log-of-first-run")
    return running(folder)


def test_ids_are_reproducible(tmp_path: Path) -> None:
    actual = []
    for name in ("one", "two"):
        with running(tmp_path / name) as fake:
            actual.append(Account(fake).created())
    assert actual[0] == actual[1]


def test_create_and_delete_cluster(account: Account, fake: FakeVks) -> None:
    body = {"name": "bench-1", "version": seed.VERSIONS[0], "networkType": "TIGERA", "vpcId": seed.NETWORK}
    body |= {"subnetId": seed.stable_id("sub", "a"), "cidr": "172.16.0.0/16"}
    created = account.vks("POST", "/clusters", body)
    assert (created.status, created.body["status"], created.body["numNodes"]) == (202, "ACTIVE", 0)
    path = f"/clusters/{created.body['id']}"
    assert account.vks("POST", f"{path}/node-groups", group()).status == 202
    assert account.vks("GET", "/clusters?name=bench").body["total"] == 1
    assert account.vks("GET", path).body["numNodes"] == 1
    until(lambda: account.vks("DELETE", path), lambda answer: answer.status == 202)
    assert account.vks("GET", path).status == 404
    assert account.vks("POST", "/clusters", {**body, "name": "x"}).status == 400


def test_kubeconfig_is_created_asynchronously(account: Account) -> None:
    path = f"{account.cluster}/kubeconfig"
    assert account.vks("GET", path).body["status"] == "NONE"
    requested = account.vks("POST", path, {"expirationDays": 30})
    assert (requested.status, requested.body) == (202, None)
    actual = until(lambda: account.vks("GET", path).body, lambda body: body["status"] != "CREATING")
    assert (actual["status"], actual["expirationDays"], actual["renewalWarning"]) == ("ACTIVE", 30, False)
    assert "clusters" in actual["kubeConfig"]
    assert account.vks("POST", path, {"expirationDays": 366}).status == 400
