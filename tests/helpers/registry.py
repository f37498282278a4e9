# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real registry on loopback, with TLS by the lab's certificate authority."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.labs import LAB, Lab
from tests.programs import run

_START = 30.0


@dataclass(frozen=True)
class Registry:
    """Its address; `env` is the lab's environment, in which programs trust it."""

    address: str
    env: dict[str, str]

    def push_chart(self, chart: Path, folder: Path) -> str:
        """Package a chart and push it; returns the reference without its version."""
        run("helm", "package", chart, "--destination", folder, env=self.env)
        (packed,) = folder.glob(f"{chart.name}-*.tgz")
        run("helm", "push", packed, f"oci://{self.address}/charts", env=self.env)
        return f"oci://{self.address}/charts/{chart.name}"


@contextmanager
def registry(lab: Lab, folder: Path) -> Iterator[Registry]:
    """A registry that stores its data in `folder` while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    built = run(LAB, "build", "registry").splitlines()[-1].split(maxsplit=1)[1]
    pki = lab.directory / "pki"
    settings = {
        "version": "0.1",
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "storage")}},
        "http": {
            "addr": address,
            "tls": {"certificate": str(pki / "server.crt"), "key": str(pki / "server.key")},
        },
    }
    config = folder / "registry.json"
    config.write_text(json.dumps(settings))
    env = {**lab.env, "SSL_CERT_FILE": str(pki / "ca.crt")}
    with (folder / "registry.log").open("w") as log:
        server = subprocess.Popen([f"{built}/bin/registry", "serve", config], env=env, stdout=log, stderr=log)
    try:
        until = time.monotonic() + _START
        while not _answers(address, pki / "ca.crt"):
            assert server.poll() is None, (folder / "registry.log").read_text()
            assert time.monotonic() < until, f"no registry answers at {address}"
            time.sleep(0.1)
        yield Registry(address, env)
    finally:
        server.terminate()
        server.wait()


def _answers(address: str, authority: Path) -> bool:
    trusting = ssl.create_default_context(cafile=str(authority))
    try:
        with urllib.request.urlopen(f"https://{address}/v2/", context=trusting):
            return True
    except urllib.error.URLError:
        return False
