# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watching a collection: its events as they come, over connections that break, and no longer than the guard allows."""

from __future__ import annotations

import json
import queue
import threading
import typing as t

from .errors import ApiError
from .transport import Transport, stream_lines

# With a guard a connection that nobody listens to any more does not stay for longer (seconds).
_GUARDED = 30.0

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
    """See Client.watch(), which adds the guard's say while nothing happens."""
    deadline = clock() + timeout
    version = resource_version
    while (left := deadline - clock()) > 0:
        if transport.guard is not None:
            left = min(left, _GUARDED)
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
            if not (error.unreachable or error.status in (429, 500, 502, 503, 504)):
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


class _End:
    """How the stream ended: with an error, or regularly."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error


def interruptible(stream: t.Iterator[T], check: t.Callable[[], None], every: float = 1.0) -> t.Iterator[T]:
    """Yield the stream's items and raise its errors; `check` is called every so many seconds without an item, and may raise.

    A thread reads the stream. It ends with the first item that comes when nobody listens any more, or with the stream.
    """
    items: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    abandoned = threading.Event()

    def read() -> None:
        error: Exception | None = None
        try:
            for item in stream:
                items.put(item)
                if abandoned.is_set():
                    return
        except Exception as raised:
            error = raised
        items.put(_End(error))

    threading.Thread(target=read, name="stream", daemon=True).start()
    try:
        while True:
            try:
                item = items.get(timeout=every)
            except queue.Empty:
                check()
                continue
            if not isinstance(item, _End):
                yield item
            elif item.error is not None:
                raise item.error
            else:
                return
    finally:
        abandoned.set()
