# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two ways in which lists come: VKS's pages, counted from 0 and cut without a word, and vServer's, all in one; pure."""

from __future__ import annotations

import typing as t

from .errors import VksError

# What the vendor's own client asks for; no limit is documented, and less may come.
ASKED = 50
_TRIES = 2

Row = dict[str, t.Any]
Fetch = t.Callable[[int, int], t.Any]


def collect(fetch: Fetch, size: int = ASKED) -> list[Row]:
    """All entries of a list of VKS: `fetch(page, size)` gives {items, total, page, pageSize}, or a bare list.

    Raises VksError when the service tells of more than it gives twice: what is not seen would be made again.
    """
    for dummy in range(_TRIES):
        rows, total = _walk(fetch, size)
        if len(rows) >= total:
            break
    else:
        raise VksError(f"the list is not whole: {len(rows)} of {total} entries came", status=502, method="GET")
    return rows


def rows_of(body: t.Any, *names: str) -> list[Row]:
    """The entries of an answer of vServer: a bare list, or the first of these fields that holds one."""
    if isinstance(body, list):
        return [row for row in body if isinstance(row, dict)]
    if isinstance(body, dict):
        for name in (*names, "listData", "items", "data"):
            if isinstance(body.get(name), list):
                return [row for row in body[name] if isinstance(row, dict)]
    return []


def _walk(fetch: Fetch, size: int) -> tuple[list[Row], int]:
    rows: list[Row] = []
    known: set[str] = set()
    page = 0
    while True:
        body = fetch(page, size)
        came = rows_of(body)
        total = _total(body)
        fresh = [row for row in came if _key(row) not in known]
        known.update(_key(row) for row in fresh)
        rows += fresh
        if not fresh or isinstance(body, list) or (total is not None and len(rows) >= total):
            return rows, len(rows) if total is None else total
        if page == 0 and len(came) < size:
            # Cut: whether the next page begins after what came or after what was asked for is told by asking for just as many.
            size = len(came)
        page += 1


def _total(body: t.Any) -> int | None:
    told = body.get("total") if isinstance(body, dict) else None
    return told if isinstance(told, int) and not isinstance(told, bool) else None


def _key(row: Row) -> str:
    return str(row.get("id") or row.get("uid") or sorted(row.items(), key=str))
