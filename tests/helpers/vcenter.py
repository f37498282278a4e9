# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated vCenter without Kubernetes, for tests of what talks to a vCenter."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lab import build, pki
from lab.cloud_settings import CloudFault, CloudSettings
from lab.layout import Lab
from lab.vsphere.inventory import ADMINISTRATOR, LIMITED, inventory, users

_READY_SECONDS = 20.0
_PASSWORD, _LIMITED_PASSWORD = "vc-Admin-1", "vc-Limited-1"


class GovcError(Exception):
    """A command of govc that failed."""


@dataclass
class VCenter:
    """A running vCenter. Its files may change: `settings` by set_fault, clear and set, and `users_file` by set_privileges."""

    host: str
    port: int
    uploads_port: int
    ca: Path
    settings: Path
    users_file: Path
    calls_file: Path
    requests_file: Path
    images_url: str = ""
    username: str = ADMINISTRATOR
    password: str = _PASSWORD
    limited_username: str = LIMITED
    limited_password: str = _LIMITED_PASSWORD
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def calls(self) -> list[dict[str, str]]:
        """Return the calls that change something, in their order: method, type, object, name, user."""
        if not self.calls_file.exists():
            return []
        return [json.loads(line) for line in self.calls_file.read_text().splitlines()]

    def methods(self) -> list[str]:
        """Return the methods of `calls`."""
        return [call["method"] for call in self.calls()]

    def forget_calls(self) -> None:
        """Delete the log of the calls."""
        self.calls_file.unlink(missing_ok=True)

    def set_fault(self, name: str, value: str | None = None, group: str | None = None) -> None:
        """Inject a fault; `lab/vsphere/part.py` lists the names."""
        self._clouds.inject(CloudFault(f"vsphere.{name}", group, value))

    def clear(self, name: str | None = None) -> None:
        """Clear a fault (default: all)."""
        self._clouds.clear(f"vsphere.{name}" if name else None)

    def set(self, key: str, value: str) -> None:
        """Change a setting."""
        self._clouds.set(f"vsphere.{key}", value)

    def set_privileges(self, permissions: Mapping[str, list[str]], user: str = LIMITED) -> None:
        """Replace the privileges of a user, by inventory path such as / or /DC1/vm/openshift."""
        content = json.loads(self.users_file.read_text())
        content[user]["permissions"] = dict(permissions)
        _write(self.users_file, content)

    def limited(self) -> VCenter:
        """Return the same vCenter for the limited user."""
        return replace(self, username=self.limited_username, password=self.limited_password)

    @property
    def govc_program(self) -> Path:
        """Return the path of govc."""
        return Path(build.ensure(["govc"])["govc"] / "bin" / "govc")

    @property
    def govc_environment(self) -> dict[str, str]:
        """Return the environment of govc."""
        return os.environ | {
            "GOVC_URL": f"https://{self.host}:{self.port}/sdk",
            "GOVC_USERNAME": self.username,
            "GOVC_PASSWORD": self.password,
            "GOVC_TLS_CA_CERTS": str(self.ca),
            "GOVC_PERSIST_SESSION": "false",
        }

    def govc(self, *words: str, limit: float = 60) -> str:
        """Return the output of a command of govc, which may take `limit` seconds."""
        command = [str(self.govc_program), *words]
        try:
            done = subprocess.run(
                command, env=self.govc_environment, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired as error:
            raise GovcError(str(error)) from None
        if done.returncode:
            raise GovcError(f"govc {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    @property
    def _clouds(self) -> CloudSettings:
        # CloudSettings needs a lab only for the folder of the file.
        return CloudSettings(Lab("vcenter", self.settings.parent.parent), {})


def _write(path: Path, content: Any) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.replace(path)


@contextmanager
def start_vcenter(
    folder: Path,
    *,
    objects: Mapping[str, Any] | None = None,
    version: str = "8.0.3.0",
    accounts: Mapping[str, Any] | None = None,
    state: Path | None = None,
    images: Path | None = None,
) -> Iterator[VCenter]:
    """Run a vCenter with its files in `folder`; the default objects and users are those of the lab's vCenter.

    The API's version is 7.0.3.0, 8.0.2.0, 8.0.3.0 or 9.0.0.0. `state` is a file that keeps the virtual machines for the next start,
    `images` a folder whose files `images_url` serves.
    """
    program = build.ensure(["vcsim"])["vcsim"] / "bin" / "vcsim"
    clouds = folder / "clouds"
    clouds.mkdir(parents=True, exist_ok=True)
    ca, server = folder / "vmca.crt", folder / "server"
    pki.create_authority(ca, "VMCA root", server)
    files = {name: folder / name for name in ("inventory.json", "users.json", "calls.jsonl", "requests.jsonl")}
    settings = clouds / "switches.json"
    _write(files["inventory.json"], objects or inventory())
    _write(files["users.json"], accounts or users(_PASSWORD, _LIMITED_PASSWORD))
    arguments = {
        "listen": "127.0.0.1:0",
        "uploads": "127.0.0.1:0",
        "api-version": version,
        "inventory": files["inventory.json"],
        "users": files["users.json"],
        "settings": settings,
        "calls": files["calls.jsonl"],
        "requests": files["requests.jsonl"],
        "state": state or "",
        "images": images or "",
        "images-listen": "127.0.0.1:0",
        "certificate": server.with_suffix(".crt"),
        "key": server.with_suffix(".key"),
    }
    command = [str(program), *(f"-{name}={value}" for name, value in arguments.items())]
    with (folder / "vcsim.log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _READY_SECONDS)
        line = process.stdout.readline() if ready else ""
        assert line.startswith("vcsim: ready "), f"vcsim did not start: {(folder / 'vcsim.log').read_text()}"
        address, uploads, *served = line.split()[2:]
        yield VCenter(
            "127.0.0.1",
            int(address.rpartition(":")[2]),
            int(uploads.rpartition(":")[2]),
            ca,
            settings,
            files["users.json"],
            files["calls.jsonl"],
            files["requests.jsonl"],
            images_url=f"http://{served[0]}" if served else "",
            process=process,
        )
    finally:
        process.terminate()
        process.wait(10)
        process.stdout.close()  # type: ignore[union-attr]
