# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of a job: AWX's directories at /runner, an own process namespace, no terminal, and ansible-runner.

Without an image, the files of this machine are visible and stand for it, and the user is this machine's. With the root file system of an image, only its
files are visible, and the user is 1000, who has neither a name nor HOME until the image's entry point sets both. All files but /runner, /tmp and /etc/passwd
are read-only; so is the project, which AWX's is not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ..sandbox import require
from .injectors import Injected

# awx/main/tasks/jobs.py: the time between SIGTERM and SIGKILL.
_GRACE_SECONDS = 10
# A container has none of these directories of its image, or its own.
_OWN_FOLDERS = frozenset({"tmp", "proc", "dev", "runner", "home", "sys", "run"})
_ROOT_FILES = 0o600


@dataclass(frozen=True)
class Image:
    """An execution environment: its root file system, and its entry point."""

    root: Path
    entrypoint: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a run ended: AWX's word for it, what it printed, and the statistics of the run."""

    status: str
    output: str
    artifacts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class User:
    """Who runs the program of a container.

    AWX on Kubernetes runs it as root. OpenShift assigns a number that has no line in /etc/passwd, with the group root. home: HOME; None if it is not set.
    The default exists and is writable, and nothing else outside /tmp and /runner is.
    """

    number: int = 0
    home: str | None = "/home/runner"


# The user of images that ansible-builder builds; OpenShift runs them as any user of this group.
_USER_OF_IMAGES = User(1000, home=None)


class _Unsafe(str):
    """Text that is never rendered as a template."""


class _Dumper(yaml.SafeDumper):
    """Marks unsafe texts."""


_Dumper.add_representer(_Unsafe, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style="'"))


def _marked(value: Any) -> Any:
    if isinstance(value, str):
        return _Unsafe(value)
    if isinstance(value, dict):
        return {_Unsafe(key): _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, list) else value


