# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work on drained nodes before their machines are removed, which a module may define."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node


class NodeRemoval:
    """No work."""

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained, before their machines are removed."""

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained and stay, before they are uncordoned."""
