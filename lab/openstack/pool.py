# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection pool for the services' SQLite databases; selected by `plugin` in a connection's URL."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL, CreateEnginePlugin
from sqlalchemy.pool import QueuePool


class SqlitePool(CreateEnginePlugin):
    """Pools SQLite connections: oslo.db opens the file for each transaction, a third of Magnum's response time."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        super().__init__(url, kwargs)
        # Unlimited overflow: some of Magnum's reads hold a connection for long, and other requests must not wait for them.
        kwargs.update(poolclass=QueuePool, pool_size=8, max_overflow=-1, pool_pre_ping=False)

    def update_url(self, url: URL) -> URL:
        """Return the URL unchanged: it contains no option of this plugin."""
        return url
