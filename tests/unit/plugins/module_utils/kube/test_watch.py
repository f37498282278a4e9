# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A silent stream does not keep its reader from ending."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import interruptible
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError


class EndedError(Exception):
    """The error that a check raises."""


def test_all_items_come_in_their_order() -> None:
    assert list(interruptible(iter(range(100)), lambda: None)) == list(range(100))


def test_the_stream_s_own_error_is_raised_after_what_came_before() -> None:
    def stream() -> Iterator[int]:
        yield 1
        raise ApiError("too old", status=410)

    actual: list[int] = []
    with pytest.raises(ApiError, match="too old"):
        actual.extend(interruptible(stream(), lambda: None))
    assert actual == [1]


def test_a_silent_stream_is_left_when_the_check_says_so() -> None:
    silent, checks = threading.Event(), iter([None, None, EndedError()])

    def check() -> None:
        if (error := next(checks)) is not None:
            raise error

    def stream() -> Iterator[int]:
        yield 1
        silent.wait(60)

    begun = time.monotonic()
    actual: list[int] = []
    with pytest.raises(EndedError):
        actual.extend(interruptible(stream(), check, every=0.01))
    assert actual == [1]
    assert time.monotonic() - begun < 10
    silent.set()


def test_the_stream_is_not_read_after_the_reader_has_stopped() -> None:
    read: list[int] = []
    more = threading.Semaphore(1)

    def stream() -> Iterator[int]:
        for number in range(100):
            more.acquire(timeout=10)
            read.append(number)
            yield number

    for _item in interruptible(stream(), lambda: None):
        break
    before = threading.active_count()
    more.release()
    deadline = time.monotonic() + 10
    while threading.active_count() >= before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert read == [0, 1]
