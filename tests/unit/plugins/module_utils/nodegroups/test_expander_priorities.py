# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of the Priority expander: lines of others survive, and a second merge changes nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.autoscaling_objects import (
    expression_of,
    merge_priorities,
    parse,
)

NAMESPACE = "openshift-machine-api"
OWN = st.dictionaries(
    st.sampled_from([expression_of(NAMESPACE, name) for name in ("a", "b", "c.d")]), st.integers(0, 3)
)
THEIRS = st.dictionaries(
    st.integers(0, 3), st.lists(st.sampled_from([".*", "x: y", "it's", "^a$", "b#c"]), min_size=1, unique=True)
)
TEXT = "# of the platform team\n10:\n  - .*worker.*   # all workers\n20:\n- 'gpu'\n"


def test_an_expression_matches_exactly_one_machine_set() -> None:
    expression = expression_of(NAMESPACE, "notebooks.v1-us-east-2a")
    assert expression == r"^MachineSet/openshift-machine-api/notebooks\.v1-us-east-2a$"
    assert re.search(expression, "MachineSet/openshift-machine-api/notebooks.v1-us-east-2a")
    assert not re.search(expression, "MachineSet/openshift-machine-api/notebooks-v1-us-east-2a")


@given(THEIRS, OWN, OWN)
def test_the_expressions_of_others_survive(
    theirs: dict[int, list[str]], first: dict[str, int], second: dict[str, int]
) -> None:
    text = "".join(f"{key}: {values!r}\n" for key, values in theirs.items())
    theirs = parse(text) or {}
    merged = merge_priorities(text, {}, first)
    assert not merged.problem
    changed = merge_priorities(merged.text, merged.record, second)
    content = parse(changed.text) or {}
    assert {(content_key, item) for content_key, items in content.items() for item in items} == {
        *((key, item) for key, items in theirs.items() for item in items),
        *((priority, expression) for expression, priority in second.items()),
    }
    again = merge_priorities(changed.text, changed.record, second)
    assert again == changed
    assert parse(merge_priorities(changed.text, changed.record, {}).text) == theirs


def test_lines_and_comments_stay_as_they_are() -> None:
    added = merge_priorities(TEXT, {}, {"^a$": 20, "^b$": 5})
    assert added.text == TEXT + "- '^a$'\n5:\n  - '^b$'\n"
    assert merge_priorities(added.text, added.record, {"^b$": 20}).text == TEXT + "- '^b$'\n"
    assert merge_priorities(added.text, added.record, {}).text == TEXT


def test_an_equal_expression_of_others_is_used_and_never_removed() -> None:
    merged = merge_priorities("5:\n- ^a$\n", {}, {"^a$": 5})
    assert (merged.text, merged.record) == ("5:\n- ^a$\n", {})


def test_a_removed_line_is_written_again() -> None:
    merged = merge_priorities("", {}, {"^a$": 5})
    assert merge_priorities("7:\n- x\n", merged.record, {"^a$": 5}).text == "7:\n- x\n5:\n  - '^a$'\n"


def test_the_expression_of_a_pool_that_is_no_longer_declared_is_kept() -> None:
    merged = merge_priorities("", {}, {"^a$": 5, "^b$": 5})
    assert merge_priorities(merged.text, merged.record, {}, ("^a$",)).record == {"^a$": 5}


@pytest.mark.parametrize("text", ["- a", "a: [x]", "1: x", "1: [2]", "{", "true: [a]"])
def test_a_text_that_the_autoscaler_cannot_read_is_a_problem(text: str) -> None:
    assert "so the autoscaler ignores it" in merge_priorities(text, {}, {"^a$": 1}).problem


def test_a_text_of_comments_is_empty() -> None:
    assert parse("# nothing\n\n") == {}
