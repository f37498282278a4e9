# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which agents a change of the ClusterPolicy starts anew."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.fleet import agents
from ansible_collections.accel.gpu.plugins.module_utils.operator.forecast import Forecast, rolled
from ansible_collections.accel.gpu.plugins.module_utils.operator.policy import PolicyChange

READERS = {agents.PLUGIN, agents.DISCOVERY, agents.MPS_DAEMON}


@pytest.mark.parametrize(
    ("before", "after", "apps"),
    [
        ({}, {}, set()),
        ({"devicePlugin": {"config": {"name": "a"}}}, {"devicePlugin": {"config": {"name": "b"}}}, READERS),
        ({}, {"migManager": {"config": {"name": "b"}}}, {agents.MIG_MANAGER}),
        ({"mig": {"strategy": "single"}}, {}, READERS),
        ({"mig": {"strategy": "single"}}, {"migManager": {}}, {*READERS, agents.MIG_MANAGER}),
        ({}, {"daemonsets": {"tolerations": []}}, set(agents.OPERANDS)),
        ({"devicePlugin": {"config": {"name": "a"}}}, {"devicePlugin": {"config": {"name": "a"}}}, set()),
    ],
)
def test_a_part_of_the_policy_reaches_those_who_read_it(
    before: dict[str, Any], after: dict[str, Any], apps: set[str]
) -> None:
    assert rolled(PolicyChange({}, {"spec": before}, {"spec": after})) == apps


def test_only_drivers_that_there_are_can_be_held_back() -> None:
    counts = {"drivers": 0, "pods": 0}
    assert Forecast(held=True).told(counts) == {**counts, "held_back": False, "release": None}
    assert Forecast(held=True, release=("v1", "v2")).told({"drivers": 2}) == {
        "drivers": 2,
        "held_back": True,
        "release": {"installed": "v1", "wanted": "v2"},
    }
