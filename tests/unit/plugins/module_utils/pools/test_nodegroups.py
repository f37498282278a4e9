# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools that make their own nodes: what the clouds' modules are given."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, with_node_counts
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import (
    CloudPlan,
    NodeGroupMember,
    NodeGroupPlan,
    Plan,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import InvalidVariables, validate
from tests.helpers.variables import Document

MAGNUM: Document = {"name": "prod", "cloud": {"magnum": {"cloud": "mycloud"}}}
VKS: Document = {"name": "prod", "cloud": {"vks": {"region": "HAN"}}}
MACHINESET: Document = {"name": "prod", "cloud": {"machineset": {}}}
MADE: Document = {"name": "train", "nodes": {"flavor": "g4.p2.40g", "count": 2}}
NO_STARTUP_TAINT: Document = {
    "key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu",
    "effect": "NoSchedule",
    "state": "absent",
}
TAINT: Document = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}
MIG: Document = {"mode": "mig", "layout": {"1g.10gb": 7}}


def planned(cluster: Document, *pools: Document, defaults: Document | None = None) -> Plan:
    return derive(cluster, defaults, list(pools))


def test_what_defaults_say_of_nodes_is_for_pools_that_make_some() -> None:
    defaults = {"nodes": {"image": "ubuntu", "recreate": True}, "autoscale": {"min": 1, "max": 4}, "model": "T4"}
    existing: Document = {"name": "old", "match": {"model": "L40S"}}
    assert validate(MAGNUM, defaults, [MADE, existing]) == []
    made, old = planned(MAGNUM, MADE, existing, defaults=defaults).pools
    assert made.nodegroup == NodeGroupPlan(
        "train",
        "magnum.openstack.org/nodegroup",
        "g4.p2.40g",
        2,
        1,
        4,
        {"recreate": True, "image": "ubuntu"},
        members=(NodeGroupMember("train", None, 2, 1, 4),),
    )
    assert (made.model, old.model, old.nodegroup) == ("T4", "L40S", None)


def test_defaults_name_no_group() -> None:
    (problem,) = validate(MAGNUM, {"nodes": {"name": "x"}}, [])
    assert problem == 'gpu_defaults.nodes.name: "x" cannot be set in the defaults; each node group has its own name'


def test_cloud() -> None:
    magnum = {
        "cloud": "mycloud",
        "region_name": "r",
        "cluster": "gpus",
        "template": "k8s-gpu",
        "nodegroup_label": "a/b",
    }
    options = {"cloud": "mycloud", "region_name": "r"}
    assert planned({"name": "prod", "cloud": {"magnum": magnum}}).cluster.cloud == CloudPlan(
        "magnum",
        "gpus",
        "k8s-gpu",
        "a/b",
        options,
        "magnum_nodegroup",
        issues_kubeconfig=True,
        lists_undeclared_groups=False,
    )
    assert planned(VKS).cluster.cloud == CloudPlan(
        "vks",
        "prod",
        None,
        "",
        {"region": "HAN"},
        "vks_nodegroup",
        issues_kubeconfig=True,
        lists_undeclared_groups=False,
    )
    assert planned(MACHINESET).cluster.cloud == CloudPlan(
        "machineset",
        "prod",
        None,
        "",
        {"namespace": "openshift-machine-api"},
        "machineset",
        issues_kubeconfig=False,
        lists_undeclared_groups=True,
    )
    assert planned({"name": "prod"}).cluster.cloud is None


def test_group_of_magnum() -> None:
    pool = {
        **MADE,
        "labels": {"team": "x"},
        "taints": [TAINT],
        "nodes": {**MADE["nodes"], "image": "i", "labels": {"zone": "a"}},
    }
    plan = planned(MAGNUM, pool, {"name": "old", "match": {"model": "T4"}})
    (group,) = plan.nodegroups
    assert group == {
        "name": "train",
        "flavor": "g4.p2.40g",
        "node_count": 2,
        "image": "i",
        "labels": {"zone": "a"},
        "node_labels": {
            "team": "x",
            "accel.gpu/pool": "train",
            "nvidia.com/device-plugin.config": plan.pools[0].config_key,
            "nvidia.com/mig.config": None,
        },
        "node_taints": [TAINT, NO_STARTUP_TAINT],
    }


