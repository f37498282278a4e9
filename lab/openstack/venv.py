# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Virtual environments with the OpenStack services, in the cache: each is created once per lock file and Python."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from ..build import Durations
from ..errors import LabError
from ..layout import LAB, cache
from ..lock import locked
from ..progress import BuildProgress

_LOCKS = LAB / "openstack"
_COMPLETE = ".complete"


@dataclass(frozen=True)
class Venv:
    """One virtual environment: its packages, and the lock file that pins all versions."""

    name: str
    packages: tuple[str, ...]
    lock: str
    usual_seconds: int

    @property
    def folder(self) -> Path:
        """Its cache folder; the name ends in a hash of everything that determines the content."""
        python = f"{sys.version_info[:3]} {sys.base_prefix}"
        content = f"{python}\n{self.packages}\n{(_LOCKS / self.lock).read_text()}"
        return cache() / f"{self.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def ensure(self) -> Path:
        """Create the environment if it is missing, which takes a minute, and return its folder."""
        folder = self.folder
        if not (folder / _COMPLETE).exists():
            with locked(cache() / f"{self.name}.lock", f"installing {self.name}"):
                if not (folder / _COMPLETE).exists():
                    self._make(folder)
        os.utime(folder)
        return folder

    def _make(self, folder: Path) -> None:
        durations = Durations()
        with BuildProgress({self.name: durations.usual(self.name, self.usual_seconds)}) as progress:
            progress.begin(self.name)
            started = time.monotonic()
            # A virtual environment contains its own path, so it is created in its final folder.
            shutil.rmtree(folder, ignore_errors=True)
            _run(self.name, [sys.executable, "-m", "venv", str(folder)])
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
            _run(self.name, [*pip, "--disable-pip-version-check", *self.packages, "-c", str(_LOCKS / self.lock)])
            (folder / _COMPLETE).touch()
            durations.record(self.name, time.monotonic() - started)
            progress.end(self.name)


def _run(name: str, command: list[str]) -> None:
    # The Python settings of the lab must not apply to pip.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        log = "\n".join(done.stderr.strip().splitlines()[-20:])
        raise LabError(f"building {name} failed ({' '.join(command)}):\n{log}")


_CLIENTS = ("python-openstackclient", "python-magnumclient")
SERVICES = Venv(
    "openstack", ("keystone", "nova", "glance", "magnum", "waitress", *_CLIENTS), "openstack.lock", usual_seconds=115
)
# Only Magnum; it uses the other services of SERVICES. This release needs the threading extra of oslo.service.
MAGNUM_20 = Venv(
    "openstack-20", ("magnum", "oslo.service[threading]", "waitress"), "openstack-20.lock", usual_seconds=60
)
# Magnum release -> its virtual environment.
MAGNUMS = {"23": SERVICES, "20": MAGNUM_20}
