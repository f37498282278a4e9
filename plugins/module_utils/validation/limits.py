# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The limits of the numbers in the module's options (pure)."""

from __future__ import annotations

import typing as t

from ..common.errors import InvalidOptions

# The lowest and the highest value, and further allowed ones.
_LIMITS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "kernel_timeout": (1, 3600, ()),
    "burn_seconds": (0, 86400, ()),
    "all_reduce_nodes": (2, 64, (0,)),
    "min_bandwidth": (0, 100_000, ()),
    "min_network_bandwidth": (0, 100_000, ()),
    "all_reduce_timeout": (30, 7200, ()),
}


def check_limits(params: t.Mapping[str, t.Any]) -> None:
    """Raise InvalidOptions with every number that is out of its limits."""
    problems = []
    for option, (low, high, allowed) in _LIMITS.items():
        value = params[option]
        if value not in allowed and not low <= value <= high:
            also = "".join(f"{number}, or " for number in allowed)
            problems.append(f"{option}: {value} is not allowed; give {also}a number from {low} to {high}")
    if problems:
        raise InvalidOptions(problems)
