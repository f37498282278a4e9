# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the options of the module `license`."""

from __future__ import annotations

import typing as t

from ..common.errors import InvalidOptions
from ..schema.messages import quote
from ..schema.validators import object_name
from .gridd_conf import GriddOptions, profile_class
from .objects import LicenseOptions
from .option_names import RESTORE_OPTION
from .token import utc_now

if t.TYPE_CHECKING:
    from ..common.module import ArgumentSpec
    from .module import LicenseTokenModule

# The options of the modules that rotate nodes.
ROTATION_OPTIONS: ArgumentSpec = {
    "preflight": {"type": "bool", "default": True},
    "restart_drivers": {"type": "bool", "default": False},
    "restart_timeout": {"type": "int", "default": 1200},
    "wait_timeout": {"type": "int", "default": 300},
    "wait_sleep": {"type": "int", "default": 1},
}


def license_options(module: LicenseTokenModule, names: t.Iterable[str]) -> LicenseOptions:
    """The parsed options. Raises InvalidOptions with all problems, before the cluster is read. `names` lists the options that must not contain a token."""
    params = module.params
    module.refuse_tokens_in(names)
    gridd = GriddOptions.from_params(params)
    problems = gridd.problems()
    if params["secret_name"] and object_name(params["secret_name"]):
        problems.append(f"secret_name: {quote(params['secret_name'])} is not the name of a Secret")
    kinds = {name: profile_class(f"-{name}") for name in params["vgpu_types"]}
    problems += [
        f"vgpu_types: {quote(name)} is not a vGPU type; use a name such as A100-10C"
        for name, kind in kinds.items()
        if not kind
    ]
    token = None
    try:
        token, info = module.license_token, module.license_token_info
        if info is not None and (problem := info.problem(utc_now())) is not None:
            problems.append(f"{module.token_source}: the token {problem.reason}. {problem.remedy}.")
    except InvalidOptions as error:
        problems += error.problems
    if params["restore"] and not params["rotate"]:
        problems.append(f"{RESTORE_OPTION}: requires rotate, because running drivers must load the restored files")
    if problems:
        raise InvalidOptions(problems)
    classes = frozenset(kind for kind in kinds.values() if kind)
    return LicenseOptions(None if params["restore"] else token, gridd, params["replace"], classes, params["restore"])
