# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes take their turn, in which order, what blocks them, and the window in which they do."""

from __future__ import annotations

import threading
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.pool_edit import node_edit
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.transition import Transition
from ansible_collections.accel.gpu.plugins.module_utils.drain.pods_on_nodes import PodsByNode
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan, node_count_of
from ansible_collections.accel.gpu.plugins.module_utils.sharing.node_change import (
    NodeChange,
    in_rollout_order,
    is_marked,
    limit_changes,
    node_change,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.node_result import DONE, LEFT, ROLLED_BACK, NodeResult
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rolling_update import (
    RollingResult,
    pool_queues,
    run_rolling_update,
)
from tests.helpers.fleet import node, pool, rollout

GPU = "nvidia.com/gpu"
MEMBER = {"accel.gpu/pool": "notebooks", "nvidia.com/device-plugin.config": pool().config_key}


def holder(name: str = "work", **more: t.Any) -> PodOnNode:
    return PodOnNode("n1", "team", name, name, {GPU: 1}, (f"requests {GPU}",), **more)


def of(
    of_node: Node, of_pool: PoolPlan, *users: PodOnNode, others: t.Sequence[PodOnNode] = (), repair: bool = False
) -> NodeChange | None:
    asked = PodsByNode({of_node.name: users}, {of_node.name: others})
    return node_change(of_node, of_pool, node_edit(of_node, of_pool), asked, repair=repair)


@pytest.mark.parametrize(
    ("to", "users", "turn", "evicted", "joins"),
    [
        (pool(replicas=4), [holder()], False, [], False),
        (pool(replicas=4, rename=True), [holder()], True, ["team/work"], False),
        (pool(replicas=4, rename=True), [], False, [], False),
        (pool(mode="mps", replicas=4), [], True, [], False),
        (pool(mode="mps", replicas=4), [holder()], True, ["team/work"], False),
        (pool(mode="mps", replicas=4, rollout=rollout(drain="none")), [holder()], True, [], False),
        (pool(mode="mps", replicas=4), [holder(bare=True)], True, [], False),
        (pool(mode="mps", replicas=4, rollout=rollout(force=True)), [holder(bare=True)], True, ["team/work"], False),
        (pool("others", mode="mps", replicas=4), [], True, [], True),
        (pool("others", mode="mps", replicas=4), [holder()], True, ["team/work"], False),
    ],
)
def test_who_takes_a_turn(to: PoolPlan, users: list[PodOnNode], turn: bool, evicted: list[str], joins: bool) -> None:
    found = of(node(labels=MEMBER), to, *users)
    assert found is not None
    assert (found.turn, found.told()["evicts"], found.joins) == (turn, evicted, joins)


def test_a_drain_of_everybody_takes_those_who_use_no_gpu_too() -> None:
    web = PodOnNode("n1", "web", "front", "front")
    to = pool(mode="mps", replicas=4, rollout=rollout(drain="all"))
    found = of(node(labels=MEMBER), to, holder(), others=[web])
    assert found is not None
    assert found.told()["evicts"] == ["team/work", "web/front"]


@pytest.mark.parametrize(
    ("user", "force", "blocked"),
    [
        (holder(), False, []),
        (holder(bare=True), False, ["team/work (no controller makes it again)"]),
        (holder(bare=True), True, []),
        (holder(kept="DaemonSet exporter"), True, ["team/work (DaemonSet exporter)"]),
        # What looks on, and holds nothing, does not stand in the way.
        (PodOnNode("n1", "m", "smi", "smi", {}, ("runtimeClassName nvidia",), kept="DaemonSet smi"), False, []),
    ],
)
def test_what_blocks_a_node(user: PodOnNode, force: bool, blocked: list[str]) -> None:
    found = of(node(labels=MEMBER), pool(mode="mps", replicas=4, rollout=rollout(force=force)), user)
    assert found is not None
    assert found.blocked == blocked


def test_fewer_shares_than_are_held_by_pods_without_a_controller() -> None:
    """The GPU would be offered to two pods as a whole one."""
    shared = node(replicas=4, labels={**MEMBER, "nvidia.com/device-plugin.config": "time-slicing-4"})
    users = [holder("first", bare=True, created="1"), holder("second", bare=True, created="2")]
    for force, blocked, evicted in (
        (False, ["team/second (no controller makes it again)"], []),
        (True, [], ["team/second"]),
    ):
        found = of(shared, pool(rollout=rollout(force=force)), *users)
        assert found is not None
        assert (found.turn, found.blocked, found.told()["evicts"]) == (True, blocked, evicted)


def test_a_node_that_is_as_declared_has_no_step_unless_something_was_begun() -> None:
    assert of(node(labels=MEMBER), pool()) is None
    for mark in ({"accel.gpu/cordoned": "why"}, {"accel.gpu/failed": "why"}):
        begun = of(replace(node(labels=MEMBER), annotations=mark), pool())
        assert begun is not None
        assert (begun.turn, begun.marks, begun.told()["evicts"]) == (True, mark, [])


STUCK = {**MEMBER, "nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"nvidia.com/mig.config.state": "failed"}, "failed and does not try again"),
        ({"nvidia.com/mig.config.state": "pending"}, "says pending"),
        ({"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change"}, "device-plugin were left paused"),
        ({}, ""),
    ],
)
def test_what_is_stuck_is_mended_when_asked_for(labels: dict[str, str], words: str) -> None:
    found = of(node(labels={**STUCK, **labels}), pool(), repair=True)
    assert (found.remedy if found else "") == (words and found and found.remedy)
    assert words in (found.remedy if found else "")
    assert of(node(labels={**STUCK, **labels}), pool()) is None


