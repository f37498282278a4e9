# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of a group that are rejected without a look-up."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_groups import FIELDS, option_problems
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import require_valid


def options(**more: Any) -> dict[str, Any]:
    return {**{name: option.get("default") for name, option in FIELDS.argument_spec.items()}, "name": "train", **more}


def problems(given: dict[str, Any]) -> list[str]:
    try:
        require_valid([given], option_problems)
    except InvalidOptions as error:
        return error.problems
    return []


def taint(**more: Any) -> dict[str, Any]:
    return {"key": "k", "value": "v", "effect": "NoSchedule", "state": "present", **more}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "a-very-long-one"},
        {"node_count": 0},
        {"min_node_count": 0, "max_node_count": 1, "node_count": 0},
        {"node_labels": {"accel.gpu/pool": "train", "empty": "", "number": 4, "yes": True, "gone": None}},
        {"node_taints": [taint(), taint(effect="NoExecute"), taint(key="nvidia.com/gpu", value=None)]},
        {"upgrade_strategy": {"max_surge": 100, "max_unavailable": 0}},
        {"disk_size": 20},
    ],
)
def test_valid_options(given: dict[str, Any]) -> None:
    assert problems(options(**given)) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "gpu"}, "is not a VKS node group name; use 5 to 15"),
        ({"name": "Train"}, "is not a VKS node group name; use 5 to 15"),
        ({"name": "train-"}, "is not a VKS node group name; use 5 to 15"),
        ({"name": "sixteen-letters-"}, "is not a VKS node group name; use 5 to 15"),
        ({"node_count": -1}, "node_count is -1; it must not be negative"),
        ({"min_node_count": 3, "max_node_count": 2}, "min_node_count (3) must not exceed max_node_count (2)"),
        ({"min_node_count": 3}, "min_node_count and max_node_count must be set together"),
        ({"max_node_count": 3}, "min_node_count and max_node_count must be set together"),
        ({"min_node_count": 0, "max_node_count": 0}, "max_node_count is 0"),
        (
            {"min_node_count": 1, "max_node_count": 3, "node_count": 4},
            "node_count (4) is not between min_node_count (1) and max_node_count (3)",
        ),
        ({"disk_size": 10}, "disk_size: 10 is not allowed: VKS requires at least 20 GiB"),
        (
            {"upgrade_strategy": {"max_surge": 0, "max_unavailable": None}},
            "upgrade_strategy.max_surge: 0 is not allowed",
        ),
        (
            {"upgrade_strategy": {"max_surge": None, "max_unavailable": 101}},
            "upgrade_strategy.max_unavailable: 101 is not allowed",
        ),
        ({"node_labels": {"no spaces": "x"}}, "node_labels: 'no spaces' is not a label key"),
        ({"node_labels": {"a": "x" * 64}}, "has 64 characters"),
        ({"node_labels": {f"a{at}": "x" for at in range(51)}}, "node_labels sets 51 entries"),
        ({"tags": {"vks-owner": "x"}}, "tags: 'vks-owner' has a prefix of the service's own tags"),
        ({"node_taints": [taint(), taint(value="w")]}, "node_taints[1]: repeats key k and effect NoSchedule"),
        ({"node_taints": [taint(value="no spaces")]}, "node_taints[0].value: 'no spaces' is not a valid taint value"),
    ],
)
def test_invalid_options(given: dict[str, Any], message: str) -> None:
    [problem] = problems(options(**given))
    assert message in problem
    assert problem.startswith(f"Node group {given.get('name', 'train')}: ")


def test_an_absent_group_needs_only_its_name() -> None:
    assert problems(options(state="absent", node_count=-1)) == []


def test_entries_that_are_removed_do_not_count() -> None:
    labels = {**{f"a{at}": "x" for at in range(50)}, "old": None}
    absent = taint(key="old", state="absent")
    taints = [*(taint(key=f"k{at}") for at in range(50)), absent]
    assert problems(options(node_labels=labels, node_taints=taints)) == []
