# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of `lab/lab labels`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab import agent_cli
from lab.errors import LabError


@pytest.mark.parametrize(
    ("gpus", "layout", "mig"),
    [
        (2, None, {}),
        (1, "on", {0: ()}),
        (2, "7g.141gb", {0: ("7g.141gb@0",), 1: ("7g.141gb@0",)}),
        (1, "1g.18gb:2,3g.71gb", {0: ("3g.71gb@0", "1g.18gb@4", "1g.18gb@5")}),
    ],
)
def test_node(gpus: int, layout: str | None, mig: Mapping[int, tuple[str, ...]]) -> None:
    node = agent_cli.node("H200", gpus, "580.159.04", layout)
    assert node.mig == mig
    assert (node.hardware["gpus"], node.hardware["memory_mib"]) == (gpus, 143771)


@pytest.mark.parametrize(
    ("model", "gpus", "driver", "layout", "message"),
    [
        ("H2000", 1, "580.159.04", None, "--model: 'H2000' is not in the catalog; nearest: H200"),
        ("H200", 0, "580.159.04", None, "--gpus: 0 is not a positive number"),
        ("H200", 1, "1.2.3", None, "--driver: unknown branch 1"),
        ("L4", 1, "580.159.04", "on", "--mig: L4 does not support MIG"),
        ("H200", 1, "580.159.04", "1g.18gb:two", "--mig: '1g.18gb:two' is not PROFILE or PROFILE:COUNT"),
        ("H200", 1, "580.159.04", "3g.71gb:3", "--mig: H200 has room for 2 x 3g.71gb, not for 3"),
    ],
)
def test_invalid_arguments(model: str, gpus: int, driver: str, layout: str | None, message: str) -> None:
    with pytest.raises(LabError, match=message.replace("(", r"\(")):
        agent_cli.node(model, gpus, driver, layout)


def test_lines_are_sorted_and_errors_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert agent_cli.show((["b=2", "a=1"], "")) == 0
    assert agent_cli.show((["c=3"], "unknown version: v2")) == 1
    assert capsys.readouterr() == ("a=1\nb=2\n", "unknown version: v2\n")
