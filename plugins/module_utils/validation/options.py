# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's options that have limits or belong to a program, their specification and their check (pure)."""

from __future__ import annotations

import typing as t

from ..common.errors import InvalidOptions
from ..validation_programs.program import Number
from ..validation_programs.registry import PROGRAMS

OPTIONS: t.Mapping[str, Number | bool] = {
    "max_pods": Number(8, 1, 1000),
    "hold_seconds": Number(10, 1, 3600),
    "wait_timeout": Number(300, 1, 86400),
    "wait_sleep": Number(1, 1, 60),
    **{name: option for program in PROGRAMS for name, option in program.options.items()},
}


def option_spec() -> dict[str, dict[str, t.Any]]:
    """These options in the form of Ansible's argument specification."""
    return {
        name: {"type": "int", "default": option.default}
        if isinstance(option, Number)
        else {"type": "bool", "default": option}
        for name, option in OPTIONS.items()
    }


def check_limits(params: t.Mapping[str, t.Any]) -> None:
    """Raise InvalidOptions with every number that is out of its limits."""
    problems = []
    for name, option in OPTIONS.items():
        value = params[name]
        if not isinstance(option, Number) or option.low <= value <= option.high or (option.or_zero and not value):
            continue
        also = "0, or " if option.or_zero else ""
        problems.append(f"{name}: {value} is not allowed; give {also}a number from {option.low} to {option.high}")
    if problems:
        raise InvalidOptions(problems)
