# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs as AnsibleModule.run_command does, without a module."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any


def run_program(
    arguments: list[str], before_communicate_callback: Callable[[Any], None] = lambda dummy: None, **dummy: Any
) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a program."""
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before_communicate_callback(process)
        output, errors = process.communicate()
    return process.returncode, output, errors