def _step(name: str, of_pool: PoolPlan, goes: int = 0, **more: t.Any) -> NodeChange:
    edit = node_edit(node(name), of_pool)
    return NodeChange(name, of_pool, edit, Transition("mig-mode", True), (holder(),) * goes, turn=True, **more)


def test_what_was_begun_comes_first_then_idle_nodes() -> None:
    to = pool(mode="mps", replicas=4)
    steps = [_step("a", to, 2), _step("b", to), _step("c", to, 1), replace(_step("d", to, 9), edit=None)]
    assert [found.node for found in in_rollout_order(steps)] == ["d", "b", "c", "a"]
    by_name = replace(to, rollout=rollout(order="name"))
    assert [found.node for found in in_rollout_order([_step(name, by_name, 2) for name in "cab"])] == ["a", "b", "c"]


def test_a_limit_leaves_the_rest_for_another_run() -> None:
    to = replace(pool(mode="mps", replicas=4), rollout=rollout(limit="50%"))
    steps = [_step(name, to) for name in "abcd"]
    chosen, left = limit_changes(steps, 4)
    assert ([found.node for found in chosen], left) == (["a", "b"], ["c", "d"])


@pytest.mark.parametrize(
    ("amount", "nodes", "number"), [(3, 2, 3), ("25%", 9, 3), ("1%", 5, 1), ("100%", 7, 7), ("50%", 0, 1)]
)
def test_an_amount_is_counted(amount: int | str, nodes: int, number: int) -> None:
    assert node_count_of(amount, nodes) == number


class Watch:
    """How many turns are under way at a time. The first of them wait until as many as are `awaited` have begun."""

    def __init__(self, fates: t.Mapping[str, NodeResult], awaited: int) -> None:
        self._fates = fates
        self._awaited = awaited
        self._changed = threading.Condition()
        self.now: set[str] = set()
        self.most = 0
        self.order: list[str] = []

    def take(self, found: NodeChange) -> NodeResult:
        with self._changed:
            self.now.add(found.node)
            self.order.append(found.node)
            self.most = max(self.most, len(self.now))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._awaited, timeout=60)
            self.now.discard(found.node)
        return self._fates.get(found.node, NodeResult(found.node))


def _turns(steps: list[NodeChange], fates: t.Mapping[str, NodeResult], awaited: int = 1) -> tuple[RollingResult, Watch]:
    watch = Watch(fates, awaited)
    sizes = {found.pool.name: len(steps) for found in steps if found.pool}
    return run_rolling_update(pool_queues(steps, sizes), watch.take, lambda turns: None), watch


