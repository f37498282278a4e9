# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Raw JSON from and to a Kubernetes API server: paged lists, server-side apply, watches.

No dynamic client: it is six times slower and takes three times the memory on a list of 5,000 nodes.
"""

from __future__ import annotations

import time
import typing as t

from ..catalog.names import FIELD_MANAGER
from ..common.http import HttpResponse
from .connection import Connection, connect
from .connection_options import ConnectionOptions
from .diff import difference
from .errors import ApiError
from .listing import Listing
from .transport import Transport
from .watch import interruptible, watch

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
# Of an answer that nobody reads the server sends least as a table without the object: 1 KB instead of a node's 15.
_NO_ANSWER = ("application/json;as=Table;g=meta.k8s.io;v=v1,application/json", {"includeObject": "None"})
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

# Under many writers the server gives up a patch that names no version after some tries of its own; so often it is asked again.
_CONFLICTS = 5

Object = dict[str, t.Any]
Query = t.Mapping[str, t.Any]


class Client:
    """What modules ask of a cluster; bodies and answers are plain dictionaries."""

    def __init__(
        self,
        options: ConnectionOptions,
        user_agent: str,
        sleep: t.Callable[[float], None] = time.sleep,
        clock: t.Callable[[], float] = time.monotonic,
    ) -> None:
        """Load the configuration (ConnectionProblem if it cannot be used); nothing is sent yet."""
        self.connection: Connection = connect(options)
        self.options = options
        self._clock = clock
        self._transport = Transport(
            self.connection, user_agent, request_timeout=options.request_timeout, sleep=sleep, clock=clock
        )

    @property
    def guard(self) -> t.Callable[[str], None] | None:
        """Is called with the path of each request before it is sent, tries again included, and may refuse it (a lost lease)."""
        return self._transport.guard

    @guard.setter
    def guard(self, guard: t.Callable[[str], None] | None) -> None:
        self._transport.guard = guard

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self.connection.server

    @property
    def context_name(self) -> str | None:
        """Context of the kubeconfig; None when the server was named outright."""
        return self.connection.context_name

    @property
    def cluster_name(self) -> str | None:
        """Cluster entry of the kubeconfig; None when the server was named outright."""
        return self.connection.cluster_name

    @property
    def origin(self) -> str:
        """Where the connection comes from, in words."""
        return self.connection.origin

    @property
    def expiry(self) -> str:
        """Since when the client certificate is out of date, else an empty string."""
        return self.connection.expiry()

    @property
    def request_count(self) -> int:
        """Requests sent so far, those that were tried again included."""
        return self._transport.request_count

    @property
    def warnings(self) -> list[str]:
        """What the API server warned of."""
        return self._transport.warnings

    def get(self, path: str, query: Query | None = None) -> Object | None:
        """The object, or None when it (or its kind) is not there."""
        try:
            return self._transport.send("GET", path, query=query).json()
        except ApiError as error:
            if error.not_found:
                return None
            raise

    def text(self, path: str, query: Query | None = None) -> str:
        """The body as text: a pod's log, /version."""
        return self._transport.send("GET", path, query=query, accept="*/*").data.decode(errors="replace")

    def list(
        self,
        path: str,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
        limit: int = 500,
    ) -> Listing:
        """The objects of a collection, fetched page by page while they are iterated over."""
        query = {"labelSelector": label_selector, "fieldSelector": field_selector, "limit": limit}
        accept = _METADATA_LIST if metadata_only else "application/json"
        return Listing(self._transport, path, query, accept)

    def list_known(self, path: str, *, metadata_only: bool = False) -> tuple[Object, ...]:
        """The objects of a whole collection; none where the cluster does not know the kind."""
        try:
            return tuple(self.list(path, metadata_only=metadata_only))
        except ApiError as error:
            if not error.not_found:
                raise
            return ()

    def create(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Create in the collection `path`; raises a conflict when somebody else's object has that name.

        When the connection breaks, nobody knows whether the object was created: it is read, and only then decided.
        """
        deadline = self._clock() + 2 * self.options.request_timeout
        unclear = False
        while True:
            try:
                return self._transport.send(
                    "POST", path, query=_writing(dry_run), body=body, repeatable=dry_run, budget=budget
                ).json()
            except ApiError as error:
                unclear = unclear or error.outcome_unknown
                name = (body.get("metadata") or {}).get("name")
                if dry_run or not unclear or not name or not (error.outcome_unknown or error.conflict):
                    raise
                live = self.get(f"{path}/{name}")
                if live is not None:
                    if _created_by_us(live, body):
                        return live
                    raise
                if self._clock() > deadline:
                    raise
                self._transport.backoff(error)

    def apply(
        self,
        path: str,
        body: Object,
        *,
        dry_run: bool = False,
        force: bool = True,
        field_validation: str | None = None,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        """Server-side apply of the object at `path`; without force a field of another manager is a conflict."""
        query = _writing(dry_run, manager, field_validation)
        query["force"] = "true" if force else "false"
        return self._transport.send("PATCH", path, query=query, body=body, content_type=APPLY).json()

    def patch(self, path: str, body: t.Any, *, content_type: str = MERGE, dry_run: bool = False) -> Object:
        """Patch the object (or its subresource) at `path`."""
        return self._patched(path, body, content_type, _writing(dry_run), dry_run=dry_run).json()

    def strategic_merge(self, path: str, body: Object, *, dry_run: bool = False) -> None:
        """Merge into an object of a built-in kind, where its answer is of no interest.

        A strategic merge costs the server less than a merge patch: it need not write the object as JSON and read it again.
        Maps are merged and a list that is atomic (a node's taints) is replaced by either.
        """
        accept, query = _NO_ANSWER
        self._patched(path, body, STRATEGIC, {**_writing(dry_run), **query}, dry_run=dry_run, accept=accept)

    def _patched(
        self,
        path: str,
        body: t.Any,
        content_type: str,
        query: Query,
        *,
        dry_run: bool,
        accept: str = "application/json",
    ) -> HttpResponse:
        """The answer; a conflict over an object of which no version was named is the server's own haste, and passes."""
        # A JSON patch that was carried out may fail or do something else the second time.
        repeatable = content_type != JSON or dry_run
        versioned = content_type == JSON or "resourceVersion" in (body.get("metadata") or {})
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._transport.send(
                    "PATCH",
                    path,
                    query=query,
                    body=body,
                    content_type=content_type,
                    accept=accept,
                    repeatable=repeatable,
                )
            except ApiError as error:
                if not error.conflict or versioned or attempt == _CONFLICTS:
                    raise
                self._transport.backoff(error)

    def replace(self, path: str, body: Object, *, dry_run: bool = False, budget: float | None = None) -> Object:
        """Write the whole object; with a resourceVersion in it, only over the very object that was read."""
        return self._transport.send("PUT", path, query=_writing(dry_run), body=body, budget=budget).json()

    def delete(
        self, path: str, *, body: t.Mapping[str, t.Any] | None = None, dry_run: bool = False, query: Query | None = None
    ) -> bool:
        """Delete, by default in the background; False when there was nothing to delete."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **(body or {})}
        if dry_run:
            # In the body: beside a body, the server ignores a dryRun of the query, and deletes.
            options["dryRun"] = ["All"]
        before = self.request_count
        try:
            self._transport.send("DELETE", path, query=query, body=options)
        except ApiError as error:
            if not error.not_found:
                raise
            # Not there at the second try: the first one, whose answer was lost, has deleted it.
            return self.request_count > before + 1
        return True

    def evict(self, path: str, body: Object) -> None:
        """Create an Eviction at `path`; a disruption budget's refusal is raised at once, the server's own 429 is waited out.

        It is sent again when an answer is lost, so that it should name the pod's uid.
        """
        self._transport.send("POST", path, body=body, is_final=lambda error: error.refuses_eviction)

    def watch(
        self, path: str, *, resource_version: str, timeout: float, label_selector: str | None = None
    ) -> t.Iterator[Object]:
        """Events after a version until the time (seconds) is over; raises `gone` when the version is too old.

        A connection that breaks is taken up again at the last version seen. Bookmarks are not handed on. Under a guard the wait for
        the next event ends when the guard refuses.
        """
        guard = self.guard
        events = watch(self._transport, path, resource_version, timeout, label_selector, self._clock)
        return events if guard is None else interruptible(events, lambda: guard(path))


def _writing(dry_run: bool, manager: str = FIELD_MANAGER, validation: str | None = None) -> dict[str, t.Any]:
    query: dict[str, t.Any] = {"fieldManager": manager, "fieldValidation": validation}
    if dry_run:
        query["dryRun"] = "All"
    return query


def _created_by_us(live: Object, body: Object) -> bool:
    managers = {entry.get("manager") for entry in live["metadata"].get("managedFields") or []}
    return FIELD_MANAGER in managers and not difference(live, body, FIELD_MANAGER).changed
