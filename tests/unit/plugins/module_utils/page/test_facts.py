# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read from a row of gpu_info: what is held, free, missing, and why a node needs a look."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.page.facts import Count, NodeFacts, added, closed, fleet

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
POOL = {"mode": "time-slicing", "replicas": 4, "resource": GPU, "shares_per_gpu": 4, "gpus_per_node": 1, "differs": []}

CUT = {**POOL, "mode": "mig", "layout": [{"devices": [], "profiles": {"3g.20gb": 1}}]}


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


def facts(*rows: dict[str, t.Any], **info: t.Any) -> list[NodeFacts]:
    given_info = {"reachable": True, "cluster": "prod", "pools": {"notebooks": POOL}, "nodes": list(rows), **info}
    return list(fleet(given_info).nodes)


COUNTS: list[tuple[str, dict[str, t.Any], list[Count]]] = [
    ("one of four held", {}, [Count(GPU, 1, 3, 0, 0, True)]),
    ("nobody asked", {"workloads": None}, [Count(GPU, 0, 4, 0, 0, False)]),
    ("nothing held", {"workloads": []}, [Count(GPU, 0, 4, 0, 0, True)]),
    ("two pods", {"workloads": [pod(GPU, 1), pod(GPU, 3)]}, [Count(GPU, 4, 0, 0, 0, True)]),
    ("one is unhealthy", {"allocatable": {GPU: 3}}, [Count(GPU, 1, 2, 0, 1, True)]),
    ("the plugin is gone", {"allocatable": {GPU: 0}}, [Count(GPU, 0, 0, 1, 3, True)]),
    (
        "switched under a pod",
        {"allocatable": {GPU: 0, SHARED: 4}, "capacity": {GPU: 0, SHARED: 4}},
        [Count(GPU, 0, 0, 1, 0, True), Count(SHARED, 0, 4, 0, 0, True)],
    ),
    (
        "replaced, and still in the kubelet's capacity",
        {"differs": [], "allocatable": {GPU: 0, SHARED: 4}, "capacity": {GPU: 1, SHARED: 4}, "workloads": []},
        [Count(SHARED, 0, 4, 0, 0, True)],
    ),
    (
        "of no pool, nobody knows whether it was replaced",
        {
            "pool": None,
            "differs": [],
            "allocatable": {GPU: 0, SHARED: 4},
            "capacity": {GPU: 1, SHARED: 4},
            "workloads": [],
        },
        [Count(GPU, 0, 0, 0, 1, True), Count(SHARED, 0, 4, 0, 0, True)],
    ),
    ("more held than there is", {"workloads": [pod(GPU, 6)]}, [Count(GPU, 4, 0, 2, 0, True)]),
    ("nothing there", {"allocatable": {}, "capacity": {GPU: 0}, "workloads": []}, []),
    ("no numbers", {"allocatable": {GPU: "x"}, "capacity": None, "workloads": [{}]}, []),
    ("below nothing", {"allocatable": {GPU: -4}, "capacity": {GPU: -1}, "workloads": [pod(GPU, -2)]}, []),
]


@pytest.mark.parametrize(("changes", "counts"), [case[1:] for case in COUNTS], ids=[case[0] for case in COUNTS])
def test_counts(changes: dict[str, t.Any], counts: list[Count]) -> None:
    (node,) = facts(row(**changes))
    assert list(node.counts) == counts


numbers = st.integers(0, 50)


@given(numbers, numbers, st.lists(st.integers(1, 9), max_size=8))
def test_every_unit_is_in_one_state(allocatable: int, capacity: int, held: list[int]) -> None:
    pods = [pod(GPU, count) for count in held]
    (node,) = facts(row(allocatable={GPU: allocatable}, capacity={GPU: capacity}, workloads=pods))
    total = max(allocatable, capacity, sum(held))
    assert sum(count.total for count in node.counts) == total
    for count in node.counts:
        assert (count.offered, count.held) == (allocatable, sum(held))
        assert min(count.used, count.free, count.beyond, count.missing) >= 0


def test_sums_do_not_set_off_one_node_against_another() -> None:
    nodes = facts(row("n1"), row("n2", allocatable={GPU: 0}, workloads=[pod(GPU, 4)]), row("n3", ready=False))
    (sums,) = added(nodes)
    assert sums == Count(GPU, used=2, free=6, beyond=4, missing=0, asked=True)
    assert closed(nodes, GPU) == 3
    assert [node.room for node in nodes] == [3, 0, 0]


MARKS: list[tuple[str, dict[str, t.Any], dict[str, t.Any], list[tuple[str, str]]]] = [
    ("as declared", {}, {}, []),
    ("not ready", {"ready": False}, {}, [("not ready", "")]),
    ("cordoned", {"schedulable": False}, {}, [("cordoned", "no new pods")]),
    ("new", {"model": None, "pool": None}, {}, [("not discovered", "gpu-feature-discovery")]),
    ("overlap", {"pool": None}, {"overlaps": {"n1": ["a", "b"]}}, [("several pools", "a, b")]),
    ("released", {"pool": None}, {"released": ["n1"]}, [("left its pool", "gives the labels back")]),
    ("MIG fails", {"mig": {"state": "failed"}}, {}, [("MIG failed", "")]),
    ("MIG works", {"mig": {"state": "success", "devices": {}}}, {}, []),
    ("no MIG", {"mig": None}, {}, []),
    ("shares", {"allocatable": {GPU: 2}}, {}, [("differs", "allocatable nvidia.com/gpu is 2, 4 is expected")]),
    ("GPUs", {"gpus": 2, "allocatable": {GPU: 8}}, {}, [("differs", "has 2 GPU(s), gpus_per_node says 1")]),
    (
        "told by its pool",
        {"allocatable": {GPU: 2}},
        {"pools": {"notebooks": {**POOL, "differs": ["n1 (pool notebooks): why", "n11 (pool notebooks): other"]}}},
        [("differs", "why")],
    ),
    ("cut", {"mig": {"state": "success", "devices": {"3g.20gb": 2}}, "gpus": 2}, {"pools": {"notebooks": CUT}}, []),
    ("to be cut", {"mig": {"state": None}}, {"pools": {"notebooks": CUT}}, [("differs", "not those of the layout")]),
    ("being cut", {"mig": {"state": "pending"}}, {"pools": {"notebooks": CUT}}, [("MIG pending", "")]),
    ("not declared", {"allocatable": {GPU: 2}}, {"pools": {}}, []),
]


@pytest.mark.parametrize(("changes", "info", "marks"), [case[1:] for case in MARKS], ids=[case[0] for case in MARKS])
def test_marks(changes: dict[str, t.Any], info: dict[str, t.Any], marks: list[tuple[str, str]]) -> None:
    (node,) = facts(row(**changes), **info)
    assert [mark.word for mark in node.marks] == [word for word, _story in marks]
    assert all(story in mark.story for mark, (_word, story) in zip(node.marks, marks, strict=True))


def test_groups_stand_in_the_order_of_the_pools_and_names_as_people_count() -> None:
    names = ["n10", "n2", "n1", "a-01-b", "a-1-a"]
    rows = [*(row(name) for name in names), row("x", pool=None), row("y", pool="foreign"), row("z", pool="last")]
    read = fleet({"reachable": True, "pools": {"last": POOL, "notebooks": POOL, "none": POOL}, "nodes": rows})
    assert [group.name for group in read.groups] == ["last", "notebooks", "none", "foreign", None]
    assert [node.name for node in read.groups[1].nodes] == ["a-1-a", "a-01-b", "n1", "n2", "n10"]
