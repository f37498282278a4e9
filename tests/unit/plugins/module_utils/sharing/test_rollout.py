# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rolling update: at most max_unavailable nodes of a pool at a time, new nodes beside that, pauses after failures."""

from __future__ import annotations

import functools
import threading
import typing as t
from dataclasses import replace
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import CONFIG_LABEL
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import NOT_CHECKED, MissingPermission
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import Transition
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import NodeDrift
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import LastGood, membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan, node_count_of
from ansible_collections.accel.gpu.plugins.module_utils.sharing import rollout as sharing_rollout
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import EVERYTHING, NodeChange
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    DONE,
    GONE,
    INTERRUPTED,
    QUARANTINED,
    ROLLED_BACK,
    UNCORDONED,
    NodeResult,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rollout import (
    Rollout,
    RolloutResult,
    pool_queues,
    run_rolling_update,
)
from tests.helpers.fleet import node, pool, rollout


def change(name: str, of_pool: PoolPlan, **more: t.Any) -> NodeChange:
    return NodeChange(name, of_pool, None, Transition("mig-mode", True), rolling=True, **more)


class Runner:
    """Counts the changes that run at the same time. The first ones wait until `parallel` changes have started."""

    def __init__(self, results: t.Mapping[str, NodeResult], parallel: int) -> None:
        self._results = results
        self._parallel = parallel
        self._changed = threading.Condition()
        self.running: set[str] = set()
        self.most = 0
        self.order: list[str] = []

    def run(self, change: NodeChange) -> NodeResult:
        with self._changed:
            self.running.add(change.node)
            self.order.append(change.node)
            self.most = max(self.most, len(self.running))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.most >= self._parallel, timeout=60)
            self.running.discard(change.node)
        return self._results.get(change.node, NodeResult(change.node))


def update(
    changes: list[NodeChange], results: t.Mapping[str, NodeResult], parallel: int = 1
) -> tuple[RolloutResult, Runner]:
    runner, total = Runner(results, parallel), RolloutResult()
    sizes = {item.pool.name: len(changes) for item in changes if item.pool}
    run_rolling_update(pool_queues(changes, sizes), runner.run, total, lambda ended: None)
    return total, runner


@pytest.mark.parametrize("max_unavailable", [1, 3, "50%"])
def test_max_unavailable_nodes_change_at_the_same_time(max_unavailable: int | str) -> None:
    to = replace(pool(), rollout=rollout(max_unavailable=max_unavailable))
    total, runner = update([change(f"n{at:02}", to) for at in range(12)], {}, node_count_of(max_unavailable, 12))
    assert runner.most == node_count_of(max_unavailable, 12)
    assert len(total.results) == 12
    assert all(result.outcome == DONE for result in total.results.values())


def test_new_nodes_do_not_count_against_max_unavailable() -> None:
    changes = [change(f"n{at}", pool(), is_new=at < 6) for at in range(8)]
    dummy, runner = update(changes, {}, 7)
    assert set(runner.order[:7]) == {f"n{at}" for at in range(7)}
    assert runner.most == 7


@pytest.mark.parametrize(("pause", "started"), [(True, ["a"]), (False, ["a", "b", "c"])])
def test_a_failure_pauses_only_its_pool(pause: bool, started: list[str]) -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=pause))
    other = pool("other")
    changes = [*[change(name, to) for name in "abc"], change("x", other), change("y", other)]
    total, dummy = update(changes, {"a": NodeResult("a", ROLLED_BACK, failure="why")})
    assert sorted(total.results) == [*started, "x", "y"]
    assert total.not_started == dict.fromkeys(set("abc") - set(started), "rollout.pause_on_failure")


@pytest.mark.parametrize("outcome", [QUARANTINED, INTERRUPTED])
def test_a_node_that_stays_cordoned_counts_as_unavailable(outcome: str) -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=False, max_unavailable=2))
    results = {name: NodeResult(name, outcome, failure="why") for name in "ab"}
    total, dummy = update([change(name, to) for name in "abcd"], results)
    assert sorted(total.results) == ["a", "b"]
    assert total.not_started == dict.fromkeys("cd", "rollout.max_unavailable")


def test_an_error_stops_the_start_of_other_changes() -> None:
    def run(item: NodeChange) -> NodeResult:
        return NodeResult(item.node, error=PermissionError(item.node))

    changes = [change(name, pool()) for name in "abc"]
    total = RolloutResult()
    with pytest.raises(PermissionError, match=r"^a$"):
        run_rolling_update(pool_queues(changes, {"notebooks": 3}), run, total, lambda ended: None)
    assert list(total.results) == ["a"]
    assert sorted(total.not_started) == ["b", "c"]


