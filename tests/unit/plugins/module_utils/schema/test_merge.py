# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How defaults and pools become one, and how Ansible's tagged values become plain ones."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import merge, plain

keys = st.sampled_from("abc")
values = st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
maps = st.recursive(st.dictionaries(keys, values), lambda inner: st.dictionaries(keys, values | inner), max_leaves=8)
# Maps override maps and values override values, as in the schema; otherwise the order of the three decides.
shaped = st.fixed_dictionaries(
    {},
    optional={"a": values | st.none(), "b": st.dictionaries(keys, values), "c": st.fixed_dictionaries({"d": maps})},
)


@pytest.mark.parametrize(
    ("under", "over", "result"),
    [
        ({"sharing": {"mode": "none"}}, {"name": "a"}, {"sharing": {"mode": "none"}, "name": "a"}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}, {"a": {"x": 1, "y": 2}}),
        ({"taints": [1, 2]}, {"taints": [3]}, {"taints": [3]}),
        ({"taints": [1]}, {"taints": []}, {"taints": []}),
        ({"labels": {"x": "1"}}, {"labels": None}, {"labels": {"x": "1"}}),
        ({"a": {"x": 1}}, {"a": "text"}, {"a": "text"}),
        ({}, {}, {}),
    ],
)
def test_merge(under: t.Any, over: t.Any, result: t.Any) -> None:
    before = copy.deepcopy((under, over))
    assert merge(under, over) == result
    assert (under, over) == before


@given(shaped)
def test_merge_is_idempotent_and_has_a_neutral_element(one: dict[str, t.Any]) -> None:
    assert merge(one, one) == one
    assert merge(one, {}) == merge({}, one) == one


@given(st.dictionaries(keys, values), st.dictionaries(keys, values), st.dictionaries(keys, values))
def test_merge_is_associative_on_values(a: t.Any, b: t.Any, c: t.Any) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


@given(*[st.dictionaries(keys, st.dictionaries(keys, values))] * 3)
def test_merge_is_associative_on_maps(a: t.Any, b: t.Any, c: t.Any) -> None:
    assert merge(merge(a, b), c) == merge(a, merge(b, c))


class _Text(str):
    """As ansible-core's tagged strings: equal to a string, but not one."""


class _Number(int):
    pass


def test_plain_leaves_no_subclass() -> None:
    result = plain({_Text("a"): [_Text("b"), (_Number(3), True, 1.5, None)]})
    assert result == {"a": ["b", [3, True, 1.5, None]]}
    assert {type(key) for key in result} == {str}
    assert [type(value) for value in result["a"]] == [str, list]
    assert [type(value) for value in result["a"][1]] == [int, bool, float, type(None)]
