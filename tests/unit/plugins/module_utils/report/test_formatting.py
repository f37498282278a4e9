# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.report.formatting import pending_changes


def test_labels_and_taints_to_remove_are_not_listed_as_ones_to_set() -> None:
    changes = {
        "nodes": 2,
        "labels": ["a"],
        "removed_labels": ["b"],
        "taints": ["c:NoSchedule"],
        "removed_taints": ["d:NoSchedule"],
    }
    assert pending_changes({"mode": "none", "changes": changes}) == [
        "labels to set: a",
        "labels to remove: b",
        "taints to set: c:NoSchedule",
        "taints to remove: d:NoSchedule",
    ]
