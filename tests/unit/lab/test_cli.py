# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shell commands of `lab/lab env`: they name the folder of the collection, which `make venv` creates."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab import cli, operators, parts


@pytest.mark.parametrize("linked", [True, False])
def test_env_names_what_links_the_collection(
    linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if linked:
        (tmp_path / "build" / "ansible_collections").mkdir(parents=True)
    monkeypatch.setattr(cli, "REPO", tmp_path)
    monkeypatch.setattr(operators, "link_charts", lambda dummy: None)
    monkeypatch.setattr(parts, "of", lambda dummy: [])
    folder = tmp_path / "lab"
    names = {"name": "lab", "dir": folder, "bin": folder, "charts": folder, "kubeconfig": folder, "ports": dict}
    cli._env(cast(Any, SimpleNamespace(**names)), cast(Any, SimpleNamespace(rbac=None)))
    printed = capsys.readouterr()
    assert f"export ANSIBLE_COLLECTIONS_PATH={tmp_path}/build" in printed.out.splitlines()
    assert ("run 'make venv'" in printed.err) is not linked
