# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps several collections of objects current, with one watch for each."""

from __future__ import annotations

import functools
import queue
import threading
import typing as t
from dataclasses import dataclass

from ..common.parallel import call_all
from .errors import ApiError
from .metadata import is_older_version

if t.TYPE_CHECKING:
    from .client import Client

Object = dict[str, t.Any]

# Seconds after which the server ends a watch, so that its thread ends within this time after close().
_WATCH_SECONDS = 60.0


@dataclass(frozen=True)
class Collection:
    """A collection. It counts as empty if the cluster does not have its kind (`optional`) or listing is forbidden (`may_be_forbidden`)."""

    path: str
    label_selector: str | None = None
    field_selector: str | None = None
    optional: bool = False
    may_be_forbidden: bool = False


@dataclass(frozen=True)
class _Change:
    """An event of a watch, the objects of a new list, or the error that ended a watch."""

    name: str
    event: Object | None = None
    objects: t.Sequence[Object] | None = None
    error: Exception | None = None


class WatchCache:
    """The objects of the collections; read() lists them, and follow() starts the watches."""

    def __init__(self, client: Client, collections: t.Mapping[str, Collection]) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._collections = dict(collections)
        self._objects: dict[str, dict[tuple[str, str], Object]] = {name: {} for name in collections}
        self._versions: dict[str, str] = {}
        self._changes: queue.SimpleQueue[_Change] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._following = False

    def __enter__(self) -> WatchCache:
        """Return itself."""
        return self

    def __exit__(self, *dummy: object) -> None:
        """End the watches."""
        self.close()

    def close(self) -> None:
        """Make each watch's thread end with its next event."""
        self._closed.set()

    def read(self) -> None:
        """List all collections."""
        names = list(self._collections)
        for name, objects in zip(
            names, call_all([(name, functools.partial(self._list, name)) for name in names]), strict=True
        ):
            self._replace(name, objects)

    def objects(self, name: str) -> tuple[Object, ...]:
        """The current objects of a collection, sorted by name."""
        objects = self._objects[name]
        return tuple(objects[key] for key in sorted(objects))

    def is_known(self, name: str) -> bool:
        """Whether the collection could be listed."""
        return name in self._versions

    def follow(self) -> None:
        """Start a watch for each collection, beginning at the version of its last list."""
        if self._following:
            return
        self._following = True
        for name in self._collections:
            if name in self._versions:
                threading.Thread(target=self._watch, args=(name,), name=f"watch {name}", daemon=True).start()

    def await_change(self, timeout: float) -> bool:
        """Wait until an object changes and apply all changes that have arrived. Returns False if nothing has changed; raises the error of a watch."""
        try:
            change: _Change | None = self._changes.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return False
        while change is not None:
            self._apply(change)
            try:
                change = self._changes.get_nowait()
            except queue.Empty:
                change = None
        return True

    def put(self, name: str, changed: Object) -> None:
        """Store the response to a write before its event arrives."""
        self._objects[name][_key(changed)] = changed

    def _apply(self, change: _Change) -> None:
        if change.error is not None:
            raise change.error
        if change.objects is not None:
            self._replace(change.name, change.objects)
        if change.event is None:
            return
        item = change.event["object"]
        if change.event["type"] == "DELETED":
            self._objects[change.name].pop(_key(item), None)
        elif not _is_older(item, self._objects[change.name].get(_key(item))):
            self._objects[change.name][_key(item)] = item

    def _replace(self, name: str, objects: t.Iterable[Object]) -> None:
        self._objects[name] = {_key(item): item for item in objects}

    def _list(self, name: str) -> tuple[Object, ...]:
        collection = self._collections[name]
        listing = self._client.list(
            collection.path, label_selector=collection.label_selector, field_selector=collection.field_selector
        )
        try:
            objects = tuple(listing)
        except ApiError as error:
            if not ((collection.optional and error.not_found) or (collection.may_be_forbidden and error.forbidden)):
                raise
            self._versions.pop(name, None)
            return ()
        self._versions[name] = listing.resource_version
        return objects

    def _watch(self, name: str) -> None:
        collection = self._collections[name]
        try:
            while not self._closed.is_set():
                try:
                    for event in self._client.watch(
                        collection.path,
                        resource_version=self._versions[name],
                        timeout=_WATCH_SECONDS,
                        label_selector=collection.label_selector,
                        field_selector=collection.field_selector,
                        stop=self._closed,
                    ):
                        self._versions[name] = event["object"]["metadata"]["resourceVersion"]
                        self._changes.put(_Change(name, event=event))
                        if self._closed.is_set():
                            return
                except ApiError as error:
                    if not error.gone:
                        raise
                    # The server no longer has this version, so start again with a list.
                    self._changes.put(_Change(name, objects=self._list(name)))
        except Exception as error:
            self._changes.put(_Change(name, error=error))


def _key(item: t.Mapping[str, t.Any]) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _is_older(item: Object, known: Object | None) -> bool:
    """Whether an event contains an older version than the known object, which can be the response to a write."""
    versions = [str((version or {}).get("metadata", {}).get("resourceVersion") or "") for version in (item, known)]
    same = known is not None and item["metadata"].get("uid") == known["metadata"].get("uid")
    return same and is_older_version(*versions)
