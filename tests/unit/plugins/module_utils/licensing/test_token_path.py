# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of the token in the action plugin of license."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.accel.gpu.plugins.action.license import ActionModule
from ansible_collections.accel.gpu.plugins.modules import license as license_module
from ansible_collections.accel.gpu.plugins.plugin_utils import module_action
from tests.helpers.modules import run_module


@pytest.mark.parametrize(
    ("given", "resolved"),
    [
        ("new.tok", "{cwd}/new.tok"),
        ("../x/new.tok", "{parent}/x/new.tok"),
        ("~/a.tok", "/home/a/a.tok"),
        ("/b.tok", "/b.tok"),
        (None, None),
    ],
)
def test_a_relative_path_is_that_of_the_folder_of_the_user(
    given: str | None, resolved: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/a")
    monkeypatch.setattr(ActionBase, "run", lambda *dummy: {})
    monkeypatch.setattr(module_action, "same_cluster", lambda *dummy: "ends before the module runs")
    action = cast(Any, object.__new__(ActionModule))
    action._task = SimpleNamespace(args={"token_path": given} if given else {})
    wanted = resolved.format(cwd=tmp_path, parent=tmp_path.parent) if resolved else None
    assert action.run(None, {})["failed"]
    assert action._task.args.get("token_path") == wanted


def test_the_message_names_the_path(tmp_path: Path) -> None:
    options = {"gpu_cluster": {"name": "a"}, "gpu_pools": [], "token_path": str(tmp_path / "new.tok")}
    result = run_module(license_module.main, options)
    assert (
        f"gpu_licensing_token_path (option token_path of the module): {tmp_path}/new.tok cannot be read: No such file or directory"
        in result["msg"]
    )
