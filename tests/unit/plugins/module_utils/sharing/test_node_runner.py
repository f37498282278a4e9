# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The patches that cordon, uncordon, quarantine and roll back a node change nothing of others."""

from __future__ import annotations

import typing as t
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT_KEY
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import Patch, pause_clients
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import (
    LastGood,
    last_good,
    membership_edit,
    working_configuration,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing import rollout
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    INTERRUPTED,
    NodeFailure,
    NodeResult,
    WatchedNode,
)
from tests.helpers.fleet import node, pool

CORDON, FAILED = "accel.gpu/cordoned", "accel.gpu/failed"
# The cordon of a run of license_rotate.
DRIVER_RESTART = {CORDON: "its driver is being restarted", "accel.gpu/driver-restart": "driver-a"}
CONFIG, CUT, STATE = "nvidia.com/device-plugin.config", "nvidia.com/mig.config", "nvidia.com/mig.config.state"
THEIRS = {"key": "team", "value": "a", "effect": "NoSchedule"}
QUARANTINE = {"key": FAILED, "value": "drain", "effect": "NoSchedule"}
STARTUP = {"key": STARTUP_TAINT_KEY, "effect": "NoSchedule"}


def patched(actual: Node, patch: Patch | None) -> Node:
    """The node after a merge patch."""
    if patch is None:
        return actual
    annotations = {**actual.annotations, **patch["metadata"].get("annotations", {})}
    labels = {**actual.labels, **patch["metadata"].get("labels", {})}
    spec = patch.get("spec", {})
    return replace(
        actual,
        annotations={key: value for key, value in annotations.items() if value is not None},
        labels={key: value for key, value in labels.items() if value is not None},
        taints=tuple(spec.get("taints", actual.taints)),
        unschedulable=bool(spec["unschedulable"]) if "unschedulable" in spec else actual.unschedulable,
    )


nodes = st.builds(
    lambda cordoned, managed, failed, taints: replace(
        node(),
        unschedulable=cordoned or bool(managed),
        annotations={**managed, **({FAILED: "message"} if failed else {})},
        taints=tuple(taints),
    ),
    st.booleans(),
    st.sampled_from([{}, {CORDON: "why"}, DRIVER_RESTART]),
    st.booleans(),
    st.lists(st.sampled_from([THEIRS, QUARANTINE, STARTUP]), unique_by=lambda taint: taint["key"]),
)


@given(nodes)
def test_an_uncordoned_node_has_no_marks_left(actual: Node) -> None:
    opened = patched(
        patched(actual, rollout.cordon_patch(actual, "why")),
        rollout.uncordon_patch(patched(actual, rollout.cordon_patch(actual, "why"))),
    )
    assert opened.annotations == {}
    assert [taint for taint in opened.taints if taint["key"] != "team"] == []
    # A foreign cordon is still there.
    assert opened.unschedulable is (actual.unschedulable and CORDON not in actual.annotations)
    assert (THEIRS in opened.taints) is (THEIRS in actual.taints)
    assert rollout.uncordon_patch(opened) is None


def test_only_pods_whose_eviction_was_accepted_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = tuple(PodOnNode("team", name, f"uid-{name}") for name in ("a", "b"))
    change = mock.Mock(blocking_pods=(), displaced=pods, pods_to_evict=pods, node="n0")
    runner = rollout.NodeRunner(mock.Mock(), change)

    def drain(*dummy: t.Any, evicted: list[str], **options: t.Any) -> None:
        evicted.append("team/b")
        raise WaitTimeout("a was not evicted.")

    monkeypatch.setattr(rollout, "drain_gpu_pods", drain)
    with pytest.raises(NodeFailure, match="a was not evicted"):
        runner._drain(change)
    assert (runner.result.evicted, runner.result.written) == (["team/b"], True)


