# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.facts import pending_changes


def test_labels_and_taints_to_remove_are_not_listed_as_ones_to_set() -> None:
    changes = {
        "nodes": 2,
        "labels": ["a"],
        "removed_labels": ["b"],
        "annotations": ["e"],
        "removed_annotations": ["f"],
        "taints": ["c:NoSchedule"],
        "removed_taints": ["d:NoSchedule"],
    }
    assert pending_changes({"mode": "none", "changes": changes}) == [
        "labels to set: a",
        "labels to remove: b",
        "annotations to set: e",
        "annotations to remove: f",
        "taints to set: c:NoSchedule",
        "taints to remove: d:NoSchedule",
    ]


@pytest.mark.parametrize(
    ("before", "text"),
    [
        ("none", "4 nodes to switch from whole GPUs to MIG"),
        ("mig", "4 nodes to switch to a different configuration of MIG"),
    ],
)
def test_a_new_layout_is_a_change_of_the_configuration(before: str, text: str) -> None:
    pool = {"mode": "mig", "changes": {"nodes": 4, "joining": 0, "switched_from": {before: 4}}}
    assert pending_changes(pool) == [text]
