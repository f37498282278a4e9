# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of a changed sharing mode on a node and the pods to evict, for every pair of modes."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodes import node_check
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import Transition, displaced_pods, transition
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from tests.helpers.fleet import node, pool

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
FIFTHS, THIRDS = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
A100 = "NVIDIA-A100-SXM4-40GB"


def cut(entry: str, **sharing: t.Any) -> PoolPlan:
    """A pool of MIG devices whose entry has a name of its own."""
    declared = pool(**sharing)
    return replace(declared, mig_key=entry, node_labels={**declared.node_labels, "nvidia.com/mig.config": entry})


POOLS = {
    "none": pool(),
    "x4": pool(replicas=4),
    "x2": pool(replicas=2),
    "renamed": pool(replicas=4, rename=True),
    "mps": pool(mode="mps", replicas=4),
    "single": cut("sevenths", layout={"1g.5gb": 7}),
    "mixed": cut("mixture", layout={"3g.20gb": 1, "1g.5gb": 2}),
    "sevenths mixed": cut("sevenths", layout={"1g.5gb": 7}, strategy="mixed"),
    "sevenths shared": cut("sevenths", layout={"1g.5gb": 7}, replicas=2),
}
# From -> to: kind of change, whether all pods are evicted.
LABELS, PLUGIN, GEOMETRY, MODE = "labels", "plugin", "mig-geometry", "mig-mode"
PAIRS: list[tuple[str, str, str, bool]] = [
    ("none", "x4", PLUGIN, False),
    ("x4", "x2", PLUGIN, False),
    ("none", "renamed", PLUGIN, False),
    ("renamed", "x4", PLUGIN, False),
    ("none", "mps", PLUGIN, True),
    ("mps", "none", PLUGIN, True),
    ("mps", "x4", PLUGIN, True),
    ("x4", "mps", PLUGIN, True),
    ("none", "single", MODE, True),
    ("mps", "single", MODE, True),
    ("single", "none", MODE, True),
    ("mixed", "x4", MODE, True),
    ("single", "mixed", GEOMETRY, True),
    ("mixed", "single", GEOMETRY, True),
    ("single", "sevenths mixed", PLUGIN, False),
    ("single", "sevenths shared", PLUGIN, False),
    ("sevenths shared", "single", PLUGIN, False),
    ("none", "none", LABELS, False),
]


def node_in(name: str, **more: t.Any) -> Node:
    """A node with one A100 that has become what the pool of this name declares."""
    declared = POOLS[name]
    base = node(model=A100, labels={"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled"})
    shown = node_check.expected_labels(base, declared)
    labels = {
        **base.labels,
        **declared.node_labels,
        **shown,
        "nvidia.com/mig.config.state": "success",
        **more.pop("labels", {}),
    }
    noted = {"accel.gpu/gpus": "1"} if declared.sharing.strategy == "single" else {}
    annotations = {**noted, **more.pop("annotations", {})}
    return Node("n1", labels, annotations, allocatable=node_check.expected_offers(base, declared), ready=True, **more)


def holds(name: str, resource: str = GPU, count: int = 1, **more: t.Any) -> PodOnNode:
    return PodOnNode("team", name, name, {resource: count}, (f"requests {resource}",), **more)


def change(before: str, after: str, of_node: Node | None = None) -> Transition:
    actual = of_node or node_in(before)
    # Another pool's name is no difference: the pools of the table are all one.
    return transition(actual, POOLS[after], membership_edit(actual, POOLS[after]))


@pytest.mark.parametrize(("before", "after", "kind", "evicts_all"), PAIRS)
def test_kind_of_a_change(before: str, after: str, kind: str, evicts_all: bool) -> None:
    actual = change(before, after)
    assert (actual.kind, actual.evicts_all, actual.repartitions) == (kind, evicts_all, kind in (GEOMETRY, MODE))


@pytest.mark.parametrize(
    ("before", "after", "users", "gone"),
    [
        ("none", "x4", [holds("a")], []),
        ("x4", "x2", [holds("a"), holds("b")], []),
        ("x4", "x2", [holds("a", created="1"), holds("b", created="3"), holds("c", created="2")], ["b"]),
        ("x4", "x2", [holds("a", priority=5, created="9"), holds("b", created="1"), holds("c", priority=7)], ["b"]),
        # A DaemonSet recreates its pod at once, so another pod is evicted.
        ("x4", "none", [holds("ds", keep_reason="DaemonSet ds", created="9"), holds("a", created="1")], ["a"]),
        # One that holds several frees several.
        ("x4", "none", [holds("a", created="1"), holds("b", count=3, created="2")], ["b"]),
        ("none", "renamed", [holds("a")], ["a"]),
        ("renamed", "x4", [holds("a", SHARED), holds("b", SHARED)], ["a", "b"]),
        ("none", "mps", [holds("a"), PodOnNode("team", "v", "v", {}, ("runtimeClassName nvidia",))], ["a", "v"]),
        ("none", "single", [PodOnNode("team", "v", "v", {}, ("mounts /dev/nvidia0",))], ["v"]),
        ("none", "x4", [PodOnNode("team", "v", "v", {}, ("mounts /dev/nvidia0",))], []),
        ("single", "sevenths mixed", [holds("a")], ["a"]),
        ("single", "sevenths shared", [holds("a")], []),
        ("sevenths shared", "single", [holds(f"p{n}", created=str(n)) for n in range(9)], ["p7", "p8"]),
        # Resources other than GPUs are no reason for an eviction.
        ("none", "renamed", [holds("net", "nvidia.com/rdma")], []),
    ],
)
def test_who_has_to_go(before: str, after: str, users: list[PodOnNode], gone: list[str]) -> None:
    assert [user.name for user in displaced_pods(change(before, after), users)] == gone