def test_group_of_vks() -> None:
    nodes = {"flavor": "f", "name": "gpu-a", "security_groups": [], "disk_type": "NVME"}
    (group,) = planned(VKS, {**MADE, "nodes": nodes, "autoscale": {"min": 1, "max": 3}}).nodegroups
    labels = group.pop("node_labels")
    assert labels["accel.gpu/pool"] == "train"
    assert group == {
        "name": "gpu-a",
        "flavor": "f",
        "node_count": 1,
        "min_node_count": 1,
        "max_node_count": 3,
        "security_groups": [],
        "disk_type": "NVME",
        "node_taints": [NO_STARTUP_TAINT],
    }


def test_group_of_the_machine_api() -> None:
    nodes = {"like": "worker-a", "flavor": "g4dn.12xlarge", "provider_spec": {"ami": {"id": "a"}}}
    shared = {"mode": "time-slicing", "replicas": 2}
    (group,) = planned(
        MACHINESET, {**MADE, "model": "T4", "nodes": {**nodes, "count": 1}, "sharing": shared}
    ).nodegroups
    assert group["node_labels"]["cluster-api/accelerator"] == "Tesla-T4-SHARED"
    assert group["capacity"]["resources"] == {"nvidia.com/gpu": 8}, "the machine type has four GPUs"
    assert group["capacity"]["labels"]["nvidia.com/gpu.replicas"] == "2"
    assert {key: group[key] for key in nodes} == nodes


def test_a_group_without_countable_gpus_loses_the_accelerator_label() -> None:
    renamed = {"mode": "time-slicing", "replicas": 2, "rename": True}
    (group,) = planned(
        MACHINESET, {**MADE, "model": "T4", "nodes": {"template": "t", "count": 1}, "sharing": renamed}
    ).nodegroups
    assert group["node_labels"]["cluster-api/accelerator"] is None
    assert "resources" not in group["capacity"], "the number of GPUs is not declared"
    assert (group["template"], "flavor" in group) == ("t", False)


@pytest.mark.parametrize(
    ("count", "scale", "numbers"),
    [
        (7, None, [(3, None, None), (2, None, None), (2, None, None)]),
        (None, {"min": 1, "max": 5}, [(1, 1, 2), (0, 0, 2), (0, 0, 1)]),
        (4, {"min": 0, "max": 9}, [(2, 0, 3), (1, 0, 3), (1, 0, 3)]),
    ],
)
def test_a_pool_in_several_zones_has_a_group_in_each(
    count: int | None, scale: Document | None, numbers: list[tuple[int, int | None, int | None]]
) -> None:
    nodes = {"flavor": "g4dn.xlarge", "zones": ["a", "b", "C"], **({} if count is None else {"count": count})}
    plan = planned(MACHINESET, {**MADE, "nodes": nodes, **({"autoscale": scale} if scale else {})})
    pool = plan.pools[0].nodegroup
    assert pool is not None
    assert [(each.node_count, each.min_node_count, each.max_node_count) for each in pool.members] == numbers
    assert [(group["name"], group["zone"]) for group in plan.nodegroups] == [
        ("train-a", "a"),
        ("train-b", "b"),
        ("train-c", "C"),
    ]
    assert [group["node_count"] for group in plan.nodegroups] == [number for number, *dummy in numbers]


@pytest.mark.parametrize(
    ("pool", "numbers", "size"),
    [
        ({}, {"node_count": 2}, "2 nodes"),
        ({"nodes": {"flavor": "f", "count": 1}}, {"node_count": 1}, "1 node"),
        (
            {"autoscale": {"min": 1, "max": 6}},
            {"node_count": 2, "min_node_count": 1, "max_node_count": 6, "autoscaling": True},
            "1 to 6 nodes, 2 at first",
        ),
        (
            {"nodes": {"flavor": "f"}, "autoscale": {"min": 3, "max": 6}},
            {"node_count": 3, "min_node_count": 3, "max_node_count": 6, "autoscaling": True},
            "3 to 6 nodes",
        ),
    ],
)
def test_how_many(pool: Document, numbers: dict[str, int], size: str) -> None:
    plan = planned(MAGNUM, {**MADE, **pool})
    counted = {"node_count", "min_node_count", "max_node_count", "autoscaling"}
    assert {key: value for key, value in plan.nodegroups[0].items() if key in counted} == numbers
    assert plan.pools[0].nodegroup is not None
    assert plan.pools[0].nodegroup.size == size


