# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding a sharing mode by its name, and by what a node shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import (
    MODES,
    current_mode,
    find_mode,
    mode_named,
)


@pytest.mark.parametrize(
    ("plugin_key", "partitioned", "name"),
    [
        ("", False, "none"),
        ("timeSlicing", False, "time-slicing"),
        ("mps", False, "mps"),
        ("", True, "mig"),
        ("timeSlicing", True, "mig"),
        ("mps", True, None),
    ],
)
def test_mode_by_the_configuration_of_a_node(plugin_key: str, partitioned: bool, name: str | None) -> None:
    actual = find_mode(plugin_key, partitioned=partitioned)
    assert (actual.name if actual else None) == name


@pytest.mark.parametrize(
    ("name", "known"), [*((name, True) for name in MODES), ("MIG", False), (None, False), ([], False)]
)
def test_mode_by_name(name: Any, known: bool) -> None:
    actual = mode_named(name)
    assert (actual is not None and actual.name == name) is known


def test_mode_of_a_node_as_tables_show_it() -> None:
    assert current_mode("mps", 4, partitioned=False) == "mps x4"
    assert current_mode("none", 1, partitioned=False) == "none"
    assert current_mode("time-slicing", 4, partitioned=True) == "mig"
