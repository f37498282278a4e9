# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options that cannot be are refused by themselves; others become a wish."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.options import GROUP, groups_of
from ansible_collections.accel.gpu.plugins.module_utils.providers.vks.specs import problems_of


def options(**more: Any) -> dict[str, Any]:
    return {**{name: option.get("default") for name, option in GROUP.items()}, "name": "train", **more}


def taint(**more: Any) -> dict[str, Any]:
    return {"key": "k", "value": "v", "effect": "NoSchedule", "state": "present", **more}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"name": "a-very-long-one"},
        {"num_nodes": 0},
        {"min_size": 0, "max_size": 1, "num_nodes": 0},
        {"labels": {"accel.gpu/pool": "train", "empty": "", "number": 4, "yes": True, "gone": None}},
        {"taints": [taint(), taint(effect="NoExecute"), taint(key="nvidia.com/gpu", value=None)]},
        {"upgrade_strategy": {"max_surge": 100, "max_unavailable": 0}},
        {"disk_size": 20},
    ],
)
def test_what_can_be(given: dict[str, Any]) -> None:
    assert problems_of(options(**given)) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "gpu"}, "name: of 5 to 15 characters"),
        ({"name": "Train"}, "name: of 5 to 15 characters"),
        ({"name": "train-"}, "name: of 5 to 15 characters"),
        ({"name": "sixteen-letters-"}, "name: of 5 to 15 characters"),
        ({"num_nodes": -1}, "num_nodes: -1 nodes cannot be"),
        ({"min_size": 3, "max_size": 2}, "min_size: is 3, and max_size 2"),
        ({"min_size": 3}, "min_size and max_size: the autoscaler has both or none"),
        ({"max_size": 3}, "min_size and max_size: the autoscaler has both or none"),
        ({"min_size": 0, "max_size": 0}, "max_size: is 0"),
        ({"min_size": 1, "max_size": 3, "num_nodes": 4}, "num_nodes: is 4, outside of min_size 1 and max_size 3"),
        ({"disk_size": 10}, "disk_size: is 10, and VKS takes 20 to 5000 GiB"),
        ({"upgrade_strategy": {"max_surge": 0, "max_unavailable": None}}, "upgrade_strategy.max_surge: is 0"),
        ({"upgrade_strategy": {"max_surge": None, "max_unavailable": 101}}, "upgrade_strategy.max_unavailable: is 101"),
        ({"labels": {"no spaces": "x"}}, "labels: no spaces=x is no label"),
        ({"labels": {"a": "x" * 64}}, "is no label that Kubernetes takes"),
        ({"labels": {f"a{at}": "x" for at in range(51)}}, "labels: 51 entries"),
        ({"tags": {"vks-owner": "x"}}, "tags: 'vks-owner' begins as the service's own do"),
        ({"taints": [taint(), taint(value="w")]}, "taints: k:NoSchedule stands there twice"),
        ({"taints": [taint(value="no spaces")]}, "taints: k=no spaces is no taint"),
    ],
)
def test_what_cannot_be(given: dict[str, Any], says: str) -> None:
    problems = problems_of(options(**given))
    assert len(problems) == 1
    assert says in problems[0]
    assert problems[0].startswith(f"Node group {given.get('name', 'train')}: ")


def test_a_group_that_is_to_go_needs_only_its_name() -> None:
    assert problems_of(options(state="absent", num_nodes=-1)) == []


def test_one_group_or_many() -> None:
    one = options(num_nodes=2)
    assert groups_of({**one, "nodegroups": None, "cluster": "c"}) == [one]
    assert groups_of({**options(name=None), "nodegroups": [one, one]}) == [one, one]
