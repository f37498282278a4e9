# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The path of the token in the action plugin of license."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ansible.plugins.action import ActionBase

from ansible_collections.accel.gpu.plugins.action.license import ActionModule
from ansible_collections.accel.gpu.plugins.module_utils.licensing import module as token_module
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
    action._task = SimpleNamespace(run_once=False, args={"token_path": given} if given else {})
    expected = resolved.format(cwd=tmp_path, parent=tmp_path.parent) if resolved else None
    assert action.run(None, {})["failed"]
    assert action._task.args.get("token_path") == expected


def test_the_message_names_the_path(tmp_path: Path) -> None:
    options = {"gpu_cluster": {"name": "a"}, "gpu_pools": [], "token_path": str(tmp_path / "new.tok")}
    result = run_module(license_module.main, options)
    assert (
        f"gpu_licensing_token_path (option token_path of the module): {tmp_path}/new.tok cannot be read: No such file or directory"
        in result["msg"]
    )


def test_a_file_whose_reader_would_wait_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg, which is a regular file by its type."""
    path = tmp_path / "new.tok"
    path.touch()

    class WithoutData(io.FileIO):
        def read(self, size: int | None = -1, /) -> Any:
            return None

    def open_file(name: str, mode: str, *, opener: Any) -> io.FileIO:
        return WithoutData(name, mode, opener=opener)

    monkeypatch.setattr(token_module, "open", open_file, raising=False)
    options = {"gpu_cluster": {"name": "a"}, "gpu_pools": [], "token_path": str(path)}
    result = run_module(license_module.main, options)
    assert result["msg"] == f"gpu_licensing_token_path (option token_path of the module): {path} is not a regular file"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "huge"])
def test_only_a_file_of_the_size_of_a_token_is_read(kind: str, tmp_path: Path) -> None:
    path, reason = tmp_path / "new.tok", "is not a regular file"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "directory":
        path.mkdir()
        reason = "cannot be read: Is a directory"
    else:
        with path.open("wb") as file:
            file.truncate(10**12)
        reason = "has 1000000000000 bytes; a token has about 2,700 bytes, and at most 65536 bytes are read"
    options = {"gpu_cluster": {"name": "a"}, "gpu_pools": [], "token_path": str(path)}
    result = run_module(license_module.main, options)
    assert result["msg"] == f"gpu_licensing_token_path (option token_path of the module): {path} {reason}"
