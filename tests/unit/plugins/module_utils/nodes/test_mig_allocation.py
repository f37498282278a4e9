# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A demand of a pool, spread over its nodes."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig as geometries
from ansible_collections.accel.gpu.plugins.module_utils.nodes import node_check
from ansible_collections.accel.gpu.plugins.module_utils.nodes.mig import KnownLayouts, MigAllocation, allocate
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted
from tests.helpers.fleet import node as fleet_node

MODEL = "A100-SXM4-40GB"


def plan(demand: t.Mapping[str, int], **sharing: t.Any) -> Plan:
    pool = {"name": "train", "match": {"model": MODEL}, "sharing": {"mode": "mig", "demand": demand, **sharing}}
    return derive({"name": "lab"}, {}, [pool])


def a100(name: str, gpus: int = 2, config: str = "all-disabled", devices: t.Mapping[str, int] | None = None) -> Node:
    """A node with these MIG devices (of all its GPUs), which follows that MIG configuration."""
    labels = {
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.config": config,
        "nvidia.com/mig.config.state": "success",
        "nvidia.com/gpu.memory": "40960",
        **{f"nvidia.com/mig-{profile}.count": str(count) for profile, count in (devices or {}).items()},
    }
    return fleet_node(name, f"NVIDIA-{MODEL}", gpus, labels=labels)


def spread(
    expected: Plan, nodes: t.Sequence[Node], known: KnownLayouts | None = None, free: t.Container[str] | None = None
) -> MigAllocation:
    geometry = geometries.geometry(MODEL)
    assert geometry
    layouts_known = dataclasses.replace(known or KnownLayouts(), geometries={node.name: geometry for node in nodes})
    return allocate(
        expected,
        nodes,
        assign_pools(expected.pools, list(nodes)),
        layouts_known,
        lambda node, pool: free is None or node.name in free,
    )


def devices(actual: MigAllocation, nodes: t.Iterable[Node]) -> dict[str, dict[str, int]]:
    """The expected devices of each node; nodes whose GPUs stay whole are left out."""
    pool = actual.plan.pools[0]
    return {node.name: expected for node in nodes if (expected := node_check.expected_devices(node, pool))}


def after(actual: MigAllocation, nodes: t.Iterable[Node]) -> list[Node]:
    """The nodes after the allocation is applied."""
    pool = actual.plan.pools[0]
    return [
        a100(
            node.name,
            node_check.expected_gpus(node, pool),
            pool.for_node(node.name).mig_key or "all-disabled",
            node_check.expected_devices(node, pool),
        )
        for node in nodes
    ]


def test_no_more_gpus_are_cut_than_the_demand_needs_and_the_others_stay_whole() -> None:
    nodes = [a100("n1"), a100("n2"), a100("n3")]
    actual = spread(plan({"3g.20gb": 2, "1g.5gb": 7}), nodes)
    assert sum(len(on_node) > 0 for on_node in devices(actual, nodes).values()) == 1
    assert devices(actual, nodes) == {"n1": {"1g.5gb": 7, "3g.20gb": 2}}
    pool = actual.plan.pools[0]
    assert node_check.expected_offers(nodes[1], pool)["nvidia.com/gpu"] == 2
    assert node_check.expected_offers(nodes[0], pool) == {
        "nvidia.com/mig-1g.5gb": 7,
        "nvidia.com/mig-3g.20gb": 2,
        "nvidia.com/gpu": 0,
    }


def test_what_is_met_is_not_touched_and_a_second_look_changes_nothing() -> None:
    nodes = [a100("n1"), a100("n2")]
    expected = plan({"2g.10gb": 5})
    first = spread(expected, nodes)
    existing = after(first, nodes)
    second = spread(expected, existing, KnownLayouts(entries=first.plan.mig.entries))
    assert devices(second, existing) == devices(first, nodes)
    assert first.needs_usage
    assert not second.needs_usage


def test_unused_gpus_are_partitioned_first() -> None:
    nodes = [a100("n1"), a100("n2"), a100("n3")]
    assert devices(spread(plan({"7g.40gb": 2}), nodes, KnownLayouts(nodes_in_use={"n1", "n3"})), nodes) == {
        "n2": {"7g.40gb": 2}
    }


