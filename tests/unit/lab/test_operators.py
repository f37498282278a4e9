# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Releases of the GPU operator that a user adds: what is rejected, what is copied, and how they are listed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.releases import OPERATOR_VERSION
from lab import operators
from lab.errors import LabError
from lab.layout import Lab
from lab.tools import OPERATORS

VERSION = "v26.3.1"
CRD = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
CLUSTER_POLICY = {**CRD, "metadata": {"name": "clusterpolicies.nvidia.com"}}
USAGE = "\n".join(f"  -{flag}" for flag in operators._FLAGS)


class Files:
    """The files of a release as a user has them: NVIDIA's sources, and a built program."""

    def __init__(self, folder: Path) -> None:
        self.sources = folder / "sources"
        self.program = folder / "build" / "gpu-operator"
        self.program.parent.mkdir(parents=True)
        # Any ELF program; what it prints is replaced.
        shutil.copy(Path("/proc/self/exe").resolve(), self.program)
        self.chart = self.sources / "deployments" / "gpu-operator"
        self.write("Chart.yaml", {"name": "gpu-operator", "version": "v1.0.0-devel", "appVersion": "v1.0.0-devel"})
        for name in ("values.yaml", "templates/operator.yaml", "templates/clusterpolicy.yaml"):
            self.write(name, {})
        self.write("crds/nvidia.com_clusterpolicies.yaml", CLUSTER_POLICY)
        for name in ("assets/state-driver", "assets/state-dcgm", "manifests/state-driver"):
            (self.sources / name).mkdir(parents=True)

    def write(self, name: str, content: object) -> None:
        path = self.chart / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(content))

    def add(self, version: str = VERSION, crds: Path | None = None) -> tuple[operators.LabOperator, list[str]]:
        return operators.add(version, self.program, self.chart, crds, None)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("ACCEL_GPU_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(operators, "LABS", tmp_path / "labs")
    monkeypatch.setattr(operators, "_usage", lambda program: USAGE)
    return Files(tmp_path)


def known() -> list[tuple[str, str]]:
    return [(row["version"], row["state"]) for row in map(operators.describe, operators.releases())]


def test_an_added_release_is_listed_found_and_removed(files: Files) -> None:
    assert known() == [("v25.3.2", "not built"), ("v25.10.1", "not built")]
    added, remarks = files.add()
    assert remarks == []
    assert known() == [("v25.3.2", "not built"), ("v25.10.1", "not built"), (VERSION, "added")]
    assert operators.find(VERSION) == added
    assert operators.find("v26.3.2") is None
    assert yaml.safe_load((added.chart / "Chart.yaml").read_text()) == {
        "name": "gpu-operator",
        "version": VERSION,
        "appVersion": VERSION,
    }
    assert sorted(path for path in added.files().values() if path.startswith("/opt/")) == [
        "/opt/gpu-operator/manifests",
        "/opt/gpu-operator/state-dcgm",
        "/opt/gpu-operator/state-driver",
    ]
    operators.remove(VERSION)
    assert operators.find(VERSION) is None
    with pytest.raises(LabError, match=f"no GPU operator {VERSION} has been added; known: v25.3.2, v25.10.1"):
        operators.remove(VERSION)


def test_adding_again_replaces_the_release(files: Files) -> None:
    files.add()
    files.write("values.yaml", {"second": True})
    added, _remarks = files.add()
    assert yaml.safe_load((added.chart / "values.yaml").read_text()) == {"second": True}


def test_a_chart_of_another_version_is_copied_with_the_new_version(files: Files) -> None:
    files.write("Chart.yaml", {"name": "gpu-operator", "version": "v25.3.2", "appVersion": "v25.3.2"})
    added, remarks = files.add()
    assert remarks == [f"the chart states version v25.3.2; its copy states {VERSION}"]
    assert yaml.safe_load((added.chart / "Chart.yaml").read_text())["version"] == VERSION


def test_own_crds_replace_those_of_the_chart(files: Files, tmp_path: Path) -> None:
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "all.yaml").write_text(
        yaml.safe_dump_all([CLUSTER_POLICY, {**CRD, "metadata": {"name": "a"}}])
    )
    added, _remarks = files.add(crds=tmp_path / "crds")
    assert [path.name for path in (added.chart / "crds").iterdir()] == ["all.yaml"]


