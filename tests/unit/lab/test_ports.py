# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of labs that start at the same time, before their services listen."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from lab import ports
from lab.errors import LabError
from lab.layout import Lab


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("ACCEL_GPU_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(ports, "_claims", {})
    (tmp_path / "lab").mkdir()
    return Lab.named("own", tmp_path / "lab")


def test_ports_of_a_starting_lab_are_not_used(lab: Lab, tmp_path: Path) -> None:
    first = ports.choose(lab, None)
    ports._claims.clear()
    with (tmp_path / "cache" / "ports" / f"{first}.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        second = ports.choose(lab, None)
        assert second > first
        assert ports.choose(lab, None) == second, "a process can reuse its own claim"
        with pytest.raises(LabError, match="another lab is starting"):
            ports.choose(lab, first)
    assert ports.choose(lab, first) == first
