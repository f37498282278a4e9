# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MPS control daemon, without which the device plugin registers nothing."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.integration.sim.sim_cluster import GFD, OPERATOR, PLUGIN, SimCluster

pytestmark = pytest.mark.soak

LAG = 60 * 0.05
DAEMON = "nvidia-device-plugin-mps-control-daemon"
DAEMON_CONTAINER, PLUGIN_CONTAINER = "mps-control-daemon-ctr", "nvidia-device-plugin"


def _mps(replicas: int, flags: str = "{}") -> str:
    return (
        f"version: v1\nflags: {flags}\n"
        f"sharing: {{mps: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}}}]}}}}\n"
    )


@pytest.fixture(scope="module")
def mps(installed: SimCluster) -> Iterator[SimCluster]:
    """The cluster, with configs for MPS; all changes are undone after the module."""
    single, mixed = "{migStrategy: single}", "{migStrategy: mixed}"
    installed.configs({"mps4": _mps(4), "mps49": _mps(49), "mps-mixed": _mps(4, mixed), "mps-single": _mps(4, single)})
    time.sleep(LAG + 1)  # until the mounted copy is up to date
    yield installed
    installed.undo()


def _log(cluster: SimCluster, node: str, app: str, container: str) -> str:
    """Return the log of an agent's container; empty while a new pod has none."""
    pods = cluster.pods(node, app)
    command = ["kubectl", "logs", "-n", OPERATOR, *(pod["metadata"]["name"] for pod in pods), "-c", container]
    done = subprocess.run(command, env=cluster.lab.env, capture_output=True, text=True, check=False)
    return "" if done.returncode else done.stdout.rstrip()


def test_the_plugin_waits_for_its_daemon(mps: SimCluster) -> None:
    mps.fault("t4-1", f"operand-pending={DAEMON}")
    mps.set_config("t4-1", "mps4")
    mps.wait(lambda: mps.sharing_state("t4-1")[1:] == ("Tesla-T4-SHARED", "4", "mps"), what="GFD's labels")
    assert mps.labels("t4-1")["nvidia.com/mps.capable"] == "true"
    mps.wait(lambda: mps.pods("t4-1", DAEMON), what="the daemon's pod")
    assert mps.pods("t4-1", DAEMON)[0]["status"]["phase"] == "Pending"
    mps.wait(lambda: "error waiting for MPS daemon" in _log(mps, "t4-1", PLUGIN, PLUGIN_CONTAINER), what="its log")
    assert mps.gpus("t4-1") == {}
    assert not mps.waiting_containers("t4-1", PLUGIN)
    mps.fault("t4-1", None)
    mps.wait(lambda: mps.gpus("t4-1") == {"nvidia.com/gpu": 4}, what="four shares")
    mps.set_config("t4-1", "none")
    mps.wait(lambda: mps.gpus("t4-1") == {"nvidia.com/gpu": 1}, what="the whole GPU")
    mps.wait(lambda: not mps.pods("t4-1", DAEMON), what="the daemon's pod to be deleted")


def test_two_shares_are_always_rejected(mps: SimCluster) -> None:
    mps.set_config("t4-2", "mps4")
    mps.wait(lambda: mps.gpus("t4-2") == {"nvidia.com/gpu": 4}, what="four shares")
    mps.run_pod("greedy", "t4-2", gpus=2)
    mps.wait(lambda: mps.phase("greedy") == "Failed", what="the rejection")
    assert "maximum request size for shared resources is 1; found 2" in mps.pod("greedy")["status"]["message"]


def test_too_many_shares_are_rejected_only_by_the_daemon(mps: SimCluster) -> None:
    mps.set_config("t4-3", "mps49")
    mps.wait(
        lambda: DAEMON_CONTAINER in mps.waiting_containers("t4-3", DAEMON) if mps.pods("t4-3", DAEMON) else False,
        what="a crash",
    )
    assert _log(mps, "t4-3", DAEMON, DAEMON_CONTAINER).endswith(
        "invalid device maximum allowed replicas exceeded: 49 > 48"
    )
    assert mps.gpus("t4-3") == {}
    assert not mps.waiting_containers("t4-3", PLUGIN)


def test_mps_and_mig_exclude_one_another(mps: SimCluster) -> None:
    mps.set_config("a100-1", "mps-mixed")
    mps.wait(lambda: PLUGIN_CONTAINER in mps.waiting_containers("a100-1", PLUGIN), what="the plugin to reject mixed")
    assert _log(mps, "a100-1", PLUGIN, PLUGIN_CONTAINER).endswith(
        "using --mig-strategy=mixed is not supported with MPS"
    )
    mps.partition_and_wait("a100-1", "halves")
    mps.set_config("a100-1", "mps-single")
    mps.wait(
        lambda: _log(mps, "a100-1", PLUGIN, PLUGIN_CONTAINER).endswith(
            "sharing using MPS is not supported for MIG devices"
        ),
        what="the plugin to reject MIG devices",
    )
    mps.wait(lambda: GFD in mps.waiting_containers("a100-1", GFD), what="GFD to crash")
    assert _log(mps, "a100-1", GFD, GFD).endswith("MPS sharing is not supported for mig devices")
