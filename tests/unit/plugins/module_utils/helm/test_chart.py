# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of a chart from its files, and the CRDs in rendered output."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.release import (
    Chart,
    ChartProblem,
    custom_resource_definitions,
    is_local_chart,
    read_chart,
)

CHART_YAML = "name: x\nversion: 1.2.3\nappVersion: v9\n"

RENDERED = """---
# Source: x/crds/a.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: as.example.org
  creationTimestamp: null
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: bs.example.org
---
# Source: x/charts/sub/crds/c.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cs.example.org}
---
# Source: x/templates/crd.yaml
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: templated.example.org}
---
# Source: x/templates/deployment.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: operator
---
# Source: x/templates/worker.yaml
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: worker}
"""


def test_the_crds_of_the_chart_and_its_enabled_subcharts() -> None:
    actual = custom_resource_definitions(RENDERED)
    assert [item["metadata"] for item in actual] == [{"name": f"{name}s.example.org"} for name in "abc"]


@pytest.mark.parametrize(
    ("reference", "local"),
    [
        ("/charts/x", True),
        ("./x", True),
        ("~/x", True),
        ("x-1.tgz", True),
        ("oci://registry/x", False),
        ("https://example.org/x.tgz", False),
        ("x", False),
        ("repository/x", False),
    ],
)
def test_is_local_chart(reference: str, local: bool) -> None:
    assert is_local_chart(reference) is local


def test_a_chart_is_read_unpacked_and_packed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "Chart.yaml").write_text(CHART_YAML)
    assert read_chart(str(tmp_path / "x")) == Chart("x", "1.2.3", "v9")
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as archive:
        for name, text in (("x/charts/y/Chart.yaml", "name: y\n"), ("x/Chart.yaml", CHART_YAML)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert read_chart(str(tmp_path / "x.tgz")).label == "x-1.2.3"


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "has no Chart.yaml"), ("a: [", "is not YAML"), ("- 1", "has no chart name")]
)
def test_problems_of_charts(tmp_path: Path, text: str | None, problem: str) -> None:
    if text is not None:
        (tmp_path / "Chart.yaml").write_text(text)
    with pytest.raises(ChartProblem, match=problem):
        read_chart(str(tmp_path))
    with pytest.raises(ChartProblem, match="does not exist"):
        read_chart(str(tmp_path / "nothing.tgz"))
    (tmp_path / "bad.tgz").write_text("no archive")
    with pytest.raises(ChartProblem, match="cannot be read"):
        read_chart(str(tmp_path / "bad.tgz"))
