# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view model of rows of gpu_info: which units are requested, free or missing, and why a node needs attention."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import (
    GpuNode,
    ResourceUsage,
    build_page,
    total_usage,
)

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
POOL = {"mode": "time-slicing", "replicas": 4, "resource": GPU, "shares_per_gpu": 4, "gpus_per_node": 1, "drift": []}

MIG = {**POOL, "mode": "mig", "layout": [{"devices": [], "profiles": {"3g.20gb": 1}}]}


def row(name: str = "n1", **changes: t.Any) -> dict[str, t.Any]:
    """A node with one GPU in four shares, of which one pod holds one."""
    return {
        "name": name,
        "pool": "notebooks",
        "model": "Tesla-T4",
        "gpus": 1,
        "memory_mib": 15360,
        "mode": "time-slicing",
        "replicas": 4,
        "allocatable": {GPU: 4},
        "capacity": {GPU: 4},
        "ready": True,
        "schedulable": True,
        "workloads": [pod(GPU, 1)],
        **changes,
    }


def pod(resource: str, count: int) -> dict[str, t.Any]:
    return {"namespace": "research", "pod": "a", "resource": resource, "count": count}


def nodes_of(*rows: dict[str, t.Any], **info: t.Any) -> list[GpuNode]:
    given_info = {"reachable": True, "cluster": "prod", "pools": {"notebooks": POOL}, "nodes": list(rows), **info}
    return list(build_page(given_info).nodes)


COUNTS: list[tuple[str, dict[str, t.Any], list[ResourceUsage]]] = [
    ("one of four requested", {}, [ResourceUsage(GPU, 1, 3, 0, 0, True)]),
    ("pods not read", {"workloads": None}, [ResourceUsage(GPU, 0, 4, 0, 0, False)]),
    ("nothing requested", {"workloads": []}, [ResourceUsage(GPU, 0, 4, 0, 0, True)]),
    ("two pods", {"workloads": [pod(GPU, 1), pod(GPU, 3)]}, [ResourceUsage(GPU, 4, 0, 0, 0, True)]),
    ("one is unhealthy", {"allocatable": {GPU: 3}}, [ResourceUsage(GPU, 1, 2, 0, 1, True)]),
    ("no device plugin", {"allocatable": {GPU: 0}}, [ResourceUsage(GPU, 0, 0, 1, 3, True)]),
    (
        "switched under a pod",
        {"allocatable": {GPU: 0, SHARED: 4}, "capacity": {GPU: 0, SHARED: 4}},
        [ResourceUsage(GPU, 0, 0, 1, 0, True), ResourceUsage(SHARED, 0, 4, 0, 0, True)],
    ),
    (
        "replaced, and still in the kubelet's capacity",
        {"drift": [], "allocatable": {GPU: 0, SHARED: 4}, "capacity": {GPU: 1, SHARED: 4}, "workloads": []},
        [ResourceUsage(SHARED, 0, 4, 0, 0, True)],
    ),
    (
        "in no pool, so it may not have been replaced",
        {
            "pool": None,
            "drift": [],
            "allocatable": {GPU: 0, SHARED: 4},
            "capacity": {GPU: 1, SHARED: 4},
            "workloads": [],
        },
        [ResourceUsage(GPU, 0, 0, 0, 1, True), ResourceUsage(SHARED, 0, 4, 0, 0, True)],
    ),
    ("more requested than allocatable", {"workloads": [pod(GPU, 6)]}, [ResourceUsage(GPU, 4, 0, 2, 0, True)]),
    ("no units", {"allocatable": {}, "capacity": {GPU: 0}, "workloads": []}, []),
    ("no numbers", {"allocatable": {GPU: "x"}, "capacity": None, "workloads": [{}]}, []),
    ("negative numbers", {"allocatable": {GPU: -4}, "capacity": {GPU: -1}, "workloads": [pod(GPU, -2)]}, []),
]


@pytest.mark.parametrize(("changes", "counts"), [case[1:] for case in COUNTS], ids=[case[0] for case in COUNTS])
def test_counts(changes: dict[str, t.Any], counts: list[ResourceUsage]) -> None:
    (node,) = nodes_of(row(**changes))
    assert list(node.usage) == counts


numbers = st.integers(0, 50)