@pytest.mark.parametrize(
    ("family", "virtual", "resets", "reboots"),
    [("ampere", "true", True, True), ("ampere", "", True, False), ("hopper", "true", False, False)],
)
def test_a_mode_switch_may_need_a_reboot(family: str, virtual: str, resets: bool, reboots: bool) -> None:
    labels = {"nvidia.com/gpu.family": family, "feature.node.kubernetes.io/cpu-cpuid.HYPERVISOR": virtual}
    actual = change("none", "single", node_in("none", labels=labels))
    assert (actual.resets, actual.may_reboot) == (resets, reboots)
    assert not change("single", "mixed", node_in("single", labels=labels)).resets


def test_a_node_that_leaves_its_pool_is_made_whole() -> None:
    noted = {"accel.gpu/pool-labels": '["nvidia.com/mig.config", "accel.gpu/pool"]'}
    cut = node_in("single", annotations=noted, labels={"nvidia.com/mig.config": "mig-2x3g.40gb-0a1b2c3d"})
    actual = transition(cut, None, membership_edit(cut, None))
    assert (actual.kind, actual.evicts_all, actual.offers) == (MODE, True, {GPU: 1})
    # GFD counts seven MIG devices, and the number of GPUs is not recorded.
    unrecorded = replace(cut, annotations=noted)
    assert transition(unrecorded, None, membership_edit(unrecorded, None)).offers == {GPU: 1}


@given(
    st.sampled_from(sorted(POOLS)),
    st.sampled_from(sorted(POOLS)),
    st.lists(
        st.tuples(st.sampled_from([GPU, SHARED, FIFTHS, THIRDS]), st.integers(1, 4), st.integers(0, 2)), max_size=8
    ),
)
def test_who_stays_fits_into_what_is_offered(before: str, after: str, held: list[tuple[str, int, int]]) -> None:
    users = [
        holds(f"p{at}", held_resource, count, priority=priority)
        for at, (held_resource, count, priority) in enumerate(held)
    ]
    actual = change(before, after)
    gone = displaced_pods(actual, users)
    stays = [user for user in users if user not in gone]
    if actual.kind == LABELS:
        return
    for user in stays:
        assert all(actual.offers.get(resource) for resource in user.resources)
    for resource, offered in actual.offers.items():
        assert sum(user.resources.get(resource, 0) for user in stays) <= offered
    # No pod is evicted needlessly: each evicted pod would not fit beside the remaining pods.
    for user in gone if not actual.evicts_all else ():
        ((resource, count),) = user.resources.items()
        held_by_others = sum(other.resources.get(resource, 0) for other in stays)
        assert count > actual.offers.get(resource, 0) - held_by_others


@pytest.mark.parametrize("name", sorted(POOLS))
def test_a_node_of_the_table_is_what_its_pool_declares(name: str) -> None:
    assert membership_edit(node_in(name), POOLS[name]) is None


@pytest.mark.parametrize(
    ("key", "value", "evicts_all"),
    [
        ("nvidia.com/gpu.workload.config", "vm-passthrough", True),
        ("nvidia.com/gpu.workload.config", "container", False),
        ("nvidia.com/gpu.deploy.driver", "false", True),
        ("nvidia.com/gpu.deploy.operands", "false", True),
        ("nvidia.com/gpu.deploy.dcgm", "false", False),
        ("team", "a", False),
    ],
)
def test_labels_that_make_the_operator_remove_the_driver(key: str, value: str, evicts_all: bool) -> None:
    to = pool(labels={key: value})
    known = node(labels={**{k: v for k, v in to.node_labels.items() if k != key}})
    actual = transition(known, to, membership_edit(known, to))
    assert actual.evicts_all is evicts_all
    user = PodOnNode("team", "work", "work", {GPU: 1}, (f"requests {GPU}",))
    assert displaced_pods(actual, [user]) == ((user,) if evicts_all else ())


def test_an_operand_that_is_stopped_for_a_change_is_not_started_by_a_label_of_its_pool() -> None:
    key = "nvidia.com/gpu.deploy.dcgm"
    to = pool(labels={key: "true"})
    labels = {**to.node_labels, key: "paused-for-mig-change"}
    change = membership_edit(node(labels=labels), to)
    assert change is None or key not in change.labels
    missing = membership_edit(node(labels={**labels, key: None}), to)
    assert missing is not None
    assert missing.labels[key] == "true"
