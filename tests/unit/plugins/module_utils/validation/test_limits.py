# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers out of their limits are reported together."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.validation.limits import check_limits

VALID = {
    "kernel_timeout": 60,
    "burn_seconds": 0,
    "all_reduce_nodes": 0,
    "min_bandwidth": 0,
    "min_network_bandwidth": 0,
    "all_reduce_timeout": 900,
}


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("kernel_timeout", 0, "kernel_timeout: 0 is not allowed; give a number from 1 to 3600"),
        ("burn_seconds", -1, "burn_seconds: -1 is not allowed"),
        ("burn_seconds", 86401, "to 86400"),
        ("all_reduce_nodes", 1, "all_reduce_nodes: 1 is not allowed; give 0, or a number from 2 to 64"),
        ("all_reduce_timeout", 5, "all_reduce_timeout: 5 is not allowed"),
        ("min_bandwidth", -4, "min_bandwidth: -4 is not allowed"),
    ],
)
def test_out_of_limits(option: str, value: int, message: str) -> None:
    with pytest.raises(InvalidOptions, match="not allowed") as refused:
        check_limits({**VALID, option: value})
    assert message in str(refused.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(InvalidOptions) as refused:
        check_limits({**VALID, "kernel_timeout": 0, "burn_seconds": -1})
    assert len(refused.value.problems) == 2


def test_defaults_and_bounds_are_valid() -> None:
    check_limits(VALID)
    check_limits({**VALID, "all_reduce_nodes": 2, "kernel_timeout": 3600})