def test_without_assets_those_of_the_nearest_older_release_are_used(files: Files) -> None:
    for version in ("v26.2.0", "v26.4.0"):
        files.add(version)
    shutil.rmtree(files.sources / "assets")
    added, remarks = files.add()
    assert remarks == [
        "no assets next to the chart or the binary: those of v26.2.0 are used; set others with --image-files"
    ]
    assert (added.program.parents[1] / "assets" / "state-dcgm").is_dir()


def test_the_charts_are_linked_into_every_lab(files: Files, tmp_path: Path) -> None:
    charts = tmp_path / "labs" / "one" / "charts"
    charts.mkdir(parents=True)
    (charts / "gpu-operator").mkdir()
    added, _remarks = files.add()
    assert (charts / f"gpu-operator-{VERSION}").readlink() == added.chart
    operators.link_charts(Lab("one", charts.parent))
    operators.remove(VERSION)
    assert [path.name for path in charts.iterdir()] == ["gpu-operator"]


def _without(name: str) -> Callable[[Files], None]:
    return lambda files: (files.chart / name).unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.program.chmod(0o644), "is not executable; run 'chmod [+]x"),
        (lambda files: files.program.unlink(), "build/gpu-operator is not a file"),
        (lambda files: files.program.write_text("#!/bin/sh\n"), "is not a Linux executable"),
        (
            lambda files: files.program.write_bytes(files.program.read_bytes()[:18] + b"\xff\xff"),
            "is built for a CPU architecture other than",
        ),
        (_without("Chart.yaml"), "--chart: .* has no Chart.yaml"),
        (lambda files: (files.chart / "Chart.yaml").write_text("{"), "cannot read .*Chart.yaml: while parsing"),
        (lambda files: files.write("Chart.yaml", {"name": "network-operator"}), "is 'network-operator', not 'gpu-op"),
        (_without("templates/operator.yaml"), "is incomplete: it has no templates/operator.yaml"),
        (
            lambda files: files.write(
                "Chart.yaml", {"name": "gpu-operator", "dependencies": [{"name": "node-feature-discovery"}]}
            ),
            "lacks its sub-chart 'node-feature-discovery'; run 'helm dependency build",
        ),
        (lambda files: shutil.rmtree(files.chart / "crds"), "--crds: .*crds is not a folder"),
        (_without("crds/nvidia.com_clusterpolicies.yaml"), "no file in .* defines clusterpolicies.nvidia.com"),
        (lambda files: files.write("crds/other.yaml", {"kind": "Secret"}), "other.yaml contains a Secret"),
        (lambda files: shutil.rmtree(files.sources / "manifests"), "--image-files is missing"),
    ],
)
def test_an_invalid_release_is_refused_before_anything_is_written(
    files: Files, change: Callable[[Files], None], message: str
) -> None:
    change(files)
    with pytest.raises(LabError, match=message):
        files.add()
    assert VERSION not in dict(known())


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("26.3.0", "'26.3.0' is not a version like v26.3.0, as in the tag of the image; write v26.3.0"),
        ("latest", "'latest' is not a version"),
        ("v26.3", "'v26.3' is not a version"),
        ("../v26.3.0", "is not a version"),
        ("v25.10.1", "the lab builds GPU operator v25.10.1; choose another version"),
    ],
)
def test_versions(files: Files, version: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        files.add(version)


def test_a_program_without_the_controllers_flags_is_refused(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_usage", lambda program: "usage: cat")
    with pytest.raises(LabError, match="is not the GPU operator's controller: it has no flag --leader-elect"):
        files.add()


def test_a_release_of_the_lab_cannot_be_removed(files: Files) -> None:
    with pytest.raises(LabError, match="is built by the lab and cannot be removed"):
        operators.remove("v25.10.1")


def test_every_lab_has_the_default_release_of_the_collection() -> None:
    """The inventories for the lab declare no release, except that of LAB_OPERATOR_VERSION."""
    assert next(iter(OPERATORS)) == OPERATOR_VERSION
