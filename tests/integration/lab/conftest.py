# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labs of their own for the tests of the lab itself."""

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
    """A lab that a test may break; its home and temporary folder are empty ones, to see what is left in them."""

    name: str
    home: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def lab(self) -> Lab:
        return Lab.named(self.name)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAB_", "KUBE", "K8S_"))}
        temporary = self.home / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        places = {"HOME": self.home, "TMPDIR": temporary, "ACCEL_GPU_LAB_CACHE": cache()}
        return kept | {name: str(path) for name, path in places.items()} | self.more

    def try_to(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """`lab/lab WORDS`, however it ends."""
        return subprocess.run(
            [LAUNCHER, "--name", self.name, *words],
            env=self.environment | more,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def do(self, *words: str) -> str:
        """`lab/lab WORDS`, which must end well."""
        done = self.try_to(*words)
        assert done.returncode == 0, f"lab/lab {shlex.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def status(self) -> dict[str, Any]:
        """What `status --json` says, of a lab that is up or not."""
        found: dict[str, Any] = json.loads(self.try_to("status", "--json").stdout)
        return found

    def shell(self, script: str) -> str:
        """What a script prints in a shell after `eval "$(lab/lab env)"`."""
        prepared = f'eval "$({shlex.quote(str(LAUNCHER))} --name {self.name} env)" && {script}'
        done = subprocess.run(
            ["bash", "-euc", prepared], env=self.environment, cwd=REPO, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def processes(self) -> set[int]:
        return processes.pids(self.lab)


def _own(name: str, home: Path) -> Iterator[OwnLab]:
    with free_name(name) as free:
        lab = OwnLab(free, home)
        lab.try_to("down", "--delete")
        yield lab
        lab.try_to("down", "--delete")
        assert not lab.processes()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLab]:
    """A lab of the test module, not up yet."""
    yield from _own("own", tmp_path_factory.mktemp("home"))


@pytest.fixture
def other(tmp_path: Path) -> Iterator[OwnLab]:
    """A second lab, not up yet."""
    yield from _own("other", tmp_path / "home")
