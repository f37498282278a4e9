# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The change of a node: rolling or immediate, the pods to evict, what blocks it, and the order of a pool's changes."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import Transition, blocked_message
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode, PodsByNode
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan, node_count_of
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMapEntries,
    NodeChange,
    in_rollout_order,
    is_marked,
    limit_changes,
    node_change,
)
from tests.helpers.fleet import node, pool, rollout

GPU = "nvidia.com/gpu"
MEMBER = {"accel.gpu/pool": "notebooks", "nvidia.com/device-plugin.config": pool().config_key}


def holder(name: str = "work", **more: t.Any) -> PodOnNode:
    return PodOnNode("team", name, name, {GPU: 1}, (f"requests {GPU}",), **more)


def change_of(
    actual: Node, to: PoolPlan, *gpu_pods: PodOnNode, other_pods: t.Sequence[PodOnNode] = (), repair: bool = False
) -> NodeChange | None:
    pods = PodsByNode({actual.name: gpu_pods}, {actual.name: other_pods})
    return node_change(actual, to, pods, repair=repair)


@pytest.mark.parametrize(
    ("to", "pods", "rolling", "evicted", "is_new"),
    [
        (pool(replicas=4), [holder()], False, [], False),
        (pool(replicas=4, rename=True), [holder()], True, ["team/work"], False),
        (pool(replicas=4, rename=True), [], False, [], False),
        (pool(mode="mps", replicas=4), [], True, [], False),
        (pool(mode="mps", replicas=4), [holder()], True, ["team/work"], False),
        (pool(mode="mps", replicas=4, rollout=rollout(drain="none")), [holder()], True, [], False),
        (pool(mode="mps", replicas=4), [holder(unmanaged=True)], True, [], False),
        (
            pool(mode="mps", replicas=4, rollout=rollout(force=True)),
            [holder(unmanaged=True)],
            True,
            ["team/work"],
            False,
        ),
        (pool("others", mode="mps", replicas=4), [], True, [], True),
        (pool("others", mode="mps", replicas=4), [holder()], True, ["team/work"], False),
    ],
)
def test_which_changes_are_rolling(
    to: PoolPlan, pods: list[PodOnNode], rolling: bool, evicted: list[str], is_new: bool
) -> None:
    actual = change_of(node(labels=MEMBER), to, *pods)
    assert actual is not None
    assert (actual.rolling, actual.as_dict()["evicts"], actual.is_new) == (rolling, evicted, is_new)


def test_drain_all_evicts_pods_without_gpus_too() -> None:
    web = PodOnNode("web", "front", "front")
    to = pool(mode="mps", replicas=4, rollout=rollout(drain="all"))
    actual = change_of(node(labels=MEMBER), to, holder(), other_pods=[web])
    assert actual is not None
    assert actual.as_dict()["evicts"] == ["team/work", "web/front"]


@pytest.mark.parametrize(
    ("pod", "force", "blocked"),
    [
        (holder(), False, []),
        (holder(unmanaged=True), False, ["team/work (no controller recreates it)"]),
        (holder(unmanaged=True), True, []),
        (holder(keep_reason="DaemonSet exporter"), True, ["team/work (DaemonSet exporter)"]),
        # A monitoring pod without a GPU resource does not block.
        (PodOnNode("m", "smi", "smi", {}, ("runtimeClassName nvidia",), keep_reason="DaemonSet smi"), False, []),
    ],
)
def test_which_pods_block_a_change(pod: PodOnNode, force: bool, blocked: list[str]) -> None:
    actual = change_of(node(labels=MEMBER), pool(mode="mps", replicas=4, rollout=rollout(force=force)), pod)
    assert actual is not None
    assert list(map(str, actual.blocking_pods)) == blocked


def test_fewer_shares_than_are_held_by_pods_without_a_controller() -> None:
    """The GPU would be offered to two pods as a whole one."""
    shared = node(replicas=4, labels={**MEMBER, "nvidia.com/device-plugin.config": "time-slicing-4"})
    pods = [holder("first", unmanaged=True, created="1"), holder("second", unmanaged=True, created="2")]
    for force, blocked, evicted in (
        (False, ["team/second (no controller recreates it)"], []),
        (True, [], ["team/second"]),
    ):
        actual = change_of(shared, pool(rollout=rollout(force=force)), *pods)
        assert actual is not None
        assert (actual.rolling, list(map(str, actual.blocking_pods)), actual.as_dict()["evicts"]) == (
            True,
            blocked,
            evicted,
        )


@pytest.mark.parametrize("unmanaged", [False, True])
def test_a_run_evicts_no_pods_from_a_node_whose_change_is_blocked(unmanaged: bool) -> None:
    pods = holder("first"), holder("second", unmanaged=unmanaged)
    actual = change_of(node(labels=MEMBER), pool(mode="mps", replicas=4), *pods)
    assert actual is not None
    assert pods[0] in actual.pods_to_evict
    entries = ConfigMapEntries({}, (), (), {})
    assert ChangePlan((actual,), {}, entries, entries).evictions == ({} if unmanaged else {"n1": pods})


