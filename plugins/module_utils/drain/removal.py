# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else ends on drained nodes before their machines are removed; a module may replace it."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node


class NodeRemoval:
    """Does nothing."""

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained, before their machines are removed."""

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained and uncordoned, because they stay."""
