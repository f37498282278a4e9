# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes as one watch keeps them, for all who wait for one of them."""

from __future__ import annotations

import threading
import time
import typing as t

from ..cluster_state.node import Node, parse
from ..kube.errors import ApiError
from ..kube.paths import NODES

if t.TYPE_CHECKING:
    from ..kube.client import Client

T = t.TypeVar("T")
# A watch that is not needed any more ends by itself within so many seconds; a wait looks up as often.
_WATCH, _LOOK = 20.0, 1.0


class WatchedNodes:
    """A context manager; inside it the nodes follow the cluster. What is newer counts, whoever tells it."""

    def __init__(
        self,
        client: Client,
        nodes: t.Mapping[str, Node],
        resource_version: str,
        *,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with what a list has said."""
        self._client = client
        self._nodes = dict(nodes)
        self._version = resource_version
        self._clock = clock
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._forgotten = False

    def __enter__(self) -> WatchedNodes:
        """Begin to follow."""
        threading.Thread(target=self._follow, name="nodes", daemon=True).start()
        return self

    def __exit__(self, *dummy: object) -> None:
        """End; the thread ends with the watch that it is in."""
        self._stop.set()

    def get(self, name: str) -> Node | None:
        """A node as it is known now; None when it is gone."""
        with self._changed:
            return self._nodes.get(name)

    def note(self, node: Node) -> None:
        """What the server has answered to a change, so that nobody waits with what was before it."""
        with self._changed:
            self._take(node)

    def wait(
        self, name: str, judge: t.Callable[[Node | None], T | None], timeout: float, check: t.Callable[[], None]
    ) -> T | None:
        """What `judge` first says of the node that is not None; None after `timeout` seconds.

        `check` is called now and then and may raise; so does this when the watch has come to an end.
        """
        deadline = self._clock() + timeout
        while True:
            check()
            with self._changed:
                if self._error is not None:
                    raise self._error
                said = judge(self._nodes.get(name))
                left = deadline - self._clock()
                if said is not None or left <= 0:
                    return said
                self._changed.wait(min(left, _LOOK))

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                if self._forgotten:
                    self._list()
                for event in self._client.watch(NODES, resource_version=self._version, timeout=_WATCH):
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._learn(parse(event["object"]), event["type"] == "DELETED")
                    if self._stop.is_set():
                        return
            except ApiError as error:
                if not error.gone:
                    self._fail(error)
                    return
                self._forgotten = True
            except Exception as error:
                self._fail(error)
                return

    def _list(self) -> None:
        """The server has forgotten the version: begin again."""
        self._forgotten = False
        listing = self._client.list(NODES)
        found = {node.name: node for node in map(parse, listing)}
        with self._changed:
            self._version = listing.resource_version
            self._nodes = found
            self._changed.notify_all()

    def _learn(self, node: Node, deleted: bool) -> None:
        with self._changed:
            if deleted:
                self._nodes.pop(node.name, None)
                self._changed.notify_all()
            else:
                self._take(node)

    def _take(self, node: Node) -> None:
        known = self._nodes.get(node.name)
        if known is None or not _older(node.resource_version, known.resource_version):
            self._nodes[node.name] = node
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


def _older(version: str, than: str) -> bool:
    """Versions of one kind are numbers that grow (Kubernetes 1.35, comparable resource versions); others are believed."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)
