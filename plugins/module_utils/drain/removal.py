# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Interface for additional work on drained nodes before their machines are removed."""

from __future__ import annotations

import typing as t

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node


class NodeRemoval:
    """Does nothing; modules may pass a subclass that does additional work."""

    def prepare(self, nodes: t.Sequence[Node]) -> None:
        """Called with nodes that were drained, before their machines are removed."""

    def cancel(self, nodes: t.Sequence[Node]) -> None:
        """Called with drained nodes that stay in the cluster, before they are uncordoned."""
