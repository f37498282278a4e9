# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lifecycle of a node group: created, changed in every possible way, replaced, deleted; each step in check mode and twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers.magnum import CLUSTER, Magnum

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.usual(20)
def test_create_change_and_delete(magnum: Magnum) -> None:
    created = magnum.converge(flavor="g2.5xlarge", node_count=2, labels={"x": True, "y": 3}, role="gpu")
    group = created["nodegroup"]
    assert (group["action"], group["status"], group["node_count"]) == ("create", "CREATE_COMPLETE", 2)
    assert group["labels"]["x"] == "true"
    assert group["labels"]["kube_tag"] == "v1.36.4", "merged into the cluster's"
    assert magnum.live()["role"] == "gpu"

    # Up beyond the old limits and down below them, each time with limits that the other count would violate.
    magnum.converge(node_count=5, min_node_count=4, max_node_count=6)
    magnum.converge(node_count=1, min_node_count=1, max_node_count=2)
    magnum.converge(min_node_count=0)
    magnum.converge(node_count=0)
    live = magnum.live()
    assert (live["min_node_count"], live["node_count"], live["max_node_count"]) == (0, 0, 2)

    gone = magnum.converge(state="absent")
    assert gone["nodegroup"]["action"] == "delete"
    assert magnum.api.group(CLUSTER, magnum.named("g")) is None


@pytest.mark.usual(10)
def test_labels_and_taints_of_nodes(magnum: Magnum) -> None:
    reported: dict[str, Any] = {"node_labels": {"accel.gpu/pool": "t4", "a": "1"}, "node_taints": [TAINT]}
    if not magnum.has_node_labels:
        created = magnum.group(flavor="m2.medium", **reported)
        assert "does not support node_labels" in str(created["warnings"])
        assert "node_labels" not in created["nodegroup"]
        assert magnum.group(flavor="m2.medium", **reported)["changed"] is False
        return
    magnum.converge(flavor="m2.medium", **reported)
    # Foreign ones stay, null or missing ones are removed, and a value is changed.
    body = [{"op": "add", "path": "/node_labels/theirs", "value": "yes"}]
    assert magnum.api.send("PATCH", f"/clusters/{CLUSTER}/nodegroups/{magnum.named('g')}", body).status_code == 202
    magnum.api.settled(CLUSTER, magnum.named("g"))
    other = {"key": "team", "effect": "NoExecute"}
    magnum.converge(
        node_labels={"accel.gpu/pool": "t4-b", "a": None},
        node_taints=[{**TAINT, "state": "absent"}, other],
    )
    live = magnum.live()
    assert live["node_labels"] == {"accel.gpu/pool": "t4-b", "theirs": "yes"}
    assert live["node_taints"] == [other]


FIXED: dict[str, Any] = {
    "flavor": "m2.large",
    "image": "ubuntu-k8s-1.35",
    "role": "other",
    "labels": {"x": "2"},
    "docker_volume_size": 30,
}


@pytest.mark.usual(5)
def test_immutable_fields_are_named(magnum: Magnum) -> None:
    assert magnum.group(flavor="m2.medium", node_count=0, labels={"x": "1"}, docker_volume_size=20)["changed"]
    for field, value in FIXED.items():
        for check in (True, False):
            with magnum.watched() as watched:
                refused = magnum.group(check=check, **{field: value})
            assert refused["code"] == "invalid"
            assert f"Node group {magnum.named('g')}: {field} is " in refused["msg"]
            assert "recreate: true" in refused["msg"]
            assert watched == []


def test_names_and_ids_of_the_same_object_are_equal(magnum: Magnum) -> None:
    catalog = magnum.run("catalog_info")["catalog"]
    flavor = next(entry for entry in catalog["flavors"] if entry["name"] == "m2.medium")
    image = next(entry for entry in catalog["images"] if entry["name"] == "ubuntu-k8s")
    assert magnum.group(flavor="m2.medium", image=image["id"], node_count=0)["changed"]
    again = magnum.group(flavor=flavor["id"], image="ubuntu-k8s")
    assert again["changed"] is False
    assert again["nodegroup"]["flavor"] == flavor["id"], "in the word that was used"


@pytest.mark.usual(10)
def test_many_groups_in_parallel(magnum: Magnum) -> None:
    names = [magnum.named(str(index)) for index in range(6)]
    desired = [{"name": name, "flavor": "m2.medium", "node_count": 0} for name in names]
    predicted = magnum.run("nodegroup", nodegroups=desired, check=True)
    done = magnum.run("nodegroup", nodegroups=desired)
    assert predicted["diff"] == done["diff"]
    assert [group["status"] for group in done["nodegroups"].values()] == ["CREATE_COMPLETE"] * 6
    one_bad = [*desired[:2], {**desired[2], "flavor": "nope"}]
    with magnum.watched() as watched:
        refused = magnum.run("nodegroup", nodegroups=[{**group, "max_node_count": 4} for group in one_bad])
    assert refused["code"] == "invalid"
    assert watched == [], "one that cannot be keeps the others from being changed"
    assert magnum.run("nodegroup", nodegroups=[{"name": name} for name in names], state="absent")["changed"]
    reported = magnum.run("nodegroup_info", cluster=CLUSTER)["nodegroups"]
    assert sorted(reported) == ["default-master", "default-worker"]
    assert reported["default-worker"]["is_default"]


@pytest.mark.usual(5)
def test_the_count_of_the_autoscaler_is_kept(magnum: Magnum) -> None:
    bounds: dict[str, Any] = {"min_node_count": 1, "max_node_count": 4, "autoscaling": True}
    magnum.converge(flavor="m2.medium", **bounds)
    assert magnum.live()["node_count"] == 1
    magnum.api.resize(CLUSTER, magnum.named("g"), 3)
    magnum.api.settled(CLUSTER, magnum.named("g"))
    assert magnum.group(**bounds, node_count=1)["changed"] is False
    magnum.converge(min_node_count=1, max_node_count=2, autoscaling=True)
    assert magnum.live()["node_count"] == 2, "and brought back inside"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({}, "one of the following is required: name, nodegroups"),
        ({"name": "g", "nodegroups": []}, "mutually exclusive"),
        ({"nodegroups": [], "flavor": "x"}, "mutually exclusive"),
        ({"name": "g", "node_count": "many"}, "node_count"),
        ({"name": "g", "node_taints": [{"key": "k", "effect": "Never"}]}, "effect"),
        ({"nodegroups": [{"flavor": "x"}]}, "name"),
    ],
)
def test_bad_arguments(magnum: Magnum, args: dict[str, Any], message: str) -> None:
    with magnum.watched() as watched:
        refused = magnum.run("nodegroup", **args)
    assert refused["failed"]
    assert message in refused["msg"]
    assert watched == []


def test_a_duplicate_name(magnum: Magnum) -> None:
    refused = magnum.run("nodegroup", nodegroups=[{"name": "g"}, {"name": "g"}])
    assert "declared more than once" in refused["msg"]
