# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Printed lines contain no escape sequence of the terminal, because others may write the text of objects in a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.helpers.playbook import run_playbook
from tests.programs import environment


@pytest.mark.usual(4)
def test_escape_sequences_are_printed_as_text(tmp_path: Path) -> None:
    lines = ["drift of a: \x1b[2J\u202e", "MIG ┊ ünïcode"]
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"accel.gpu.print_lines": {"lines": lines}}]}
    path = tmp_path / "play.yml"
    path.write_text(yaml.safe_dump([play]))
    result = run_playbook(str(path), environ=environment(LC_ALL="C.UTF-8"))
    result.require_success()
    assert r"drift of a: \u001b[2J\u202e" in result.stderr
    assert "MIG ┊ ünïcode" in result.stderr
