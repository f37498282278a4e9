# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The excerpt of a log in a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.schema.validation_programs import excerpt


@pytest.mark.parametrize(
    ("log", "limit", "text"),
    [
        ("", 10, "(empty)"),
        ("\n  \n", 10, "(empty)"),
        ("one\n\n  two  \n", 10, "one | two"),
        ("one\ntwo\nthree", 11, "two | three"),
        ("one\ntwo\nthree", 10, "three"),
        ("GPU 0: NVIDIA H200\nfailed", 20, "failed"),
        ("one\nabcdefgh", 5, "defgh"),
    ],
)
def test_excerpt(log: str, limit: int, text: str) -> None:
    assert excerpt(log, limit) == text


@given(st.lists(st.text("ab ", max_size=20), max_size=20), st.integers(20, 60))
def test_an_excerpt_consists_of_whole_lines(lines: list[str], limit: int) -> None:
    text = excerpt("\n".join(lines), limit)
    whole = [line.strip() for line in lines if line.strip()]
    shown = text.split(" | ")
    assert len(text) <= limit
    assert shown == (whole[-len(shown) :] or ["(empty)"])