@given(nodes)
def test_nothing_is_scheduled_to_a_cordoned_node(actual: Node) -> None:
    closed = patched(actual, rollout.cordon_patch(actual, "why"))
    assert closed.unschedulable or STARTUP in closed.taints
    assert QUARANTINE not in closed.taints
    assert rollout.cordon_patch(closed, "why") is None


@given(nodes, st.sampled_from(["drain", "mig-failed"]))
def test_a_quarantined_node_has_the_reason_and_the_next_run_uncordons_it(actual: Node, reason: str) -> None:
    closed = patched(actual, rollout.cordon_patch(actual, "why"))
    remaining = patched(closed, rollout.quarantine_patch(closed, reason, "message"))
    assert {"key": FAILED, "value": reason, "effect": "NoSchedule"} in remaining.taints
    assert remaining.annotations[FAILED] == "message"
    assert rollout.quarantine_patch(remaining, reason, "message") is None
    again = patched(remaining, rollout.cordon_patch(remaining, "why"))
    assert FAILED not in {taint["key"] for taint in again.taints}
    assert patched(again, rollout.uncordon_patch(again)).annotations == {}


def test_a_rolled_back_node_is_uncordoned_and_has_the_reason() -> None:
    closed = patched(node(), rollout.cordon_patch(node(), "why"))
    back = patched(closed, rollout.uncordon_patch(closed, failure="message"))
    assert (back.unschedulable, back.annotations, back.taints) == (False, {FAILED: "message"}, ())


@pytest.mark.parametrize(
    ("labels", "good", "patch"),
    [
        ({CONFIG: "new"}, {CONFIG: "old", CUT: None}, {CONFIG: "old"}),
        ({CONFIG: "new"}, {CONFIG: None, CUT: None}, {CONFIG: None}),
        ({CONFIG: "new", CUT: "mig-a"}, {CONFIG: "old", CUT: "mig-b"}, {CONFIG: "old", CUT: "mig-b", STATE: None}),
        # Before, no label configured whole GPUs; the MIG manager needs one.
        ({CONFIG: "new", CUT: "mig-a"}, {CONFIG: "old", CUT: None}, {CONFIG: "old", CUT: "all-disabled", STATE: None}),
        ({CONFIG: "old", CUT: "all-disabled"}, {CONFIG: "old", CUT: None}, None),
    ],
)
def test_rollback_patch(labels: dict[str, str], good: dict[str, str | None], patch: dict[str, t.Any] | None) -> None:
    actual = rollout.rollback_patch(node(labels=labels), LastGood(good, {"nvidia.com/gpu": 1}))
    assert (actual["metadata"]["labels"] if actual else None) == patch


MEMBER = {"accel.gpu/pool": "notebooks", CONFIG: "old"}


