# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collections that watches keep current: events, expired versions, errors, and the order of events and responses to writes."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import Collection, WatchCache

Object = dict[str, Any]
PATH = "/api/v1/namespaces/a/configmaps"


def configmap(name: str, version: int, uid: str = "1") -> Object:
    return {"metadata": {"name": name, "namespace": "a", "uid": uid, "resourceVersion": str(version)}}


class Listed(list[Object]):
    """The objects of a list and its version."""

    resource_version = "10"


class FakeServer:
    """Answers lists from `lists`, and watches from `events`: an event, or an error that is raised."""

    def __init__(self, *lists: Any) -> None:
        self.lists = list(lists)
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.versions: list[str] = []

    def list(self, path: str, **dummy: Any) -> Any:
        assert path == PATH
        actual = self.lists.pop(0)
        if isinstance(actual, Exception):
            raise actual
        return Listed(actual)

    def watch(self, path: str, *, resource_version: str, **dummy: Any) -> Iterator[Object]:
        assert path == PATH
        self.versions.append(resource_version)
        while True:
            event = self.events.get(timeout=10)
            if isinstance(event, Exception):
                raise event
            yield event


def watch_cache(server: FakeServer, *, optional: bool = False) -> WatchCache:
    return WatchCache(server, {"maps": Collection(PATH, optional=optional)})  # type: ignore[arg-type]


def names(actual: WatchCache) -> list[tuple[str, str]]:
    return [(item["metadata"]["name"], item["metadata"]["resourceVersion"]) for item in actual.objects("maps")]


def test_events_change_the_objects() -> None:
    server = FakeServer([configmap("b", 2), configmap("a", 1)])
    with watch_cache(server) as actual:
        actual.read()
        assert names(actual) == [("a", "1"), ("b", "2")]
        assert actual.await_change(0) is False
        actual.follow()
        actual.follow()
        server.events.put({"type": "MODIFIED", "object": configmap("a", 11)})
        assert actual.await_change(5) is True
        assert names(actual) == [("a", "11"), ("b", "2")]
        server.events.put({"type": "DELETED", "object": configmap("b", 12)})
        server.events.put({"type": "ADDED", "object": configmap("c", 13)})
        while ("c", "13") not in names(actual):
            assert actual.await_change(5)
        assert names(actual) == [("a", "11"), ("c", "13")]
        assert server.versions == ["10"]


def test_an_event_from_before_a_write_does_not_undo_its_response() -> None:
    server = FakeServer([configmap("a", 1)])
    with watch_cache(server) as actual:
        actual.read()
        actual.follow()
        actual.put("maps", configmap("a", 15))
        server.events.put({"type": "MODIFIED", "object": configmap("a", 12)})
        actual.await_change(5)
        assert names(actual) == [("a", "15")]
        # Another object with the same name.
        server.events.put({"type": "ADDED", "object": configmap("a", 14, uid="2")})
        actual.await_change(5)
        assert names(actual) == [("a", "14")]


def test_an_expired_version_is_followed_by_a_list() -> None:
    server = FakeServer([configmap("a", 1)], [configmap("b", 30)])
    with watch_cache(server) as actual:
        actual.read()
        actual.follow()
        server.events.put(ApiError("expired", status=410))
        assert actual.await_change(5)
        assert names(actual) == [("b", "30")]
        server.events.put({"type": "ADDED", "object": configmap("c", 31)})
        assert actual.await_change(5)
        assert len(server.versions) == 2


def test_other_errors_of_a_watch_are_raised() -> None:
    server = FakeServer([])
    with watch_cache(server) as actual:
        actual.read()
        actual.follow()
        server.events.put(ApiError("forbidden", status=403))
        with pytest.raises(ApiError, match="forbidden"):
            actual.await_change(5)


class FailingList(Listed):
    """A list whose first object cannot be read."""

    def __init__(self, status: int = 404) -> None:
        super().__init__()
        self._status = status

    def __iter__(self) -> Iterator[Object]:
        raise ApiError("not listed", status=self._status)


@pytest.mark.parametrize("optional", [True, False])
def test_a_missing_kind_is_empty_only_if_optional(optional: bool) -> None:
    server = FakeServer()
    server.list = lambda path, **dummy: FailingList()  # type: ignore[method-assign]
    with watch_cache(server, optional=optional) as actual:
        if optional:
            actual.read()
            assert not actual.is_known("maps")
            assert actual.objects("maps") == ()
            actual.follow()
            assert server.versions == []
        else:
            with pytest.raises(ApiError):
                actual.read()


@pytest.mark.parametrize("allowed", [True, False])
def test_objects_that_may_not_be_listed_are_absent_only_if_that_is_allowed(allowed: bool) -> None:
    server = FakeServer()
    server.list = lambda path, **dummy: FailingList(403)  # type: ignore[method-assign]
    collection = Collection(PATH, optional=True, may_be_forbidden=allowed)
    with WatchCache(server, {"maps": collection}) as actual:  # type: ignore[arg-type]
        if not allowed:
            with pytest.raises(ApiError):
                actual.read()
            return
        actual.read()
        assert actual.objects("maps") == ()
        assert not actual.is_known("maps")
