# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node for whoever works on it: read, and written over what was read."""

from __future__ import annotations

import typing as t

from ..cluster_state.node import Node, parse
from ..kube.errors import ApiError
from ..kube.paths import NODES

if t.TYPE_CHECKING:
    from ..cluster_state.cordon import Patch
    from ..kube.client import Client
    from .eviction import LeaseCheck

# Somebody else may write the same node at the same time, which is then read again this often.
_CONFLICTS = 8


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
        node = parse(raw) if raw else None
        if node is not None:
            self._known.note(node)
        return node

    def write(self, make: t.Callable[[Node], Patch | None]) -> Node | None:
        """Send the patch that `make` says of the node as it is, if it says one; the node afterwards, None when it is gone."""
        node = self.now
        for attempt in range(_CONFLICTS):
            patch = make(node) if node is not None else None
            if node is None or patch is None:
                return node
            self._lease.check()
            try:
                answer = parse(self._client.patch(self._path, patch))
            except ApiError as error:
                if error.not_found:
                    return None
                if not error.conflict or attempt == _CONFLICTS - 1:
                    raise
                node = self.read()
                continue
            self.changed = True
            self._known.note(answer)
            return answer
        return None
