# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role validation offers every option of every validation program, with the program's default."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.validation.options import OPTIONS as MODULE_OPTIONS
from ansible_collections.accel.gpu.plugins.module_utils.validation_programs.program import Number
from ansible_collections.accel.gpu.plugins.module_utils.validation_programs.programs import PROGRAMS
from tests.helpers.playbook import run_playbook
from tests.helpers.variables import CLUSTER, LAB_POOLS
from tests.programs import REPO, environment

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
    # A number or a boolean of a survey is text, which the filter role_options converts; maps by pool are not converted.
    assert documented[variable]["type"] == "raw"


def test_every_variable_is_an_option_of_the_module() -> None:
    """The role passes all of them."""
    variables = {name for name in role_file("defaults/main.yml") if name.startswith("gpu_validation_")}
    assert {name.removeprefix("gpu_validation_") for name in variables} == MODULE_OPTIONS.keys() - {"wait_sleep"}


def test_only_the_maps_by_pool_are_not_converted() -> None:
    pattern = role_file("vars/main.yml")["__validation_unconverted"]
    variables = [name for name in role_file("defaults/main.yml") if re.match(pattern, name)]
    assert {name.removeprefix("gpu_validation_") for name in variables} == PER_POOL
    assert PER_POOL


@pytest.mark.usual(8)
def test_the_module_gets_every_variable(tmp_path: Path) -> None:
    """It reports each number that is out of range; any number can be a user id."""
    others = ("run_as_user", "wait_sleep")
    numbers = [name for name, each in MODULE_OPTIONS.items() if isinstance(each, Number) and name not in others]
    variables = {f"gpu_validation_{name}": "1000000" for name in numbers}
    host = {
        "gpu_cluster": CLUSTER,
        "gpu_pools": LAB_POOLS,
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
    }
    inventory, playbook = tmp_path / "hosts.yml", tmp_path / "play.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {"lab": {**host, **variables}}}}))
    role = {"hosts": "all", "gather_facts": False, "connection": "local", "roles": ["accel.gpu.validation"]}
    playbook.write_text(yaml.safe_dump([role]))
    run = run_playbook(str(playbook), environ=environment(KUBECONFIG=str(tmp_path / "none")), inventory=inventory)
    assert re.findall(r"option (\w+) of the module\): 10{6} is not allowed", run.failure()) == numbers
