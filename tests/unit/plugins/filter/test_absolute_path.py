# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter that makes a path of this machine absolute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.absolute_path import FilterModule, absolute_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("pools.yml", "{here}/pools.yml"),
        ("out/report.json", "{here}/out/report.json"),
        ("link", "{here}/link"),
        ("~/pools.yml", "/home/ops/pools.yml"),
        ("/srv/pools.yml", "/srv/pools.yml"),
        ("", ""),
        (None, ""),
    ],
)
def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str | None, expected: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ops")
    (tmp_path / "link").symlink_to("/etc/hosts")
    assert FilterModule().filters()["absolute_path"](path) == expected.format(here=tmp_path.resolve())


@pytest.mark.parametrize("path", [5, ["a"], {"a": 1}, False])
def test_other_values(path: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="is not a path"):
        absolute_path(path)