@given(numbers, numbers, st.lists(st.integers(1, 9), max_size=8))
def test_every_unit_is_in_one_state(allocatable: int, capacity: int, held: list[int]) -> None:
    pods = [pod(GPU, count) for count in held]
    (node,) = nodes_of(row(allocatable={GPU: allocatable}, capacity={GPU: capacity}, workloads=pods))
    total = max(allocatable, capacity, sum(held))
    assert sum(count.total for count in node.usage) == total
    for count in node.usage:
        assert (count.allocatable, count.requested) == (allocatable, sum(held))
        assert min(count.used, count.free, count.lost, count.missing) >= 0


def test_totals_do_not_balance_nodes_against_each_other() -> None:
    nodes = nodes_of(row("n1"), row("n2", allocatable={GPU: 0}, workloads=[pod(GPU, 4)]), row("n3", ready=False))
    (total,) = total_usage(nodes)
    assert total == ResourceUsage(GPU, used=2, free=6, lost=4, missing=0, known=True, unschedulable=3)
    assert total.available == 3
    assert [node.available for node in nodes] == [3, 0, 0]


BADGES: list[tuple[str, dict[str, t.Any], dict[str, t.Any], list[tuple[str, str]]]] = [
    ("as declared", {}, {}, []),
    ("not ready", {"ready": False}, {}, [("not ready", "")]),
    ("cordoned", {"schedulable": False}, {}, [("cordoned", "no new pods")]),
    ("new", {"model": None, "pool": None}, {}, [("not discovered", "gpu-feature-discovery")]),
    ("overlap", {"pool": None}, {"overlaps": {"n1": ["a", "b"]}}, [("several pools", "a, b")]),
    ("released", {"pool": None}, {"released": ["n1"]}, [("released", "labels of the pool")]),
    ("MIG fails", {"mig": {"state": "failed"}}, {}, [("MIG failed", "")]),
    ("MIG works", {"mig": {"state": "success", "devices": {}}}, {}, []),
    ("no MIG", {"mig": None}, {}, []),
    ("drift", {"drift": ["taint a=b:NoSchedule is missing", "other"]}, {}, [("differs", "is missing; other")]),
    ("no drift without the device plugin", {"allocatable": {GPU: 0}, "drift": []}, {}, []),
    ("not compared with a pool", {"allocatable": {GPU: 2}}, {}, []),
    (
        "drift without a pool",
        {"pool": None, "drift": ["its last change failed: x"]},
        {},
        [("differs", "change failed")],
    ),
    ("in no pool", {"pool": None}, {"unclaimed": ["n1"]}, [("in no pool", "not changed")]),
    ("new", {"pool": None, "model": None}, {"unclaimed": ["other"]}, [("not discovered", "")]),
    (
        "drift of a node in no pool",
        {"pool": None, "drift": ["its last change failed: x"]},
        {"unclaimed": ["n1"]},
        [("differs", "change failed")],
    ),
    ("drift of a new node", {"model": None, "drift": ["why"]}, {}, [("not discovered", ""), ("differs", "why")]),
    ("no second badge if not ready", {"ready": False, "drift": ["is not ready"]}, {}, [("not ready", "")]),
    (
        "no second badge in several pools",
        {"pool": None, "drift": ["matches the pools a, b, and belongs to none of them"]},
        {"overlaps": {"n1": ["a", "b"]}},
        [("several pools", "a, b")],
    ),
    (
        "no second badge if released",
        {"pool": None, "drift": ["label accel.gpu/pool=old will be removed"]},
        {"released": ["n1"]},
        [("released", "")],
    ),
    (
        "being partitioned",
        {"mig": {"state": "pending"}, "drift": ["nvidia.com/mig.config.state is pending"]},
        {"pools": {"notebooks": MIG}},
        [("MIG pending", ""), ("differs", "is pending")],
    ),
    ("not declared", {"allocatable": {GPU: 2}}, {"pools": {}}, []),
]


@pytest.mark.parametrize(("changes", "info", "badges"), [case[1:] for case in BADGES], ids=[case[0] for case in BADGES])
def test_badges(changes: dict[str, t.Any], info: dict[str, t.Any], badges: list[tuple[str, str]]) -> None:
    (node,) = nodes_of(row(**changes), **info)
    assert [badge.text for badge in node.badges] == [text for text, _detail in badges]
    assert all(detail in badge.detail for badge, (_text, detail) in zip(node.badges, badges, strict=True))


def test_pools_keep_their_order_and_names_sort_naturally() -> None:
    names = ["n10", "n2", "n1", "a-01-b", "a-1-a"]
    rows = [*(row(name) for name in names), row("x", pool=None), row("y", pool="foreign"), row("z", pool="last")]
    page = build_page({"reachable": True, "pools": {"last": POOL, "notebooks": POOL, "none": POOL}, "nodes": rows})
    assert [pool.name for pool in page.pools] == ["last", "notebooks", "none", "foreign", None]
    assert [node.name for node in page.pools[1].nodes] == ["a-1-a", "a-01-b", "n1", "n2", "n10"]


