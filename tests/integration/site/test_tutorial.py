# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands of the tutorials, in their order, in labs of their own; their output has the lines that the pages show.

Blocks in the language `shell` are commands, and a block `text` is the output of the commands before it. The only block `console` gets the
repository, which the test already has.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.labs import LAB, build_lab, free_name
from tests.programs import BUILD, REPO, environment, run

# Each page with the parts that its lab needs besides those of every lab.
PAGES: dict[str, tuple[str, ...]] = {
    "tutorial.md": (),
    "tutorial-vsphere.md": ("vsphere", "registry", "toxiproxy"),
}
FOLDER = BUILD / "tutorial"
_BLOCK = re.compile(r"^```(shell|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each block of commands with the lines of output that the page shows for it."""
    actual: list[tuple[str, list[str]]] = []
    for language, text in _BLOCK.findall((REPO / "docs" / page).read_text(encoding="utf-8")):
        if language == "shell":
            actual.append((text, []))
        else:
            actual[-1][1].extend(line for line in text.splitlines() if line.strip() not in ("", "..."))
    return actual


def missing(lines: list[str], output: str) -> list[str]:
    """The lines that are not in the output in this order; `...` stands for any text, and the widths of columns may differ."""
    remaining = iter([" ".join(line.split()) for line in output.splitlines()])
    patterns = [(line, ".*".join(map(re.escape, " ".join(line.split()).split("...")))) for line in lines]
    return [line for line, pattern in patterns if not any(re.fullmatch(pattern, shown) for shown in remaining)]


class Shell:
    """A bash that runs one block after the other, as a reader's terminal does."""

    def __init__(self, env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=REPO,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, commands: str) -> str:
        """The output of a block; the test fails at the first command that fails."""
        end = "END OF THE BLOCK"
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(f"set -e\n{{\n{commands}}} </dev/null\nset +e\necho; echo '{end}'\n")
        self._process.stdin.flush()
        output: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == end:
                return "".join(output)
            output.append(line)
        pytest.fail(f"a command of this block failed:\n{commands}\n{''.join(output[-60:])}", pytrace=False)

    def close(self) -> None:
        """End the shell."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def reader() -> Iterator[Shell]:
    """The shell of a reader who has no lab yet; afterwards, nothing of the tutorial is left, even if it stopped early."""
    with free_name("tutorial") as name:
        run(LAB, "--name", name, "down", "--delete")
        shutil.rmtree(FOLDER, ignore_errors=True)
        shell = Shell(environment(LAB_NAME=name))
        try:
            yield shell
        finally:
            shell.close()
            run(LAB, "--name", name, "down", "--delete")
            shutil.rmtree(FOLDER, ignore_errors=True)


@pytest.mark.sampled(1, group="whole runs")
@pytest.mark.usual(150)
@pytest.mark.parametrize("page", PAGES)
def test_a_newcomer_can_follow_the_tutorial(request: pytest.FixtureRequest, page: str) -> None:
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        build_lab()
        if parts := PAGES[page]:
            build_lab(*parts)
    with reader() as shell:
        for commands, lines in steps(page):
            output = shell.run(commands)
            assert missing(lines, output) == [], output
    assert not Path(FOLDER).exists()


@pytest.mark.parametrize("page", PAGES)
def test_the_tutorial_shows_output_of_commands(page: str) -> None:
    assert len(steps(page)) > 10
    assert sum(bool(lines) for _, lines in steps(page)) > 6
    assert missing(["a ... b", "c"], "x\na  1 b\nc\n") == []
    assert missing(["c", "a ... b"], "a 1 b\nc\n") == ["a ... b"]
