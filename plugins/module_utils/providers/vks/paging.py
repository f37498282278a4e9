# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of VKS, which have pages counted from 0 that may be cut silently, and of vServer, which come whole (pure)."""

from __future__ import annotations

import typing as t

from .errors import VksError

# The size that the vendor's own client requests; no limit is documented, and a page may have fewer entries.
PAGE_SIZE = 50
_ATTEMPTS = 2

Row = dict[str, t.Any]
Fetch = t.Callable[[int, int], t.Any]


def collect(fetch: Fetch, size: int = PAGE_SIZE) -> list[Row]:
    """All entries of a list of VKS: `fetch(page, size)` returns {items, total, page, pageSize}, or a bare list.

    Raises VksError when the service twice returns fewer than its total: entries that are missing would be created again.
    """
    for dummy in range(_ATTEMPTS):
        rows, total = _read_all(fetch, size)
        if len(rows) >= total:
            return rows
    raise VksError(f"the list is incomplete: {len(rows)} of {total} entries were returned", status=502, method="GET")


def rows_of(body: t.Any, *names: str) -> list[Row]:
    """The entries of an answer of vServer: a bare list, or the first of these fields that holds one."""
    fields = (*names, "listData", "items", "data") if isinstance(body, dict) else ()
    rows = next((body[name] for name in fields if isinstance(body.get(name), list)), body)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _read_all(fetch: Fetch, size: int) -> tuple[list[Row], int]:
    rows: dict[str, Row] = {}
    page = 0
    while True:
        body = fetch(page, size)
        received = rows_of(body)
        total = body.get("total") if isinstance(body, dict) else None
        total = total if isinstance(total, int) and not isinstance(total, bool) else None
        before = len(rows)
        for row in received:
            rows.setdefault(str(row.get("id") or row.get("uid") or sorted(row.items(), key=str)), row)
        if len(rows) == before or isinstance(body, list) or (total is not None and len(rows) >= total):
            return list(rows.values()), len(rows) if total is None else total
        if page == 0 and len(received) < size:
            # The page was cut. With the size that was returned the next page begins after these entries in either way of counting.
            size = len(received)
        page += 1
