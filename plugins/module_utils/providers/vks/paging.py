# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of VKS, which come in pages, and of vServer, which come as a whole (pure)."""

from __future__ import annotations

import typing as t

from .errors import VksError

# The page size of the vendor's own client; no maximum is documented, and the service may return smaller pages.
PAGE_SIZE = 50
_ATTEMPTS = 2

Row = dict[str, t.Any]
Fetch = t.Callable[[int, int], t.Any]


def collect(fetch: Fetch, size: int = PAGE_SIZE) -> list[Row]:
    """All entries of a list of VKS: `fetch(page, size)` returns {items, total, page, pageSize}; pages begin with 0.

    Raises VksError when a list is incomplete twice: a group that is missing from it would be created a second time.
    """
    for dummy in range(_ATTEMPTS):
        rows, total = _read_pages(fetch, size)
        if len(rows) >= total:
            return rows
    raise VksError(f"the list is incomplete: {len(rows)} of {total} entries were returned", status=502, method="GET")


def rows_of(body: t.Any, *names: str) -> list[Row]:
    """The entries of a response: a bare list, or the first of these fields that holds one."""
    if isinstance(body, list):
        return [row for row in body if isinstance(row, dict)]
    if isinstance(body, dict):
        for name in (*names, "listData", "items", "data"):
            if isinstance(body.get(name), list):
                return [row for row in body[name] if isinstance(row, dict)]
    return []


def _read_pages(fetch: Fetch, size: int) -> tuple[list[Row], int]:
    rows: dict[str, Row] = {}
    page = 0
    while True:
        body = fetch(page, size)
        received = {str(row.get("id")): row for row in rows_of(body)}
        total = body.get("total") if isinstance(body, dict) else None
        if not isinstance(total, int):
            raise VksError("the answer is not a page of a list", status=502, method="GET")
        if not received.keys() - rows.keys():
            return list(rows.values()), total
        rows.update(received)
        if len(rows) >= total:
            return list(rows.values()), total
        if page == 0:
            # A smaller page than requested: further pages are requested in that size, so that none is skipped.
            size = min(size, len(received))
        page += 1