class Container:
    """One container, which runs one program."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        collections: Sequence[Path],
        user: User | None = None,
        image: Image | None = None,
    ) -> None:
        self.folder, self._image = folder, image
        self.user = user or (_USER_OF_IMAGES if image else User())
        # The entry point of ansible-builder's images adds the user, so a container has its own list.
        self._users = folder.with_name(f"{folder.name}_passwd")
        for name in ("env", "inventory", "artifacts", "project"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        if image:
            shutil.copyfile(image.root / "etc" / "passwd", self._users)
        paths = ["/runner/requirements_collections", *map(str, collections)]
        self.variables = {
            **({} if self.user.home is None else {"HOME": self.user.home}),
            "AWX_PRIVATE_DATA_DIR": str(folder),
            "AWX_ISOLATED_DATA_DIR": f"/runner/artifacts/{self._ident}",
            "ANSIBLE_FORCE_COLOR": "True",
            "ANSIBLE_HOST_KEY_CHECKING": "False",
            "ANSIBLE_COLLECTIONS_PATH": ":".join(paths),
            "ANSIBLE_ROLES_PATH": "/runner/requirements_roles:/usr/share/ansible/roles",
            **environment,
        }
        self._arguments: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._canceled = False
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The outermost process of the running program, whose descendants are all processes of the container."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def output(self) -> str:
        """What the playbook has printed so far."""
        printed = self.folder / "artifacts" / self._ident / "stdout"
        return printed.read_text() if printed.exists() else ""

    @property
    def _ident(self) -> str:
        return self.folder.name.rpartition("_")[2]

    def copy_project(self, checkout: Path, requirements: Path) -> None:
        """Copy the files of a project, and the collections that it has installed."""
        shutil.copytree(
            checkout, self.folder / "project", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"), symlinks=True
        )
        if requirements.exists():
            shutil.copytree(requirements, self.folder / "requirements_collections", symlinks=True)

    def write(self, name: str, content: str, mode: int = _ROOT_FILES) -> None:
        """Write a file below /runner."""
        path = self.folder / name
        path.write_text(content)
        path.chmod(mode)

    def add(self, injected: Injected) -> None:
        """Add what credentials inject. Their extra variables come before those of the job, which therefore win."""
        for name, content in injected.files.items():
            self.write(f"env/{name}", content)
        self.variables |= injected.environment
        if injected.variables:
            self.write("env/credentials", yaml.dump(_marked(injected.variables), Dumper=_Dumper))
            self._arguments = ["-e", "@/runner/env/credentials"]

    def write_variables(self, variables: Mapping[str, Any], trusted: Mapping[str, Any]) -> None:
        """Write the extra variables. Only those of the template itself may be templates."""
        marked = {
            name: value if name in trusted and trusted[name] == value else _marked(value)
            for name, value in variables.items()
        }
        self.write("env/extravars", yaml.dump(marked, Dumper=_Dumper))

    def run_playbook(self, playbook: str, arguments: Sequence[str]) -> Outcome:
        """Run a playbook of the project with ansible-runner."""
        self.write("env/cmdline", " ".join(f"'{word}'" for word in [*arguments, *self._arguments]))
        self.write("env/settings", yaml.safe_dump({"suppress_env_files": True}))
        outcome = self.run(["ansible-runner", "run", "/runner", "-p", playbook, "--ident", self._ident])
        events = self.folder / "artifacts" / self._ident / "job_events"
        return Outcome(outcome.status, self.output or outcome.output, self._statistics(events))

    def run(self, program: list[str]) -> Outcome:
        """Run a program and wait for its end."""
        with self._lock:
            if self._canceled:
                return Outcome("canceled", "")
            self._process = subprocess.Popen(
                self._command(program),
                # As arguments of bubblewrap, every user of the machine could read them.
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        output, _ = self._process.communicate()
        status = "canceled" if self._canceled else "failed" if self._process.returncode else "successful"
        return Outcome(status, output.decode(errors="replace"))

    def cancel(self) -> None:
        """End the program as AWX does: SIGTERM, and after ten seconds the container is killed with all of its processes."""
        with self._lock:
            self._canceled = True
            process = self._process
        if process and process.poll() is None:
            for number in self._programs(process.pid):
                os.kill(number, signal.SIGTERM)
            threading.Thread(target=self._kill, args=(process,), daemon=True).start()

    @staticmethod
    def _kill(process: subprocess.Popen[bytes]) -> None:
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()

    @staticmethod
    def _programs(outer: int) -> list[int]:
        """Return the process ids of the program in the container: the grandchildren of bubblewrap, whose child is the namespace's first process."""
        numbers = [outer]
        for _generation in range(2):
            numbers = [
                int(child)
                for number in numbers
                for child in Path(f"/proc/{number}/task/{number}/children").read_text().split()
            ]
        return numbers

    def _command(self, program: list[str]) -> list[str]:
        call = [require(), "--unshare-all", "--share-net", "--die-with-parent"]
        for path in sorted((self._image.root if self._image else Path("/")).iterdir()):
            if path.name not in _OWN_FOLDERS:
                target = f"/{path.name}"
                call += (
                    ["--symlink", os.readlink(path), target] if path.is_symlink() else ["--ro-bind", str(path), target]
                )
        call += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/home"]
        call += ["--bind", str(self._users), "/etc/passwd"] if self._image else ["--dir", "/home/runner"]
        call += ["--bind", str(self.folder), "/runner", "--ro-bind", str(self.folder / "project"), "/runner/project"]
        call += ["--uid", str(self.user.number), "--gid", "0", "--remount-ro", "/"]
        entrypoint = self._image.entrypoint if self._image else ()
        return [*call, "--chdir", "/runner/project", "--", *entrypoint, *program]

    @staticmethod
    def _statistics(events: Path) -> dict[str, Any]:
        """Return what set_stats has collected, from the last event of the run."""
        for path in sorted(events.glob("*.json")):
            event = json.loads(path.read_text())
            if event.get("event") == "playbook_on_stats":
                return dict(event["event_data"].get("artifact_data") or {})
        return {}
