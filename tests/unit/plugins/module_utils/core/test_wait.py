# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wait ends when its condition holds, or with a message that explains the timeout."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import StateTimer, WaitTimeout, wait_until
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError


class Clock:
    """A clock that advances only during sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_done_ends_the_wait() -> None:
    clock = Clock()
    counter = itertools.count()
    reached = wait_until(
        lambda: next(counter),
        lambda state: state == 3,
        timeout=60,
        interval=2,
        describe=str,
        clock=clock,
        sleep=clock.sleep,
    )
    assert (reached, clock.now) == (3, 6)


@pytest.mark.parametrize(("option", "limit"), [("drain_timeout", r"5 s \(drain_timeout\)\."), ("", r"5 s\.")])
def test_the_message_has_the_last_state_and_the_partial_result(option: str, limit: str) -> None:
    clock = Clock()
    with pytest.raises(WaitTimeout, match=rf"Not done within {limit} node n1 is pending") as caught:
        wait_until(
            lambda: "pending",
            lambda state: False,
            timeout=5,
            describe=lambda state: f"node n1 is {state}",
            partial=lambda state: {"state": state},
            option=option,
            clock=clock,
            sleep=clock.sleep,
        )
    assert caught.value.partial == {"state": "pending"}
    assert clock.now == 5


def test_a_server_that_is_away_for_a_while_does_not_end_the_wait() -> None:
    clock = Clock()

    def read() -> int:
        if clock.now < 10:
            raise ApiError("refused")
        return 1

    assert wait_until(read, bool, timeout=60, describe=str, clock=clock, sleep=clock.sleep) == 1


def test_missing_rights_end_it_at_once() -> None:
    def read() -> int:
        raise ApiError("no", status=403)

    with pytest.raises(ApiError):
        wait_until(read, bool, timeout=60, describe=str)


def test_since() -> None:
    clock = Clock()
    since = StateTimer(clock)
    assert since.seconds("n1", "pending") == 0
    clock.sleep(4)
    assert since.seconds("n1", "pending") == 4
    assert since.seconds("n1", "failed") == 0
    clock.sleep(1)
    assert (since.seconds("n1", "failed"), since.seconds("n2", None)) == (1, 0)
