# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lock between processes: one holds it at a time, and no file is left behind."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import files
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    """flock() is per descriptor, so threads exclude each other as processes do."""
    path, holders, most, waits = str(tmp_path / "x.lock"), list[int](), list[int](), list[None]()

    def work(number: int) -> None:
        for dummy in range(50):
            with files.hold_lock(path, lambda: waits.append(None)):
                holders.append(number)
                most.append(len(holders))
                holders.remove(number)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert list(tmp_path.iterdir()) == []


def test_who_waits_is_reported_once(tmp_path: Path) -> None:
    path, waiting = str(tmp_path / "x.lock"), threading.Event()
    done: list[str] = []

    def work() -> None:
        with files.hold_lock(path, waiting.set):
            done.append("second")

    with files.hold_lock(path, lambda: done.append("waits")):
        thread = threading.Thread(target=work)
        thread.start()
        assert waiting.wait(10)
        done.append("first")
    thread.join()
    assert done == ["first", "second"]


def test_a_file_that_cannot_be_locked(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "other")
    with (
        pytest.raises(ConnectionProblem, match=r"x\.lock cannot be locked"),
        files.hold_lock(str(tmp_path / "x.lock"), lambda: None),
    ):
        pass
    assert not os.path.exists(tmp_path / "other")