def test_each_outcome_of_a_rollback_is_reported_before_the_first_error(monkeypatch: pytest.MonkeyPatch) -> None:
    results = {
        "a": NodeResult("a", INTERRUPTED, failure="lost", written=True, error=PermissionError("a")),
        "b": NodeResult("b", ROLLED_BACK, failure="why", written=True),
        "c": NodeResult("c", INTERRUPTED, failure="lost", written=True, error=PermissionError("c")),
    }

    def runner(dummy: t.Any, item: NodeChange) -> mock.Mock:
        return mock.Mock(fail_immediate=lambda message: results[item.node])

    for name, substitute in {"NodeRunner": runner, "diagnose": mock.Mock(), "WatchedNodes": mock.MagicMock()}.items():
        monkeypatch.setattr(sharing_rollout, name, substitute)
    recorded = {"accel.gpu/last-good": str(LastGood({}, {"nvidia.com/gpu": 1}))}
    state = mock.Mock(nodes={name: replace(node(name), annotations=recorded) for name in "abc"})
    changes = [replace(change(name, pool()), rolling=False) for name in "abc"]
    state.changes = mock.Mock(rolling_changes=[], node_changes=changes, device_plugin=mock.Mock(during={}))
    update = Rollout(mock.Mock())
    update._node_context = mock.Mock()  # type: ignore[method-assign]
    update.done.written.update("abc")
    findings = {name: NodeDrift(name, "notebooks", ("x",)) for name in "abc"}
    with pytest.raises(PermissionError, match=r"^a$"):
        update.roll_back_failed(state, findings, mock.Mock(lost=threading.Event()))
    assert update.done.results == results
    assert set(update.done.failed) == set("abc")


@pytest.mark.parametrize(
    ("disabled", "entry", "on_failure", "handled"),
    [
        (False, None, "rollback", True),
        (False, "present", "rollback", True),
        (False, "gone", "rollback", False),
        (True, None, "rollback", False),
        (True, None, "leave", True),
    ],
)
def test_a_node_without_operands_or_with_a_missing_entry_is_not_rolled_back(
    monkeypatch: pytest.MonkeyPatch, disabled: bool, entry: str | None, on_failure: str, handled: bool
) -> None:
    """It would not offer the resources of its last good configuration again either; with `leave`, nothing is awaited."""
    runner = mock.Mock(return_value=mock.Mock(fail_immediate=lambda message: NodeResult("a", QUARANTINED, failure="x")))
    for name, substitute in {"NodeRunner": runner, "diagnose": mock.Mock(), "WatchedNodes": mock.MagicMock()}.items():
        monkeypatch.setattr(sharing_rollout, name, substitute)
    actual = node("a")
    labels = {**actual.labels, **({"nvidia.com/gpu.deploy.operands": "false"} if disabled else {})}
    recorded = {"accel.gpu/last-good": str(LastGood({CONFIG_LABEL: entry}, {"nvidia.com/gpu": 1}))}
    state = mock.Mock(nodes={"a": replace(actual, labels=labels, annotations=recorded)})
    to = replace(pool(), rollout=rollout(on_failure=on_failure))
    state.changes = mock.Mock(
        rolling_changes=[],
        node_changes=[replace(change("a", to), rolling=False)],
        device_plugin=mock.Mock(during={"present": "version: v1"}),
    )
    update = Rollout(mock.Mock())
    update._node_context = mock.Mock()  # type: ignore[method-assign]
    update.done.written.add("a")
    findings = {"a": NodeDrift("a", "notebooks", ("x",), final=True)}
    update.roll_back_failed(state, findings, mock.Mock(lost=threading.Event()))
    assert runner.called is handled


@pytest.mark.parametrize(
    ("carried_out", "known", "changed", "failed"),
    [(True, True, ["n1"], []), (False, True, [], ["n1"]), (True, False, [], ["n1"])],
)
def test_a_node_counts_as_changed_although_the_response_is_lost(
    carried_out: bool, known: bool, changed: list[str], failed: list[str]
) -> None:
    """It has failed only if the patch is not found on it; otherwise it is verified with its pool. In any case, something may have been written."""
    to = pool(replicas=4)
    actual = node("n1")
    edit = membership_edit(actual, to)
    assert edit is not None
    lost = ApiError("lost", status=504)
    labels = {**actual.labels, **(edit.labels if carried_out else {})}
    annotations = edit.patch["metadata"]["annotations"] if carried_out else {}
    raw = {"metadata": {"name": "n1", "labels": labels, "annotations": annotations}}
    client = mock.Mock(strategic_merge=mock.Mock(side_effect=lost), get=mock.Mock(return_value=raw))
    if not known:
        client.get.side_effect = lost
    item = NodeChange("n1", to, edit, Transition("labels", False))
    state = mock.Mock(pool_of=lambda name: to)
    state.changes = mock.Mock(immediate_edits=[edit], node_changes=[item], held_back=())
    context = mock.Mock(client=client)
    update = Rollout(context)
    update._patch_immediate(state, mock.Mock(lost=threading.Event()))
    assert (sorted(update.done.changed), sorted(update.done.failed)) == (changed, failed)
    assert update.done.any
    context.progress.report.assert_called_once_with("nodes labeled", len(changed), 1, failed=len(failed))


