# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many clusters: an API server each, on one etcd, with a few Node objects of GPU nodes; nothing else runs.

The programs are the lab's, and each API server has keys, a kubeconfig and an audit log of its own, as a lab has.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import build, pki
from lab.api import Api, ApiError, in_parallel
from lab.layout import LAB, Lab
from tests.helpers.gpu_nodes import gpu_node
from tests.helpers.polling import until

_READY_SECONDS = 600


@dataclass
class ApiServer:
    """A cluster. lab: its folder, keys, kubeconfig and audit log."""

    lab: Lab
    start: Callable[[], subprocess.Popen[bytes]]
    process: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self.lab.name

    @property
    def api(self) -> Api:
        """A client whose requests are not in the audit log."""
        return Api(self.lab)

    def mebibytes(self) -> float:
        """The resident memory of the API server."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024


@contextmanager
def api_servers(folder: Path, names: Sequence[str], nodes: int = 2) -> Iterator[list[ApiServer]]:
    """Start the clusters with these names, each with some GPU nodes, and stop them at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    tools = build.ensure(["etcd", "kubernetes"])
    with ExitStack() as stack:
        etcd = _start_etcd(stack, folder, tools["etcd"] / "bin" / "etcd")
        program = tools["kubernetes"] / "bin" / "kube-apiserver"
        servers: list[ApiServer] = []
        # As many at a time as there are processors, since the start takes some seconds of a processor.
        size = os.cpu_count() or 2
        for first in range(0, len(names), size):
            batch = [_start(stack, folder, name, etcd, program) for name in names[first : first + size]]
            for server in batch:
                _wait_ready(server)
            servers += batch
        in_parallel(lambda server: _create_nodes(server, nodes), servers)
        yield servers


def free_port() -> int:
    """A port that no program uses at this time."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _run(stack: ExitStack, log: Path, command: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start a server, which also ends if the process of the test is killed."""
    handle = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *map(str, command)],
        stdin=subprocess.DEVNULL,
        stdout=handle,
        stderr=subprocess.STDOUT,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process


def _start_etcd(stack: ExitStack, folder: Path, program: Path) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _each in range(2))
    command = [
        *(program, "--name", "fleet", "--data-dir", folder / "etcd", "--log-level", "warn", "--unsafe-no-fsync"),
        *("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer),
        *("--initial-advertise-peer-urls", peer, "--initial-cluster", f"fleet={peer}"),
    ]
    process = _run(stack, folder / "etcd.log", command)

    def healthy() -> bool:
        assert process.poll() is None, (folder / "etcd.log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{client}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(healthy, _READY_SECONDS)
    return client


def _start(stack: ExitStack, folder: Path, name: str, etcd: str, program: Path) -> ApiServer:
    lab = Lab.named(name, folder / name)
    lab.logs.mkdir(parents=True)
    port = free_port()
    lab.record(port_base=port)
    pki.create(lab)
    pki.write_kubeconfigs(lab, f"https://127.0.0.1:{port}")
    command = [
        *(program, f"--etcd-servers={etcd}", f"--etcd-prefix=/{name}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
        *("--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16"),
        *(f"--tls-cert-file={lab.pki}/server.crt", f"--tls-private-key-file={lab.pki}/server.key", f"--client-ca-file={lab.pki}/ca.crt"),
        *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={lab.pki}/sa.pub"),
        *(f"--service-account-signing-key-file={lab.pki}/sa.key", "--authorization-mode=RBAC", "--profiling=false"),
        # A list from the cache waits for the progress of all watches of etcd, which have fifty clusters here instead of one.
        *("--enable-priority-and-fairness=false", "--watch-cache=false"),
        *(f"--audit-policy-file={LAB}/compose/audit-policy.yaml", f"--audit-log-path={lab.audit_log}"),
    ]  # fmt: skip
    start = functools.partial(_run, stack, lab.logs / "kube-apiserver.log", command)
    return ApiServer(lab, start, start())


def _wait_ready(server: ApiServer) -> None:
    """Wait for an API server. As in a lab, it starts again if it has ended, because etcd did not answer in time on a busy machine."""

    def ready() -> bool:
        if server.process.poll() is not None:
            server.process = server.start()
        try:
            server.api.request("GET", "/readyz")
            # The server creates the namespace after it is ready.
            server.api.request("GET", "/api/v1/namespaces/kube-system")
        except ApiError:
            return False
        return True

    until(ready, _READY_SECONDS, lambda: (server.lab.logs / "kube-apiserver.log").read_text()[-2000:])


def _create_nodes(server: ApiServer, count: int) -> None:
    for number in range(1, count + 1):
        server.api.request("POST", "/api/v1/nodes", gpu_node(f"{server.name}-gpu-{number}"))
