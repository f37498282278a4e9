# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run removes the temporary files and folders that a killed one has left, and no other."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import files
from ansible_collections.accel.gpu.plugins.module_utils.core.files import start_time

MAKE = (
    "import sys, time; from ansible_collections.accel.gpu.plugins.module_utils.core.files import make_file; "
    "print(make_file('progress'), flush=True); time.sleep(600)"
)

MAKE_FOLDER = (
    "import os, sys, time; from ansible_collections.accel.gpu.plugins.module_utils.core.files import temporary_folder\n"
    "with temporary_folder('ca') as path: os.symlink(sys.argv[1], f'{path}/ca.crt'); print(path, flush=True); time.sleep(600)"
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def process(folder: Path, *program: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that has made a file or a folder, and its path."""
    environ = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", *(program or [MAKE])]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
    assert running.stdout is not None
    return running, Path(running.stdout.readline().strip())


def test_files_of_killed_processes_go_and_those_of_running_ones_stay(folder: Path) -> None:
    killed, remaining = process(folder)
    at_work, kept = process(folder)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert remaining.exists()
        own = Path(files.make_file("progress"))
        assert sorted(folder.iterdir()) == sorted([kept, own])
        assert own.stat().st_mode & 0o777 == 0o600
    finally:
        at_work.kill()
        at_work.wait()


def test_folders_of_killed_processes_go_and_what_they_link_to_stays(folder: Path) -> None:
    certificates = folder / "certificates"
    certificates.mkdir()
    (certificates / "ca.crt").write_text("kept")
    killed, remaining = process(folder, MAKE_FOLDER, str(certificates))
    at_work, kept = process(folder, MAKE_FOLDER, str(certificates))
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert remaining.exists()
        with files.temporary_folder("ca") as own:
            assert sorted(folder.iterdir()) == sorted([certificates, kept, Path(own)])
            assert Path(own).stat().st_mode & 0o777 == 0o700
        assert sorted(folder.iterdir()) == sorted([certificates, kept])
        assert (certificates / "ca.crt").read_text() == "kept"
    finally:
        at_work.kill()
        at_work.wait()


def test_a_folder_beside_that_of_a_module(folder: Path) -> None:
    module = folder / "remote_tmp" / "ansible-moduletmp-1"
    module.mkdir(parents=True)
    with files.temporary_folder("helm", beside=str(module)) as own:
        assert Path(own).parent == module.parent
    assert list(module.parent.iterdir()) == [module]


def test_a_later_process_with_the_same_number_is_another_one(folder: Path) -> None:
    own = Path(files.make_file("progress"))
    started = start_time(os.getpid())
    own.rename(own.with_name(own.name.replace(f"-{started}-", "-1-")))
    assert len(files.remove_leftovers(str(folder), "accel-gpu-progress-")) == 1
    assert list(folder.iterdir()) == []


def test_foreign_files_stay(folder: Path) -> None:
    name = re.sub(r"-\d+-(\d+)-(\w+)$", r"-999999999-\1-\2", Path(files.make_file("progress")).name)
    other_namespace = re.sub(r"^(accel-gpu-progress)-\d+-", r"\1-1-", name)
    target = folder / "target"
    target.write_text("kept")
    (folder / name).symlink_to(target)
    for kept in (other_namespace, name.replace("progress", "other"), "accel-gpu-progress-abc", "tmpabc"):
        (folder / kept).write_text("")
    before = sorted(folder.iterdir())
    assert files.remove_leftovers(str(folder), "accel-gpu-progress-") == []
    assert sorted(folder.iterdir()) == before
