# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG manager, and the resources and labels of MIG devices. Each test uses other nodes; all are restored together."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from lab import fleet, lifecycle, supervisor
from lab.api import Object
from lab.layout import Lab as LabLayout
from tests.integration.sim.sim_cluster import GFD, MIG_MANAGER, OPERATOR, PLUGIN, SimCluster

pytestmark = pytest.mark.soak

LAG = 60 * 0.05
SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.10gb, replicas: 4}]}}"
A100 = "NVIDIA-A100-SXM4-80GB"


@pytest.fixture(scope="module")
def mig(installed: SimCluster) -> Iterator[SimCluster]:
    """The cluster, with a config for each strategy; all changes are undone after the module."""
    flags = "version: v1\nflags: {migStrategy: %s}\n"
    installed.configs({"single": flags % "single", "mixed": flags % "mixed", "slices": flags % "mixed" + SHARED})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    yield installed
    installed.undo()


@pytest.fixture(scope="module", autouse=True)
def waiting_since(mig: SimCluster) -> float:
    """The time at which the MIG manager of h200-1 started to wait; other tests run until its timeout."""
    mig.fault("h200-1", "mig-pending")
    mig.partition("h200-1", "all-enabled")
    return time.monotonic()


def test_only_mig_capable_nodes_have_a_mig_manager(mig: SimCluster) -> None:
    mig.wait(lambda: mig.mig("h200-2") == ("success", "true"), what="the operator's default to be applied")
    labels = mig.labels("h200-2")
    assert labels["nvidia.com/mig.capable"] == labels["nvidia.com/gpu.deploy.mig-manager"] == "true"
    assert labels["nvidia.com/mig.config"] == "all-disabled"
    assert len(mig.pods("h200-2", MIG_MANAGER)) == 1
    assert "nvidia.com/mig.config" not in mig.labels("t4-1")
    assert mig.pods("t4-1", MIG_MANAGER) == []


def test_a_change_pauses_the_operands(mig: SimCluster) -> None:
    mig.set_config("a100-1", "single")
    mig.partition("a100-1", "halves")
    mig.wait(lambda: mig.mig("a100-1") == ("pending", "paused-for-mig-change"), what="the operands to be paused")
    mig.wait(lambda: not mig.pods("a100-1", PLUGIN) and not mig.pods("a100-1", GFD), what="their pods to be deleted")
    mig.wait(lambda: mig.mig("a100-1") == ("success", "true"), what="success")
    assert mig.labels("a100-1")["nvidia.com/gpu.deploy.nvsm"] == "true"
    desired = ({"nvidia.com/gpu": 16}, f"{A100}-MIG-3g.40gb", "1", "none")
    mig.wait(lambda: mig.sharing_state("a100-1") == desired, what="two halves of each GPU")
    labels = mig.labels("a100-1")
    assert labels["nvidia.com/gpu.count"] == "16"
    assert labels["nvidia.com/gpu.memory"] == "40192"
    assert labels["nvidia.com/gpu.multiprocessors"] == "42"
    assert labels["nvidia.com/mig.strategy"] == "single"


