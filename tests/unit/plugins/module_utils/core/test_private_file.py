# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that holds a secret is its owner's alone, and whole or not there."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import files
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem


def test_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    files.write_private_file(str(path), "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["config"]


def test_a_report_keeps_the_mode_that_its_owner_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "report"
    files.write_private_file(str(path), "first", keep_mode=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    files.write_private_file(str(path), "second", keep_mode=True)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("second", 0o644)


def test_a_file_of_another_user_does_not_decide_who_reads_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    path.write_text("planted")
    path.chmod(0o666)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    files.write_private_file(str(path), "new", keep_mode=True)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)


@pytest.mark.parametrize("existing", [True, False])
def test_a_symbolic_link_is_refused_and_not_followed(tmp_path: Path, existing: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if existing:
        target.write_text("of another user")
    link.symlink_to(target)
    for keep_mode in (True, False):
        with pytest.raises(ConnectionProblem, match=r"link cannot be written: it is a symbolic link.*delete the link"):
            files.write_private_file(str(link), "new", keep_mode=keep_mode)
    assert link.is_symlink()
    assert (target.read_text() if existing else target.exists()) == ("of another user" if existing else False)
    assert sorted(os.listdir(tmp_path)) == (["link", "target"] if existing else ["link"])


def test_a_link_that_appears_at_the_last_moment_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_text("of another user")
    replace = os.replace

    def late(old: str, new: str) -> None:
        path.symlink_to(target)
        replace(old, new)

    monkeypatch.setattr(os, "replace", late)
    files.write_private_file(str(path), "new")
    assert (path.is_symlink(), path.read_text(), target.read_text()) == (False, "new", "of another user")


def test_only_files_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConnectionProblem, match="pipe cannot be written: it is not a regular file"):
        files.write_private_file(str(tmp_path / "pipe"), "new")
    (tmp_path / "folder").mkdir(mode=0o600)
    for call in (
        files.write_private_file,
        files.file_holds,
        lambda path, dummy: files.text_of_file(path),
    ):
        # The preview of a module compares the content, and must fail in the same way.
        with pytest.raises(ConnectionProblem, match="folder cannot be written: it is a directory"):
            call(str(tmp_path / "folder"), "new")
        with pytest.raises(ConnectionProblem, match="null cannot be written: it is not a regular file"):
            call("/dev/null", "new")


def test_what_a_killed_run_has_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config"

    def kill(dummy: int) -> None:
        raise KeyboardInterrupt  # nothing after it runs, as after a SIGKILL

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", kill)
        with pytest.raises(KeyboardInterrupt):
            files.write_private_file(str(path), "a key")
    (remaining,) = tmp_path.iterdir()
    # Of a process that is no more; this one still runs.
    dead = remaining.rename(remaining.with_name(re.sub(r"-\d+-\w+$", "-1-abc", remaining.name)))
    files.write_private_file(str(path), "new")
    assert dead.exists(), "it may be another machine's that is just being written"
    os.utime(dead, (0, 0))
    files.write_private_file(str(path), "newer")
    assert os.listdir(tmp_path) == ["config"]


def test_a_failed_write_is_reported_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConnectionProblem, match="nowhere/config cannot be written: No such file or directory"):
        files.write_private_file(str(tmp_path / "nowhere" / "config"), "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConnectionProblem, match="folder cannot be written"):
        files.write_private_file(str(tmp_path / "folder"), "new")
    assert os.listdir(tmp_path) == ["folder"]
