# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that gives node groups the templates that were built for them."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.filter.with_templates import FilterModule, with_templates

Object = dict[str, t.Any]

GROUPS: list[Object] = [{"name": "vdi-a", "node_count": 2}, {"name": "train", "flavor": "g4dn.xlarge"}]
PATH = "/DC1/vm/accel-gpu/vdi-a-418-3fa0c1"


@pytest.mark.parametrize(
    ("templates", "expected"),
    [
        ({"vdi-a": {"path": PATH, "action": "create"}}, [{**GROUPS[0], "template": PATH}, GROUPS[1]]),
        # Templates without a path, and of groups that are not there.
        ({"vdi-a": {"path": None}}, GROUPS),
        ({"vdi-a": {"path": ""}}, GROUPS),
        ({"vdi-a": {}}, GROUPS),
        ({"vdi": {"path": PATH}, "VDI-A": {"path": PATH}}, GROUPS),
        ({}, GROUPS),
    ],
)
def test_a_node_group_uses_the_template_of_its_name(templates: Object, expected: list[Object]) -> None:
    before = copy.deepcopy(GROUPS)
    actual = with_templates(GROUPS, templates)
    assert actual == expected
    assert before == GROUPS
    assert all(group is not given for group, given in zip(actual, GROUPS, strict=True))


def test_another_template_replaces_the_old_one() -> None:
    (group,) = with_templates([{"name": "vdi", "template": "/DC1/vm/old"}], {"vdi": {"path": PATH}})
    assert group["template"] == PATH
    assert with_templates([], {"vdi": {"path": PATH}}) == []


def test_name_of_the_filter() -> None:
    assert FilterModule().filters() == {"with_templates": with_templates}
