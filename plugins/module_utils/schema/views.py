# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check that looks at several values sees of a document."""

from __future__ import annotations

import dataclasses
import typing as t

Document = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class PoolView:
    """One pool as its author wrote it, and as it is with the defaults under it."""

    path: str
    written: Document
    merged: Document

    @property
    def title(self) -> str:
        """How another pool's message speaks of this one."""
        name = self.merged.get("name")
        return f"{self.path} ({name})" if isinstance(name, str) else self.path
