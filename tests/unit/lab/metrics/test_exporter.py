# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The license metric of a node, and the network path from the API server to the exporter that serves it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from lab.metrics.exporter import metrics
from lab.metrics.pod_network import PodNetwork

EXPORTER = "10.244.0.7"
HEAD = "==============NVSMI LOG==============\n\nDriver Version                            : 580.95.05\n"
TEXT = """\
# HELP DCGM_FI_DEV_VGPU_LICENSE_STATUS vGPU License status
# TYPE DCGM_FI_DEV_VGPU_LICENSE_STATUS gauge
"""


def gpu(number: int, status: str) -> str:
    return (
        f"GPU 00000000:0{number + 2}:00.0\n    Product Name                          : NVIDIA A100-10C\n"
        f"    GPU UUID                              : GPU-{number}\n    vGPU Software Licensed Product\n"
        f"        Product Name                      : NVIDIA Virtual Compute Server\n        License Status                    : {status}\n"
    )


def sample(number: int, value: int) -> str:
    return (
        f'DCGM_FI_DEV_VGPU_LICENSE_STATUS{{gpu="{number}",UUID="GPU-{number}",pci_bus_id="00000000:0{number + 2}:00.0",device="nvidia{number}",'
        f'modelName="NVIDIA A100-10C",Hostname="vgpu-1",DCGM_FI_DRIVER_VERSION="580.95.05"}} {value}\n'
    )


@pytest.mark.parametrize(
    ("status", "value"),
    [
        ("Licensed (Expiry: 2026-1-5 4:02:01 GMT)", 1),
        ("Unlicensed (Unrestricted)", 0),
        ("Unlicensed (Restricted)", 0),
        ("N/A", 0),
    ],
)
def test_metrics(status: str, value: int) -> None:
    assert metrics("vgpu-1", HEAD + gpu(0, status)) == TEXT + sample(0, value)


def test_metrics_of_two_gpus() -> None:
    output = HEAD + gpu(0, "Unlicensed (Restricted)") + gpu(1, "Licensed (Expiry: Permanent)")
    assert metrics("vgpu-1", output) == TEXT + sample(0, 0) + sample(1, 1)


class Tunnel(HTTPConnection):
    """A connection through the network of pods."""

    def __init__(self, path: Path, host: str, port: int) -> None:
        super().__init__(host, port, timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))
        self.sock.sendall(f"CONNECT {self.host}:{self.port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        status = b""
        while not status.endswith(b"\r\n\r\n"):
            received = self.sock.recv(1)
            assert received, status
            status += received
        if not status.startswith(b"HTTP/1.1 200 "):
            raise ConnectionRefusedError(status.decode())


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[str, int], Tunnel]]:
    """Connections through a network with one exporter."""
    path = tmp_path / "egress.sock"
    with PodNetwork(path, {EXPORTER: TEXT}.get) as network:
        threading.Thread(target=network.serve_forever, daemon=True).start()
        yield lambda host, port: Tunnel(path, host, port)
        network.shutdown()


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/metrics?x=1", 200), ("/", 404)])
def test_an_exporter(connect: Callable[[str, int], Tunnel], path: str, status: int) -> None:
    connection = connect(EXPORTER, 9400)
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == status
    assert (response.read().decode() == TEXT) == (status == 200)
    connection.close()


@pytest.mark.parametrize(("host", "port"), [(EXPORTER, 9401), ("10.244.0.8", 9400), ("127.0.0.1", 9)])
def test_no_server(connect: Callable[[str, int], Tunnel], host: str, port: int) -> None:
    with pytest.raises(ConnectionRefusedError, match=r"^HTTP/1.1 502 "):
        connect(host, port).connect()


def test_other_servers_are_passed_on(connect: Callable[[str, int], Tunnel]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = connect("127.0.0.1", server.getsockname()[1])
        connection.connect()
        accepted, _address = server.accept()
        with accepted:
            connection.sock.sendall(b"question")
            assert accepted.recv(100) == b"question"
            accepted.sendall(b"answer")
            assert connection.sock.recv(100) == b"answer"
        assert connection.sock.recv(100) == b""
        connection.close()
