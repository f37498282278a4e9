# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pages of lists, as VKS cuts them: from 0, 10 at a time unless asked otherwise, without a word when more is left (MCP)."""

from __future__ import annotations

from typing import Any

from .rules import Rules
from .world import Row

_SIZE = 10


def page(rules: Rules, rows: list[Any], query: Row) -> Row:
    """One page of rows."""
    number, size = int(query.get("page", 0)), int(query.get("pageSize", _SIZE))
    limit = rules.value("page-limit", _SIZE)
    size = max(1, size if limit is None else min(size, int(limit)))
    return {"items": rows[number * size : (number + 1) * size], "total": len(rows), "page": number, "pageSize": size}