@pytest.mark.parametrize(
    ("validation", "badge", "summary"),
    [
        ({}, "as declared", "The pool is as declared."),
        ({"status": "verified", "current": True}, "as declared", "The pool is as declared."),
        (
            {"status": "failed", "current": True},
            "validation failed",
            "The pool is as declared; the validation of 1 pool failed.",
        ),
        ({"status": "failed", "current": False}, "as declared", "The pool is as declared."),
    ],
)
def test_a_failed_validation_is_the_state_of_its_pool(validation: dict[str, t.Any], badge: str, summary: str) -> None:
    pools = {"notebooks": {**POOL, "nodes": 1, "as_declared": True, "validation": validation}}
    page = build_page({"reachable": True, "cluster": "prod", "pools": pools, "nodes": [row()]})
    assert page.summary == summary
    assert page.pools[0].badge.text == badge


def scaled(scales: bool | None, code: str = "no_capacity") -> dict[str, t.Any]:
    """The scaling of the pool's MachineSet, with the finding that prevents it."""
    finding = {
        "code": code,
        "effect": "no_pod",
        "message": "it lacks capacity",
        "remedy": "set it",
        "now": True,
        "after_run": True,
    }
    item: dict[str, t.Any] = {
        "pool": "notebooks", "machine_set": "notebooks", "scales": scales, "scales_after_run": scales, "exists": True, "declared": True,
        "findings": [finding] if scales is False else [], "min": 0, "max": 4, "resources": {}, "accelerator": None, "gpu_limit": None, "taints": [],
    }  # fmt: skip
    return {"machine_sets": [item], "version": "4.18.3", "not_read": []}


@pytest.mark.parametrize(
    ("may_be_empty", "autoscaling", "text", "summary"),
    [
        (True, None, "idle", "0 of 1 pool are as declared; 1 is idle."),
        (True, scaled(True), "idle", "1 is idle."),
        (True, scaled(None), "idle", "1 is idle."),
        (True, scaled(False), "cannot scale", "1 has no nodes; 1 pool cannot scale."),
        (True, scaled(False, "maximum"), "idle", "1 is idle."),
        (False, None, "no nodes", "1 has no nodes."),
        (False, scaled(False), "cannot scale", "1 pool cannot scale."),
    ],
)
def test_an_idle_pool_needs_no_attention_and_one_that_cannot_scale_does(
    may_be_empty: bool, autoscaling: dict[str, t.Any] | None, text: str, summary: str
) -> None:
    group = {"name": "notebooks", "flavor": "f", "size": "0 to 4", "may_be_empty": may_be_empty}
    pool = {**POOL, "nodes": 0, "drifted_nodes": 0, "as_declared": False, "nodegroup": group}
    page = build_page({"reachable": True, "cluster": "prod", "pools": {"notebooks": pool}, "autoscaling": autoscaling})
    assert page.pools[0].badge.text == text
    assert page.summary.endswith(summary)
    assert bool(page.pools[0].drift) == (text != "idle")


def test_the_page_says_when_it_was_read_and_the_versions() -> None:
    info = {
        "reachable": True,
        "time": "2026-11-28 13:00 UTC",
        "kubelet_versions": ["v1.33.4", "v1.33.5"],
        "autoscaling": {"version": "4.18.3"},
        "installed": {"operator": {"version": "v25.10.1"}, "nfd": {}},
        "models": {"T4": {"driver_versions": ["580.95.05"]}},
    }
    origin = build_page(info).origin
    for part in (
        "Read 2026-11-28 13:00 UTC",
        "Kubernetes v1.33.4, v1.33.5",
        "OpenShift 4.18.3",
        "GPU operator v25.10.1",
        "driver 580.95.05",
    ):
        assert part in origin
    assert "NFD" not in origin
    assert build_page({"reachable": False}).origin == ""


def test_the_page_says_whether_the_vgpu_nodes_have_a_license() -> None:
    summary = "19 of 20 vGPU nodes have a license; the token expires in 364 days"
    assert build_page({"reachable": True, "licenses": {"summary": summary}}).origin == summary
    unread_forms: tuple[dict[str, t.Any], ...] = ({}, {"licenses": {}}, {"licenses": {"summary": ""}})
    for unread in unread_forms:
        assert build_page({"reachable": True, **unread}).origin == ""
