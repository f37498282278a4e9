# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who waits for one of many groups shares the list, and is never shown one from before what he asked for."""

from __future__ import annotations

import threading

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.list_cache import CachedGroups, GroupListCache
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.provider import ListedGroup
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupState

from .slow_cloud import SlowCloud


class Shelf(SlowCloud):
    """A cloud that answers at once and tells how often it was asked; a group may be hidden from the list."""

    def __init__(self, *lives: NodeGroupState) -> None:
        self.groups = {live.name: live for live in lives}
        self.hidden: set[str] = set()
        self.lists, self.details = 0, 0
        self.failing = False

    def listed(self) -> list[ListedGroup]:
        self.lists += 1
        if self.failing:
            raise ServiceError("overloaded", status=503)
        return [
            ListedGroup(live.id, live.name, live.status, live.settled)
            for live in self.groups.values()
            if live.name not in self.hidden
        ]

    def get(self, group: str) -> NodeGroupState | None:
        self.details += 1
        return self.groups.get(group)


def group(name: str, *, settled: bool = False) -> NodeGroupState:
    return NodeGroupState(
        name, name, "UPDATE_COMPLETE" if settled else "UPDATE_IN_PROGRESS", settled, False, 1, "a reason"
    )


@pytest.mark.parametrize("count", [1, 20])
def test_a_tick_of_many_who_wait_is_one_list(count: int) -> None:
    lives = [group(f"g{number}") for number in range(count)]
    shelf = Shelf(*lives)
    looks = GroupListCache(shelf)
    views = [CachedGroups(looks) for dummy in lives]
    for tick in range(1, 4):
        for view, live in zip(views, lives, strict=True):
            seen = view.get(live)
            assert seen is not None
            assert not seen.settled
        assert (shelf.lists, shelf.details) == (tick, 0)


def test_who_asks_while_a_list_is_on_its_way_has_that_list_or_the_next() -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Held(Shelf):
        def listed(self) -> list[ListedGroup]:
            rows = super().listed()
            if self.lists == 1:
                begun.set()
                go_on.wait(10)
            return rows

    shelf = Held(group("a"))
    looks = GroupListCache(shelf)
    first = threading.Thread(target=lambda: looks.after(0))
    first.start()
    assert begun.wait(10)
    # Something is asked of the cloud that this list has not seen.
    writer, reader = CachedGroups(looks), CachedGroups(looks)
    writer.asked()
    shelf.groups["a"] = group("a", settled=True)
    go_on.set()
    first.join()
    old = reader.get(group("a"))
    new = writer.get(group("a"))
    assert old is not None
    assert new is not None
    assert (old.settled, new.settled, shelf.lists) == (False, True, 2)


def test_what_has_settled_is_read_whole_and_what_is_not_listed_is_asked_for_itself() -> None:
    shelf = Shelf(group("settled", settled=True), group("late"))
    shelf.hidden = {"late"}
    looks = GroupListCache(shelf)
    assert CachedGroups(looks).get(group("settled")) == shelf.groups["settled"]
    assert CachedGroups(looks).get(group("late")) == shelf.groups["late"]
    assert CachedGroups(looks).get(group("gone")) is None
    assert CachedGroups(looks).find("late") is None
    assert CachedGroups(looks).find("settled") == shelf.groups["settled"]


def test_a_list_that_failed_is_asked_for_again() -> None:
    shelf = Shelf(group("a"))
    view = CachedGroups(GroupListCache(shelf))
    shelf.failing = True
    for dummy in range(2):
        with pytest.raises(ServiceError):
            view.get(group("a"))
    shelf.failing = False
    assert view.get(group("a")) is not None
    assert shelf.lists == 3
