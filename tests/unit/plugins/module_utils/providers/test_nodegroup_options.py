# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One group or many."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.providers.nodegroup_options import (
    GROUP_OPTIONS,
    SHARED_OPTIONS,
    NodeGroupOptions,
)

OPTIONS = NodeGroupOptions(GROUP_OPTIONS, SHARED_OPTIONS)
GROUP = dict.fromkeys(GROUP_OPTIONS)


def test_the_options_of_one_group() -> None:
    params = {**GROUP, "name": "train", "node_count": 2, "state": "present", "recreate": False, "nodegroups": None}
    assert OPTIONS.declared_groups(params) == [
        {"name": "train", **GROUP, "node_count": 2, "state": "present", "recreate": False}
    ]


def test_options_beside_the_list_apply_to_groups_without_them() -> None:
    groups = [
        {"name": "a", **GROUP, "state": None, "recreate": None},
        {"name": "b", **GROUP, "state": "present", "recreate": None},
    ]
    params = {**GROUP, "name": None, "state": "absent", "recreate": True, "nodegroups": groups}
    assert [(group["name"], group["state"], group["recreate"]) for group in OPTIONS.declared_groups(params)] == [
        ("a", "absent", True),
        ("b", "present", True),
    ]
