# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which requests of a client count as changes, for the result of a module that fails after some of them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from tests.faults.api_proxy import Answer, Proxy

NODE = "/api/v1/nodes/n1"
MAP = "/api/v1/namespaces/ns/configmaps/m"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
OBJECT: dict[str, Any] = {"metadata": {"name": "n1"}}


@pytest.fixture(scope="module")
def server() -> Iterator[Proxy]:
    proxy = Proxy("http://127.0.0.1:9")
    with proxy.running():
        yield proxy


@pytest.fixture
def client(server: Proxy) -> Client:
    server.before = lambda request: Answer(200, b"{}")
    return Client(ConnectionOptions(host=server.url, request_timeout=5), "test")


@pytest.mark.parametrize(
    ("request_of", "is_change"),
    [
        (lambda client: client.get(NODE), False),
        (lambda client: client.patch(NODE, OBJECT), True),
        (lambda client: client.patch(NODE, OBJECT, dry_run=True), False),
        (lambda client: client.apply(NODE, OBJECT), True),
        (lambda client: client.apply(NODE, OBJECT, dry_run=True), False),
        (lambda client: client.create(NODE, OBJECT), True),
        (lambda client: client.strategic_merge(NODE, OBJECT, dry_run=True), False),
        (lambda client: client.delete(NODE), True),
        (lambda client: client.delete(NODE, dry_run=True), False),
        (lambda client: client.evict(f"{NODE}/eviction", OBJECT), True),
        (lambda client: client.create(LEASES, OBJECT), False),
        (lambda client: client.replace(f"{LEASES}/accel-gpu", OBJECT), False),
    ],
)
def test_writes_that_are_changes(request_of: Callable[[Client], Any], is_change: bool, client: Client) -> None:
    request_of(client)
    assert client.has_written is is_change


def test_a_refused_write_is_no_change(server: Proxy, client: Client) -> None:
    server.before = lambda request: Answer(422, b"{}")
    with pytest.raises(ApiError):
        client.patch(NODE, OBJECT)
    assert not client.has_written


@pytest.mark.parametrize("hours", [-3, 0, 3])
def test_the_clock_of_the_server(hours: int, server: Proxy, client: Client) -> None:
    now = datetime.datetime.now(datetime.UTC)
    sent = now + datetime.timedelta(hours=hours)
    server.before = lambda request: Answer(200, b"{}", {"Date": sent.strftime("%a, %d %b %Y %H:%M:%S GMT")})
    client.get(NODE)
    assert abs((client.server_time() - sent).total_seconds()) < 60


def test_without_an_answer_the_clock_is_that_of_this_machine(client: Client) -> None:
    assert abs((client.server_time() - datetime.datetime.now(datetime.UTC)).total_seconds()) < 60


@pytest.mark.parametrize(
    "request_of",
    [
        lambda client: client.patch(MAP, OBJECT),
        lambda client: client.patch(MAP, OBJECT, dry_run=True),
        lambda client: client.apply(MAP, OBJECT, dry_run=True),
        lambda client: client.replace(MAP, OBJECT),
    ],
)
def test_the_answer_to_a_change_shows_who_reverts_it(
    request_of: Callable[[Client], Any], server: Proxy, client: Client
) -> None:
    """No further request is needed, and the warning is the same for a dry run."""
    metadata = {"name": "m", "namespace": "ns", "labels": {"argocd.argoproj.io/instance": "gpu"}}
    answer = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    requests = []

    def respond(request: Any) -> Answer:
        requests.append(request)
        return Answer(200, json.dumps(answer).encode())

    server.before = respond
    request_of(client)
    request_of(client)
    assert len(requests) == 2
    (warning,) = client.reverted
    assert warning.startswith("Argo CD application gpu reconciles ConfigMap ns/m from its source.")


def test_a_read_object_that_another_tool_owns_is_no_warning(server: Proxy, client: Client) -> None:
    metadata = {"name": "m", "labels": {"argocd.argoproj.io/instance": "gpu"}}
    server.before = lambda request: Answer(200, json.dumps({"kind": "ConfigMap", "metadata": metadata}).encode())
    client.get(MAP)
    assert client.reverted == []