def test_every_pod_has_its_own_mig_device(mig: SimCluster) -> None:
    mig.set_config("h100-1", "mixed")
    mig.partition_and_wait("h100-1", "balanced")
    desired = {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-1g.10gb": 16}
    mig.wait(lambda: mig.gpus("h100-1") == desired, what="three kinds of MIG devices")
    assert mig.node("h100-1")["status"]["allocatable"]["nvidia.com/gpu"] == "0"
    mig.wait(lambda: mig.labels("h100-1").get("nvidia.com/mig-1g.10gb.count") == "16", what="GFD's labels")
    names = [f"mig-{n}" for n in range(8)]
    for name in names:
        mig.run_pod(name, "h100-1", resource="nvidia.com/mig-3g.40gb", command="nvidia-smi -L; sleep 600")
    mig.wait(lambda: all(mig.phase(n) == "Running" for n in names), what="eight pods to run")
    logs = {mig.log(name) for name in names}
    assert len(logs) == 8
    pattern = re.compile(
        r"GPU 0: NVIDIA H100\S* \(UUID: GPU-.{36}\)\n  MIG 3g\.40gb     Device  0: \(UUID: MIG-.{36}\)\n"
    )
    assert all(pattern.fullmatch(log) for log in logs)
    mig.run_pod("ninth", "h100-1", resource="nvidia.com/mig-3g.40gb")
    mig.wait(lambda: mig.pod("ninth")["status"].get("conditions"), what="the scheduler's condition")
    assert mig.pod("ninth")["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_mig_devices_are_shared(mig: SimCluster) -> None:
    mig.set_config("a100-2", "slices")
    mig.partition_and_wait("a100-2", "balanced")
    desired = {"nvidia.com/mig-3g.40gb": 8, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-1g.10gb": 64}
    mig.wait(lambda: mig.gpus("a100-2") == desired, what="four shares of each small device")
    key = "nvidia.com/mig-1g.10gb"
    mig.wait(lambda: mig.labels("a100-2").get(f"{key}.product") == f"{A100}-MIG-1g.10gb-SHARED", what="GFD's labels")
    assert mig.labels("a100-2")[f"{key}.sharing-strategy"] == "time-slicing"
    assert mig.labels("a100-2")["nvidia.com/mig-2g.20gb.replicas"] == "1"


def test_impossible_configs_fail(mig: SimCluster) -> None:
    """After a failure, a MIG manager resumes the operands only if it has never completed a change."""
    mig.set_config("a100-3", "single")
    mig.partition_and_wait("a100-3", "thirds", "failed")
    mig.partition_and_wait("a100-3", "too-much", "failed")
    output = mig.log("-n", OPERATOR, mig.pods("a100-3", MIG_MANAGER)[0]["metadata"]["name"])
    assert "all orderings failed" in output
    mig.partition_and_wait("a100-3", "halves")
    mig.wait(lambda: mig.gpus("a100-3") == {"nvidia.com/gpu": 16}, what="two halves of each GPU")
    mig.run_pod("busy", "a100-3", command="sleep 600")
    mig.wait(lambda: mig.phase("busy") == "Running", what="a pod to hold a MIG device")
    mig.partition_and_wait("a100-3", "balanced", "failed", "paused-for-mig-change")
    mig.wait(lambda: mig.gpus("a100-3") == {}, what="the MIG devices to disappear with their plugin")
    mig.partition_and_wait("a100-3", "halves", "success", "paused-for-mig-change")
    mig.api.request("DELETE", "/api/v1/namespaces/default/pods/busy")
    mig.restart("a100-3", MIG_MANAGER)
    mig.wait(lambda: mig.mig("a100-3") == ("success", "true"), what="a new MIG manager to resume the plugin")
    mig.wait(lambda: mig.gpus("a100-3") == {"nvidia.com/gpu": 16}, what="two halves of each GPU again")


def test_a_profile_of_another_model_is_a_success(mig: SimCluster) -> None:
    """mig-parted then creates no device and reports no error; plugin, GFD and validator report it."""
    mig.set_config("h100-2", "single")
    mig.partition_and_wait("h100-2", "foreign")
    mig.wait(
        lambda: mig.sharing_state("h100-2")[1:3] == ("NVIDIA-H100-80GB-HBM3-MIG-INVALID", "0"),
        what="an invalid product",
    )
    mig.wait(
        lambda: PLUGIN.removesuffix("-daemonset") in mig.waiting_containers("h100-2", PLUGIN),
        what="the plugin to crash",
    )
    output = mig.log("-n", OPERATOR, mig.pods("h100-2", PLUGIN)[0]["metadata"]["name"], "-c", "nvidia-device-plugin")
    assert output.rstrip().endswith("device 0 has no MIG devices configured")
    assert mig.gpus("h100-2") == {}
    mig.wait(
        lambda: any(
            why[0] == "CrashLoopBackOff"
            for why in mig.waiting_containers("h100-2", "nvidia-operator-validator", init=True).values()
        ),
        what="the validator to fail",
    )


def test_mig_reboot(mig: SimCluster) -> None:
    def ready() -> str:
        conditions = mig.node("a100-4")["status"]["conditions"]
        return next(str(c["status"]) for c in conditions if c["type"] == "Ready")

    mig.set_config("a100-4", "single")
    mig.fault("a100-4", "mig-reboot")
    mig.partition("a100-4", "halves")
    mig.wait(lambda: mig.mig("a100-4")[0] == "rebooting", what="the reboot")
    mig.wait(lambda: ready() == "False", what="the node to be NotReady")
    mig.wait(lambda: ready() == "True", what="the node to be Ready")
    mig.wait(lambda: mig.mig("a100-4") == ("success", "true"), what="success")
    mig.wait(lambda: mig.gpus("a100-4") == {"nvidia.com/gpu": 16}, what="two halves of each GPU")


def test_mig_failed(mig: SimCluster) -> None:
    mig.fault("h200-2", "mig-failed")
    mig.partition_and_wait("h200-2", "all-enabled", "failed")
    output = mig.log("-n", OPERATOR, mig.pods("h200-2", MIG_MANAGER)[0]["metadata"]["name"])
    assert "In use by another client" in output
    mig.wait(lambda: mig.gpus("h200-2") == {"nvidia.com/gpu": 8}, what="the same GPUs")


def test_mig_pending(mig: SimCluster, waiting_since: float) -> None:
    time.sleep(max(0.0, waiting_since + 5 * 60 * 0.05 + 2 - time.monotonic()))  # until the MIG manager gives up
    mig.fault("h200-1", None)
    time.sleep(2)  # no change may happen during this time
    assert mig.mig("h200-1") == ("pending", "paused-for-mig-change")
    mig.restart("h200-1", MIG_MANAGER)
    mig.wait(lambda: mig.mig("h200-1") == ("success", "true"), what="a new MIG manager to apply it")


def test_the_state_of_the_gpus_survives_a_restart_of_the_simulator(mig: SimCluster) -> None:
    mig.wait(lambda: mig.gpus("a100-1") == {"nvidia.com/gpu": 16}, what="two halves of each GPU")
    layout = LabLayout.named(mig.lab.name)
    program = lifecycle.supervisor_program(layout)
    assert program is not None
    [simulator] = [s for s in supervisor.services(layout, program) or [] if s.name == "sim"]
    os.kill(simulator.pid, signal.SIGKILL)
    before = _names(mig.pods("a100-1", PLUGIN))
    mig.restart("a100-1", PLUGIN)
    mig.wait(lambda: _names(mig.pods("a100-1", PLUGIN)).isdisjoint(before), what="a new pod of the plugin")
    mig.wait(lambda: all(p["status"]["phase"] == "Running" for p in mig.pods("a100-1", PLUGIN)), what="the pod to run")
    mig.wait(lambda: mig.gpus("a100-1") == {"nvidia.com/gpu": 16}, what="the same halves")
    assert mig.mig("a100-1") == ("success", "true")


def _names(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}


def test_a_guest_has_no_mig_manager(mig: SimCluster) -> None:
    group = fleet.Group("guest", 1, model="A100-SXM4-80GB", gpus=1, vgpu={"host_driver": "580.95.02"})
    port = LabLayout.named(mig.lab.name).ports()["kwok"]
    [node] = fleet.Fleet((group,)).nodes(port)
    mig.api.request("POST", "/api/v1/nodes", node)
    try:
        mig.wait(lambda: mig.gpus("guest-1") == {"nvidia.com/gpu": 1}, what="the guest's GPU", limit=60)
        mig.wait(lambda: "nvidia.com/mig.capable" in mig.labels("guest-1"), what="GFD's labels")
        labels = mig.labels("guest-1")
        assert labels["nvidia.com/mig.capable"] == "false"
        assert labels["nvidia.com/vgpu.host-driver-version"] == "580.95.02"
        assert "nvidia.com/mig.config" not in labels
        assert mig.pods("guest-1", MIG_MANAGER) == []
    finally:
        mig.api.request("DELETE", "/api/v1/nodes/guest-1")