def test_a_gpu_whose_layout_can_stay_stays() -> None:
    cut = {"mixed": [{"devices": [0], "mig-enabled": True, "mig-devices": {"3g.20gb": 1, "1g.5gb": 2}}]}
    nodes = [a100("n1"), a100("n2", config="mixed", devices={"3g.20gb": 1, "1g.5gb": 2})]
    actual = spread(plan({"3g.20gb": 1, "1g.5gb": 3}), nodes, KnownLayouts(entries=cut, nodes_in_use={"n2"}))
    pool = actual.plan.pools[0]
    assert mig_parted.layouts_by_gpu(pool.for_node("n2").mig_entry, 2) == {0: {"1g.5gb": 2, "3g.20gb": 1}, 1: {}}
    assert devices(actual, nodes)["n1"] == {"1g.5gb": 1}


def test_what_lies_beyond_the_demand_is_left_where_it_is() -> None:
    cut = {"mixed": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 2}}]}
    nodes = [a100("n1", config="mixed", devices={"3g.20gb": 4})]
    actual = spread(plan({"3g.20gb": 1}), nodes, KnownLayouts(entries=cut))
    assert devices(actual, nodes) == {"n1": {"3g.20gb": 4}}
    assert not actual.needs_usage


def test_devices_that_no_configuration_explains_are_those_of_each_gpu() -> None:
    nodes = [a100("n1", config="foreign-config", devices={"1g.5gb": 14})]
    actual = spread(plan({"1g.5gb": 14}), nodes)
    assert actual.plan.pools[0].for_node("n1").mig_entry == [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}
    ]
    assert not actual.needs_usage


def test_layouts_that_do_not_fit_are_reported() -> None:
    nodes = [a100("n1", gpus=1)]
    actual = spread(plan({"4g.20gb": 1, "3g.20gb": 2}), nodes)
    assert actual.missing == {"train": {"3g.20gb": 1}}
    assert devices(actual, nodes) == {"n1": {"4g.20gb": 1, "3g.20gb": 1}}


def test_nodes_that_must_not_be_cut_serve_with_what_they_have() -> None:
    cut = {"mixed": [{"devices": "all", "mig-enabled": True, "mig-devices": {"3g.20gb": 2}}]}
    nodes = [a100("n1", config="mixed", devices={"3g.20gb": 4}), a100("n2")]
    actual = spread(plan({"3g.20gb": 5}), nodes, KnownLayouts(entries=cut), free={"n2"})
    assert devices(actual, nodes) == {"n1": {"3g.20gb": 4}, "n2": {"3g.20gb": 1}}
    away = [nodes[0], dataclasses.replace(nodes[1], ready=False)]
    assert spread(plan({"3g.20gb": 5}), away, KnownLayouts(entries=cut), free={"n2"}).missing == {
        "train": {"3g.20gb": 1}
    }


def test_what_a_run_has_decided_it_does_not_decide_again() -> None:
    nodes = [a100("n1"), a100("n2")]
    expected = plan({"7g.40gb": 1})
    first = spread(expected, nodes, KnownLayouts(nodes_in_use={"n1"}))
    settled = {name: node_plan.sharing.layout for name, node_plan in first.plan.pools[0].by_node.items()}
    again = spread(expected, nodes, KnownLayouts(nodes_in_use={"n2"}, previous=settled))
    assert devices(again, nodes) == devices(first, nodes) == {"n2": {"7g.40gb": 1}}


def test_all_nodes_of_a_pool_follow_one_plugin_configuration_where_devices_are_shared() -> None:
    nodes = [a100("n1"), a100("n2")]
    actual = spread(plan({"3g.20gb": 1}, replicas=4), nodes)
    pool = actual.plan.pools[0]
    assert {pool.for_node(node.name).config_key for node in nodes} == set(actual.plan.config.data)
    assert node_check.expected_offers(nodes[0], pool) == {"nvidia.com/mig-3g.20gb": 4, "nvidia.com/gpu": 1}
    assert node_check.device_count(nodes[0], pool) == 2


def test_pools_without_a_demand_are_left_as_they_are() -> None:
    expected = derive({"name": "lab"}, {}, [{"name": "train", "match": {"model": MODEL}}])
    assert spread(expected, [a100("n1")]).plan is expected
