# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Injected faults, and uninstalling the operator."""

from __future__ import annotations

from tests.integration.sim.sim_cluster import GFD, OPERATOR, PLUGIN, VALUES, SimCluster
from tests.programs import run

VALIDATOR = "nvidia-operator-validator"


def test_plugin_crash(cluster: SimCluster) -> None:
    cluster.fault("l40s-1", "plugin-crash")
    cluster.wait(
        lambda: (
            cluster.waiting_containers("l40s-1", PLUGIN).get("nvidia-device-plugin", ("", 0))[0] == "CrashLoopBackOff"
        ),
        what="a crash",
    )
    cluster.wait(lambda: cluster.gpus("l40s-1") == {}, what="the GPUs to disappear")
    cluster.fault("l40s-1", None)
    cluster.wait(lambda: cluster.gpus("l40s-1") == {"nvidia.com/gpu": 2}, what="the GPUs to come back")


def test_operand_pending(cluster: SimCluster) -> None:
    cluster.fault("l40s-2", "operand-pending=nvidia-dcgm-exporter")
    cluster.wait(lambda: cluster.waiting_containers("l40s-2", "nvidia-dcgm-exporter"), what="the pod to be Pending")
    assert not cluster.waiting_containers("l40s-2", PLUGIN)
    cluster.fault("l40s-2", None)
    cluster.wait(lambda: not cluster.waiting_containers("l40s-2", "nvidia-dcgm-exporter"), what="the pod to start")


def test_validator_fails(cluster: SimCluster) -> None:
    cluster.fault("a100-1", "validator-fails")
    cluster.wait(
        lambda: any(
            why[0] == "CrashLoopBackOff" for why in cluster.waiting_containers("a100-1", VALIDATOR, init=True).values()
        ),
        what="a crash",
    )
    cluster.fault("a100-1", None)
    cluster.wait(lambda: not cluster.waiting_containers("a100-1", VALIDATOR), what="the validator to run")


def test_gfd_stalled(cluster: SimCluster) -> None:
    cluster.fault("a100-2", "gfd-stalled")
    cluster.set_config("a100-2", "none")
    cluster.wait(lambda: cluster.labels("a100-2").get("nvidia.com/device-plugin.config") == "none", what="the label")
    assert cluster.labels("a100-2")["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    assert not cluster.waiting_containers("a100-2", GFD)


def test_node_not_ready(cluster: SimCluster) -> None:
    def ready() -> str:
        conditions = cluster.node("a100-3")["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == "Ready")

    cluster.fault("a100-3", "node-not-ready")
    cluster.wait(lambda: ready() == "False", what="the node to be not ready")
    cluster.wait(lambda: "taints" in cluster.node("a100-3")["spec"], what="the node controller's taint")
    cluster.fault("a100-3", None)
    cluster.wait(lambda: ready() == "True", what="the node to be ready again")
    cluster.wait(lambda: "taints" not in cluster.node("a100-3")["spec"], what="the taint to be removed")


def test_uninstalling_the_operator_removes_the_gpus(cluster: SimCluster) -> None:
    """The last test of this file, because it reinstalls the operator."""
    charts = cluster.lab.env["LAB_CHARTS"]
    run("helm", "uninstall", "-n", OPERATOR, "gpu-operator", "--wait", env=cluster.lab.env)
    cluster.wait(lambda: cluster.gpus("h200-1") == {}, what="the GPUs to disappear", limit=60)
    cluster.wait(
        lambda: "nvidia.com/gpu.product" not in cluster.labels("h200-1"), what="GFD's labels to be removed", limit=60
    )
    install = ["helm", "install", "-n", OPERATOR, "gpu-operator", f"{charts}/gpu-operator", "--set", VALUES, "--wait"]
    run(*install, env=cluster.lab.env)
    cluster.wait(cluster.settled, limit=90, what="the operator's DaemonSets")
