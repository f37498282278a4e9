# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Printed lines contain no escape sequence of the terminal, because others may write the text of objects in a cluster."""

from __future__ import annotations

import subprocess
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


@pytest.mark.sampled(1)
@pytest.mark.usual(8)
@pytest.mark.parametrize(
    ("callback", "redirection", "in_stdout"),
    [
        ("default", "> {out} 2> {err}", 1),
        ("default", "2> {err} | cat > {out}", 1),
        ("default", "> {out} 2>&1", 1),
        ("ansible.posix.json", "> {out} 2> {err}", 0),
    ],
)
def test_a_redirected_output_contains_the_lines_once(
    tmp_path: Path, callback: str, redirection: str, in_stdout: int
) -> None:
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"accel.gpu.print_lines": {"lines": ["the table"]}}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    out, err = tmp_path / "out", tmp_path / "err"
    err.touch()
    command = f"ansible-playbook {tmp_path}/play.yml {redirection.format(out=out, err=err)}"
    environ = environment(LC_ALL="C.UTF-8", ANSIBLE_STDOUT_CALLBACK=callback)
    subprocess.run(["bash", "-o", "pipefail", "-c", command], env=environ, check=True)
    assert out.read_text().count("the table") == in_stdout
    assert err.read_text().count("the table") == (0 if "2>&1" in redirection else 1)
