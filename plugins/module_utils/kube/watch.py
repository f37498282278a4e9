# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watches a collection over connections that may break, as long as the guard allows it."""

from __future__ import annotations

import json
import queue
import threading
import typing as t

from ..common.http import TRANSIENT_STATUSES
from .errors import ApiError
from .transport import Transport, stream_lines

# Seconds after which a watch whose reader has ended is closed by the server.
_GUARDED_TIMEOUT = 30.0

T = t.TypeVar("T")
Object = dict[str, t.Any]


def watch(
    transport: Transport,
    path: str,
    resource_version: str,
    timeout: float,
    label_selector: str | None,
    clock: t.Callable[[], float],
) -> t.Iterator[Object]:
    """See Client.watch(), which also calls the guard while no event arrives."""
    deadline = clock() + timeout
    version = resource_version
    while (left := deadline - clock()) > 0:
        if transport.guard is not None:
            left = min(left, _GUARDED_TIMEOUT)
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": max(1, int(left)),
            "labelSelector": label_selector,
        }
        try:
            response = transport.open("GET", path, query=query, timeout=left + 5)
            for line in stream_lines(response, "GET", path):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _watch_error(event["object"], path)
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield event
        except ApiError as error:
            if not (error.unreachable or error.status in TRANSIENT_STATUSES):
                raise
            transport.backoff(error)


def _watch_error(status: Object, path: str) -> ApiError:
    return ApiError(
        status.get("message", "watch failed"),
        status=status.get("code", 500),
        reason=status.get("reason", ""),
        method="GET",
        path=path,
    )


def interruptible(stream: t.Iterator[T], check: t.Callable[[], None], every: float = 1.0) -> t.Iterator[T]:
    """Yield the items of the stream and raise its errors; after `every` seconds without an item `check` is called, which may raise.

    A thread reads the stream. It ends with the stream, or with the next item after this generator was closed.
    """
    # An item, or (None, the error with which the stream ended).
    items: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()
    closed = threading.Event()

    def read() -> None:
        try:
            for item in stream:
                items.put((item, None))
                if closed.is_set():
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
        closed.set()
