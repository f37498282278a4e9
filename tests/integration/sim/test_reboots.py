# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reboots: the node is NotReady for some time, then Ready with a new boot id and the pending MIG mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.sim.sim_cluster import MIG_MANAGER, SimCluster

NODE = "a100-1"
_POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"


def ready(cluster: SimCluster) -> bool:
    conditions = cluster.node(NODE)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def boot_id(cluster: SimCluster) -> str:
    actual: str = cluster.node(NODE)["status"]["nodeInfo"]["bootID"]
    return actual


@pytest.fixture
def without_reboot(cluster: SimCluster) -> Iterator[SimCluster]:
    """A MIG manager that may not reboot its node: changes that need a reboot fail."""

    def configured() -> bool:
        containers = [c for pod in cluster.pods(NODE, MIG_MANAGER) for c in pod["spec"]["containers"]]
        return any({"name": "WITH_REBOOT", "value": "false"} in c.get("env", []) for c in containers)

    env = [{"name": "WITH_REBOOT", "value": "false"}]
    cluster.api.merge(_POLICY, {"spec": {"migManager": {"env": env}}})
    cluster.wait(configured, what="the MIG manager's environment", limit=60)
    yield cluster
    cluster.api.merge(_POLICY, {"spec": {"migManager": {"env": None}}})


@pytest.mark.soak
@pytest.mark.usual(45)
def test_a_pending_mode_needs_a_reboot(without_reboot: SimCluster) -> None:
    cluster = without_reboot
    cluster.fault(NODE, "mig-reboot")
    cluster.partition_and_wait(NODE, "halves", "failed")
    before = boot_id(cluster)
    assert before
    cluster.lab.command("nodes", "reboot", NODE)
    cluster.wait(lambda: not ready(cluster), what="the node to be NotReady")
    cluster.wait(lambda: ready(cluster), what="the node to be Ready")
    assert boot_id(cluster) != before
    cluster.wait(lambda: cluster.mig(NODE) == ("success", "true"), what="the MIG manager to succeed")
    after = boot_id(cluster)
    cluster.lab.command("nodes", "reboot", NODE)
    cluster.wait(lambda: boot_id(cluster) not in (before, after) and ready(cluster), what="another boot")
    cluster.wait(
        lambda: cluster.mig(NODE) == ("pending", "paused-for-mig-change"), what="the devices to be created again"
    )
    cluster.wait(lambda: cluster.mig(NODE) == ("success", "true"), what="the same devices as before")
