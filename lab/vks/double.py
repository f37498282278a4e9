# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The double as a whole: its HTTP server, and the clock that brings what was begun to its end."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .. import cloud_requests
from ..layout import Lab
from ..systems import KUBELET
from . import admin, clusters, kubeconfigs, life, seed
from .hands import Hands
from .iam import Iam
from .rules import CLOUD, Rules, switches
from .service import PREFIXES, Answer, Asked, Service
from .world import Row, World

_TICK_SECONDS = 0.02
# How long it may take until a server notices that it is to stop.
_STOP_SECONDS = 0.05


class Double:
    """VKS, vServer and IAM of one account, on one loopback port.

    Its state and switches are kept below `lab.clouds`. With `real` the cluster that is called like the lab is the lab's
    Kubernetes; without it nothing of the lab is needed but its folder.
    """

    def __init__(self, lab: Lab, secrets: Mapping[str, str], *, real: bool, log: Path | None = None) -> None:
        """Take the secrets of the service accounts by client id, and the file that requests are noted in."""
        self._lab, self._log = lab, log
        self.switches = switches(lab)
        self._file = lab.clouds / "vks" / "state.json"
        self._real = real
        self.world = World(self._file, self._seed())
        self.service = Service(self.world, Iam(secrets), lab.name if real else None)
        self._hands = Hands(lab) if real else None
        self._server: ThreadingHTTPServer | None = None
        self._over = threading.Event()
        clusters.begin(self.world, Rules.now(self.switches), lab.name, real=real)
        self.world.save()

    @property
    def url(self) -> str:
        """Where it is asked."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def addresses(self) -> dict[str, str]:
        """The addresses as modules and the lab's environment name them."""
        return addresses(self.url)

    def start(self, port: int = 0) -> None:
        """Answer requests on the port (0: a free one), and let time pass."""
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(_STOP_SECONDS,), daemon=True).start()
        threading.Thread(target=self._tick, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def reset(self) -> None:
        """Forget all that was asked for, and take all faults and settings back."""
        with self.world.lock:
            self.switches.reset()
            self.world.data = self._seed()
            clusters.begin(self.world, Rules.now(self.switches), self._lab.name, real=self._real)
            self.world.save()

    def answer(self, asked: Asked) -> Answer:
        """Answer a request, and note it first."""
        if asked.target.startswith("/lab/"):
            return admin.answer(self, asked)
        rules = Rules.now(self.switches)
        if seconds := rules.value("slow", 1):
            time.sleep(seconds)
        answer = self.service.answer(asked, rules)
        if self._log is not None:
            agent = asked.headers.get("User-Agent", "")
            cloud_requests.write(
                self._log, asked.service, asked.method, asked.path, answer.status, agent, internal=False
            )
        return answer

    def _seed(self) -> Row:
        """The account in the beginning; the lab's own cluster has the version that its kubelets say."""
        return seed.world(self._lab.name, KUBELET if self._real else seed.VERSIONS[0])

    def _tick(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            try:
                self._step()
            except Exception:
                # Time goes on for all other groups; what was wrong stands in the service's log, and fails a test.
                self.service.broken(traceback.format_exc())

    def _step(self) -> None:
        """Let all that is begun and due come to its end."""
        rules = Rules.now(self.switches)
        if self._hands is not None:
            self._hands.work(self.world)
        now = time.time()
        with self.world.lock:
            changed = _autoscaled(self.world, rules)
            for group in list(self.world.groups.values()):
                changed |= life.settle(self.world, rules, group, now)
            for cluster in self.world.clusters.values():
                of = self._lab if self._real and cluster["name"] == self._lab.name else None
                changed |= kubeconfigs.settle(rules, cluster, of, now)
            if changed:
                self.world.save()


def addresses(url: str) -> dict[str, str]:
    """The addresses of the services of a double at a URL, by the names of the environment."""
    return {
        "VKS_IAM_URL": f"{url}/accounts-api/v2/auth/token",
        "VKS_URL": f"{url}{PREFIXES['vks']}",
        "VKS_VSERVER_URL": f"{url}{PREFIXES['vserver']}",
    }


def _autoscaled(world: World, rules: Rules) -> bool:
    """Let the autoscaler do once what its fault asks for."""
    fault = next((one for one in rules.faults if one.name == f"{CLOUD}.autoscaler"), None)
    if fault is None:
        return False
    meant = [
        group
        for group in world.groups.values()
        if group["spec"]["autoScaleConfig"] and fault.group in (None, group["name"])
    ]
    if any(group["doing"] for group in meant):
        return False
    rules.live.clear(fault.name)
    for group in meant:
        bounds, wanted = group["spec"]["autoScaleConfig"], group["count"] + int(fault.value or 1)
        life.resize(world, rules, group, min(max(wanted, bounds["minSize"]), bounds["maxSize"]))
        life.begin(world, rules, group, "autoscale")
    return True


def _handler(double: Double) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # An answer is one packet: head and body are sent together, and at once.
        wbufsize = 65536
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            asked = Asked(
                self.command,
                self.path,
                {name.title(): value for name, value in self.headers.items()},
                self.rfile.read(length),
            )
            answer = double.answer(asked)
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
            """Say nothing: requests are noted elsewhere."""

    return Handler