@pytest.mark.parametrize("width", [1, 3, "50%"])
def test_the_window_slides_and_is_never_wider(width: int | str) -> None:
    to = replace(pool(), rollout=rollout(max_unavailable=width))
    turns, watch = _turns([_step(f"n{at:02}", to) for at in range(12)], {}, node_count_of(width, 12))
    assert watch.most == node_count_of(width, 12)
    assert len(turns.fates) == 12
    assert all(fate.outcome == DONE for fate in turns.fates.values())


def test_nodes_that_join_wait_for_nobody() -> None:
    steps = [_step(f"n{at}", pool(), joins=at < 6) for at in range(8)]
    dummy, watch = _turns(steps, {}, 7)
    assert set(watch.order[:7]) == {f"n{at}" for at in range(7)}
    assert watch.most == 7


@pytest.mark.parametrize(("pause", "begun"), [(True, ["a"]), (False, ["a", "b", "c"])])
def test_a_failure_pauses_its_pool_alone(pause: bool, begun: list[str]) -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=pause))
    other = pool("other")
    steps = [*[_step(name, to) for name in "abc"], _step("x", other), _step("y", other)]
    turns, dummy = _turns(steps, {"a": NodeResult("a", ROLLED_BACK, failed="why")})
    assert sorted(turns.fates) == [*begun, "x", "y"]
    assert turns.not_begun == sorted(set("abc") - set(begun))


def test_a_node_that_is_left_closed_stays_in_the_window() -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=False, max_unavailable=2))
    fates = {name: NodeResult(name, LEFT, failed="why") for name in "ab"}
    turns, dummy = _turns([_step(name, to) for name in "abcd"], fates)
    assert sorted(turns.fates) == ["a", "b"]
    assert turns.not_begun == ["c", "d"]


def test_what_would_stop_every_turn_stops_the_beginning_of_others() -> None:
    def take(found: NodeChange) -> NodeResult:
        raise PermissionError(found.node)

    steps = [_step(name, pool()) for name in "abc"]
    turns = run_rolling_update(pool_queues(steps, {"notebooks": 3}), take, lambda turns: None)
    assert str(turns.error) == "a"
    assert turns.not_begun == ["b", "c"]


CUT = pool(mode="mig", layout={"3g.40gb": 2})
CUTTABLE = {**MEMBER, "nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled"}


@pytest.mark.parametrize(
    ("user", "blocked", "stops"),
    [
        # An open device file keeps GPUs from being cut, also where no resource is held.
        (
            PodOnNode("n1", "m", "smi", "smi", {}, ("runtimeClassName nvidia",), kept="DaemonSet smi"),
            ["m/smi (DaemonSet smi, runtimeClassName nvidia)"],
            [],
        ),
        (
            PodOnNode("n1", "m", "dcgm", "dcgm", {}, ("nodeSelector",), kept="DaemonSet dcgm", pausable=True),
            [],
            ["m/dcgm"],
        ),
        (holder(), [], []),
    ],
)
def test_daemonsets_that_use_gpus_of_a_node_that_is_cut(user: PodOnNode, blocked: list[str], stops: list[str]) -> None:
    found = of(node(labels=CUTTABLE), CUT, user)
    assert found is not None
    assert found.turn
    assert (found.blocked, [of.shown for of in found.stopped]) == (blocked, stops)
    told = found.told()
    assert (told.get("blocked_by", []), told.get("stops", [])) == (blocked, stops)


def test_possible_holders_are_named_where_gpus_are_cut_and_evicted_nowhere() -> None:
    cni = PodOnNode("n1", "kube-system", "cni", "cni", kept="DaemonSet cni", possible=("privileged container cni",))
    for to, named in ((CUT, ["kube-system/cni (privileged container cni)"]), (pool(mode="mps", replicas=4), None)):
        known = node(labels=CUTTABLE)
        found = node_change(known, to, node_edit(known, to), PodsByNode({}, {}, {"n1": [cni]}))
        assert found is not None
        assert (found.told().get("possible_holders"), found.evicted, found.blocked) == (named, (), [])


def test_a_node_whose_clients_are_still_stopped_is_gone_on_with() -> None:
    stopped = {**MEMBER, "nvidia.com/gpu.deploy.client": "paused-for-mig-change"}
    assert is_marked(node(labels=stopped))
    assert not is_marked(node(labels={**stopped, "nvidia.com/mig.config.state": "pending"}))
