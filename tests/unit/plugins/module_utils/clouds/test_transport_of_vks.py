# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists are read completely, however small the pages are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.clouds.vks_client import VksError, collect, rows_of

Row = dict[str, Any]


def rows(count: int) -> list[Row]:
    return [{"id": f"ng-{at}"} for at in range(count)]


def service(existing: list[Row], most: int, *, counts_requested: bool = False) -> Callable[[int, int], Any]:
    """Pages of at most `most`; where a page begins is counted by what was asked for, or by what comes."""

    def fetch(page: int, size: int) -> Any:
        begin = page * (size if counts_requested else min(size, most))
        items = existing[begin : begin + min(size, most)]
        return {"items": items, "page": page, "pageSize": min(size, most), "total": len(existing)}

    return fetch


@given(st.integers(0, 70), st.integers(1, 60), st.booleans())
def test_all_entries_are_read_once(count: int, most: int, counts_requested: bool) -> None:
    existing = rows(count)
    assert collect(service(existing, most, counts_requested=counts_requested)) == existing


@pytest.mark.parametrize("body", [None, [], {"items": []}, "x"])
def test_a_body_that_is_no_page_is_an_error(body: Any) -> None:
    with pytest.raises(VksError, match="not a page"):
        collect(lambda page, size: body)


def test_a_page_that_never_changes_is_an_error() -> None:
    with pytest.raises(VksError, match="incomplete: 10 of 23"):
        collect(lambda page, size: {"items": rows(10), "total": 23})


def test_an_entry_that_is_deleted_meanwhile_is_no_gap() -> None:
    lists = iter([rows(12), rows(11), rows(11), rows(11)])

    def fetch(page: int, size: int) -> Any:
        existing = next(lists)
        return {
            "items": existing[page * 10 : page * 10 + 10],
            "total": 12 if page == 0 and len(existing) == 12 else len(existing),
        }

    assert collect(fetch) == rows(11)


@pytest.mark.parametrize(
    "body",
    [
        [{"id": 1}],
        {"listData": [{"id": 1}]},
        {"items": [{"id": 1}]},
        {"data": [{"id": 1}]},
        {"flavors": [{"id": 1}], "data": [{"id": 2}]},
    ],
)
def test_lists_of_vserver(body: Any) -> None:
    assert rows_of(body, "flavors") == [{"id": 1}]


def test_a_body_without_a_list_has_no_rows() -> None:
    assert rows_of(None) == rows_of({"listData": None}) == rows_of("x") == []
