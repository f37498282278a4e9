# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role validation offers every option of every validation program, with the program's default."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import PROGRAMS, Number
from tests.programs import REPO

ROLE = REPO / "roles" / "validation"
OPTIONS = {name: option for program in PROGRAMS for name, option in program.options.items()}
PER_POOL = {name for name, option in OPTIONS.items() if isinstance(option, Number) and option.per_pool}


def role_file(path: str) -> Any:
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_of_a_program_is_a_variable_of_the_role(name: str) -> None:
    option = OPTIONS[name]
    default = option.default if isinstance(option, Number) else option
    variable = f"gpu_validation_{name}"
    documented = role_file("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert role_file("defaults/main.yml")[variable] == default
    assert documented[variable]["default"] == default
    # A number or a boolean of a survey is text, which the lookup role_options converts; maps by pool are not converted.
    assert documented[variable]["type"] == "raw"
    tasks = [task for entry in role_file("tasks/main.yml") for task in entry.get("block", [entry])]
    (task,) = [task for task in tasks if "accel.gpu.gpu_validation" in task]
    passed = variable if name in PER_POOL else f"__validation_options.{variable}"
    assert task["accel.gpu.gpu_validation"][name] == f"{{{{ {passed} }}}}"


def test_only_the_maps_by_pool_are_not_converted() -> None:
    pattern = role_file("vars/main.yml")["__validation_unconverted"]
    variables = [name for name in role_file("defaults/main.yml") if re.match(pattern, name)]
    assert {name.removeprefix("gpu_validation_") for name in variables} == PER_POOL
    assert PER_POOL
