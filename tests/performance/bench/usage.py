# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`python usage.py FILE COMMAND...`: runs a command, and writes its exit status, duration and resources to the file as JSON.

This is a small process of its own, because Linux counts the memory of the process that starts a command as the command's memory, too (exec
keeps the maximum: exec_mmap() in fs/exec.c).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main() -> None:
    """Run the command."""
    path, *command = sys.argv[1:]
    begin = time.monotonic()
    with subprocess.Popen(command) as process:
        # Includes the processes for which this one has waited.
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    measured = {
        "seconds": time.monotonic() - begin,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "mib": usage.ru_maxrss / 1024,
        "status": process.returncode,
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(measured, file)


if __name__ == "__main__":
    main()
