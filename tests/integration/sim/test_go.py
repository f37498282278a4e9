# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests, vet and format of the lab's Go programs, with the Go toolchain that builds them."""

from __future__ import annotations

import pytest

from lab import toolchains
from lab.layout import LAB
from tests.programs import run


def vet_and_test(folder: str) -> None:
    go = toolchains.find_go().program
    for words in (("vet", "-trimpath"), ("test", "-trimpath", "-vet=off")):
        run(go, *words, "./...", cwd=LAB / folder, env=toolchains.go_environment())


@pytest.mark.usual(40)
def test_rules_and_agents() -> None:
    vet_and_test("sim")


@pytest.mark.usual(30)
def test_vcsim() -> None:
    vet_and_test("vcsim")


@pytest.mark.usual(10)
def test_host() -> None:
    run(toolchains.find_go().program, "vet", "-trimpath", "./...", cwd=LAB / "host", env=toolchains.go_environment())


@pytest.mark.parametrize("folder", ["host", "nvml", "sim", "vcsim"])
def test_format(folder: str) -> None:
    gofmt = toolchains.find_go().program.with_name("gofmt")
    program = gofmt if gofmt.exists() else "gofmt"
    assert run(program, "-l", ".", cwd=LAB / folder, env=toolchains.go_environment()) == ""
