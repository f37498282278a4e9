# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fake VKS: its HTTP server, and the timer thread that completes operations."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from .. import cloud_requests
from ..layout import Lab
from ..systems import KUBELET
from . import admin, clusters, kubeconfigs, lifecycle, seed
from .dispatch import PREFIXES, Dispatcher, HttpRequest, HttpResponse
from .iam import Iam
from .node_sync import VksNodeSync
from .rules import CLOUD, VksRules, settings_of
from .state import AccountState, Row

_TICK_SECONDS = 0.02
# The interval at which the server checks whether to stop.
_STOP_SECONDS = 0.05


class FakeVks:
    """The fake VKS, vServer and IAM of one account, on one loopback port.

    Its state and settings are stored below `lab.clouds`. With `real`, the cluster with the name of the lab is the lab's
    Kubernetes cluster; without it, only the lab's folder is needed.
    """

    def __init__(self, lab: Lab, secrets: Mapping[str, str], *, real: bool, log: Path | None = None) -> None:
        """Take the secrets of the service accounts by client id, and the log file for requests."""
        self._lab, self._log = lab, log
        self.settings = settings_of(lab)
        self._file = lab.clouds / "vks" / "state.json"
        self._real = real
        self.state = AccountState(self._file, self._seed())
        self.service = Dispatcher(self.state, Iam(secrets), lab.name if real else None)
        self._node_sync = VksNodeSync(lab) if real else None
        self._server: _VksServer | None = None
        self._over = threading.Event()
        clusters.begin(self.state, VksRules.now(self.settings), lab.name, real=real)
        self.state.save()

    @property
    def url(self) -> str:
        """The base URL of the server."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def connections(self) -> int:
        """The number of accepted connections that are still open."""
        assert self._server is not None
        return self._server.connections

    def addresses(self) -> dict[str, str]:
        """Return the addresses, by the variables of the modules and of the lab's environment."""
        return addresses(self.url)

    def start(self, port: int = 0) -> None:
        """Start the server on the port (0: a free one) and the timer."""
        self._server = _VksServer(("127.0.0.1", port), _handler(self))
        threading.Thread(target=self._server.serve_forever, args=(_STOP_SECONDS,), daemon=True).start()
        threading.Thread(target=self._tick, daemon=True).start()

    def stop(self) -> None:
        """Stop the server and the timer."""
        self._over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def reset(self) -> None:
        """Restore the initial state, faults and settings."""
        with self.state.lock:
            self.settings.reset()
            self.state.data = self._seed()
            clusters.begin(self.state, VksRules.now(self.settings), self._lab.name, real=self._real)
            self.state.save()

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Log a request and return its response."""
        if request.target.startswith("/lab/"):
            return admin.answer(self, request)
        rules = VksRules.now(self.settings)
        if seconds := rules.value("slow", 1):
            time.sleep(seconds)
        answer = self.service.answer(request, rules)
        if self._log is not None:
            agent = request.headers.get("User-Agent", "")
            cloud_requests.write(
                self._log, request.service, request.method, request.path, answer.status, agent, internal=False
            )
        return answer

    def _seed(self) -> Row:
        """Return the initial account; the lab's own cluster has the version of its kubelets."""
        return seed.new_account(self._lab.name, KUBELET if self._real else seed.VERSIONS[0])

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            try:
                self._step()
            except Exception:
                # The timer continues for all other groups; the error is logged, and fails a test.
                self.service.record_violation(traceback.format_exc())

    def _step(self) -> None:
        """Complete all operations that are due."""
        rules = VksRules.now(self.settings)
        if self._node_sync is not None:
            self._node_sync.work(self.state)
        now = time.time()
        with self.state.lock:
            changed = _autoscaled(self.state, rules)
            for group in list(self.state.groups.values()):
                changed |= lifecycle.advance(self.state, rules, group, now)
            for cluster in self.state.clusters.values():
                own_lab = self._lab if self._real and cluster["name"] == self._lab.name else None
                changed |= kubeconfigs.advance(rules, cluster, own_lab, now)
            if changed:
                self.state.save()


def addresses(url: str) -> dict[str, str]:
    """Return the addresses of the services of a fake at this URL, by environment variable."""
    return {
        "VKS_IAM_URL": f"{url}/accounts-api/v2/auth/token",
        "VKS_URL": f"{url}{PREFIXES['vks']}",
        "VKS_VSERVER_URL": f"{url}{PREFIXES['vserver']}",
    }


def _autoscaled(state: AccountState, rules: VksRules) -> bool:
    """Perform the action of the fault `autoscaler` once."""
    fault = next((one for one in rules.faults if one.name == f"{CLOUD}.autoscaler"), None)
    if fault is None:
        return False
    meant = [
        group
        for group in state.groups.values()
        if group["spec"]["autoScaleConfig"] and fault.group in (None, group["name"])
    ]
    if any(group["operation"] for group in meant):
        return False
    rules.live.clear(fault.name)
    for group in meant:
        bounds, count = group["spec"]["autoScaleConfig"], group["count"] + int(fault.value or 1)
        lifecycle.resize(state, rules, group, min(max(count, bounds["minSize"]), bounds["maxSize"]))
        lifecycle.begin(state, rules, group, "autoscale")
    return True


class _VksServer(ThreadingHTTPServer):
    """A thread for each connection, and the number of open connections."""

    daemon_threads = True

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.connections = 0
        self._lock = threading.Lock()

    def process_request(self, *args: Any) -> None:
        """Count the connection in the thread that accepts: connections are accepted in the order of their arrival."""
        with self._lock:
            self.connections += 1
        super().process_request(*args)

    def process_request_thread(self, *args: Any) -> None:
        try:
            super().process_request_thread(*args)
        finally:
            with self._lock:
                self.connections -= 1

    def handle_error(self, *args: Any) -> None:
        """Print nothing about a client that is gone: tests kill clients."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*args)


def _handler(fake: FakeVks) -> type[BaseHTTPRequestHandler]:
    class VksHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Send header and body in one packet, without delay.
        wbufsize = 65536
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            request = HttpRequest(
                self.command,
                self.path,
                {name.title(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            answer = fake.answer(request)
            if answer.status == 0:
                self.close_connection = True
                return
            content = answer.content()
            self.send_response(answer.status)
            if content:
                self.send_header("Content-Type", answer.kind)
            for name, value in answer.headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.wfile.flush()

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: requests are logged elsewhere."""

    return VksHandler