EVICTIONS = {"n1": (PodOnNode("team", "x", "1"),)}
MISSING_RIGHT = ApiError('User "u" cannot patch resource "nodes"', status=403)


@pytest.mark.parametrize(
    ("responses", "exists", "unchecked"),
    [
        ([None], True, None),
        # The kubelet has written the node since it was listed.
        ([ApiError("no", status=409), None], True, None),
        ([ApiError("no", status=404)], False, None),
        ([ApiError("no", status=409)], False, None),
        ([MISSING_RIGHT], True, NOT_CHECKED),
    ],
)
def test_check_mode_patches_a_node_like_a_run(
    responses: list[ApiError | None], exists: bool, unchecked: str | None
) -> None:
    to, actual = pool(replicas=4), node("n1")
    edit = membership_edit(actual, to)
    assert edit is not None
    raw = {"metadata": {"name": "n1", "labels": actual.labels}} if exists else None
    client = mock.Mock(strategic_merge=mock.Mock(side_effect=responses), get=mock.Mock(return_value=raw))
    client.create.return_value = {"status": {"allowed": True}}
    state = mock.Mock(pool_of=lambda name: to)
    state.changes = mock.Mock(edits=[edit], pool_of={"n1": "notebooks"}, held_back=(), evictions=EVICTIONS)
    assert Rollout(mock.Mock(client=client, scope=EVERYTHING)).dry_run(state) == unchecked
    # A user who is not allowed to send a dry run only reads.
    assert client.create.call_count == (0 if unchecked else 1)
    assert client.strategic_merge.call_count == len(responses)
    assert all(call.kwargs == {"dry_run": True} for call in client.strategic_merge.call_args_list)


ALICE = {"key": "alice", "value": "x", "effect": "NoSchedule"}
TOLERATED = {"key": "tolerated", "effect": "NoSchedule"}


def test_progress_shows_how_many_nodes_are_changed_and_how_many_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=False))
    changes = [change(name, to) for name in "abcd"]
    results = {"b": NodeResult("b", UNCORDONED, failure="its budget", written=True), "c": NodeResult("c", GONE)}
    watched = mock.MagicMock()
    watched.return_value.__enter__.return_value.all.return_value = {"a": node("a", replicas=4)}
    monkeypatch.setattr(sharing_rollout, "WatchedNodes", watched)
    monkeypatch.setattr(
        sharing_rollout,
        "NodeRunner",
        lambda context, item: mock.Mock(run=lambda: results.get(item.node, NodeResult(item.node, written=True))),
    )
    context = mock.Mock()
    update = Rollout(context)
    update._node_context = mock.Mock()  # type: ignore[method-assign]
    update._run_rolling_update(
        mock.Mock(
            changes=mock.Mock(rolling_changes=changes), membership=mock.Mock(by_pool={"notebooks": "abcd"}), nodes={}
        ),
        mock.Mock(),
    )
    text = "nodes changed in the rolling update"
    assert context.progress.report.call_args_list == [
        mock.call(text, done, 4, failed=failed) for done, failed in ((1, 0), (1, 1), (1, 1), (2, 1))
    ]
    assert update.done.changed == {"a", "d"}
    assert update.nodes == {"a": node("a", replicas=4)}


