# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits for many groups share one list, and none gets a list that is older than its last change."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import (
    GroupListCache,
    GroupView,
    ListedGroup,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupState

from .slow_cloud import SlowCloud


class Shelf(SlowCloud):
    """A cloud that responds at once and counts requests; groups can be hidden from the list."""

    def __init__(self, *states: NodeGroupState) -> None:
        self.groups = {state.name: state for state in states}
        self.hidden: set[str] = set()
        self.lists, self.details = 0, 0
        self.failing = False

    def list_groups(self) -> list[ListedGroup]:
        self.lists += 1
        if self.failing:
            raise ServiceError("overloaded", status=503)
        return [
            ListedGroup(state.id, state.name, state.status, state.settled)
            for state in self.groups.values()
            if state.name not in self.hidden
        ]

    def get(self, group: str) -> NodeGroupState | None:
        self.details += 1
        return self.groups.get(group)


def group(name: str, *, settled: bool = False) -> NodeGroupState:
    return NodeGroupState(
        name, name, "UPDATE_COMPLETE" if settled else "UPDATE_IN_PROGRESS", settled, False, 1, "a reason"
    )


@pytest.mark.parametrize("count", [1, 20])
def test_one_list_serves_all_waits(count: int) -> None:
    states = [group(f"g{number}") for number in range(count)]
    shelf = Shelf(*states)
    cache = GroupListCache(shelf)
    views = [GroupView(cache) for dummy in states]
    for tick in range(1, 4):
        for view, state in zip(views, states, strict=True):
            seen = view.get(state)
            assert seen is not None
            assert not seen.settled
        assert (shelf.lists, shelf.details) == (tick, 0)


def test_a_caller_during_a_request_gets_that_list_or_the_next() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Held(Shelf):
        def list_groups(self) -> list[ListedGroup]:
            rows = super().list_groups()
            if self.lists == 1:
                begun.set()
                go_on.wait(10)
            return rows

    shelf = Held(group("a"))
    cache = GroupListCache(shelf)
    first = threading.Thread(target=lambda: cache.newer_than(0))
    first.start()
    assert begun.wait(10)
    # A change that the first list does not show.
    writer, reader = GroupView(cache), GroupView(cache)
    writer.invalidate()
    shelf.groups["a"] = group("a", settled=True)
    go_on.set()
    first.join()
    old = reader.get(group("a"))
    new = writer.get(group("a"))
    assert old is not None
    assert new is not None
    assert (old.settled, new.settled, shelf.lists) == (False, True, 2)


def test_settled_and_unlisted_groups_are_read_by_id() -> None:
    shelf = Shelf(group("settled", settled=True), group("late"))
    shelf.hidden = {"late"}
    cache = GroupListCache(shelf)
    assert GroupView(cache).get(group("settled")) == shelf.groups["settled"]
    assert GroupView(cache).get(group("late")) == shelf.groups["late"]
    assert GroupView(cache).get(group("gone")) is None
    assert GroupView(cache).find("late") is None
    assert GroupView(cache).find("settled") == shelf.groups["settled"]


def test_a_failed_list_is_requested_again() -> None:
    shelf = Shelf(group("a"))
    view = GroupView(GroupListCache(shelf))
    shelf.failing = True
    for dummy in range(2):
        with pytest.raises(ServiceError):
            view.get(group("a"))
    shelf.failing = False
    assert view.get(group("a")) is not None
    assert shelf.lists == 3
