# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bubblewrap: a separate root file system for programs that must not access this machine or that read fixed paths."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import LabError

# Folders with this machine's C library.
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64")


def require() -> str:
    """Return bubblewrap's path; raise LabError with instructions if it is missing or not permitted."""
    program = shutil.which("bwrap")
    if program is None:
        raise LabError("bubblewrap (bwrap) is missing: install it, for example with 'apt install bubblewrap'")
    done = subprocess.run(
        [program, "--ro-bind", "/", "/", "--unshare-user", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(
            f"bubblewrap cannot create a user namespace ({done.stderr.strip()}): allow unprivileged user namespaces"
            " (Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return program


def libraries() -> dict[Path | str, str]:
    """Return the mounts of this machine's C library, for programs that are linked with it."""
    return {folder: folder for folder in _LIBRARIES if Path(folder).is_dir()}


def command(
    program: list[str],
    *,
    files: Mapping[Path | str, str],
    environment: Mapping[str, str],
    proc: bool = False,
    network: bool = True,
    links: Mapping[str, str] | None = None,
    writable: Mapping[Path | str, str] | None = None,
) -> list[str]:
    """Return the bwrap command line for a program.

    `files` maps paths of this machine to read-only paths in the sandbox, and `writable` to writable ones; `links` maps symbolic
    links in the sandbox to targets.
    """
    # The lab's programs use loopback, so the network is shared; the process ends with its supervisor.
    call = [require(), "--unshare-all", *(["--share-net"] if network else []), "--die-with-parent", "--clearenv"]
    for name, value in environment.items():
        call += ["--setenv", name, value]
    if proc:
        call += ["--proc", "/proc"]
    call += ["--dev", "/dev", "--tmpfs", "/tmp"]
    for source, target in files.items():
        call += ["--ro-bind", str(source), target]
    for source, target in (writable or {}).items():
        call += ["--bind", str(source), target]
    for link, destination in (links or {}).items():
        call += ["--symlink", destination, link]
    return [*call, "--", *program]
