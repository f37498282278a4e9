# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node for whoever works on it: read, and written over what was read."""

from __future__ import annotations

import typing as t

from ..cluster_state.node import Node, parse
from ..cluster_state.ownership import NodeEdit
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES

if t.TYPE_CHECKING:
    from ..cluster_state.cordon import Patch
    from ..kube.client import Client
    from .eviction import LeaseCheck


class NodeCache(t.Protocol):
    """Where the newest that is known of each node is kept."""

    def get(self, name: str) -> Node | None:
        """A node as it is known now; None when it is gone."""

    def note(self, node: Node) -> None:
        """What the server has answered."""


class NodePatcher:
    """The node of this name; nothing is sent once the lease is lost. `changed`: something was sent."""

    def __init__(self, client: Client, lease: LeaseCheck, known: NodeCache, name: str) -> None:
        """Ask nothing yet."""
        self._client = client
        self._lease = lease
        self._known = known
        self._path = f"{NODES}/{name}"
        self.name = name
        self.changed = False

    @property
    def now(self) -> Node | None:
        """As it is known now; None when it is gone."""
        return self._known.get(self.name)

    def read(self) -> Node | None:
        """As the server has it; None when it is gone."""
        raw = self._client.get(self._path)
        return self._noted(raw) if raw else None

    def write(self, make: t.Callable[[Node], Patch | None]) -> Node | None:
        """Send the patch that `make` returns for the node, if any; returns the node afterwards, None when it is gone."""
        node = self.now
        edit = self._edit(node, make)
        if edit is None:
            return node
        result = patch_node(
            self._client, edit, lambda raw: self._edit(self._noted(raw), make), self._lease.check, answer=True
        )
        if result.status == "gone":
            return None
        if result.node is None:
            return self.now
        self.changed = True
        return self._noted(result.node)

    def _edit(self, node: Node | None, make: t.Callable[[Node], Patch | None]) -> NodeEdit | None:
        patch = make(node) if node is not None else None
        return NodeEdit(self.name, patch) if patch is not None else None

    def _noted(self, raw: t.Mapping[str, t.Any]) -> Node:
        node = parse(raw)
        self._known.note(node)
        return node
