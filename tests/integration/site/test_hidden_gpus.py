# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU nodes that discovery cannot see: site fails and names the node, the cause and the remedy. The run after the remedy completes the pool."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import (
    CONFIG_LABEL,
    COUNT_LABEL,
    PCI_PRESENT_LABELS,
    PRODUCT_LABEL,
)
from ansible_collections.accel.gpu.plugins.modules import gpu_sharing
from tests.helpers.cluster import Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.polling import until
from tests.labs import Lab

TAINT = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
GROUPS: list[dict[str, Any]] = [
    {"name": "t4", "count": 2, "model": "T4", "gpus": 1, "taints": [TAINT]},
    {"name": "l4", "count": 1, "model": "L4", "gpus": 1},
    {"name": "cpu", "count": 1, "gpus": 0},
]
SHARED = {"sharing": {"mode": "time-slicing", "replicas": 4}}
POOLS: list[dict[str, Any]] = [
    {"name": "notebooks", "match": {"model": "T4"}, **SHARED},
    {"name": "small", "match": {"model": "L4"}, **SHARED},
]
FOUR = {"nvidia.com/gpu": 4}


def site(cluster: Cluster, pools: list[dict[str, Any]], name: str = "site", **variables: Any) -> PlaybookRun:
    return run_playbook(
        f"accel.gpu.{name}",
        environ=cluster.lab.env,
        variables={"gpu_pools": pools, **variables},
        arguments=["--skip-tags", "validation"],
    )


@pytest.mark.timeout(900)
@pytest.mark.usual(200)
@pytest.mark.sampled(1, group="whole runs")
def test_a_taint_without_a_toleration_hides_a_pool(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": GROUPS}))
    lab.reset(fleet)
    cluster = Cluster(lab)
    for name in ("plan", "site", "plan"):
        done = site(cluster, POOLS, name)
        assert (done.rc != 0) == (name == "site"), done.stdout
        for words in (
            "t4-1",
            "sku=gpu:NoSchedule",
            "notebooks",
            "taints: [{key: sku, value: gpu, effect: NoSchedule}]",
        ):
            assert done.shown(words), f"{name}: {words}"
    # The other pool is complete.
    assert cluster.offered("l4-") == {"l4-1": FOUR}

    # If the taint is removed, NFD labels the nodes one after another, and the run waits for all of them.
    cluster.kubectl("taint", "node", "t4-1", "t4-2", "sku-")
    site(cluster, POOLS).require_success()
    assert cluster.offered("t4-") == {"t4-1": FOUR, "t4-2": FOUR}

    # If the pool declares the taint, NVIDIA's pods tolerate it once their rollout is allowed. Until then, the run does not wait for the nodes.
    lab.reset(fleet)
    assert site(cluster, POOLS).rc != 0
    declared = [{**POOLS[0], "taints": [TAINT]}, POOLS[1]]
    held = site(cluster, declared)
    assert held.rc != 0
    assert "gpu_operator_allow_driver_rollout" in held.failure()
    site(cluster, declared, gpu_operator_allow_driver_rollout=True).require_success()
    assert cluster.offered("t4-") == {"t4-1": FOUR, "t4-2": FOUR}


@pytest.mark.timeout(600)
@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="whole runs")
def test_a_node_that_is_discovered_during_the_run_is_configured(lab: Lab, tmp_path: Path) -> None:
    """The wait for the other nodes ends early, and the new node is no failure."""
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": [{"name": "t4", "count": 2, "model": "T4", "gpus": 1}]}))
    lab.reset(fleet)
    lab.command("fault", "inject", "gfd-stalled", "--nodes", "t4-2")
    cluster = Cluster(lab)
    install = ["--tags", "pools,nfd,gpu_operator"]
    run_playbook(
        "accel.gpu.site", environ=lab.env, variables={"gpu_pools": POOLS[:1]}, arguments=install
    ).require_success()
    clear = threading.Timer(10, lab.command, ("fault", "clear", "gfd-stalled"))
    clear.start()
    try:
        shared = cluster.run(gpu_sharing.main, gpu_pools=POOLS[:1], wait_timeout=120)
    finally:
        clear.join()
    assert not shared.get("failed"), shared
    assert cluster.offered("t4-") == {"t4-1": FOUR, "t4-2": FOUR}
    # The operator finds no GPU once NFD's labels are gone. The nodes keep their pool, and the message does not blame the variables.
    lab.command("fault", "inject", "nfd-stalled", "--nodes", "t4-1")
    gone = (f"{label}-" for label in PCI_PRESENT_LABELS)
    cluster.kubectl("label", "node", "t4-1", "nvidia.com/gpu.present=false", *gone, "--overwrite")
    lost = cluster.run(gpu_sharing.main, gpu_pools=POOLS[:1], wait_timeout=120, check=True)
    assert not lost.get("failed"), lost
    assert lost["gpu_sharing"]["released_nodes"] == {}
    assert "nvidia.com/gpu.present=false" in str(lost["gpu_sharing"]["not_as_declared"])


@pytest.mark.timeout(600)
@pytest.mark.usual(120)
@pytest.mark.sampled(1, group="whole runs")
def test_site_replaces_configurations_that_do_not_exist(lab: Lab, tmp_path: Path) -> None:
    """The device plugin and gpu-feature-discovery fail on all nodes; one node has never been labeled by the latter."""
    fleet = tmp_path / "fleet.yaml"
    groups = [{"name": "t4", "count": 2, "model": "T4", "gpus": 1}]
    fleet.write_text(yaml.safe_dump({"groups": groups}))
    lab.reset(fleet)
    cluster = Cluster(lab)
    install = ["--tags", "pools,nfd,gpu_operator"]
    run_playbook(
        "accel.gpu.site", environ=lab.env, variables={"gpu_pools": POOLS[:1]}, arguments=install
    ).require_success()
    cluster.kubectl("label", "node", "t4-1", "t4-2", f"{CONFIG_LABEL}=gone", "nvidia.com/mig.config=gone")

    def fails() -> bool:
        pods = cluster.get("pods", "--namespace", "gpu-operator", "--selector", "app=nvidia-device-plugin-daemonset")
        statuses = [each for pod in pods["items"] for each in pod["status"]["containerStatuses"]]
        return sum(1 for each in statuses if each["restartCount"] >= 3) == 2

    until(fails)
    # Nothing labels the node again before its label is replaced.
    cluster.kubectl("label", "node", "t4-2", "accel.gpu/pool=notebooks", f"{PRODUCT_LABEL}-", f"{COUNT_LABEL}-")
    site(cluster, POOLS[:1], gpu_operator_wait_timeout=200).require_success()
    assert PRODUCT_LABEL in cluster.nodes()["t4-2"]["metadata"]["labels"]
    assert cluster.offered("t4-") == {"t4-1": FOUR, "t4-2": FOUR}