@pytest.mark.parametrize(
    ("actual", "works"),
    [
        (node(labels=MEMBER), True),
        (node(labels=MEMBER, allocatable={}), False),
        (node(labels=MEMBER, ready=False), False),
        (node(labels={**MEMBER, STATE: "pending"}), False),
        (node(labels={**MEMBER, STATE: "failed"}), False),
        (node(labels={**MEMBER, STATE: "success", "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}), False),
    ],
)
def test_a_working_configuration_is_recorded_with_the_change(actual: Node, works: bool) -> None:
    change = membership_edit(actual, pool(replicas=4))
    assert change is not None
    noted = last_good(patched(actual, change.patch))
    assert noted == (LastGood({CONFIG: "old", CUT: None}, {"nvidia.com/gpu": 1}) if works else None)
    assert noted == working_configuration(actual)


def test_a_broken_configuration_does_not_replace_the_recorded_one() -> None:
    noted = {"accel.gpu/last-good": str(LastGood({CONFIG: "first", CUT: None}, {"nvidia.com/gpu": 1}))}
    broken = replace(node(labels=MEMBER, allocatable={}), annotations=noted)
    change = membership_edit(broken, pool(replicas=4))
    assert change is not None
    actual = last_good(patched(broken, change.patch))
    assert actual is not None
    assert actual.labels[CONFIG] == "first"


@pytest.mark.parametrize(
    "recorded",
    [
        "no json",
        "[]",
        '{"labels": {}}',
        '{"labels": {}, "offers": {}}',
        '{"labels": [], "offers": {"nvidia.com/gpu": 1}}',
        '{"labels": {}, "offers": ["nvidia.com/gpu"]}',
        '{"labels": {}, "offers": {"nvidia.com/gpu": 0}}',
        '{"labels": {}, "offers": {"nvidia.com/gpu": "1"}}',
        '{"labels": {}, "offers": {"nvidia.com/gpu": true}}',
        '{"labels": {}, "offers": {"cpu": 1}}',
        '{"labels": {"nvidia.com/mig.config": 1}, "offers": {"nvidia.com/gpu": 1}}',
    ],
)
def test_a_record_without_gpus_or_of_other_types_is_no_last_good_configuration(recorded: str) -> None:
    assert last_good(replace(node(), annotations={"accel.gpu/last-good": recorded})) is None


CLIENT, PAUSED = "nvidia.com/gpu.deploy.client", "paused-for-mig-change"


def test_clients_are_paused_where_they_run_and_resumed_by_uncordon() -> None:
    running = node(labels={CLIENT: "true"})
    stopped = patched(running, pause_clients(running))
    assert stopped.labels[CLIENT] == PAUSED
    assert pause_clients(stopped) is None
    assert pause_clients(node()) is None
    opened = patched(stopped, rollout.uncordon_patch(stopped))
    assert opened.labels == running.labels
    assert rollout.uncordon_patch(running) is None
    # The MIG manager resumes them itself.
    assert rollout.uncordon_patch(replace(stopped, labels={**stopped.labels, STATE: "pending"})) is None


def _raise(error: Exception) -> t.Any:
    raise error


@pytest.mark.parametrize(("status", "changed"), [(504, True), (403, False)])
def test_labels_may_have_changed_if_only_the_response_was_lost(status: int, changed: bool) -> None:
    error = ApiError("no", status=status)
    runner = SimpleNamespace(_node=SimpleNamespace(write=lambda dummy: _raise(error)), _labels_changed=False)
    with pytest.raises(ApiError):
        rollout.NodeRunner._write_labels(t.cast(rollout.NodeRunner, runner), lambda actual: None)
    assert runner._labels_changed is changed


@pytest.mark.parametrize("status", [400, 409, 504])
def test_a_verified_node_that_cannot_be_uncordoned_keeps_its_configuration(status: int) -> None:
    """The next run uncordons it."""
    cordoned = replace(node(), annotations={CORDON: "GPU sharing is being changed"})
    runner = object.__new__(rollout.NodeRunner)
    runner.result = NodeResult("n1")
    runner._name, runner._context = "n1", mock.Mock()
    runner._node = t.cast("t.Any", SimpleNamespace(read=lambda: cordoned, latest=cordoned))
    runner._verified = True
    runner._change_node = lambda dummy: _raise(ApiError("refused", status=status))  # type: ignore[method-assign,assignment]
    runner._fail = lambda dummy: pytest.fail("rolled back")  # type: ignore[method-assign,assignment]
    assert runner.run().outcome == INTERRUPTED
    assert "refused" in runner.result.failure


@pytest.mark.parametrize(("status", "written"), [(504, True), (422, False)])
def test_a_cordon_whose_response_is_lost_counts_as_written(status: int, written: bool) -> None:
    result = NodeResult("n1")
    error = ApiError("no", status=status)
    client = mock.Mock(patch=mock.Mock(side_effect=error), get=mock.Mock(side_effect=error))
    context = mock.Mock(client=client, nodes=mock.Mock(get=lambda dummy: node()))
    with pytest.raises(ApiError):
        WatchedNode(context, result).write(lambda actual: rollout.cordon_patch(actual, "why"))
    assert result.written is written
