# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and taints of a spec."""

from __future__ import annotations

from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    NodeGroupState,
    label_map,
    taint_list,
    taint_map,
)

TAINTS: list[dict[str, Any]] = [
    {"key": "a.b/c", "value": "x", "effect": "NoSchedule"},
    {"key": "k", "effect": "NoExecute"},
    {"key": "old", "effect": "NoSchedule", "state": "absent"},
]


def test_taints_as_a_map_and_as_a_list() -> None:
    mapped = taint_map(TAINTS)
    assert mapped == {"a.b/c:NoSchedule": "x", "k:NoExecute": "", "old:NoSchedule": None}
    assert taint_list(mapped) == TAINTS[:2]


def test_values_of_labels_are_text() -> None:
    assert label_map({"a": 1, "b": True, "c": "x", "gone": None}) == {"a": "1", "b": "true", "c": "x", "gone": None}


def test_a_result_has_the_form_of_the_options() -> None:
    state = NodeGroupState("id", "g", "ACTIVE", True, False, 2, fields={"node_taints": taint_map(TAINTS[:2])})
    assert state.to_result() == {
        "name": "g",
        "node_count": 2,
        "min_node_count": 0,
        "max_node_count": None,
        "node_taints": TAINTS[:2],
    }
