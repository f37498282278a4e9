# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's Python code and its simulator report the same CUDA version for each driver branch."""

from __future__ import annotations

import re

from lab.layout import LAB
from lab.systems import CUDA_OF_BRANCH


def test_cuda_versions_of_driver_branches() -> None:
    source = (LAB / "sim" / "rules" / "releases.go").read_text()
    _before, table, rest = source.partition("var cudaOfBranch = map[string]string{")
    assert table
    assert dict(re.findall(r'"(\d+)": "([\d.]+)"', rest.partition("\n}")[0])) == CUDA_OF_BRANCH
    versions = [tuple(map(int, version.split("."))) for version in CUDA_OF_BRANCH.values()]
    assert versions == sorted(set(versions))
    assert CUDA_OF_BRANCH["610"] == "13.3"
