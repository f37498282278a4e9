# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the nodes up to date with one watch, which many threads share while each waits for one node."""

from __future__ import annotations

import threading
import time
import typing as t

from ..cluster_state.node import Node, parse_node
from ..cluster_state.ownership import NodeEdit, edit_of
from ..kube.errors import ApiError
from ..kube.metadata import is_older_version
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES

if t.TYPE_CHECKING:
    from ..cluster_state.cordon import Patch
    from ..kube.client import Client
    from .run_context import NodeResult, RolloutContext

T = t.TypeVar("T")
# Each watch request ends after _WATCH seconds, even if it is no longer needed; a wait calls its check every _CHECK
# seconds.
_WATCH, _CHECK = 20.0, 1.0


class WatchedNodes:
    """A context manager that keeps the nodes up to date inside its block. It keeps the newest version of a node, regardless of the request that returned it."""

    def __init__(
        self,
        client: Client,
        nodes: t.Mapping[str, Node],
        resource_version: str,
        *,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the nodes and the resource version of a list request."""
        self._client = client
        self._nodes = dict(nodes)
        self._version = resource_version
        self._clock = clock
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._error: Exception | None = None

    def __enter__(self) -> WatchedNodes:
        """Start the watch."""
        threading.Thread(target=self._watch, name="nodes", daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Stop the watch; the thread ends when its current request ends."""
        self._stop.set()

    def get(self, name: str) -> Node | None:
        """The latest version of a node; None if the node is gone."""
        with self._changed:
            return self._nodes.get(name)

    def all(self) -> dict[str, Node]:
        """The latest versions of all nodes."""
        with self._changed:
            return dict(self._nodes)

    def note(self, node: Node) -> None:
        """Store the version from the server's response to a change, so that no wait uses an older version."""
        with self._changed:
            self._keep_newest(node)

    def wait(
        self, name: str, judge: t.Callable[[Node | None], T | None], timeout: float, check: t.Callable[[], None]
    ) -> T | None:
        """Wait for the first result of `judge` that is not None, and return it; return None after `timeout` seconds.

        `check` is called about once a second and may raise an exception. If an error has ended the watch, that error is raised.
        """
        deadline = self._clock() + timeout
        while True:
            check()
            with self._changed:
                if self._error is not None:
                    raise self._error
                verdict = judge(self._nodes.get(name))
                seconds_left = deadline - self._clock()
                if verdict is not None or seconds_left <= 0:
                    return verdict
                self._changed.wait(min(seconds_left, _CHECK))

    def _watch(self) -> None:
        expired = False
        while not self._stop.is_set():
            try:
                if expired:
                    self._list()
                    expired = False
                for event in self._client.watch(NODES, resource_version=self._version, timeout=_WATCH, stop=self._stop):
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    self._apply(parse_node(event["object"]), event["type"] == "DELETED")
                    if self._stop.is_set():
                        return
            except Exception as error:
                # The server no longer has this version, so start again with a list.
                expired = isinstance(error, ApiError) and error.gone
                if not expired:
                    self._fail(error)
                    return

    def _list(self) -> None:
        listing = self._client.list(NODES)
        nodes = {node.name: node for node in map(parse_node, listing)}
        with self._changed:
            self._version = listing.resource_version
            self._nodes = nodes
            self._changed.notify_all()

    def _apply(self, node: Node, deleted: bool) -> None:
        with self._changed:
            if deleted:
                self._nodes.pop(node.name, None)
                self._changed.notify_all()
            else:
                self._keep_newest(node)

    def _keep_newest(self, node: Node) -> None:
        known = self._nodes.get(node.name)
        if known is None or not is_older_version(node.resource_version, known.resource_version):
            self._nodes[node.name] = node
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


class WatchedNode:
    """Reads, patches and awaits one node; the result records whether the node was patched."""

    def __init__(self, context: RolloutContext, result: NodeResult) -> None:
        """Store the arguments; no request is sent yet."""
        self._context = context
        self._result = result
        self.name = result.node

    @property
    def latest(self) -> Node | None:
        """The latest known version; None if the node is gone."""
        return self._context.nodes.get(self.name)

    def read(self) -> Node | None:
        """Read the node from the server; None if it is gone."""
        raw = self._context.client.get(f"{NODES}/{self.name}")
        return self._note(raw) if raw else None

    def write(self, make_patch: t.Callable[[Node], Patch | None]) -> Node | None:
        """Send the patch that `make_patch` returns for the node, if any; returns the patched node, or None if it is gone.

        What the patch removes from the node is first removed from the node's Machine.
        """
        client, check = self._context.client, self._context.lease.check

        def make_edit(node: Node) -> NodeEdit | None:
            patch = make_patch(node)
            if patch is None:
                return None
            return edit_of(node, patch)

        node = self.latest
        edit = make_edit(node) if node is not None else None
        if edit is None:
            return node
        try:
            result = patch_node(client, edit, lambda raw: make_edit(self._note(raw)), check, answer=True)
        except ApiError as error:
            self._result.written |= error.maybe_applied
            raise
        if result.status == "gone":
            return None
        if result.node is None:
            return self.latest
        self._result.written = True
        return self._note(result.node)

    def _note(self, raw: t.Mapping[str, t.Any]) -> Node:
        node = parse_node(raw)
        self._context.nodes.note(node)
        return node

    def wait(
        self,
        judge: t.Callable[[Node | None], t.Any],
        check: t.Callable[[], None] = lambda: None,
        *,
        timeout: float | None = None,
    ) -> t.Any:
        """Wait for the first result of `judge` that is not None, and return it; return None after `timeout` seconds (default: the run's `wait_timeout`).

        `judge` is called whenever a node changes, and must not send requests. `check` is called about once a second, and may send requests and
        raise exceptions.
        """

        def check_all() -> None:
            self._context.lease.check()
            check()

        limit = self._context.wait_timeout if timeout is None else timeout
        return self._context.nodes.wait(self.name, judge, limit, check_all)
