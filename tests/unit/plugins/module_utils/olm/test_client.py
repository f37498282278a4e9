# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes of OLM's objects that the API server refuses: without the right to write, and after the object has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import NOT_CHECKED
from ansible_collections.accel.gpu.plugins.module_utils.olm.client import OlmClient
from ansible_collections.accel.gpu.plugins.module_utils.olm.installation import OlmOptions
from ansible_collections.accel.gpu.plugins.module_utils.olm.runner import OlmRemoval
from tests.helpers.olm_objects import NAMESPACE, NEW, PACKAGE, csv, plan, subscription

Object = dict[str, Any]
DENIED = ApiError(
    'subscriptions.operators.coreos.com "s" is forbidden: User "reader" cannot patch resource "subscriptions/status" in API group '
    f'"operators.coreos.com" in the namespace "{NAMESPACE}"',
    status=403,
)
REJECTED = ApiError('admission webhook "v.example.com" denied the request: no', status=403)
CONFLICT = ApiError("changed", status=409)
GONE = ApiError("gone", status=404)


class Listed(list[Object]):
    """The objects of a list and its version."""

    resource_version = "10"


class RefusingServer:
    """Has a Subscription and a ClusterServiceVersion, and refuses all writes."""

    def __init__(self, error: ApiError) -> None:
        self._error = error

    def get(self, path: str) -> Object | None:
        return subscription() if "/subscriptions/" in path else None

    def list(self, path: str, **dummy: Any) -> Listed:
        plural = path.rpartition("/")[2]
        return Listed({"subscriptions": [subscription()], "clusterserviceversions": [csv()]}.get(plural, []))

    def patch(self, path: str, body: Object, *, dry_run: bool) -> Object:
        raise self._error

    def delete(self, path: str, *, body: Object, dry_run: bool) -> bool:
        raise self._error


def olm_client(error: ApiError, *, check: bool) -> OlmClient:
    server = cast(Client, RefusingServer(error))
    return OlmClient(server, NAMESPACE, "marketplace", check=check, force_conflicts=False, before_write=lambda: None)


WRITES: list[Callable[[OlmClient], bool]] = [
    lambda client: client.approve(plan(NEW)),
    lambda client: client.delete("Subscription", PACKAGE, "uid"),
    lambda client: client.reset(subscription(), ""),
    lambda client: client.resolve_again(subscription()),
]


@pytest.mark.parametrize("write", WRITES)
def test_check_mode_continues_without_the_right_to_write(write: Callable[[OlmClient], bool]) -> None:
    client = olm_client(DENIED, check=True)
    assert write(client)
    assert client.unchecked == NOT_CHECKED


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(("error", "check"), [(DENIED, False), (REJECTED, True)])
def test_other_refusals_are_raised(write: Callable[[OlmClient], bool], error: ApiError, check: bool) -> None:
    client = olm_client(error, check=check)
    with pytest.raises(ApiError):
        write(client)
    assert client.unchecked == ""


@pytest.mark.parametrize("write", WRITES)
def test_an_object_that_has_changed_is_not_written(write: Callable[[OlmClient], bool]) -> None:
    assert not write(olm_client(CONFLICT, check=False))


@pytest.mark.parametrize("write", [WRITES[0], WRITES[3]])
def test_an_object_that_is_gone_is_not_written(write: Callable[[OlmClient], bool]) -> None:
    assert not write(olm_client(GONE, check=False))


def test_a_preview_of_a_removal_says_that_it_was_not_checked() -> None:
    client = olm_client(DENIED, check=True)
    options = OlmOptions(NAMESPACE, PACKAGE)
    result = OlmRemoval(client, options, timeout=0, wait=True, progress=Progress(None), check=True).run()
    assert [diff["before_header"] for diff in result["diff"]] == [
        f"Subscription {NAMESPACE}/{PACKAGE} ({NOT_CHECKED})",
        f"ClusterServiceVersion {NAMESPACE}/{NEW} ({NOT_CHECKED})",
    ]
