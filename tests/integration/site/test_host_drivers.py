# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with a preinstalled driver: all of them, or some beside nodes whose driver the operator installs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

HOSTS = "570.172.08"
PRE_INSTALLED = {"nvidia.com/gpu.deploy.driver": "pre-installed"}


def group(name: str, count: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "count": count, "model": "Tesla-T4", "gpus": 1, "driver": HOSTS, **more}


def play(lab: Lab, **driver: Any) -> PlaybookRun:
    document = {
        "name": lab.name,
        "operator": {"chart": f"{lab.env['LAB_CHARTS']}/gpu-operator", "driver": driver},
        "nfd": {"chart": f"{lab.env['LAB_CHARTS']}/node-feature-discovery"},
    }
    pools = [{"name": "notebooks", "match": {"model": "Tesla-T4"}, "sharing": {"mode": "time-slicing", "replicas": 2}}]
    variables = {"gpu_cluster": document, "gpu_pools": pools}
    arguments = ["--tags", "nfd,gpu_operator,sharing"]
    return run_playbook("accel.gpu.site", environ=lab.env, variables=variables, arguments=arguments).require_success()


def drivers(cluster: Cluster) -> dict[str, str]:
    """The driver of each GPU node, from the labels of gpu-feature-discovery."""
    labels = {name: node["metadata"]["labels"] for name, node in cluster.nodes().items()}
    return {name: item["nvidia.com/cuda.driver-version.full"] for name, item in labels.items()}


def driver_pods(cluster: Cluster) -> set[str]:
    """The nodes with a driver pod."""
    pods = cluster.get("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/component=nvidia-driver")["items"]
    return {pod["spec"]["nodeName"] for pod in pods}


@pytest.mark.usual(60)
def test_all_nodes_have_a_preinstalled_driver(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": [group("t4", 2)]}))
    lab.reset(fleet)
    cluster = Cluster(lab)
    play(lab, enabled=False)
    assert driver_pods(cluster) == set()
    assert drivers(cluster) == {"t4-1": HOSTS, "t4-2": HOSTS}
    assert cluster.offered("t4-") == {"t4-1": {"nvidia.com/gpu": 2}, "t4-2": {"nvidia.com/gpu": 2}}
    assert play(lab, enabled=False).changed() == 0


@pytest.mark.usual(80)
def test_some_nodes_have_a_preinstalled_driver(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": [group("t4", 2), group("dgx", 1, labels=PRE_INSTALLED)]}))
    lab.reset(fleet)
    cluster = Cluster(lab)
    play(lab)
    assert driver_pods(cluster) == {"t4-1", "t4-2"}
    assert drivers(cluster) == {"dgx-1": HOSTS, "t4-1": "580.105.08", "t4-2": "580.105.08"}
    assert cluster.nodes()["dgx-1"]["metadata"]["labels"].items() >= PRE_INSTALLED.items()
    # Removing the driver from nodes needs permission; nodes with a preinstalled one do not count.
    held = play(lab, enabled=False)
    assert held.changed() == 0
    reported = held.module_results("accel.gpu.helm_release")[-1]["helm_release"]
    assert reported["held_back"] == ["driver.enabled"]
    assert reported["driver_rollout"] == {
        "nodes": 2,
        "max_parallel": 1,
        "reasons": ["driver.enabled true becomes false"],
    }
    assert driver_pods(cluster) == {"t4-1", "t4-2"}
