# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a cloud does late, twice or not at all, a group ends as specified."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import NotConfirmed, ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import (
    CloudRequest,
    GroupFailed,
    GroupListCache,
    GroupReconciler,
    ReconcileOptions,
    reconcile,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupSpec,
    NodeGroupState,
    plan_group_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node

from .slow_cloud import SlowCloud, Time

CASES = 100


def state(name: str = "train", **more: Any) -> NodeGroupState:
    usual: dict[str, Any] = {"status": "UPDATE_COMPLETE", "settled": True, "failed": False, "count": 2}
    return NodeGroupState(name, name, **{**usual, "fields": {"flavor": "g4"}, **more})


def reconciled(cloud: SlowCloud, time: Time, spec: NodeGroupSpec, timeout: float = 3600) -> NodeGroupState | None:
    return reconciler(cloud, time, spec, timeout).reconcile()


def reconciler(cloud: SlowCloud, time: Time, spec: NodeGroupSpec, timeout: float = 3600) -> GroupReconciler:
    (change,), problems = plan_group_changes(
        [spec], cloud.read(lambda dummy: True), cloud.immutable_fields, cloud.max_name_length
    )
    assert not problems
    return GroupReconciler(
        GroupListCache(cloud),
        change,
        None,
        ReconcileOptions(timeout=timeout, interval=2),
        lambda dummy: None,
        time.clock,
        time.sleep,
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_a_group_is_created_once_whatever_the_response(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time)
    group = reconciled(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert group is not None
    assert (group.count, group.settled) == (3, True)
    assert cloud.creations == ["train"]


@pytest.mark.parametrize("seed", range(CASES))
def test_no_resize_is_lost(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [state(settled=seed % 2 == 0, status="UPDATE_IN_PROGRESS")])
    if seed % 2:
        cloud._later(lambda: cloud._settle("train"))
    group = reconciled(cloud, time, NodeGroupSpec("train", count=5))
    assert group is not None
    assert (group.count, group.settled) == (5, True)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_replacement_leaves_one_group_even_after_interruptions(seed: int) -> None:
    chance, time = random.Random(seed), Time()
    cloud = SlowCloud(chance, time, [state()])
    spec = NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g5"})
    # Interrupted at a random time and run again, until one run is long enough.
    for timeout in (chance.uniform(0, 60), chance.uniform(0, 60), 3600):
        try:
            reconciled(cloud, time, spec, timeout)
        except (WaitTimeout, GroupFailed, ServiceError):
            # The next run starts after the effect of the last request is visible.
            time.sleep(cloud.patience)
    cloud.read(lambda dummy: True)
    (remaining,) = cloud.groups.values()
    assert remaining.fields["flavor"] == "g5"
    assert cloud.creations == [remaining.name]


@pytest.mark.parametrize("seed", range(CASES))
def test_one_run_reverts_a_replacement_whenever_it_was_interrupted(seed: int) -> None:
    chance, time = random.Random(seed), Time()
    cloud = SlowCloud(chance, time, [state()])
    with contextlib.suppress(WaitTimeout, ServiceError):
        reconciled(
            cloud, time, NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g5"}), chance.uniform(0, 80)
        )
    time.sleep(cloud.patience)
    for attempt in range(4):
        try:
            reconciled(cloud, time, NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g4"}))
            break
        except ServiceError:
            # Only an error of the cloud's servers takes another run.
            assert attempt < 3
    (remaining,) = cloud.groups.values()
    assert remaining.fields["flavor"] == "g4"


@pytest.mark.parametrize("seed", range(CASES))
def test_one_run_recreates_a_group_that_is_being_deleted(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [state(settled=False, status="DELETE_IN_PROGRESS")])
    cloud._later(lambda: cloud._end("train"))
    group = reconciled(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert group is not None
    assert (group.count, cloud.creations) == (3, ["train"])


@pytest.mark.parametrize("seed", range(CASES))
def test_one_run_recreates_a_group_whose_deletion_is_not_visible_yet(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [state()])
    with contextlib.suppress(ServiceError):
        cloud.delete(state())
    group = reconciled(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert group is not None
    assert group.count == 3
    assert len(cloud.creations) <= 1


@pytest.mark.parametrize("seed", range(CASES))
def test_one_run_recreates_a_group_that_vanishes_between_a_read_and_a_request(seed: int) -> None:
    class Hasty(SlowCloud):
        def requests(self, group: NodeGroupState, spec: NodeGroupSpec, leaving: Sequence[Node]) -> list[CloudRequest]:
            if not self.creations:
                self._end(group.name)
            return super().requests(group, spec, leaving)

    time = Time()
    cloud = Hasty(random.Random(seed), time, [state()])
    group = reconciled(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert group is not None
    assert (group.count, cloud.creations) == (3, ["train"])


@pytest.mark.parametrize("seed", range(CASES))
def test_a_group_that_is_being_deleted_is_requested_again_without_wait(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [state(settled=False, status="DELETE_IN_PROGRESS")])
    cloud._later(lambda: cloud._end("train"))
    reconciler(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"})).request()
    time.sleep(cloud.patience)
    cloud.read(lambda dummy: True)
    assert cloud.creations == ["train"]


def test_a_timeout_reports_status_and_reason() -> None:
    time = Time()
    stuck = state(settled=False, status="UPDATE_IN_PROGRESS", reason="Waiting for a host")
    cloud = SlowCloud(random.Random(1), time, [stuck])
    with pytest.raises(WaitTimeout) as error:
        reconciled(cloud, time, NodeGroupSpec("train", count=5), timeout=30)
    assert "Not done within 30 s (wait_timeout). Node group train is still UPDATE_IN_PROGRESS" in str(error.value)
    assert "the run has waited for it to settle." in str(error.value)
    assert "Waiting for a host." in str(error.value)


class StuckCloud(SlowCloud):
    """A cloud whose group only settles after another request, which it takes at any time."""

    takes_requests_anytime = True

    def _resize(self, name: str, count: int) -> None:
        self.groups[name] = state(name, count=count)


def test_a_stuck_operation_is_corrected_by_a_cloud_that_takes_requests_at_any_time() -> None:
    time = Time()
    stuck = state(settled=False, status="UPDATE_IN_PROGRESS", count=4)
    cloud = StuckCloud(random.Random(1), time, [stuck])
    group = reconciled(cloud, time, NodeGroupSpec("train", count=2), timeout=60)
    assert group is not None
    assert (group.count, group.settled) == (2, True)


def test_a_stuck_group_that_needs_no_request_is_still_awaited() -> None:
    time = Time()
    stuck = state(settled=False, status="UPDATE_IN_PROGRESS", count=2)
    with pytest.raises(WaitTimeout):
        reconciled(StuckCloud(random.Random(1), time, [stuck]), time, NodeGroupSpec("train", count=2), timeout=60)


@pytest.mark.parametrize("check_mode", [True, False])
@pytest.mark.parametrize(
    ("specs", "asked"),
    [
        ({"train": False}, ["train"]),
        ({"train": False, "infer": False, "never-existed": False}, ["train", "infer"]),
        ({"train": True, "never-existed": False}, []),
        ({"infer": True}, []),
    ],
)
def test_a_deletion_is_confirmed_once_before_any_request(
    specs: dict[str, bool], asked: list[str], check_mode: bool
) -> None:
    cloud = SlowCloud(random.Random(1), Time(), [state(), state("infer")])
    before, calls = dict(cloud.groups), []

    def confirm(groups: Sequence[NodeGroupState]) -> None:
        calls.append([group.name for group in groups])
        raise NotConfirmed("not confirmed")

    given = [NodeGroupSpec(name, present=present, count=2) for name, present in specs.items()]
    options = ReconcileOptions(wait=False, timeout=1, interval=1)
    with contextlib.suppress(NotConfirmed):
        reconcile(
            cloud,
            given,
            check_mode=check_mode,
            options=options,
            drainer=None,
            progress=Progress(None),
            confirm_deletion=confirm,
        )
    assert calls == ([asked] if asked else [])
    assert cloud.groups == before
