# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""bubblewrap: a root of its own for programs that must not see this machine, or that read fixed paths."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from .errors import LabError


def require() -> str:
    """Return bubblewrap's path; a machine that lacks it, or forbids it, gets told what to do."""
    program = shutil.which("bwrap")
    if program is None:
        raise LabError("bubblewrap (bwrap) is missing: install it, for example with 'apt install bubblewrap'")
    done = subprocess.run(
        [program, "--ro-bind", "/", "/", "--unshare-user", "true"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise LabError(
            f"bubblewrap cannot make a user namespace here ({done.stderr.strip()}): allow unprivileged user namespaces"
            " (Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return program


def command(
    program: list[str],
    *,
    files: Mapping[Path | str, str],
    environment: Mapping[str, str],
    proc: bool = False,
    network: bool = True,
    links: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the bwrap call of a program.

    `files` maps paths of this machine to read-only paths in there, `links` maps symbolic links in there to their targets.
    """
    # What the lab runs listens on loopback, for which the network is shared; the process dies with its supervisor.
    call = [require(), "--unshare-all", *(["--share-net"] if network else []), "--die-with-parent", "--clearenv"]
    for name, value in environment.items():
        call += ["--setenv", name, value]
    if proc:
        call += ["--proc", "/proc"]
    call += ["--dev", "/dev", "--tmpfs", "/tmp"]
    for here, there in files.items():
        call += ["--ro-bind", str(here), there]
    for there, target in (links or {}).items():
        call += ["--symlink", target, there]
    return [*call, "--", *program]
