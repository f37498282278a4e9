# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to a Kubernetes API server: get, list, watch, create, patch, delete; and the paths of the kinds that the collection uses."""

from __future__ import annotations

import functools
import json
import queue
import re
import threading
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

from ..catalog.names import FIELD_MANAGER
from ..core.values import Object
from .errors import MAX_ATTEMPTS, ApiError
from .fields import difference, reverts_changes
from .paths import NODES
from .transport import Transport, stream_lines

if t.TYPE_CHECKING:
    from ..core.http import HttpResponse
    from .transport import CommandRunner, ExecResult

# Iterates over a collection page by page; the server prepares the next page while the current one is parsed.

# Parsing takes 0.1 s for a page of 500 nodes, and 0.9 s for 5,000 nodes. If the token of the next page is known, the server
# can prepare that page in the meantime. API servers write the metadata of a list before its items. If the head of a
# page has no token, pages are fetched one by one.
_HEAD = 2048
_TOKEN = re.compile(rb'"metadata":\{[^{}\[\]]*"continue":"([^"\\]+)"')
_ITEMS = b'"items":['
_END = b"}]"


class Listing(t.Iterator[Object]):
    """Iterates over a collection; keeps one page and the text of the next page in memory. `resource_version` is known after the first page."""

    def __init__(
        self,
        transport: Transport,
        path: str,
        query: t.Mapping[str, t.Any],
        accept: str,
        omit: t.Sequence[str] = (),
        *,
        ahead: bool = True,
    ) -> None:
        """Store the arguments; the first next() sends a request. For `omit`, see parse_page(). With `ahead`, each page is requested before it is needed."""
        self._transport = transport
        self._path = path
        self._query = dict(query)
        self._accept = accept
        self._omit = omit
        self._ahead = ahead
        self._objects = self._pages()
        self.resource_version = ""

    def __iter__(self) -> Listing:
        """Return itself."""
        return self

    def __next__(self) -> Object:
        """The next object."""
        return next(self._objects)

    def _pages(self) -> t.Iterator[Object]:
        token: str | None = None
        returned: set[tuple[str, str]] = set()
        prefetched: tuple[str, Future[HttpResponse]] | None = None
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="list") as pool:
            while True:
                try:
                    is_prefetched = prefetched is not None and prefetched[0] == token
                    answer = prefetched[1].result() if prefetched and is_prefetched else self._fetch(token)
                    following = _token_in_head(answer.data) if self._ahead else None
                    prefetched = (following, pool.submit(self._fetch, following)) if following else None
                    page = parse_page(answer.data, self._omit)
                    del answer
                except ApiError as error:
                    if not error.gone or not returned:
                        raise
                    # The server has compacted the version of this list, so continue with the token that it sends, or
                    # from the start.
                    token, prefetched = error.details.get("continue") or None, None
                    continue
                metadata = page.get("metadata") or {}
                self.resource_version = self.resource_version or metadata.get("resourceVersion", "")
                token = metadata.get("continue") or None
                objects = page.get("items") or []
                del page
                # Reversed and popped, so that the memory of an object is freed once the object has been used.
                objects.reverse()
                while objects:
                    item = objects.pop()
                    key = (item["metadata"].get("namespace", ""), item["metadata"]["name"])
                    if key not in returned:
                        returned.add(key)
                        yield item
                if not token:
                    return

    def _fetch(self, token: str | None) -> HttpResponse:
        return self._transport.send("GET", self._path, query={**self._query, "continue": token}, accept=self._accept)


def parse_page(data: bytes, omit: t.Sequence[str] = ()) -> Object:
    """The page as a dictionary; the fields in `omit`, which must be lists of objects, are omitted from the page's objects.

    The images and managedFields of nodes are more than half of a page. Parsing them takes a fifth of the CPU time of a run without changes
    for 5,000 nodes, and finding their ends takes a twentieth of the time to parse them. If a string contains something that looks like an end,
    the shortened page is not valid JSON, because its brackets or quotes do not match. In that case, the whole page is parsed.
    """
    try:
        return t.cast("Object", json.loads(_shortened(data, omit)))
    except ValueError:
        return t.cast("Object", json.loads(data))


def _shortened(data: bytes, omit: t.Sequence[str]) -> bytes:
    # A quote inside a string is escaped, so these matches are names of fields. API servers write no white space.
    for name in omit:
        first, *rest = data.split(f',"{name}":[{{'.encode())
        data = b"".join([first, *(part[part.find(_END) + len(_END) :] for part in rest)])
    return data


def _token_in_head(data: bytes) -> str | None:
    """The token of the next page, if the head of this page contains it."""
    head = data[:_HEAD].partition(_ITEMS)
    match = _TOKEN.search(head[0]) if head[1] else None
    return match[1].decode() if match else None


# Reads a stream that may be silent for a long time, and stops if a check fails while it waits.

T = t.TypeVar("T")


def interruptible(
    stream: t.Iterator[T], check: t.Callable[[], None], every: float = 1.0, closed: threading.Event | None = None
) -> t.Iterator[T]:
    """Yield the items of the stream and raise its errors. After `every` seconds without an item, call `check`, which may raise an error.

    A thread reads the stream. The thread ends with the stream, or with the next item after this generator was closed, which sets `closed`.
    """
    # An item, or None and the error that ended the stream.
    items: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()
    ended = closed or threading.Event()

    def read() -> None:
        try:
            for item in stream:
                items.put((item, None))
                if ended.is_set():
                    return
        except Exception as error:
            items.put((None, error))
        else:
            items.put((None, StopIteration()))

    threading.Thread(target=read, name="stream", daemon=True).start()
    try:
        while True:
            try:
                item, error = items.get(timeout=every)
            except queue.Empty:
                check()
                continue
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield t.cast("T", item)
    finally:
        ended.set()


# Reads and writes the objects of a Kubernetes API server as dictionaries, with paged lists, server-side apply, patches and watches.
#
# For a list of 5,000 nodes, the dynamic client of the kubernetes library takes six times as long and uses three times as much memory.

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

    @functools.cached_property
    def _listed(self) -> dict[str, tuple[Object, ...]]:
        """The objects that list_once() has read, by path of the collection."""
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
        managed_fields: bool = False,
        limit: int | None = None,
    ) -> Listing:
        """The objects of a collection, fetched page by page during the iteration; images and managedFields of nodes are omitted, unless `managed_fields`.

        `limit` is the size of a page for a caller that reads only some of the objects; pages that are not needed are not fetched.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": limit or _PAGE}
        accept = _METADATA_LIST if metadata_only else "application/json"
        omit = _UNREAD_OF_NODES if path == NODES and not managed_fields else ()
        return Listing(self, path, query, accept, omit=omit, ahead=limit is None)

    def list_once(self, path: str) -> tuple[Object, ...]:
        """Like list_known(), but sends the request only once per client: for objects that several components of one reading need."""
        if path not in self._listed:
            self._listed[path] = self.list_known(path)
        return self._listed[path]

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
        from .transport import CommandRunner

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
        from .transport import ExecRequest

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
