# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection's client over a bad network: latency, connections that are reset or closed, an outage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.connection_options import ConnectionOptions
from tests.helpers.toxiproxy import Toxiproxy, toxiproxy

NAMESPACE = "/api/v1/namespaces/default"


@pytest.fixture(scope="module")
def connection(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Toxiproxy, Path]]:
    with toxiproxy(kubeconfig, tmp_path_factory.mktemp("toxiproxy")) as started:
        yield started


@pytest.fixture
def network(connection: tuple[Toxiproxy, Path]) -> Iterator[Toxiproxy]:
    """The connection to the server, healed after each test."""
    yield connection[0]
    connection[0].heal()


@pytest.fixture
def client(connection: tuple[Toxiproxy, Path]) -> Client:
    """A client that uses the proxy only because of its kubeconfig."""
    return Client(ConnectionOptions(kubeconfig=str(connection[1])), "accel.gpu/test")


def test_the_server_is_reached_and_its_certificate_verified(client: Client, network: Toxiproxy) -> None:
    assert client.connection.configuration.verify_ssl
    assert client.connection.server == f"https://{network.address}"
    assert client.get(NAMESPACE) is not None
    assert client.request_count == 1


def test_latency(client: Client, network: Toxiproxy) -> None:
    assert client.get(NAMESPACE) is not None
    network.latency()
    started = time.monotonic()
    assert [client.get(NAMESPACE) is not None for _time in range(5)] == [True] * 5
    assert time.monotonic() - started > 5 * 0.2
    assert client.request_count == 6


@pytest.mark.parametrize("trouble", [Toxiproxy.resets, Toxiproxy.endings])
def test_connections_that_break(
    connection: tuple[Toxiproxy, Path], network: Toxiproxy, trouble: Callable[[Toxiproxy, float], None]
) -> None:
    """A quarter of all connections, so that some certainly break; each request uses a new connection."""
    client = Client(ConnectionOptions(kubeconfig=str(connection[1])), "accel.gpu/test", sleep=lambda _seconds: None)
    assert client.get(NAMESPACE) is not None
    trouble(network, 0.25)
    for _time in range(50):
        client._pool.clear()
        assert client.get(NAMESPACE) is not None
    assert client.request_count > 51


def test_first_connection_if_one_of_a_hundred_is_reset(connection: tuple[Toxiproxy, Path], network: Toxiproxy) -> None:
    network.resets()
    for _time in range(20):
        fresh = Client(ConnectionOptions(kubeconfig=str(connection[1])), "accel.gpu/test")
        assert fresh.get(NAMESPACE) is not None


def test_an_outage(client: Client, network: Toxiproxy) -> None:
    assert client.get(NAMESPACE) is not None
    network.cut(3)
    started = time.monotonic()
    assert client.get(NAMESPACE) is not None
    assert time.monotonic() - started > 2
    assert client.request_count > 2
