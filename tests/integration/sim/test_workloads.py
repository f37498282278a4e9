# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that request GPUs: the real scheduler, and simulated admission, logs and completion."""

from __future__ import annotations

import os
import signal
import time

from lab import lifecycle, supervisor
from lab.layout import Lab as LabLayout
from tests.integration.sim.sim_cluster import SimCluster, sharing

LAG = 60 * 0.05


def _share(cluster: SimCluster, node: str, name: str, config: str, replicas: int) -> None:
    cluster.configs({name: config})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    cluster.set_config(node, name)
    cluster.wait(lambda: cluster.gpus(node) == {"nvidia.com/gpu": replicas}, what=f"{replicas} replicas")


def test_four_share_a_gpu_and_the_fifth_waits(cluster: SimCluster) -> None:
    _share(cluster, "t4-1", "w4", sharing(4), 4)
    names = [f"share-{n}" for n in range(5)]
    for name in names:
        cluster.run_pod(name, "t4-1", command="nvidia-smi -L; sleep 20")
    cluster.wait(lambda: sum(cluster.phase(n) == "Running" for n in names) == 4, what="four pods to run")
    [fifth] = [n for n in names if cluster.phase(n) != "Running"]
    cluster.wait(lambda: cluster.pod(fifth)["status"].get("conditions"), what="the scheduler's condition")
    [condition] = cluster.pod(fifth)["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    logs = {cluster.log(n) for n in names if n != fifth}
    assert len(logs) == 1
    assert logs.pop().startswith("GPU 0: Tesla T4 (UUID: GPU-")
    cluster.wait(lambda: cluster.phase(fifth) == "Running", what="a share for the fifth once others end", limit=60)


def test_whole_gpus_are_distinct(cluster: SimCluster) -> None:
    for n in range(8):
        cluster.run_pod(f"whole-{n}", "h100-1", command="nvidia-smi -L; sleep 5")
    cluster.wait(
        lambda: all(cluster.phase(f"whole-{n}") == "Succeeded" for n in range(8)),
        what="eight pods to complete",
        limit=60,
    )
    logs = [cluster.log(f"whole-{n}") for n in range(8)]
    assert len(set(logs)) == 8
    assert all(log.count("\n") == 1 for log in logs)


def test_two_shares_in_one_request_are_rejected(cluster: SimCluster) -> None:
    _share(cluster, "t4-2", "one", sharing(4, one=True), 4)
    cluster.run_pod("greedy", "t4-2", gpus=2)
    cluster.wait(lambda: cluster.phase("greedy") == "Failed", what="the rejection")
    status = cluster.pod("greedy")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == (
        "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = "
        'invalid allocation request for "nvidia.com/gpu": '
        "invalid request: maximum request size for shared resources is 1; found 2, which is unexpected"
    )


def test_two_replicas_of_one_gpu_are_one_visible_gpu(cluster: SimCluster) -> None:
    _share(cluster, "t4-3", "both", sharing(4), 4)
    cluster.run_pod("both", "t4-3", gpus=2)
    cluster.wait(lambda: cluster.phase("both") == "Running", what="the pod to run")
    assert cluster.log("both").count("GPU ") == 1


def test_devices_and_logs_survive_a_restart_of_the_simulator(cluster: SimCluster) -> None:
    """The devices of a pod are read from the pod, so a restarted simulator allocates no device twice."""
    for n in range(7):
        cluster.run_pod(f"before-{n}", "h100-2", command="nvidia-smi -L; sleep 300")
    cluster.wait(lambda: all(cluster.phase(f"before-{n}") == "Running" for n in range(7)), what="seven pods to run")
    layout = LabLayout.named(cluster.lab.name)
    program = lifecycle.supervisor_program(layout)
    assert program is not None
    [simulator] = [s for s in supervisor.services(layout, program) or [] if s.name == "sim"]
    os.kill(simulator.pid, signal.SIGKILL)
    cluster.run_pod("after", "h100-2", command="nvidia-smi -L; sleep 300")
    cluster.wait(lambda: cluster.phase("after") == "Running", what="the eighth pod to run")
    logs = [cluster.log(f"before-{n}") for n in range(7)] + [cluster.log("after")]
    assert len(set(logs)) == 8


def test_logs_are_deleted_with_their_pod(cluster: SimCluster) -> None:
    cluster.run_pod("brief", "l40s-1", command="nvidia-smi -L")
    cluster.wait(lambda: cluster.phase("brief") == "Succeeded", what="the pod to complete")
    folders = list((cluster.lab.directory / "pod-logs").glob("default_brief_*"))
    assert len(folders) == 1
    cluster.api.request("DELETE", "/api/v1/namespaces/default/pods/brief")
    cluster.wait(lambda: not folders[0].exists(), what="the folder to be deleted")
    cluster.wait(
        lambda: cluster.api.get("/apis/kwok.x-k8s.io/v1alpha1/namespaces/default/logs/brief") is None,
        what="the Logs object to be deleted",
    )
