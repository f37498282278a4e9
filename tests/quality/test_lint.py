# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every linter of the project as a test; `make lint` runs these tests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lab import toolchains
from tests.programs import BUILD, run, tracked

COLLECTION = BUILD / "ansible_collections" / "accel" / "gpu"


def shell_scripts() -> list[Path]:
    """Shell scripts, by their file name or their first line."""
    plain = [path for path in tracked("tools", "lab/lab", ".ci", "*.sh") if path.is_file()]
    return sorted({path for path in plain if path.suffix == ".sh" or b"sh" in path.read_bytes().partition(b"\n")[0]})


def test_python_rules() -> None:
    run("ruff", "check", "--quiet", ".")


def test_python_format() -> None:
    run("ruff", "format", "--check", "--quiet", ".")


@pytest.mark.usual(20)
def test_python_types() -> None:
    run("mypy", COLLECTION / "plugins", "lab", "tests")


@pytest.mark.usual(2)
def test_yaml() -> None:
    run("yamllint", "--strict", ".")


@pytest.mark.usual(2)
def test_shell() -> None:
    run("shellcheck", "--external-sources", "--source-path=SCRIPTDIR", *shell_scripts())


@pytest.mark.usual(2)
def test_changelog() -> None:
    run("antsibull-changelog", "lint")


@pytest.mark.usual(40)
def test_ansible_lint(tree: Path, rng: random.Random) -> None:
    """It takes seconds for each playbook, so `make test` draws playbooks and roles; scenarios and tests are run by their own tests."""
    playbooks, roles = (
        sorted(path.relative_to(tree) for path in tree.glob(each)) for each in ("playbooks/*.yml", "roles/*")
    )
    drawn = {*rng.sample(playbooks, 5), *rng.sample(roles, 5)}
    lint(tree, "molecule", "tests", *(path for path in (*playbooks, *roles) if path not in drawn))


@pytest.mark.soak
@pytest.mark.usual(200)
def test_ansible_lint_of_all_files(tree: Path) -> None:
    lint(tree)


def lint(tree: Path, *but: Path | str) -> None:
    left_out = [f"--exclude={path}" for path in (*but, "build", "changelogs", "lab")]
    run("ansible-lint", "--profile", "production", "--strict", "--offline", *left_out, cwd=tree)


@pytest.mark.usual(20)
def test_plugin_docs(tree: Path) -> None:
    run("antsibull-docs", "lint-collection-docs", "--plugin-docs", tree)


def test_go_format() -> None:
    go = toolchains.find_go().program.resolve()
    assert run(go.with_name("gofmt"), "-l", *tracked("*.go")) == ""