@pytest.mark.parametrize(
    ("label", "made"), [("nvidia.com/mig.config", ["b"]), ("nvidia.com/device-plugin.config", ["a", "b"])]
)
def test_mig_is_not_changed_where_the_operands_could_not_start_again(
    monkeypatch: pytest.MonkeyPatch, label: str, made: list[str]
) -> None:
    to = replace(pool(), rollout=rollout(pause_on_failure=False))
    edit = mock.Mock(labels={label: "x"})
    changes = [replace(change(name, to), edit=edit) for name in "ab"]
    nodes = {name: replace(node(name), taints=taints) for name, taints in (("a", (ALICE,)), ("b", (TOLERATED,)))}
    watched = mock.MagicMock()
    watched.return_value.__enter__.return_value.all.return_value = {}
    monkeypatch.setattr(sharing_rollout, "WatchedNodes", watched)
    started: list[str] = []

    def runner(dummy: t.Any, item: t.Any) -> t.Any:
        started.append(item.node)
        return mock.Mock(run=lambda: NodeResult(item.node, written=True))

    monkeypatch.setattr(sharing_rollout, "NodeRunner", runner)
    policy = {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"daemonsets": {"tolerations": [{"key": "tolerated", "operator": "Exists"}]}},
    }
    client = mock.Mock(list_known=mock.Mock(return_value=[policy]))
    context = mock.Mock(client=client, plan=mock.Mock(pools=()), reader=mock.Mock(expected_tolerations=()))
    update = Rollout(context)
    update._node_context = mock.Mock()  # type: ignore[method-assign]
    state = mock.Mock(
        changes=mock.Mock(rolling_changes=changes), membership=mock.Mock(by_pool={"x": "ab"}), nodes=nodes
    )
    update._run_rolling_update(state, mock.Mock())
    assert sorted(started) == made
    if len(made) == 1:
        assert "alice=x:NoSchedule" in update.done.failed["a"]


@pytest.mark.parametrize(("evictions", "asked"), [(EVICTIONS, 1), ({}, 0)])
def test_the_permission_to_evict_is_asked_for_once_before_the_first_change(
    evictions: dict[str, t.Any], asked: int
) -> None:
    client = mock.Mock(create=mock.Mock(return_value={"status": {"allowed": True}}))
    context = mock.MagicMock(client=client)
    update = Rollout(context)
    state = mock.Mock(nodes={})
    state.changes = mock.MagicMock(
        evictions=evictions, nodes_to_refresh=(), immediate_mig_nodes=(), immediate_edits=(), rolling_changes=()
    )
    for _ in range(2):
        update.apply(state, mock.Mock(lost=threading.Event()))
    assert client.create.call_count == asked


def test_a_pod_in_another_namespace_is_asked_about_in_the_next_round() -> None:
    client = mock.Mock(create=mock.Mock(return_value={"status": {"allowed": True}}))
    update = Rollout(mock.Mock(client=client))
    first, second = (mock.Mock(namespace=name) for name in ("a", "b"))
    for pods in ([first], [first], [first, second]):
        update.require_permission_to_evict(mock.Mock(changes=mock.Mock(evictions={"n1": pods})))
    assert client.create.call_count == 2


@pytest.mark.parametrize("check", [True, False])
def test_without_permission_to_evict_nothing_is_changed(check: bool) -> None:
    client = mock.Mock(create=mock.Mock(return_value={"status": {"allowed": False}}))
    context = mock.Mock(client=client, scope=EVERYTHING)
    update = Rollout(context)
    edit = membership_edit(node("n1"), pool(replicas=4))
    changes = mock.Mock(edits=[edit], pool_of={"n1": "notebooks"}, held_back=(), evictions=EVICTIONS)
    state = mock.Mock(nodes={"n1": node("n1")}, changes=changes)
    call = functools.partial(update.dry_run, state) if check else functools.partial(update.apply, state, mock.Mock())
    with pytest.raises(MissingPermission, match=r'"pods/eviction".*"team", which the drain of n1 needs'):
        call()
    assert not update.done.any
    assert update.nodes == ({} if check else state.nodes)
    if not check:
        context.reader.configmaps.add_entries.assert_not_called()


@pytest.mark.parametrize("patches_nodes", [True, False])
def test_a_preview_of_evictions_alone_is_unchecked_for_a_user_who_only_reads(patches_nodes: bool) -> None:
    """The labels are already written, so no dry run of an edit has shown whether the user may change nodes."""

    def review(dummy: str, body: dict[str, t.Any], *, dry_run: bool) -> dict[str, t.Any]:
        asked = body["spec"]["resourceAttributes"]
        is_patch = (asked["verb"], asked["resource"], asked["namespace"]) == ("patch", "nodes", "")
        return {"status": {"allowed": is_patch and patches_nodes and dry_run}}

    update = Rollout(mock.Mock(client=mock.Mock(create=review)))
    state = mock.Mock(changes=mock.Mock(edits=(), evictions=EVICTIONS))
    if not patches_nodes:
        assert update.dry_run(state) == NOT_CHECKED
        return
    with pytest.raises(MissingPermission, match="pods/eviction"):
        update.dry_run(state)
