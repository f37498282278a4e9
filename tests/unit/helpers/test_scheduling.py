# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A test that measures time runs alone, and also starts while other tests keep starting."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from tests.programs import REPO
from tests.scheduling import DRAWN_FILES, files_left_out, machine_slot

PATIENCE = 10.0


def test_other_tests_run_in_parallel(tmp_path: Path) -> None:
    with machine_slot(alone=False, folder=tmp_path), machine_slot(alone=False, folder=tmp_path):
        pass


def test_no_test_starts_before_one_that_waits_to_run_alone(tmp_path: Path) -> None:
    seen: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with machine_slot(alone=False, folder=tmp_path):
            inside.set()
            leave.wait(PATIENCE)
            seen.append("first")

    def alone() -> None:
        with machine_slot(alone=True, folder=tmp_path):
            seen.append("alone")

    def late() -> None:
        with machine_slot(alone=False, folder=tmp_path):
            seen.append("late")

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert inside.wait(PATIENCE)
    for work in (alone, late):
        thread = threading.Thread(target=work)
        thread.start()
        threads.append(thread)
        # It waits until the first one ends.
        thread.join(0.2)
        assert thread.is_alive()
    leave.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert seen == ["first", "alone", "late"]


def test_the_seed_draws_whole_files() -> None:
    folders = [f"tests/integration/{name}/" for name in ("one_cloud", "another_cloud")]
    files = {f"{folder}test_{name}.py" for folder in folders for name in "abcdefgh"}
    always = {"tests/integration/test_a.py", "tests/unit/test_b.py", "tests/faults/test_c.py"}
    count = DRAWN_FILES[r"tests/integration/(\w+)/test_\w+\.py"]
    draws = [files_left_out(files | always, seed) for seed in range(40)]
    assert all(draw <= files for draw in draws)
    # Each folder has its own draw, also one that DRAWN_FILES does not name.
    assert {
        len([name for name in files - draw if name.startswith(folder)]) for draw in draws for folder in folders
    } == {count}
    # Each file is run with some seed.
    assert set.intersection(*draws) == set()
    # A file with many tests has no better chance.
    assert files_left_out([*files, *sorted(files)[:1] * 50, *always], 3) == draws[3]


def test_each_pattern_draws_one_of_its_files() -> None:
    files = [path.relative_to(REPO).as_posix() for path in (REPO / "tests" / "integration").rglob("test_*.py")]
    for seed in range(20):
        drawn = {*files} - files_left_out(files, seed)
        assert [pattern for pattern in DRAWN_FILES if not any(re.fullmatch(pattern, name) for name in drawn)] == []
        assert {name.split("/")[2] for name in drawn} == {name.split("/")[2] for name in files}
