# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recognizable secrets, and a search for them in all output, files and arguments of a run."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.helpers.cluster import Cluster
from tests.programs import REPO

# The environment variables of the clouds' modules.
CLOUD_VARIABLES = ("GRN_CLIENT_SECRET", "OS_PASSWORD", "OS_APPLICATION_CREDENTIAL_SECRET")
_PAUSE = 0.05


@dataclass
class Planted:
    """Secrets by their purpose; the search finds each as plain text and in base64."""

    texts: dict[str, str] = field(default_factory=dict)

    def new(self, what: str) -> str:
        """Create and return another secret."""
        return self.add(what, f"planted-{uuid.uuid4().hex}")

    def add(self, what: str, text: str) -> str:
        """Add a secret that was created elsewhere."""
        self.texts[what] = text
        return text

    def found_in(self, data: bytes | str) -> list[str]:
        """The purposes of the secrets in some data."""
        raw = data.encode() if isinstance(data, str) else data
        return [what for what, text in self.texts.items() if any(form in raw for form in _forms(text))]

    def found_below(self, *folders: Path) -> list[str]:
        """The purposes of the secrets in any file, with the file."""
        actual = []
        for path in (
            Path(place, name) for folder in folders for place, dummy, names in os.walk(folder) for name in names
        ):
            try:
                data = path.read_bytes()
            except OSError:  # deleted meanwhile
                continue
            actual += [f"{what} in {path}" for what in self.found_in(data)]
        return actual

    @contextmanager
    def watched(self, *folders: Path) -> Iterator[list[str]]:
        """Search the arguments of all processes and the files in these folders continuously while the block runs."""
        seen: list[str] = []
        ended = threading.Event()

        def look() -> None:
            while not ended.is_set():
                seen.extend(f"{what} in the arguments of a process" for what in self.found_in(_arguments()))
                seen.extend(self.found_below(*folders))
                ended.wait(_PAUSE)

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield seen
        finally:
            ended.set()
            thread.join()


def _forms(text: str) -> Iterator[bytes]:
    """The text, and its middle in base64 at each of the three possible offsets."""
    yield text.encode()
    for offset in range(3):
        packed = base64.b64encode(b"x" * offset + text.encode())
        yield packed[4:-4]


def _arguments() -> bytes:
    actual = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            actual.append(path.read_bytes())
        except OSError:  # the process has ended
            continue
    return b"\n".join(actual)


def key_of(kubeconfig: Mapping[str, Any]) -> str:
    """A line from the middle of a kubeconfig's private key."""
    (user,) = (entry["user"] for entry in kubeconfig["users"])
    lines = base64.b64decode(user["client-key-data"]).decode().splitlines()
    return lines[1]


def admin_config(cluster: Cluster) -> dict[str, Any]:
    """The administrator's kubeconfig with its certificate and key as data."""
    actual = cluster.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json")
    return dict(json.loads(actual))


def token_config(cluster: Cluster, account: str) -> dict[str, Any]:
    """A kubeconfig with a token of a service account with all permissions."""
    cluster.kubectl("create", "serviceaccount", account, "-n", "default")
    cluster.kubectl("create", "clusterrolebinding", account, "--clusterrole=cluster-admin", f"--serviceaccount=default:{account}")  # fmt: skip
    token = cluster.kubectl("-n", "default", "create", "token", account).strip()
    actual = admin_config(cluster)
    actual["users"][0]["user"] = {"token": token}
    return actual


@dataclass
class Shown:
    """The complete output of runs."""

    environ: Mapping[str, str]
    folder: Path
    text: str = ""

    def play(self, name: str, *arguments: str, variables: Mapping[str, Any] | None = None, json_output: bool = False) -> int:  # fmt: skip
        """Run a playbook with maximum verbosity, or with JSON output; returns its exit status."""
        # In a file, because the arguments of a process are readable by every user.
        options = self.folder / f"variables-{time.monotonic_ns()}.yml"
        options.write_text(yaml.safe_dump(dict(variables or {})))
        command = [
            "ansible-playbook",
            name,
            "-i",
            str(REPO / "inventories/lab"),
            "-e",
            f"@{options}",
            "--diff",
            *arguments,
        ]
        environ = {**self.environ, "ANSIBLE_NOCOLOR": "1"}
        if json_output:
            environ["ANSIBLE_STDOUT_CALLBACK"] = "ansible.posix.json"
        else:
            command.append("-vvvv")
        done = subprocess.run(command, cwd=REPO, env=environ, capture_output=True, text=True, check=False)
        options.unlink()
        self.text += done.stdout + done.stderr
        return done.returncode


def objects_with(cluster: Cluster, planted: Planted, kinds: Sequence[str]) -> list[str]:
    """The objects of a cluster that contain one of the secrets, except Secrets, where they belong."""
    listed = cluster.get(",".join(kinds), "-A", "--show-managed-fields")["items"]
    return [
        f"{what} in {item['kind']} {item['metadata']['name']}"
        for item in listed
        if item["kind"] != "Secret"
        for what in planted.found_in(json.dumps(item))
    ]
