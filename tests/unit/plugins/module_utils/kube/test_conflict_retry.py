# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A patch is sent for exactly the version it was computed from, and computed again after a conflict."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import (
    MAX_ATTEMPTS,
    ApiError,
    patch_object,
    retry_conflicts,
)

Object = dict[str, Any]
PATH = "/apis/example/v1/things/a"
CONFLICT, INVALID = (ApiError("no", status=status) for status in (409, 422))


class Server:
    """An object with a version; another writer changes it before each of the first `conflicts` patches."""

    def __init__(self, conflicts: int = 0, *, deleted_after_conflict: bool = False) -> None:
        self.conflicts, self.deleted = conflicts, deleted_after_conflict
        self.live: Object | None = _thing(1)
        self.patches: list[Object] = []

    def get(self, path: str) -> Object | None:
        assert path == PATH
        return self.live

    def patch(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        assert path == PATH
        self.patches.append(body)
        if self.conflicts and self.live:
            self.conflicts -= 1
            self.live = None if self.deleted else _thing(int(self.live["metadata"]["resourceVersion"]) + 1)
        if self.live is None or body["metadata"]["resourceVersion"] != self.live["metadata"]["resourceVersion"]:
            raise CONFLICT
        return {**self.live, **body}


def _thing(version: int) -> Object:
    return {"metadata": {"name": "a", "resourceVersion": str(version)}, "spec": {"read": version}}


def _compute(live: Object) -> Object:
    return {"metadata": {"labels": {"a": "b"}}, "spec": {"from": live["spec"]["read"]}}


def test_the_patch_names_the_version_and_keeps_its_metadata() -> None:
    server = Server()
    patched = patch_object(server, PATH, server.live, _compute)
    assert server.patches == [{"metadata": {"labels": {"a": "b"}, "resourceVersion": "1"}, "spec": {"from": 1}}]
    assert patched is not None
    assert patched["spec"] == {"from": 1}


def test_after_a_conflict_the_patch_is_computed_from_the_new_version() -> None:
    server = Server(conflicts=2)
    patch_object(server, PATH, server.live, _compute)
    assert [patch["spec"]["from"] for patch in server.patches] == [1, 2, 3]


def test_nothing_is_sent_if_nothing_differs() -> None:
    server = Server()
    assert patch_object(server, PATH, server.live, lambda dummy: None) == server.live
    assert not server.patches


def test_after_a_conflict_nothing_may_differ_any_more() -> None:
    server = Server(conflicts=1)
    result = patch_object(server, PATH, server.live, lambda live: _compute(live) if live["spec"]["read"] == 1 else None)
    assert result == _thing(2)
    assert len(server.patches) == 1


@pytest.mark.parametrize("server", [Server(conflicts=1, deleted_after_conflict=True), Server()])
def test_an_object_that_does_not_exist(server: Server) -> None:
    live = server.live if server.deleted else None
    assert patch_object(server, PATH, live, _compute) is None


def test_the_conflict_of_the_last_attempt_is_raised() -> None:
    server = Server(conflicts=100)
    with pytest.raises(ApiError) as caught:
        patch_object(server, PATH, server.live, _compute)
    assert caught.value.conflict
    assert len(server.patches) == MAX_ATTEMPTS


def test_other_errors_are_raised_at_once() -> None:
    sent = []

    def send(value: int) -> None:
        sent.append(value)
        raise INVALID

    with pytest.raises(ApiError):
        retry_conflicts(send, 1, lambda: 2)
    assert sent == [1]


def test_the_caller_may_exclude_conflicts_that_a_repetition_cannot_solve() -> None:
    def send(dummy: int) -> None:
        raise CONFLICT

    with pytest.raises(ApiError):
        retry_conflicts(send, 1, pytest.fail, lambda error: error.conflict and error.message != "no")