def test_the_startup_taint_is_among_those_of_the_group() -> None:
    pool = {**MADE, "model": "A100-SXM4-80GB", "sharing": MIG, "startup_taint": True, "taints": [TAINT]}
    plan = planned(MAGNUM, pool)
    keys = [taint["key"] for taint in plan.nodegroups[0]["node_taints"]]
    assert keys == ["restricted-access", "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu"]
    assert plan.nodegroups[0]["node_labels"]["nvidia.com/mig.config"] == plan.pools[0].mig_key


def test_the_model_of_nodes_that_are_made_decides_what_a_models_match_does() -> None:
    sharing: Document = {"mode": "time-slicing", "replicas": 4}
    made, matched = planned(
        MAGNUM,
        {**MADE, "model": "T4", "sharing": sharing},
        {"name": "old", "match": {"model": "T4"}, "sharing": sharing},
    ).pools
    assert made.match.pins_only
    assert (made.model, made.accelerator, made.memory_mib_per_share) == (
        matched.model,
        matched.accelerator,
        matched.memory_mib_per_share,
    )


@pytest.mark.parametrize(
    ("rollouts", "drain"),
    [
        ([{}], {"evict": True, "force": False, "grace_period": None, "drain_timeout": 600}),
        (
            [{"force": True, "grace_period": 5}, {"force": True, "grace_period": 9}],
            {"evict": True, "force": True, "grace_period": 9, "drain_timeout": 600},
        ),
        (
            [{"force": True, "grace_period": 5}, {"drain_timeout": 900}],
            {"evict": True, "force": False, "grace_period": None, "drain_timeout": 900},
        ),
        (
            [{"drain": "none"}, {"drain": "all"}],
            {"evict": False, "force": False, "grace_period": None, "drain_timeout": 600},
        ),
        ([], {"evict": True, "force": False, "grace_period": None, "drain_timeout": 600}),
    ],
)
def test_drain_options_of_removed_nodes(rollouts: list[Document], drain: Document) -> None:
    pools = [{**MADE, "name": f"pool-{number}", "rollout": rollout} for number, rollout in enumerate(rollouts)]
    existing = {"name": "old", "match": {"model": "T4"}, "rollout": {"drain": "none", "drain_timeout": 9000}}
    assert planned(MAGNUM, *pools, existing).as_dict()["drain_options"] == drain


def test_resized() -> None:
    pools: list[Document] = [MADE, {"name": "old", "match": {"model": "T4"}}]
    assert with_node_counts(pools, {"train": 0}) == [{**MADE, "nodes": {"flavor": "g4.p2.40g", "count": 0}}, pools[1]]
    assert with_node_counts(pools, {}) == pools
    assert MADE["nodes"]["count"] == 2


@pytest.mark.parametrize(
    ("name", "pool", "defaults", "message"),
    [
        ("tarin", MADE, {}, "tarin is not a declared pool; declared pools: train"),
        ("old", {"name": "old", "match": {"model": "T4"}}, {}, "pool old: it has no node group"),
        (
            "train",
            {**MADE, "autoscale": {"min": 1, "max": 2}},
            {},
            "pool train: its autoscaler chooses the number of nodes; change",
        ),
        ("train", MADE, {"autoscale": {"min": 1, "max": 2}}, "pool train: its autoscaler chooses"),
    ],
)
def test_pools_that_are_not_resized(name: str, pool: Document, defaults: Document, message: str) -> None:
    with pytest.raises(InvalidVariables) as raised:
        with_node_counts([pool], {name: 3}, defaults)
    (problem,) = raised.value.problems
    assert problem.startswith(message)
    assert str(raised.value).startswith("1 error in the numbers of nodes (gpu_nodegroups_node_counts):\n")


def test_two_pools_of_one_name_are_not_resized() -> None:
    with pytest.raises(InvalidVariables, match="pool train: 2 pools have this name"):
        with_node_counts([MADE, {"name": "train", "match": {"model": "T4"}}], {"train": 3})
