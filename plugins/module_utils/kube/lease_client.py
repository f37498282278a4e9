# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lease needs of the client whose requests it guards."""

from __future__ import annotations

import typing as t

Object = dict[str, t.Any]


class LeaseClient(t.Protocol):
    """The part of a client that a lease needs; `guard` is called with the path of each request and may refuse it."""

    guard: t.Callable[[str], None] | None

    def get(self, path: str, query: t.Mapping[str, t.Any] | None = None) -> Object | None:
        """The object at a path, or None."""

    def create(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Create in a collection."""

    def replace(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Write the whole object."""
