# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One lease for many threads: the first takes it, the last gives it back, and the next one is new."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.drain.shared_lease import SharedLease
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease, LeaseHeld


class Leases:
    """Makes leases that note what is done with them; those that another run holds cannot be entered."""

    def __init__(self, taken: bool = False) -> None:
        self.told: list[str] = []
        self._taken, self._count = taken, 0

    def make(self) -> Lease:
        self._count += 1
        return t.cast("Lease", _Noted(self.told, self._count, self._taken))


class _Noted:
    def __init__(self, told: list[str], number: int, taken: bool) -> None:
        self.told, self.number, self.taken = told, number, taken

    def __enter__(self) -> _Noted:
        if self.taken:
            raise LeaseHeld("another run")
        self.told.append(f"take {self.number}")
        return self

    def __exit__(self, *dummy: object) -> None:
        self.told.append(f"give {self.number}")


def test_it_is_held_as_long_as_anybody_works_under_it() -> None:
    leases = Leases()
    common = SharedLease(leases.make)
    with common.held() as first:
        with common.held() as second:
            assert first is second
        assert leases.told == ["take 1"]
    assert leases.told == ["take 1", "give 1"]
    with common.held():
        pass
    assert leases.told == ["take 1", "give 1", "take 2", "give 2"]


def test_it_is_given_back_after_a_failure() -> None:
    leases = Leases()
    common = SharedLease(leases.make)
    with pytest.raises(RuntimeError), common.held():
        raise RuntimeError
    assert leases.told == ["take 1", "give 1"]


def test_nobody_works_where_another_run_has_it() -> None:
    leases = Leases(taken=True)
    common = SharedLease(leases.make)
    for dummy in range(2):
        with pytest.raises(LeaseHeld), common.held():
            pass
    assert leases.told == []
