# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The service `catalogs`: one `opm serve` for each CatalogSource, restarted when its content changes, and the unpacking of bundles."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from ..api import Api, ApiError
from ..cloud_settings import CloudSettings
from ..errors import LabError
from ..layout import Lab
from ..ports import is_listening
from ..supervisor import tool
from . import catalogs, proxy, unpack

_POLL_SECONDS = 0.25
_RECORD = "served.json"
_STOP_SECONDS = 5.0


class Server:
    """The server of one catalog."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self._folder, self._port = folder / name, port_of(lab, name)
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._text: str | None = None
        self.changed = 0.0
        """The time of the last restart or stop."""

    def serve(self, text: str | None) -> None:
        """Serve this catalog file, or refuse connections; restart the server if it has exited."""
        exited = self._process is not None and self._process.poll() is not None
        if text == self._text and not exited:
            return
        self.stop()
        self._text, self.changed = text, time.time()
        if text is not None:
            self._start(text)

    def stop(self) -> None:
        """Stop the server."""
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            print(f"catalogs: stopped the server of {self._name}", flush=True)

    def _start(self, text: str) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        content, temporary = self._folder / "catalog", self._folder / "tmp"
        for folder in (content, temporary):
            folder.mkdir(parents=True)
        (content / "catalog.json").write_text(text)
        log = str(self._folder / "termination.log")
        call = [str(tool("olm") / "opm"), "serve", str(content), "--port", str(self._port)]
        call += ["--pprof-addr", "", "--termination-log", log]
        self._process = subprocess.Popen(call, env=os.environ | {"TMPDIR": str(temporary)}, stdin=subprocess.DEVNULL)
        print(f"catalogs: serving {self._name} on port {self._port}", flush=True)

    def is_ready(self) -> bool:
        """Return whether the server accepts connections, or is not supposed to."""
        return self._process is None or is_listening(self._port)


def port_of(lab: Lab, catalog: str) -> int:
    """Return the port of the server of a catalog."""
    return lab.ports()[f"catalog-{catalog.partition('-')[0]}"]


def run(lab: Lab, folder: Path) -> None:
    """Run the service until the process is terminated."""
    signal.signal(signal.SIGTERM, _interrupt)
    servers = {name: Server(lab, folder, name) for name in catalogs.CATALOGS}
    unpacking = unpack.Unpacker(lab, folder / "bundles")
    settings = catalogs.of(lab)
    proxy.Proxy(lab, lab.ports()["catalog-proxy"], port_of(lab, catalogs.STAGING)).start()
    try:
        content = _content(settings)
        _serve(servers, settings)
        _record(folder, content, servers)
        print("catalogs: ready", flush=True)
        api = Api(lab, "runner")
        while True:
            time.sleep(_POLL_SECONDS)
            if (now := _content(settings)) != content or not all(server.is_ready() for server in servers.values()):
                content = now
                _serve(servers, settings)
                _record(folder, content, servers)
            try:
                unpacking.advance(api, settings)
            except (ApiError, OSError) as error:
                print(f"catalogs: cannot unpack bundles yet: {error}", flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        for server in servers.values():
            server.stop()


def wait_served(lab: Lab, folder: Path, limit: float = 60.0) -> dict[str, float]:
    """Wait until the catalogs have the content of the current settings; return the time of each one's last change."""
    expected = _content(catalogs.of(lab))
    deadline = time.monotonic() + limit
    while True:
        with contextlib.suppress(FileNotFoundError, ValueError):
            recorded = json.loads((folder / _RECORD).read_text())
            if recorded["content"] == expected:
                return dict(recorded["changed"])
        if time.monotonic() > deadline:
            raise LabError(f"the catalogs did not change within {limit:.0f} s: see 'lab/lab{lab.option} logs catalogs'")
        time.sleep(0.1)


def _content(settings: CloudSettings) -> object:
    """Return what determines the content of the catalogs, as JSON-like data."""
    return [settings.values(), [dataclasses.asdict(fault) for fault in settings.faults()]]


def _record(folder: Path, content: object, servers: dict[str, Server]) -> None:
    """Record what the catalogs contain now, when their servers accept connections."""
    while not all(server.is_ready() for server in servers.values()):
        time.sleep(0.05)
    changed = {name: server.changed for name, server in servers.items()}
    fresh = folder / f"{_RECORD}.new"
    fresh.write_text(json.dumps({"content": content, "changed": changed}))
    fresh.replace(folder / _RECORD)


def _serve(servers: dict[str, Server], settings: CloudSettings) -> None:
    images = settings.setting(f"{catalogs.CLOUD}.bundles") == "images"
    for name, server in servers.items():
        packages = catalogs.served(settings, name)
        server.serve(None if packages is None else catalogs.text(packages, images=images))


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
