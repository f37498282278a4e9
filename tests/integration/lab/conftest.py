# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Separate labs for the tests of the lab itself."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import processes
from lab.layout import Lab, cache
from tests.labs import free_name
from tests.programs import REPO

LAUNCHER = REPO / "lab" / "lab"


@dataclass
class OwnLab:
    """A lab for tests that change or stop it, with its own home and temporary folders to detect stray files."""

    name: str
    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def lab(self) -> Lab:
        return Lab.named(self.name)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LAB_", "KUBE", "K8S_"))}
        temporary = self.home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        folders = {"HOME": self.home, "TMPDIR": temporary, "ACCEL_GPU_LAB_CACHE": cache()}
        return inherited | {name: str(path) for name, path in folders.items()} | self.variables

    def execute(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `lab/lab WORDS` and return the result, also a failure."""
        return subprocess.run(
            [LAUNCHER, "--name", self.name, *words],
            env=self.environment | variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def command(self, *words: str) -> str:
        """Run `lab/lab WORDS`, which must succeed, and return its output."""
        done = self.execute(*words)
        assert done.returncode == 0, f"lab/lab {shlex.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """Return the output of `status --json`."""
        actual: dict[str, Any] = json.loads(self.execute("status", "--json").stdout)
        return actual

    def shell(self, script: str) -> str:
        """Run a script after `eval "$(lab/lab env)"`, and return its output."""
        command = f'eval "$({shlex.quote(str(LAUNCHER))} --name {self.name} env)" && {script}'
        done = subprocess.run(
            ["bash", "-euc", command], env=self.environment, cwd=REPO, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def processes(self) -> set[int]:
        return processes.pids(self.lab)


def temporary_lab(name: str, home: Path) -> Iterator[OwnLab]:
    with free_name(name) as free:
        lab = OwnLab(free, home)
        lab.execute("down", "--delete")
        yield lab
        lab.execute("down", "--delete")
        assert not lab.processes()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLab]:
    """A lab of the test module, not started yet."""
    yield from temporary_lab("own", tmp_path_factory.mktemp("home"))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OwnLab]:
    """A second lab, not started yet."""
    yield from temporary_lab("other", tmp_path / "home")
