# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values in nested dictionaries are read without errors, and written with missing levels."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.values import get_nested, parse_json, set_nested


@pytest.mark.parametrize(
    ("document", "value"),
    [
        ({"a": {"b": 1}}, 1),
        ({"a": {"b": None}}, None),
        ({"a": {}}, None),
        ({"a": ["b"]}, None),
        ({}, None),
        (None, None),
    ],
)
def test_get(document: Any, value: Any) -> None:
    assert get_nested(document, "a", "b") == value


def test_without_keys_the_document_is_returned() -> None:
    assert get_nested({"a": 1}) == {"a": 1}


def test_set() -> None:
    document: dict[str, Any] = {"a": {"x": 0}}
    set_nested(document, ("a", "b", "c"), 1)
    set_nested(document, ("d",), 2)
    assert document == {"a": {"x": 0, "b": {"c": 1}}, "d": 2}


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("[]", None), (None, None), ("{", None), ("[" * 100_000, None)]
)
def test_parse_json(text: str | None, value: Any) -> None:
    assert parse_json(text, dict) == value
