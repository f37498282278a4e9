# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file that holds a secret is its owner's alone, and whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.running import private_file
from ansible_collections.accel.gpu.plugins.module_utils.running.errors import ConnectionProblem


def test_written_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("old")
    path.chmod(0o644)
    private_file.write(str(path), "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["config"]


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConnectionProblem, match="nowhere/config cannot be written: No such file or directory"):
        private_file.write(str(tmp_path / "nowhere" / "config"), "new")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConnectionProblem, match="folder cannot be written"):
        private_file.write(str(tmp_path / "folder"), "new")
    assert os.listdir(tmp_path) == ["folder"]
