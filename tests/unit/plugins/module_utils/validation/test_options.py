# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers out of their limits are reported together."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import Number
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import OPTIONS, options_of_pool, read_options
from tests.helpers.validation import DEFAULTS
from tests.programs import REPO

POOLS = ["dev", "train"]


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "kernel_timeout",
            0,
            "gpu_validation_kernel_timeout (option kernel_timeout of the module): 0 is not allowed; use a number from 1 to 3600",
        ),
        ("load_seconds", -1, "gpu_validation_load_seconds (option load_seconds of the module): -1 is not allowed"),
        ("load_seconds", 86401, "to 86400"),
        (
            "all_reduce_nodes",
            1,
            "gpu_validation_all_reduce_nodes (option all_reduce_nodes of the module): 1 is not allowed; use 0, or a number from 2 to 64",
        ),
        (
            "all_reduce_timeout",
            5,
            "gpu_validation_all_reduce_timeout (option all_reduce_timeout of the module): 5 is not allowed",
        ),
        (
            "min_bandwidth",
            -4,
            "gpu_validation_min_bandwidth (option min_bandwidth of the module): -4 is not allowed; use a number from 0 to 100000, or a map of "
            "such numbers by pool",
        ),
        (
            "min_bandwidth",
            True,
            "gpu_validation_min_bandwidth (option min_bandwidth of the module): true is not allowed",
        ),
        (
            "min_bandwidth",
            "fast",
            'gpu_validation_min_bandwidth (option min_bandwidth of the module): "fast" is not allowed',
        ),
        (
            "min_bandwidth",
            [200],
            "gpu_validation_min_bandwidth (option min_bandwidth of the module): a list is not allowed",
        ),
        (
            "min_bandwidth",
            {"train": -4},
            "gpu_validation_min_bandwidth.train: -4 is not allowed; use a number from 0 to 100000",
        ),
        ("min_network_bandwidth", {"train": {}}, "gpu_validation_min_network_bandwidth.train: a map is not allowed"),
        (
            "max_pods",
            0,
            "gpu_validation_max_pods (option max_pods of the module): 0 is not allowed; use a number from 1 to 1000",
        ),
        ("max_pods", -1, "gpu_validation_max_pods (option max_pods of the module): -1 is not allowed"),
        (
            "hold_seconds",
            0,
            "gpu_validation_hold_seconds (option hold_seconds of the module): 0 is not allowed; use a number from 1 to 3600",
        ),
        (
            "wait_timeout",
            0,
            "gpu_validation_wait_timeout (option wait_timeout of the module): 0 is not allowed; use a number from 1 to 86400",
        ),
        (
            "run_as_user",
            -1,
            "gpu_validation_run_as_user (option run_as_user of the module): -1 is not allowed; use a number from 0 to 2147483647",
        ),
        (
            "wait_sleep",
            61,
            "gpu_validation_wait_sleep (option wait_sleep of the module): 61 is not allowed; use a number from 1 to 60",
        ),
    ],
)
def test_out_of_limits(option: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidOptions, match="not allowed") as refused:
        read_options({**DEFAULTS, option: value}, POOLS)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("value", "read", "of_train", "of_dev"),
    [
        (200, 200, 200, 200),
        ("200", 200, 200, 200),
        ("", 0, 0, 0),
        (None, 0, 0, 0),
        ({"train": 200}, {"train": 200}, 200, 0),
        ({"train": "200", "dev": 5}, {"train": 200, "dev": 5}, 200, 5),
        ('{"train": 200}', {"train": 200}, 200, 0),
        ({}, {}, 0, 0),
    ],
)
def test_a_bandwidth_is_a_number_or_a_map_by_pool(value: Any, read: Any, of_train: int, of_dev: int) -> None:
    options = read_options({**DEFAULTS, "min_bandwidth": value}, POOLS)
    assert options == {**DEFAULTS, "min_bandwidth": read}
    for pool, number in (("train", of_train), ("dev", of_dev)):
        assert options_of_pool(options, pool) == {**DEFAULTS, "min_bandwidth": number}


def test_a_map_names_declared_pools() -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_options({**DEFAULTS, "min_bandwidth": {"trian": 1, 5: 2}}, POOLS)
    assert refused.value.problems == [
        "gpu_validation_min_bandwidth.trian: no pool has this name; did you mean train?",
        "gpu_validation_min_bandwidth[5]: no pool has this name",
    ]


def test_names_of_pull_secrets() -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_options({**DEFAULTS, "image_pull_secrets": ["registry", "Not A Name"]}, POOLS)
    [problem] = refused.value.problems
    assert problem.startswith(
        'gpu_validation_image_pull_secrets (option image_pull_secrets of the module): "Not A Name" is not an object\'s name'
    )


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidOptions) as refused:
        read_options({**DEFAULTS, "kernel_timeout": 0, "load_seconds": -1}, POOLS)
    assert len(refused.value.problems) == 2


def test_defaults_and_bounds_are_valid() -> None:
    assert read_options(DEFAULTS, POOLS) == DEFAULTS
    numbers = {name: option for name, option in OPTIONS.items() if isinstance(option, Number)}
    read_options({**DEFAULTS, **{name: option.low for name, option in numbers.items()}}, POOLS)
    read_options({**DEFAULTS, **{name: option.high for name, option in numbers.items()}}, POOLS)


def test_the_role_has_each_option_with_the_same_default() -> None:
    role = REPO / "roles" / "validation"
    documented = yaml.safe_load((role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    options = DEFAULTS.keys() - {"wait_sleep"}
    assert {name: documented[f"gpu_validation_{name}"]["default"] for name in options} == {
        name: DEFAULTS[name] for name in options
    }
