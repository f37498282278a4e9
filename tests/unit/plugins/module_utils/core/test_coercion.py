# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that clearly means a number, a boolean or a list is taken as such, and any other text is not."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.types import (
    is_blank,
    to_boolean,
    to_elements,
    to_integer,
    to_names,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4", 4),
        (" 4\n", 4),
        ("0", 0),
        ("-3", -3),
        ("+3", 3),
        ("9" * 18, int("9" * 18)),
        ("9" * 19, None),
        ("9" * 5000, None),
        ("04", None),
        ("4.0", None),
        ("4e3", None),
        ("4 nodes", None),
        ("0x10", None),
        ("1_000", None),
        ("٤", None),
        ("²", None),
        ("", None),
        ("four", None),
    ],
)
def test_integer(text: str, number: int | None) -> None:
    assert to_integer(text) == number


@pytest.mark.parametrize("text", ["true", "True", "YES", "yes", "on", "1", "y", "t", " true\n"])
def test_true(text: str) -> None:
    assert to_boolean(text) is True


@pytest.mark.parametrize("text", ["false", "False", "NO", "no", "off", "0", "n", "f"])
def test_false(text: str) -> None:
    assert to_boolean(text) is False


@pytest.mark.parametrize("text", ["", "maybe", "2", "truee", "none"])
def test_no_boolean(text: str) -> None:
    assert to_boolean(text) is None


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("train", ["train"]),
        ("train,notebooks", ["train", "notebooks"]),
        (" train , notebooks ,", ["train", "notebooks"]),
        ("train\nnotebooks\n", ["train", "notebooks"]),
        ("train\r\nnotebooks", ["train", "notebooks"]),
        ("[train, notebooks]", ["train", "notebooks"]),
        ('["train", "notebooks"]', ["train", "notebooks"]),
        ("['train']", ["train"]),
        ("- train\n- notebooks", ["train", "notebooks"]),
        ("'train', \"notebooks\"", ["train", "notebooks"]),
        ("[]", []),
        ("", []),
        (" \n ", []),
        (",", []),
        ("zone in (a, b),team=x", ["zone in (a, b)", "team=x"]),
        ('[{"key": "a"}]', [{"key": "a"}]),
        ("a b", ["a b"]),
    ],
)
def test_elements(text: str, actual: list[t.Any]) -> None:
    assert to_elements(text) == actual


@pytest.mark.parametrize(
    ("value", "actual"),
    [
        (None, []),
        ("", []),
        ([], []),
        ([""], []),
        (["train", " notebooks"], ["train", "notebooks"]),
        (["train\nnotebooks"], ["train", "notebooks"]),
        (['["train"', ' "notebooks"]'], ["train", "notebooks"]),
        (["[train"], ["[train"]),
        (["zone in (a", " b)", "team=x"], ["zone in (a, b)", "team=x"]),
        ("train,train", ["train"]),
        (7, ["7"]),
    ],
)
def test_names(value: t.Any, actual: list[str]) -> None:
    assert to_names(value) == actual


@pytest.mark.parametrize("value", [{"train": 1}, True, 1.5, [["train"]], [{"a": 1}], "[null]", '[{"a": 1}]', "[true]"])
def test_no_names(value: t.Any) -> None:
    with pytest.raises(ValueError, match="not a list of names"):
        to_names(value)


@given(st.text(max_size=200))
def test_any_text_has_elements_without_a_blank_one(text: str) -> None:
    assert not [item for item in to_elements(text) if is_blank(item) and not text.strip().startswith("[")]
