# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specifies and checks all options of gpu_validation, except those of the connection, the variables and the Lease (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ..common.errors import InvalidOptions
from ..schema import coercion, validators
from ..schema.messages import field_path, is_whole, nearest, option_of_role, quote
from ..validation_programs.program import Number
from ..validation_programs.programs import PROGRAMS

# A user ID without permissions in most images.
UNPRIVILEGED_UID = 65534
# The largest user ID that Kubernetes accepts (validation of securityContext.runAsUser).
_MAX_UID = 2**31 - 1

# A boolean is the default of a switch, and a tuple is the default of a list of names. For the options of a program, see validation_programs.
OPTIONS: t.Mapping[str, Number | bool | tuple[str, ...]] = {
    "force": False,
    "image_pull_secrets": (),
    "run_as_user": Number(UNPRIVILEGED_UID, 0, _MAX_UID),
    "max_pods": Number(8, 1, 1000),
    "hold_seconds": Number(10, 1, 3600),
    "wait_timeout": Number(300, 1, 86400),
    "wait_sleep": Number(1, 1, 60),
    **{name: option for program in PROGRAMS for name, option in program.options.items()},
}


def option_spec() -> dict[str, dict[str, t.Any]]:
    """These options in the form of Ansible's argument specification."""
    return {name: _spec_of(option) for name, option in OPTIONS.items()}


def read_options(params: t.Mapping[str, t.Any], pools: t.Collection[str]) -> dict[str, t.Any]:
    """The values of all options; raises InvalidOptions with all invalid values. `pools`: the names of the pools."""
    values: dict[str, t.Any] = {}
    problems: list[str] = []
    for name, option in OPTIONS.items():
        values[name] = params[name]
        if isinstance(option, Number):
            values[name] = _numbers(params[name], option) if option.per_pool else params[name]
            problems += _problems(name, values[name], option, pools)
        elif isinstance(option, tuple):
            problems += (
                f"{_variable(name)}: {quote(item)} {problem}"
                for item in params[name]
                if (problem := validators.object_name(item))
            )
    if problems:
        raise InvalidOptions(problems)
    return values


def options_of_pool(options: t.Mapping[str, t.Any], pool: str) -> dict[str, t.Any]:
    """The options, with the pool's number in place of each map by pool."""
    return {
        name: value.get(pool, _default(name)) if isinstance(value, t.Mapping) else value
        for name, value in options.items()
    }


def _spec_of(option: Number | bool | tuple[str, ...]) -> dict[str, t.Any]:
    if isinstance(option, Number):
        return {"type": "raw" if option.per_pool else "int", "default": option.default}
    if isinstance(option, bool):
        return {"type": "bool", "default": option}
    # Without no_log: False, Ansible may mistake the option for a password because of its name.
    return {"type": "list", "elements": "str", "default": list(option), "no_log": False}


def _default(name: str) -> int:
    option = OPTIONS[name]
    return option.default if isinstance(option, Number) else 0


def _variable(option: str) -> str:
    return option_of_role(f"gpu_validation_{option}", option)


def _numbers(value: t.Any, option: Number) -> t.Any:
    """A number or a map of numbers by pool, which templates and surveys pass as text; other values are returned unchanged."""
    if value is None or coercion.is_blank(value):
        return option.default
    if isinstance(value, str):
        parsed = coercion.from_json(value)
        value = value if parsed is None else parsed
    if isinstance(value, t.Mapping):
        return {pool: _number(number) for pool, number in value.items()}
    return _number(value)


def _number(value: t.Any) -> t.Any:
    number = coercion.integer(value) if isinstance(value, str) else None
    return value if number is None else number


def _problems(name: str, value: t.Any, option: Number, pools: t.Collection[str]) -> t.Iterator[str]:
    if not isinstance(value, t.Mapping) or not option.per_pool:
        yield from _number_problems(_variable(name), value, option)
        return
    for pool, number in value.items():
        path = field_path(f"gpu_validation_{name}", pool)
        if pool not in pools:
            near = nearest(str(pool), pools)
            yield f"{path}: no pool has this name{f'; did you mean {near}?' if near else ''}"
        yield from _number_problems(path, number, replace(option, per_pool=False))


def _number_problems(subject: str, value: t.Any, option: Number) -> t.Iterator[str]:
    if not is_whole(value) or not (option.low <= value <= option.high or (option.or_zero and not value)):
        also = "0, or " if option.or_zero else ""
        by_pool = ", or a map of such numbers by pool" if option.per_pool else ""
        yield f"{subject}: {quote(value)} is not allowed; use {also}a number from {option.low} to {option.high}{by_pool}"
