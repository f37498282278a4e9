# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts from their files, helm's reasons in one line, and the workloads of a manifest."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.chart import (
    Chart,
    ChartProblem,
    custom_resource_definitions,
    is_local,
    read,
)
from ansible_collections.accel.gpu.plugins.module_utils.helm.cli import Helm, is_running, shorten_output
from ansible_collections.accel.gpu.plugins.module_utils.helm.workloads import (
    format_rollout,
    pod_failures,
    workload_rollout,
    workloads,
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
    found = custom_resource_definitions(RENDERED)
    assert [item["metadata"] for item in found] == [{"name": f"{name}s.example.org"} for name in "abc"]


def test_workloads_of_a_manifest() -> None:
    assert workloads(RENDERED) == [("Deployment", "operator"), ("DaemonSet", "worker")]
    assert workloads("") == []


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
def test_a_reference_is_a_path_when_it_says_so(reference: str, local: bool) -> None:
    assert is_local(reference) is local


def test_a_chart_is_read_unpacked_and_packed(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "Chart.yaml").write_text(CHART_YAML)
    assert read(str(tmp_path / "x")) == Chart("x", "1.2.3", "v9")
    with tarfile.open(tmp_path / "x.tgz", "w:gz") as archive:
        for name, text in (("x/charts/y/Chart.yaml", "name: y\n"), ("x/Chart.yaml", CHART_YAML)):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert read(str(tmp_path / "x.tgz")).label == "x-1.2.3"


@pytest.mark.parametrize(
    ("text", "said"), [(None, "holds no Chart.yaml"), ("a: [", "is not YAML"), ("- 1", "names no chart")]
)
def test_what_is_no_chart_is_told(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "Chart.yaml").write_text(text)
    with pytest.raises(ChartProblem, match=said):
        read(str(tmp_path))
    with pytest.raises(ChartProblem, match="does not exist"):
        read(str(tmp_path / "nothing.tgz"))
    (tmp_path / "bad.tgz").write_text("no archive")
    with pytest.raises(ChartProblem, match="cannot be read"):
        read(str(tmp_path / "bad.tgz"))


@pytest.mark.parametrize(
    ("errors", "said"),
    [
        ("Error: dial tcp 127.0.0.1:9: connect: connection refused\n", "Nothing answers there"),
        ("Error: lookup example.org: no such host\n", "does not resolve"),
        ('Error: chart "x" version "9" not found in http://r repository', "Check the chart's name and version"),
        ("Error: repo x not found", "name and version"),
        ("Error: unexpected status: 401 Unauthorized", "registry login"),
        ("", "helm gave no reason"),
    ],
)
def test_helms_reason_is_one_line_with_what_to_do(errors: str, said: str) -> None:
    line = shorten_output(errors)
    assert said in line
    assert "\n" not in line
    assert not line.startswith("helm says: Error")


def test_helm_gets_no_value_on_its_command_line_and_no_cluster(tmp_path: Path) -> None:
    calls: list[tuple[list[str], dict[str, str]]] = []
    inputs: list[str | None] = []

    def run(args: list[str], *, environ_update: dict[str, str], data: str | None = None) -> tuple[int, str, str]:
        calls.append((args, environ_update))
        inputs.append(data)
        return (
            (1, "", "Error: chart requires kubeVersion which is incompatible with Kubernetes v1")
            if len(calls) == 1
            else (0, "out", "")
        )

    helm = Helm("helm", run, str(tmp_path))
    assert helm.render("/charts/x", "x", "ns", {"password": "s3cr3t"}, lambda: "v1.36.4") == "out"
    assert all(
        "s3cr3t" not in " ".join(args) and environment["KUBECONFIG"] == "/dev/null" for args, environment in calls
    )
    assert calls[1][0][-2:] == ["--kube-version", "v1.36.4"]
    assert inputs == ["password: s3cr3t\n"] * 2
    assert list(tmp_path.iterdir()) == [], "a file would stay where the run is killed"


@pytest.mark.parametrize(
    ("arguments", "working"),
    [
        (["/usr/bin/helm", "upgrade", "-i", "nfd", "/charts/nfd"], True),
        (["helm", "--namespace=x", "upgrade", "other", "c"], False),
        (["python", "helm", "nfd"], False),
        ([""], False),
        ([], False),
    ],
)
def test_a_helm_at_work_on_the_release(arguments: list[str], working: bool) -> None:
    assert is_running("nfd", [["sh"], arguments]) is working


def live(kind: str, generation: int = 1, observed: int = 1, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"name": "w", "generation": generation},
        "spec": {
            "selector": {"matchLabels": {"b": "2", "a": "1"}},
            **({"replicas": 2} if kind == "Deployment" else {}),
        },
        "status": {"observedGeneration": observed, **status},
    }


@pytest.mark.parametrize(
    ("kind", "found", "done"),
    [
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=3), True),
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=2, numberAvailable=3), False),
        ("DaemonSet", live("DaemonSet", desiredNumberScheduled=3, updatedNumberScheduled=3, numberAvailable=2), False),
        ("DaemonSet", live("DaemonSet", generation=2), False),
        ("DaemonSet", live("DaemonSet", observed=0), False),
        ("Deployment", live("Deployment", updatedReplicas=2, availableReplicas=2), True),
        ("Deployment", live("Deployment", updatedReplicas=2, availableReplicas=1), False),
        ("Deployment", live("Deployment"), False),
    ],
)
def test_a_workload_is_rolled_out(kind: str, found: dict[str, Any], done: bool) -> None:
    assert workload_rollout(kind, found).done is done
    assert workload_rollout(kind, found).selector == "a=1,b=2"


def test_what_ails_pods_the_worst_first() -> None:
    def pod(name: str, node: str = "n", **status: Any) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": status}

    ready: dict[str, Any] = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "c"}],
    }
    crash = {"name": "c", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    found = pod_failures(
        [
            pod("fine", "n", **ready),
            pod("starting", phase="Running", containerStatuses=[{"name": "c"}]),
            pod(
                "pending",
                "",
                phase="Pending",
                conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}],
            ),
            pod("crashing", "gpu-1", phase="Running", containerStatuses=[crash]),
        ]
    )
    lines = [format_rollout(ailment) for ailment in found]
    assert "crashing" in lines[0]
    assert "CrashLoopBackOff" in lines[0]
    assert "on node gpu-1" in lines[0]
    assert any("pending" in line and "0/3 nodes" in line and "on no node" in line for line in lines)
    assert any("starting" in line and "not ready" in line for line in lines)
    assert len(lines) == 3
