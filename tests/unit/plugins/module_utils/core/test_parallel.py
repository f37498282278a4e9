# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many calls at once: never more than allowed, in their order, and none after a fatal error."""

from __future__ import annotations

import threading
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Outcome, call_all, run_bounded
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError


def calls(count: int, call: t.Callable[[int], int]) -> list[tuple[str, t.Callable[[], int]]]:
    """Named calls, each with its number."""
    return [(str(number), lambda number=number: call(number)) for number in range(count)]  # type: ignore[misc]


def test_outcomes_come_in_order_and_no_more_than_the_limit_run() -> None:
    running, most = [0], [0]
    lock = threading.Lock()
    gate = threading.Barrier(4, timeout=10)

    def call(number: int) -> int:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait()
        with lock:
            running[0] -= 1
        return number

    reported: list[str] = []
    counts: list[int] = []

    def on_done(outcome: Outcome[int], finished: int) -> None:
        reported.append(outcome.name)
        counts.append(finished)

    outcomes = run_bounded(calls(20, call), limit=4, on_done=on_done)
    assert [outcome.value for outcome in outcomes] == list(range(20))
    assert most[0] == 4
    assert sorted(reported, key=int) == [outcome.name for outcome in outcomes]
    assert counts == list(range(1, 21))


@pytest.mark.parametrize(
    ("error", "stops"),
    [
        (ApiError("no permission", status=403), True),
        (ApiError("no answer"), True),
        (ValueError("bug"), True),
        (ApiError("conflict", status=409), False),
    ],
)
def test_what_meets_all_stops_the_sending(error: Exception, stops: bool) -> None:
    def call(number: int) -> int:
        if number == 3:
            raise error
        return number

    outcomes = run_bounded(calls(10, call), limit=1)
    assert [outcome.ok for outcome in outcomes[:3]] == [True] * 3
    assert outcomes[3].error is error
    assert [outcome.made for outcome in outcomes[4:]] == [not stops] * 6


def test_a_lost_lease_stops_the_sending() -> None:
    lost = threading.Event()

    def call(number: int) -> int:
        if number == 2:
            lost.set()
        return number

    outcomes: list[Outcome[int]] = run_bounded(calls(6, call), limit=1, stop=lost)
    assert [outcome.made for outcome in outcomes] == [True, True, True, False, False, False]


def test_nothing_to_do() -> None:
    assert run_bounded([]) == []


def test_call_all_returns_the_values_in_order() -> None:
    assert call_all(calls(5, lambda number: number), 2) == [0, 1, 2, 3, 4]


def test_call_all_raises_the_first_error_and_starts_no_other_call() -> None:
    made: list[int] = []

    def call(number: int) -> int:
        made.append(number)
        if number == 1:
            raise ApiError("busy", status=409)
        return number

    with pytest.raises(ApiError, match="busy"):
        call_all(calls(5, call), 1)
    assert made == [0, 1]
