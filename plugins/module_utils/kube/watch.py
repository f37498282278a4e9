# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a stream that may be silent for a long time, and stops if a check fails while it waits."""

from __future__ import annotations

import queue
import threading
import typing as t

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
