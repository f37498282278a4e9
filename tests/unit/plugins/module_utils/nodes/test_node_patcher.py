# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node is patched once; after a conflict the patch is computed from the node as it is then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_metadata import patch_node

Object = dict[str, Any]
CONFLICT, NOT_FOUND = (ApiError("no", status=status) for status in (409, 404))
FORBIDDEN = ApiError('User "u" cannot patch resource "nodes"', status=403)


@dataclass
class Edit:
    name: str = "n1"
    patch: Object = field(default_factory=lambda: {"version": 0})
    removal: None = None


class Client:
    """Answers patches with errors, and nodes with increasing versions."""

    def __init__(self, *errors: ApiError, exists: bool = True) -> None:
        self.errors = list(errors)
        self.exists = exists
        self.requests: list[Any] = []

    def strategic_merge(self, path: str, patch: Object, *, dry_run: bool = False) -> None:
        self.requests.append(("PATCH", patch["version"]))
        if self.errors:
            raise self.errors.pop(0)

    def patch(self, path: str, patch: Object, *, dry_run: bool = False) -> Object:
        self.strategic_merge(path, patch)
        return {"answer": patch["version"]}

    def get(self, path: str) -> Object | None:
        self.requests.append(("GET", path))
        return {"version": len(self.requests)} if self.exists else None


def compute(node: Object) -> Edit | None:
    return Edit(patch={"version": node["version"]})


def send(client: Client, compute: Any = compute, **options: Any) -> Any:
    return patch_node(client, Edit(), compute, lambda: client.requests.append("lease"), **options)  # type: ignore[arg-type]


def test_one_patch() -> None:
    client = Client()
    assert send(client).status == "changed"
    assert client.requests == ["lease", ("PATCH", 0)]


def test_the_answer_is_returned_if_requested() -> None:
    assert send(Client(), answer=True).node == {"answer": 0}


def test_after_a_conflict_the_patch_is_computed_again() -> None:
    client = Client(CONFLICT)
    result = send(client)
    assert (result.status, result.edit.patch) == ("changed", {"version": 3})
    assert client.requests == ["lease", ("PATCH", 0), ("GET", "/api/v1/nodes/n1"), "lease", ("PATCH", 3)]


def test_after_a_conflict_nothing_may_be_left() -> None:
    assert send(Client(CONFLICT), lambda dummy: None).status == "unchanged"


def after_lost_response(status: int) -> ApiError:
    """The error of a request whose first attempt got no response."""
    error = ApiError("no", status=status)
    error.earlier_outcome_unknown = True
    return error


@pytest.mark.parametrize("error", [after_lost_response(409), ApiError("no", status=504), after_lost_response(422)])
def test_a_patch_whose_response_is_lost_counts_as_changed(error: ApiError) -> None:
    result = send(Client(error), lambda dummy: None, answer=True)
    assert (result.status, result.node) == ("changed", {"version": 3})


def test_a_dry_run_whose_response_is_lost_changes_nothing() -> None:
    assert send(Client(after_lost_response(409)), lambda dummy: None, dry_run=True).status == "unchanged"


def test_a_patch_that_was_not_carried_out_fails() -> None:
    with pytest.raises(ApiError, match="no") as failure:
        send(Client(after_lost_response(409), ApiError("no", status=422)))
    # The first patch may still be carried out.
    assert failure.value.maybe_applied


@pytest.mark.parametrize("client", [Client(NOT_FOUND), Client(CONFLICT, exists=False)])
def test_a_node_that_is_gone(client: Client) -> None:
    assert send(client).status == "gone"


def test_without_the_right_to_a_dry_run_nothing_is_checked() -> None:
    assert send(Client(FORBIDDEN), dry_run=True).status == "unchecked"
    with pytest.raises(ApiError):
        send(Client(FORBIDDEN))


def test_conflicts_end() -> None:
    client = Client(*[CONFLICT] * 20)
    with pytest.raises(ApiError):
        send(client)
    assert sum(request[0] == "PATCH" for request in client.requests) == 8
