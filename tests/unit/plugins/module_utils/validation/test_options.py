# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers out of their limits are reported together."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.validation.options import OPTIONS, check_limits
from ansible_collections.accel.gpu.plugins.module_utils.validation_programs.program import Number
from tests.helpers.validation import DEFAULTS
from tests.programs import REPO


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kernel_timeout", 0, "kernel_timeout: 0 is not allowed; give a number from 1 to 3600"),
        ("load_seconds", -1, "load_seconds: -1 is not allowed"),
        ("load_seconds", 86401, "to 86400"),
        ("all_reduce_nodes", 1, "all_reduce_nodes: 1 is not allowed; give 0, or a number from 2 to 64"),
        ("all_reduce_timeout", 5, "all_reduce_timeout: 5 is not allowed"),
        ("min_bandwidth", -4, "min_bandwidth: -4 is not allowed"),
        ("max_pods", 0, "max_pods: 0 is not allowed; give a number from 1 to 1000"),
        ("max_pods", -1, "max_pods: -1 is not allowed"),
        ("hold_seconds", 0, "hold_seconds: 0 is not allowed; give a number from 1 to 3600"),
        ("wait_timeout", 0, "wait_timeout: 0 is not allowed; give a number from 1 to 86400"),
        ("wait_sleep", 61, "wait_sleep: 61 is not allowed; give a number from 1 to 60"),
    ],
)
def test_out_of_limits(option: str, value: int, message: str) -> None:
    with pytest.raises(InvalidOptions, match="not allowed") as refused:
        check_limits({**DEFAULTS, option: value})
    assert message in str(refused.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidOptions) as refused:
        check_limits({**DEFAULTS, "kernel_timeout": 0, "load_seconds": -1})
    assert len(refused.value.problems) == 2


def test_defaults_and_bounds_are_valid() -> None:
    check_limits(DEFAULTS)
    numbers = {name: option for name, option in OPTIONS.items() if isinstance(option, Number)}
    check_limits({**DEFAULTS, **{name: option.low for name, option in numbers.items()}})
    check_limits({**DEFAULTS, **{name: option.high for name, option in numbers.items()}})


def test_the_role_has_each_option_with_the_same_default() -> None:
    role = REPO / "roles" / "validation"
    defaults = yaml.safe_load((role / "defaults" / "main.yml").read_text())
    tasks = yaml.safe_load((role / "tasks" / "main.yml").read_text())
    [passed] = [task["accel.gpu.gpu_validation"] for task in tasks if "accel.gpu.gpu_validation" in task]
    options = DEFAULTS.keys() - {"wait_sleep"}
    assert {name: defaults[f"gpu_validation_{name}"] for name in options} == {name: DEFAULTS[name] for name in options}
    assert all(f"gpu_validation_{name}" in passed[name] for name in options)
