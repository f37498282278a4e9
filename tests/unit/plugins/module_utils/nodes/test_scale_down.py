# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a node group loses first."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import candidates_for_scale_down
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import REMOVAL_REASON
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions
from tests.helpers.fleet import node

GPU = ("requests nvidia.com/gpu",)


def user(name: str = "p", *ways: str, **more: t.Any) -> PodOnNode:
    return PodOnNode("team", name, name, {}, ways, **more)


def made(name: str, created: str = "2026-01-01T00:00:00Z", *, leaving: bool = False) -> Node:
    return replace(node(name), created=created, annotations={"accel.gpu/cordoned": REMOVAL_REASON} if leaving else {})


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        ([], [user("train", *GPU)]),
        ([user("web")], [user("train", *GPU)]),
        # Many that use no GPU count less than one that does, and DaemonSets nothing.
        ([user(str(n)) for n in range(5)], [user("train", *GPU)]),
        ([user("smi", *GPU, keep_reason="DaemonSet smi")], [user("web")]),
        ([user("low", *GPU, priority=1), user("low2", *GPU, priority=1)], [user("high", *GPU, priority=2)]),
        ([user("one", *GPU)], [user("one", *GPU), user("two", *GPU)]),
        ([user("one", *GPU)], [user("one", *GPU), user("web")]),
        # A pod that must not be evicted keeps its node while other nodes can be removed.
        ([user("a", *GPU, priority=9), user("b", *GPU)], [user("experiment", unmanaged=True)]),
    ],
)
def test_which_of_two_nodes_goes(cheap: list[PodOnNode], dear: list[PodOnNode]) -> None:
    for names in (("a", "b"), ("b", "a")):
        first, second = names
        actual = candidates_for_scale_down([made("a"), made("b")], {first: cheap, second: dear}, 1, DrainOptions())
        assert [item.name for item in actual] == [first]


def test_among_equals_the_youngest_goes_and_what_was_begun_comes_before_all() -> None:
    nodes = [made("old", "2025-01-01T00:00:00Z"), made("new", "2026-06-01T00:00:00Z"), made("begun", leaving=True)]
    present = {"begun": [user("train", *GPU)]}
    assert [item.name for item in candidates_for_scale_down(nodes, present, 2, DrainOptions())] == ["begun", "new"]
    blocked = {"begun": [user("experiment", unmanaged=True)]}
    assert [item.name for item in candidates_for_scale_down(nodes, blocked, 3, DrainOptions())] == [
        "new",
        "old",
        "begun",
    ]
    assert [item.name for item in candidates_for_scale_down(nodes, blocked, 3, DrainOptions(force=True))] == [
        "begun",
        "new",
        "old",
    ]
    # A run that only waits until the pods end is not blocked, but prefers the same nodes.
    waiting = candidates_for_scale_down(nodes, blocked, 3, DrainOptions(evict=False))
    assert [item.name for item in waiting] == ["new", "old", "begun"]


@given(st.lists(st.booleans(), min_size=1, max_size=6), st.integers(-1, 7))
def test_never_one_with_a_pod_that_may_not_go_while_others_may(blocked: list[bool], count: int) -> None:
    nodes = [made(str(number)) for number in range(len(blocked))]
    present = {str(number): [user("p", unmanaged=is_blocked)] for number, is_blocked in enumerate(blocked)}
    actual = candidates_for_scale_down(nodes, present, count, DrainOptions())
    assert len(actual) == max(0, min(count, len(nodes)))
    taken = [blocked[int(item.name)] for item in actual]
    assert taken == sorted(taken)
