# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads and writes the objects of a Kubernetes API server as dictionaries, with paged lists, server-side apply, patches and watches.

For a list of 5,000 nodes, the dynamic client of the kubernetes library takes six times as long and uses three times as much memory.
"""

from __future__ import annotations

import functools
import json
import threading
import typing as t

from ..catalog.names import FIELD_MANAGER
from ..common.http import HttpResponse
from .conflict_retry import MAX_ATTEMPTS
from .diff import difference
from .errors import ApiError
from .listing import Listing
from .object_managers import reverts_changes
from .paths import NODES
from .transport import Transport, stream_lines
from .watch import interruptible

if t.TYPE_CHECKING:
    from .exec import CommandRunner, ExecResult

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
# Requests the smallest response to a patch: a table without the object has 1 KB, a node has 15 KB.
_SMALL_ANSWER = ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", {"includeObject": "None"})
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

_PAGE = 500
# Lists in a node object that the collection does not read.
_UNREAD_OF_NODES = ("managedFields", "images")
# Writes of these objects change nothing for users: Leases only record runs, and reviews are not stored.
_UNCOUNTED_WRITES = ("/apis/coordination.k8s.io/", "/apis/authorization.k8s.io/")
# The time limit in seconds for a watch with a guard, so that the server closes a watch whose reader has stopped.
_GUARDED_TIMEOUT = 30.0

Object = dict[str, t.Any]
Query = t.Mapping[str, t.Any]


class Client(Transport):
    """A client of one cluster; bodies and responses are dictionaries.

    `has_written` is true if the server has accepted a write other than a dry run; writes of Leases do not count.
    """

    has_written = False

    @functools.cached_property
    def reverted(self) -> list[str]:
        """Warnings about changed objects that another tool reconciles; the server's answer to a change, or to its dry run, shows the tool's marks."""
        return []

    def _changed(self, response: HttpResponse) -> Object:
        """The object in the server's answer to a change."""
        item: Object = response.json()
        warning = reverts_changes(item)
        if warning and warning not in self.reverted:
            self.reverted.append(warning)
        return item

    def send(self, method: str, path: str, **request: t.Any) -> HttpResponse:
        """Send a request with Transport.send(), record whether the request was a write, and return the response."""
        response = super().send(method, path, **request)
        is_dry_run = "dryRun" in (request.get("query") or {}) or "dryRun" in (request.get("body") or {})
        if method != "GET" and not is_dry_run and not path.startswith(_UNCOUNTED_WRITES):
            self.has_written = True
        return response

    @functools.cached_property
    def _described(self) -> dict[str, Object | None]:
        """The objects that get_once() has read, by path."""
        return {}

    def get(self, path: str, query: Query | None = None) -> Object | None:
        """The object, or None if it or its kind does not exist."""
        try:
            return self.send("GET", path, query=query).json()
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def get_once(self, path: str) -> Object | None:
        """Like get(), but sends the request only once per client: for objects that describe the cluster, such as its version."""
        if path not in self._described:
            self._described[path] = self.get(path)
        return self._described[path]

    def text(self, path: str, query: Query | None = None) -> str:
        """The body of the response as a string, for example a pod's log or /version."""
        return self.send("GET", path, query=query, accept="*/*").data.decode(errors="replace")

    def list(
        self,
        path: str,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        limit: int | None = None,
    ) -> Listing:
        """The objects of a collection, fetched page by page during the iteration; images and managedFields of nodes are omitted.

        `limit` is the size of a page for a caller that reads only some of the objects; pages that are not needed are not fetched.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": limit or _PAGE}
        accept = _METADATA_LIST if metadata_only else "application/json"
        omit = _UNREAD_OF_NODES if path == NODES else ()
        return Listing(self, path, query, accept, omit=omit, ahead=limit is None)

    def list_known(self, path: str, *, metadata_only: bool = False) -> tuple[Object, ...]:
        """All objects of a collection; empty if the cluster does not have the kind."""
        try:
            return tuple(self.list(path, metadata_only=metadata_only))
        except ApiError as error:
            if not error.not_found:
                raise
            return ()

    def create(
        self,
        path: str,
        body: Object,
        *,
        dry_run: bool = False,
        budget: float | None = None,
        field_validation: str | None = None,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Create an object in the collection `path`; raises a conflict error if a foreign object has the same name.

        If the outcome of a request is unknown, the object is read before the request is repeated.
        """
        deadline = self._clock() + 2 * self.options.request_timeout
        query = _write_query(dry_run, manager, field_validation)
        outcome_unknown = False
        while True:
            try:
                return self.send("POST", path, query=query, body=body, repeatable=dry_run, budget=budget).json()
            except ApiError as error:
                outcome_unknown = outcome_unknown or error.outcome_unknown
                name = (body.get("metadata") or {}).get("name")
                if dry_run or not outcome_unknown or not name or not (error.outcome_unknown or error.conflict):
                    raise
                live = self.get(f"{path}/{name}")
                if live is not None:
                    if _created_by_us(live, body, manager):
                        return live
                    raise
                if self._clock() > deadline:
                    raise
                self.backoff(error)

    def apply(
        self,
        path: str,
        body: Object,
        *,
        dry_run: bool = False,
        force_conflicts: bool = True,
        field_validation: str | None = None,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Send a server-side apply for the object at `path`; without `force_conflicts`, a field that another manager owns causes a conflict."""
        query = _write_query(dry_run, manager, field_validation)
        query["force"] = "true" if force_conflicts else "false"
        return self._changed(self.send("PATCH", path, query=query, body=body, content_type=APPLY))

    def patch(self, path: str, body: Object, *, dry_run: bool = False, field_validation: str | None = None) -> Object:
        """Merge the body into the object (or its subresource) at `path`."""
        return self._changed(self._send_patch(path, body, MERGE, _write_query(dry_run, validation=field_validation)))

    def strategic_merge(self, path: str, body: Object, *, dry_run: bool = False) -> None:
        """Patch an object of a built-in kind without reading the response.

        A strategic merge is cheaper for the server than a merge patch, which converts the object to JSON and back. Both patches merge maps and replace
        atomic lists (such as a node's taints).
        """
        accept, query = _SMALL_ANSWER
        self._send_patch(path, body, STRATEGIC, {**_write_query(dry_run), **query}, accept)

    def _send_patch(
        self, path: str, body: Object, content_type: str, query: Query, accept: str = "application/json"
    ) -> HttpResponse:
        """Send the patch and return the response. A patch without a resourceVersion is repeated after a conflict that the server could not resolve in time."""
        # Unlike in conflict_retry, nothing is read or computed again: the body does not depend on the object.
        attempts = 1 if "resourceVersion" in (body.get("metadata") or {}) else MAX_ATTEMPTS
        while True:
            attempts -= 1
            try:
                return self.send("PATCH", path, query=query, body=body, content_type=content_type, accept=accept)
            except ApiError as error:
                if not error.conflict or not attempts:
                    raise
                self.backoff(error)

    def replace(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Replace the whole object; if the body contains a resourceVersion, this fails unless the object still has that version."""
        return self._changed(self.send("PUT", path, query=_write_query(dry_run), body=body, budget=budget))

    def delete(
        self, path: str, *, body: t.Mapping[str, t.Any] | None = None, dry_run: bool = False, query: Query | None = None
    ) -> bool:
        """Delete an object, by default in the background. Returns False if the object did not exist."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **(body or {})}
        if dry_run:
            # dryRun must be in the body: if a request has a body, the server ignores dryRun in the query and deletes the
            # object.
            options["dryRun"] = ["All"]
        try:
            self.send("DELETE", path, query=query, body=options)
        except ApiError as error:
            if not error.not_found:
                raise
            # An earlier attempt, whose response was lost, may have deleted the object.
            return error.earlier_outcome_unknown
        return True

    def evict(self, path: str, body: Object) -> None:
        """Create an Eviction at `path`. The error of a disruption budget is raised immediately; after the server's own 429, the request is repeated.

        The request is also repeated after a lost response, so the body should contain the uid of the pod.
        """
        self.send("POST", path, body=body, is_final=lambda error: error.refuses_eviction)

    @functools.cached_property
    def _commands(self) -> CommandRunner:
        # Imported here because most runs send no commands.
        from .exec import CommandRunner

        headers = [("User-Agent", self.user_agent), *self.connection.impersonation]
        return CommandRunner(self.connection, headers, self.proxy, self.proxy_headers)

    def exec(
        self,
        pod_path: str,
        container: str,
        command: t.Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        repeatable: bool = False,
    ) -> ExecResult:
        """Run a command in a container for at most `timeout` seconds (by default, the request timeout), and return its result.

        Servers log the command, so a secret must be passed only through `stdin`. After a lost connection, a command is run again if it is `repeatable`.
        """
        from .exec import ExecRequest

        request = ExecRequest(pod_path, container, tuple(command), stdin)
        limit = timeout if timeout is not None else float(self.options.request_timeout)

        def attempt(seconds_left: float) -> ExecResult:
            self.admit(request.path)
            return self._commands.run(request, min(limit, max(1.0, seconds_left)))

        return self.retry(attempt, limit=2 * limit, repeatable=repeatable)

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        timeout: float,
        label_selector: str | None = None,
        field_selector: str | None = None,
        stop: threading.Event | None = None,
    ) -> t.Iterator[Object]:
        """The events after the given resource version, without bookmarks, for `timeout` seconds; raises ApiError (gone) if the version is too old.

        A broken watch is continued from the last version, unless `stop` is set or the iterator was closed. With a guard, the wait for the next
        event ends when the guard raises an error.
        """
        guard, closed = self.guard, threading.Event()
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        stops = (closed,) if stop is None else (closed, stop)
        events = self._events(path, resource_version, timeout, selectors, stops)
        return events if guard is None else interruptible(events, lambda: guard(path), closed=closed)

    def _events(
        self, path: str, resource_version: str, timeout: float, selectors: Query, stops: tuple[threading.Event, ...]
    ) -> t.Iterator[Object]:
        deadline = self._clock() + timeout
        query: dict[str, t.Any] = {"watch": "1", "allowWatchBookmarks": "true", **selectors}
        version = resource_version
        while (seconds_left := deadline - self._clock()) > 0 and not any(stop.is_set() for stop in stops):
            if self.guard is not None:
                seconds_left = min(seconds_left, _GUARDED_TIMEOUT)
            query |= {"resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds_left)))}
            try:
                response = self.open("GET", path, query=query, timeout=seconds_left + 5)
                for line in stream_lines(response, "GET", path):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise ApiError(
                            status.get("message", "watch failed"),
                            status=status.get("code", 500),
                            reason=status.get("reason", ""),
                            method="GET",
                            path=path,
                        )
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event
            except ApiError as error:
                if not error.transient:
                    raise
                self.backoff(error)


def _write_query(dry_run: bool, manager: str = FIELD_MANAGER, validation: str | None = None) -> dict[str, t.Any]:
    query: dict[str, t.Any] = {"fieldManager": manager, "fieldValidation": validation}
    if dry_run:
        query["dryRun"] = "All"
    return query


def _created_by_us(live: Object, body: Object, manager: str) -> bool:
    managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or []}
    return manager in managers and not difference(live, body, manager).changed
