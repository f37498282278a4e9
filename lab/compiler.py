# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The C compiler, which only the programs for NVIDIA's own agents need."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass

from .errors import LabError


@dataclass(frozen=True)
class Compiler:
    """A compiler: its program and the first line of what it says of itself."""

    program: str
    version: str


@functools.cache
def find() -> Compiler:
    """Return the compiler that $CC names, else cc; a machine without one gets told what to do."""
    wanted = os.environ.get("CC") or "cc"
    program = shutil.which(wanted)
    if program is None:
        raise LabError(
            f"a C compiler ({wanted}) is missing, which NVIDIA's agents need to be built: install it, for example"
            " with 'apt install gcc libc6-dev'"
        )
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return Compiler(program, (done.stdout.splitlines() or [""])[0])
