# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Laws of the engine: on whatever a cloud does late, twice or not at all, a group ends as it is wished."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.common.wait import WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.group_drain import GroupFailed
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.group_reconciler import GroupReconciler
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.list_cache import GroupListCache
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.plan import plan_changes
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.provider import CloudRequest, ClusterNode
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState

from .slow_cloud import SlowCloud, Time

CASES = 100


def there(name: str = "train", **more: Any) -> NodeGroupState:
    usual: dict[str, Any] = {"status": "UPDATE_COMPLETE", "settled": True, "failed": False, "count": 2}
    return NodeGroupState(name, name, **{**usual, "fields": {"flavor": "g4"}, **more})


def followed(cloud: SlowCloud, time: Time, wish: NodeGroupSpec, timeout: float = 3600) -> NodeGroupState | None:
    return following(cloud, time, wish, timeout).go()


def following(cloud: SlowCloud, time: Time, wish: NodeGroupSpec, timeout: float = 3600) -> GroupReconciler:
    (change,), problems = plan_changes(
        [wish], cloud.survey(lambda dummy: True), cloud.words, cloud.unchangeable, cloud.longest_name
    )
    assert not problems
    return GroupReconciler(
        GroupListCache(cloud),
        change,
        None,
        timeout=timeout,
        interval=2.0,
        say=lambda dummy: None,
        clock=time.clock,
        sleep=time.sleep,
    )


@pytest.mark.parametrize("seed", range(CASES))
def test_a_group_is_made_once_however_its_creation_is_answered(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time)
    live = followed(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert live is not None
    assert (live.count, live.settled) == (3, True)
    assert cloud.creations == ["train"]


@pytest.mark.parametrize("seed", range(CASES))
def test_no_resize_is_lost(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [there(settled=seed % 2 == 0, status="UPDATE_IN_PROGRESS")])
    if seed % 2:
        cloud._later(lambda: cloud._settle("train"))
    live = followed(cloud, time, NodeGroupSpec("train", count=5))
    assert live is not None
    assert (live.count, live.settled) == (5, True)


@pytest.mark.parametrize("seed", range(CASES))
def test_a_replacement_leaves_one_group_also_after_a_break(seed: int) -> None:
    chance, time = random.Random(seed), Time()
    cloud = SlowCloud(chance, time, [there()])
    wish = NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g5"})
    # Broken off after any time, and run again, until one run has the time that it needs.
    for timeout in (chance.uniform(0, 60), chance.uniform(0, 60), 3600):
        try:
            followed(cloud, time, wish, timeout)
        except (WaitTimeout, GroupFailed, ServiceError):
            # Whoever runs it again needs longer for that than the cloud for showing what it was asked for.
            time.sleep(cloud.patience)
    cloud.survey(lambda dummy: True)
    (left,) = cloud.groups.values()
    assert left.fields["flavor"] == "g5"
    assert cloud.creations == [left.name]


@pytest.mark.parametrize("seed", range(CASES))
def test_thinking_better_of_a_replacement_takes_one_run_whenever_it_was_broken_off(seed: int) -> None:
    chance, time = random.Random(seed), Time()
    cloud = SlowCloud(chance, time, [there()])
    with contextlib.suppress(WaitTimeout, ServiceError):
        followed(
            cloud, time, NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g5"}), chance.uniform(0, 80)
        )
    time.sleep(cloud.patience)
    for attempt in range(4):
        try:
            followed(cloud, time, NodeGroupSpec("train", count=2, recreate=True, fields={"flavor": "g4"}))
            break
        except ServiceError:
            # One that the cloud's servers have met, which takes another run; no other error does.
            assert attempt < 3
    (left,) = cloud.groups.values()
    assert left.fields["flavor"] == "g4"


@pytest.mark.parametrize("seed", range(CASES))
def test_a_group_that_is_being_deleted_is_made_anew_by_one_run(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [there(settled=False, status="DELETE_IN_PROGRESS")])
    cloud._later(lambda: cloud._end("train"))
    live = followed(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert live is not None
    assert (live.count, cloud.creations) == (3, ["train"])


@pytest.mark.parametrize("seed", range(CASES))
def test_so_is_one_whose_deletion_is_not_shown_yet(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [there()])
    with contextlib.suppress(ServiceError):
        cloud.delete(there())
    live = followed(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert live is not None
    assert live.count == 3
    assert len(cloud.creations) <= 1


@pytest.mark.parametrize("seed", range(CASES))
def test_so_is_one_that_is_gone_between_a_look_and_a_request(seed: int) -> None:
    class Hasty(SlowCloud):
        def steps(
            self, live: NodeGroupState, wish: NodeGroupSpec, leaving: Sequence[ClusterNode]
        ) -> list[CloudRequest]:
            if not self.creations:
                self._end(live.name)
            return super().steps(live, wish, leaving)

    time = Time()
    cloud = Hasty(random.Random(seed), time, [there()])
    live = followed(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"}))
    assert live is not None
    assert (live.count, cloud.creations) == (3, ["train"])


@pytest.mark.parametrize("seed", range(CASES))
def test_it_is_asked_for_anew_also_where_nobody_waits_for_it(seed: int) -> None:
    time = Time()
    cloud = SlowCloud(random.Random(seed), time, [there(settled=False, status="DELETE_IN_PROGRESS")])
    cloud._later(lambda: cloud._end("train"))
    following(cloud, time, NodeGroupSpec("train", count=3, fields={"flavor": "g4"})).request()
    time.sleep(cloud.patience)
    cloud.survey(lambda dummy: True)
    assert cloud.creations == ["train"]


def test_the_end_of_a_wait_tells_status_and_reason() -> None:
    time = Time()
    stuck = there(settled=False, status="UPDATE_IN_PROGRESS", reason="Waiting for a host")
    cloud = SlowCloud(random.Random(1), time, [stuck])
    with pytest.raises(WaitTimeout) as story:
        followed(cloud, time, NodeGroupSpec("train", count=5), timeout=30)
    assert "Not done within 30 s (wait_timeout). Node group train was to settle and is UPDATE_IN_PROGRESS" in str(
        story.value
    )
    assert "Waiting for a host." in str(story.value)
