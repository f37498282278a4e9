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


def dgx(lab: Lab, tmp_path: Path, *services: str) -> None:
    """A lab with one DGX: a driver and services of its own, which hold the GPUs, and no driver pod."""
    fleet = tmp_path / "fleet.yaml"
    hardware = {"model": "A100-SXM4-80GB", "gpus": 8, "driver": HOSTS, "machine": "DGXA100-920-23687-2530-000"}
    group = {"name": "dgx", "count": 1, "labels": PRE_INSTALLED, **hardware, "services": list(services)}
    fleet.write_text(yaml.safe_dump({"groups": [group]}))
    lab.reset(fleet)


def cut(lab: Lab, **values: Any) -> PlaybookRun:
    """Partition the GPUs of the DGX."""
    charts = lab.env["LAB_CHARTS"]
    document = {
        "name": lab.name,
        "operator": {"chart": f"{charts}/gpu-operator", "driver": {"enabled": False}, "values": values},
        "nfd": {"chart": f"{charts}/node-feature-discovery"},
    }
    sharing = {"mode": "mig", "layout": {"3g.40gb": 2}}
    pools = [{"name": "train", "match": {"model": "A100-SXM4-80GB"}, "sharing": sharing}]
    variables = {"gpu_cluster": document, "gpu_pools": pools}
    arguments = ["--tags", "nfd,gpu_operator,sharing"]
    return run_playbook("accel.gpu.site", environ=lab.env, variables=variables, arguments=arguments)


@pytest.mark.usual(80)
def test_mig_on_a_dgx(lab: Lab, tmp_path: Path) -> None:
    dgx(lab, tmp_path, "nvsm.service", "nvidia-dcgm.service")
    cluster = Cluster(lab)
    cut(lab).require_success()
    assert driver_pods(cluster) == set()
    assert drivers(cluster) == {"dgx-1": HOSTS}
    assert cluster.offered("dgx-") == {"dgx-1": {"nvidia.com/gpu": 16}}
    assert cut(lab).require_success().changed() == 0


@pytest.mark.usual(80)
def test_a_service_of_the_host_that_the_mig_manager_does_not_stop(lab: Lab, tmp_path: Path) -> None:
    dgx(lab, tmp_path, "nvsm.service", "gdm.service")
    cluster = Cluster(lab)
    failed = cut(lab)
    assert "In use by another client" in failed.failure()
    assert cluster.offered("dgx-") == {"dgx-1": {"nvidia.com/gpu": 8}}
    # With the service among the clients that the MIG manager stops, the change succeeds.
    clients = yaml.safe_dump({"version": "v1", "systemd-services": ["nvsm.service", "gdm.service"]})
    cluster.kubectl("create", "configmap", "clients", "-n", NAMESPACE, f"--from-literal=clients.yaml={clients}")
    cut(lab, migManager={"gpuClientsConfig": {"name": "clients"}}).require_success()
    assert cluster.offered("dgx-") == {"dgx-1": {"nvidia.com/gpu": 16}}
