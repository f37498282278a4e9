# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node of those that a watch keeps, so that it can be waited for."""

from __future__ import annotations

import typing as t

from ..drain.node_patcher import NodePatcher

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..kube.client import Client
    from ..kube.lease import Lease
    from .watched_nodes import WatchedNodes


class WatchedNode(NodePatcher):
    """The node of this name among the live ones."""

    def __init__(self, client: Client, lease: Lease, live: WatchedNodes, name: str) -> None:
        """Ask nothing yet."""
        super().__init__(client, lease, live, name)
        self._check = lease.check
        self._live = live

    def wait(
        self,
        judge: t.Callable[[Node | None], t.Any],
        timeout: float,
        look: t.Callable[[], None] = lambda: None,
    ) -> t.Any:
        """What `judge` first says of it that is not None; None after `timeout` seconds.

        `judge` is called at each change of a node and must not ask the server; `look`, about once a second, may, and may raise.
        """

        def check() -> None:
            self._check()
            look()

        return self._live.wait(self.name, judge, timeout, check)
