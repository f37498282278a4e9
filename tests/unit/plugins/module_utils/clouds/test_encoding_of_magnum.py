# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bodies of requests for a node group, the way to another size, and the fields that each request changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds import magnum_groups
from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_groups import Size, next_size


def test_the_body_of_a_patch() -> None:
    fields = {"node_labels": {"a": "1"}, "node_taints": {"k:NoSchedule": ""}}
    assert magnum_groups.patch_body(Size(2, 0, 4), Size(2, 1, None), fields) == [
        {"op": "replace", "path": "/max_node_count", "value": None},
        {"op": "replace", "path": "/min_node_count", "value": 1},
        {"op": "replace", "path": "/node_labels", "value": '{"a": "1"}'},
        {"op": "replace", "path": "/node_taints", "value": '[{"key": "k", "effect": "NoSchedule"}]'},
    ]


@given(st.dictionaries(st.text(), st.text()))
def test_a_value_in_a_patch_is_a_python_literal(labels: dict[str, str]) -> None:
    assert ast.literal_eval(magnum_groups.patch_value(labels)) == labels


def path(now: Size, expected: Size) -> Iterator[Size]:
    while now != expected:
        now = next_size(now, expected)
        yield now


def is_legal(size: Size) -> bool:
    """Whether Magnum accepts it."""
    return 0 <= size.low <= size.count and (size.high is None or size.count <= size.high)


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    low = draw(st.integers(0, 9))
    high = draw(st.none() | st.integers(low, 12))
    count = draw(st.integers(low, 15 if high is None else high))
    # A range of no nodes at all is one without a limit for Magnum.
    return Size(count, low, high or None)


@given(sizes(), sizes())
def test_every_step_is_valid_and_the_last_one_is_the_desired_size(now: Size, expected: Size) -> None:
    before = now
    steps = list(path(now, expected))
    for size in steps:
        assert is_legal(size)
        # One request changes the bounds or the count; a resize is to a number inside of the bounds that there are.
        assert (size.count == before.count) != ((size.low, size.high) == (before.low, before.high))
        before = size
    assert before == expected
    assert len(steps) <= 3


@pytest.mark.parametrize(
    ("now", "expected", "steps"),
    [
        (Size(2, 0, None), Size(2, 0, None), []),
        (Size(2, 0, None), Size(5, 0, None), [Size(5, 0, None)]),
        (Size(2, 1, 3), Size(5, 4, 6), [Size(2, 1, 6), Size(5, 1, 6), Size(5, 4, 6)]),
        (Size(5, 4, 6), Size(1, 1, 2), [Size(5, 1, 6), Size(1, 1, 6), Size(1, 1, 2)]),
        (Size(2, 1, 3), Size(2, 2, 4), [Size(2, 2, 4)]),
        (Size(3, 1, 5), Size(4, 4, 4), [Size(4, 1, 5), Size(4, 4, 4)]),
    ],
)
def test_the_order(now: Size, expected: Size, steps: list[Size]) -> None:
    assert list(path(now, expected)) == steps