def test_a_node_that_is_as_declared_changes_only_if_it_has_marks() -> None:
    assert change_of(node(labels=MEMBER), pool()) is None
    # The cordon of an unfinished restart of a driver is removed, too.
    restart = {"accel.gpu/driver-restart": "driver-a"}
    for mark, others in (
        ({"accel.gpu/cordoned": "why"}, {}),
        ({"accel.gpu/cordoned": "why"}, restart),
        ({"accel.gpu/failed": "why"}, {}),
    ):
        begun = change_of(replace(node(labels=MEMBER), annotations={**mark, **others}), pool())
        assert begun is not None
        assert (begun.rolling, begun.marks, begun.as_dict()["evicts"]) == (True, mark, [])


STUCK = {**MEMBER, "nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"nvidia.com/mig.config.state": "failed"}, "failed and does not retry"),
        ({"nvidia.com/mig.config.state": "pending"}, "reports pending"),
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}, "device-plugin were left paused"),
        ({}, ""),
    ],
)
def test_a_repair_changes_stuck_nodes(labels: dict[str, str], text: str) -> None:
    actual = change_of(node(labels={**STUCK, **labels}), pool(), repair=True)
    assert (actual.stuck if actual else "") == (text and actual and actual.stuck)
    assert text in (actual.stuck if actual else "")
    assert change_of(node(labels={**STUCK, **labels}), pool()) is None


def _rolling(name: str, of_pool: PoolPlan, displaced: int = 0) -> NodeChange:
    edit = membership_edit(node(name), of_pool)
    return NodeChange(name, of_pool, edit, Transition("mig-mode", True), (holder(),) * displaced, rolling=True)


def test_unfinished_changes_come_first_then_idle_nodes() -> None:
    to = pool(mode="mps", replicas=4)
    changes = [_rolling("a", to, 2), _rolling("b", to), _rolling("c", to, 1), replace(_rolling("d", to, 9), edit=None)]
    assert [actual.node for actual in in_rollout_order(changes)] == ["d", "b", "c", "a"]
    by_name = replace(to, rollout=rollout(order="name"))
    assert [actual.node for actual in in_rollout_order([_rolling(name, by_name, 2) for name in "cab"])] == [
        "a",
        "b",
        "c",
    ]


def test_limit_leaves_the_rest_for_another_run() -> None:
    to = replace(pool(mode="mps", replicas=4), rollout=rollout(limit="50%"))
    changes = [_rolling(name, to) for name in "abcd"]
    chosen, remaining = limit_changes(changes, 4)
    assert ([actual.node for actual in chosen], remaining) == (["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("amount", "nodes", "number"), [(3, 2, 3), ("25%", 9, 3), ("1%", 5, 1), ("100%", 7, 7), ("50%", 0, 1)]
)
def test_numbers_and_percentages_of_nodes(amount: int | str, nodes: int, number: int) -> None:
    assert node_count_of(amount, nodes) == number


CUT = pool(mode="mig", layout={"3g.40gb": 2})
CUTTABLE = {**MEMBER, "nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled"}


@pytest.mark.parametrize(
    ("pod", "blocked", "stops"),
    [
        # An open device file prevents a MIG change, also without a GPU resource.
        (
            PodOnNode("m", "smi", "smi", {}, ("runtimeClassName nvidia",), keep_reason="DaemonSet smi"),
            ["m/smi (DaemonSet smi, runtimeClassName nvidia)"],
            [],
        ),
        (
            PodOnNode("m", "dcgm", "dcgm", {}, ("nodeSelector",), keep_reason="DaemonSet dcgm", pausable=True),
            [],
            ["m/dcgm"],
        ),
        (holder(), [], []),
    ],
)
def test_daemonsets_that_use_gpus_during_a_mig_change(pod: PodOnNode, blocked: list[str], stops: list[str]) -> None:
    actual = change_of(node(labels=CUTTABLE), CUT, pod)
    assert actual is not None
    assert actual.rolling
    assert (list(map(str, actual.blocking_pods)), [item.full_name for item in actual.pods_to_pause]) == (blocked, stops)
    shown = actual.as_dict()
    assert (shown.get("blocked_by", []), shown.get("stops", [])) == (blocked, stops)


def test_possible_holders_are_named_for_mig_changes_and_never_evicted() -> None:
    cni = PodOnNode(
        "kube-system", "cni", "cni", keep_reason="DaemonSet cni", possible_access=("privileged container cni",)
    )
    for to, named in ((CUT, ["kube-system/cni (privileged container cni)"]), (pool(mode="mps", replicas=4), None)):
        known = node(labels=CUTTABLE)
        actual = node_change(known, to, PodsByNode({}, {}, {"n1": [cni]}))
        assert actual is not None
        assert (actual.as_dict().get("possible_holders"), actual.pods_to_evict, actual.blocking_pods) == (named, (), [])


def test_a_node_with_paused_clients_is_unfinished() -> None:
    stopped = {**MEMBER, "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}
    assert is_marked(node(labels=stopped))
    assert not is_marked(node(labels={**stopped, "nvidia.com/mig.config.state": "pending"}))


def test_each_blocking_pod_has_the_remedy_for_its_reason() -> None:
    monitor = PodOnNode("m", "smi", "smi", {}, ("runtimeClassName nvidia",), keep_reason="DaemonSet smi")
    change = change_of(node(labels=CUTTABLE), CUT, monitor, holder(unmanaged=True))
    assert change is not None
    text = blocked_message(change.blocking_pods)
    assert "add the nodeSelector nvidia.com/gpu.deploy.client to the DaemonSets" in text
    assert "or set rollout.force, which evicts them permanently" in text
