# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's simulator knows the same versions of CUDA as its Python code and as the collection."""

from __future__ import annotations

import re

from ansible_collections.accel.gpu.plugins.module_utils.catalog import releases
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


def test_the_gpus_that_a_cuda_version_supports() -> None:
    source = (LAB / "sim" / "rules" / "programs.go").read_text()
    [table] = re.findall(r"minCompute += map\[int\]float64\{(.*)\}", source)
    least = {int(major): (int(high), int(low)) for major, high, low in re.findall(r"(\d+): (\d+)\.(\d+)", table)}
    assert least
    for major, compute in least.items():
        assert releases.runs_on_cuda((major, 0), compute)
        assert not releases.runs_on_cuda(
            (major, 0), (compute[0], compute[1] - 1) if compute[1] else (compute[0] - 1, 9)
        )
    assert not releases.runs_on_cuda((max(least), 0), (0, 0))
    # The collection knows no further version.
    assert all(releases.runs_on_cuda((major, 0), (0, 0)) for major in range(20) if major not in least)
