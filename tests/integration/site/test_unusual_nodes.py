# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU nodes that gpu-feature-discovery never labels: site and share end in the usual time and list them with the reason."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import OPERANDS_LABEL
from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT, format_taint
from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_sharing
from tests.helpers.cluster import CONFIG_LABEL, Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab

T4 = {"model": "T4", "gpus": 1}
GROUPS: list[dict[str, Any]] = [
    {"name": "t4", "count": 2, **T4},
    {"name": "broken", "count": 1, **T4},
    {
        "name": "passthrough",
        "count": 1,
        **T4,
        "passthrough": True,
        "labels": {"nvidia.com/gpu.workload.config": "vm-passthrough"},
    },
    {"name": "kubevirt", "count": 1, **T4, "passthrough": True, "labels": {"kubevirt.io/schedulable": "true"}},
    {"name": "disabled", "count": 1, **T4, "labels": {"nvidia.com/gpu.deploy.operands": "false"}},
]
POOL = {"name": "notebooks", "match": {"model": "T4"}, "sharing": {"mode": "time-slicing", "replicas": 4}}
MESSAGE = "insmod: ERROR: nvidia.ko was built for another kernel"
REASONS = {
    "broken-1": MESSAGE,
    "passthrough-1": "nvidia.com/gpu.workload.config=vm-passthrough",
    "kubevirt-1": "could not insert 'nvidia': No such device",
    "disabled-1": "nvidia.com/gpu.deploy.operands=false",
}


def reasons(listed: list[dict[str, str]]) -> dict[str, str]:
    return {entry["name"]: entry["reason"] for entry in listed}


def require_reasons(listed: list[dict[str, str]]) -> None:
    """Exactly the four nodes, each with its known facts."""
    actual = reasons(listed)
    assert sorted(actual) == sorted(REASONS)
    assert [name for name, reason in REASONS.items() if reason not in actual[name]] == [], actual


@pytest.mark.timeout(600)
@pytest.mark.usual(100)
@pytest.mark.sampled(1, group="whole runs")
def test_unusual_nodes_are_listed_without_delay(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": GROUPS}))
    lab.reset(fleet)
    lab.command("fault", "inject", f"driver-broken={MESSAGE}", "--nodes", "broken-1")
    cluster = Cluster(lab)
    limits = {"gpu_operator_wait_timeout": 120, "gpu_sharing_wait_timeout": 60}

    site = run_playbook("accel.gpu.site", environ=lab.env, variables={"gpu_pools": [POOL], **limits}).require_success()

    assert cluster.offered("t4-") == {"t4-1": {"nvidia.com/gpu": 4}, "t4-2": {"nvidia.com/gpu": 4}}
    assert [name for name in REASONS if cluster.offered(name)[name]] == []
    for name, reason in REASONS.items():
        assert site.shown(name), f"the report does not name {name}"
        assert site.shown(reason), site.stderr
    info = cluster.run(gpu_info.main, gpu_pools=[POOL])["gpu_info"]
    require_reasons(info["unusual_nodes"])
    assert info["undiscovered"] == []
    assert info["pools"]["notebooks"]["as_declared"] is True
    assert info["pools"]["notebooks"]["validation"]["current"] is True

    # A second run, with the labels of the first: nothing changes, there is no wait, and check mode has the same result.
    for check in (False, True):
        again = cluster.run(gpu_sharing.main, gpu_pools=[POOL], wait_timeout=60, check=check)
        assert not again.get("failed"), again["msg"]
        assert again["changed"] is False
        require_reasons(again["gpu_sharing"]["unusual_nodes"])

    # If a pool selects such a node by name, the pool fails at once, after all other nodes are done.
    cluster.kubectl("label", "node", "broken-1", "accel.gpu/pool=notebooks")
    three = {**POOL, "sharing": {"mode": "time-slicing", "replicas": 3}}
    failed = cluster.run(gpu_sharing.main, gpu_pools=[three], wait_timeout=300)
    assert failed["failed"]
    assert MESSAGE in failed["msg"]
    assert cluster.offered("t4-") == {"t4-1": {"nvidia.com/gpu": 3}, "t4-2": {"nvidia.com/gpu": 3}}

    # The same for a new node of a node group with a startup taint, which only a ready node loses: no wait for the timeout.
    cluster.kubectl("taint", "node", "broken-1", f"{format_taint(STARTUP_TAINT)}")
    began = time.monotonic()
    failed = cluster.run(gpu_sharing.main, gpu_pools=[three], wait_timeout=300)
    assert failed["failed"]
    assert MESSAGE in failed["msg"]
    assert time.monotonic() - began < 150, "it waited for the time limit"

    # Once its driver loads, it is as its pool declares.
    lab.command("fault", "clear", "driver-broken", "--nodes", "broken-1")
    cluster.until(lambda: cluster.offered("broken-") == {"broken-1": {"nvidia.com/gpu": 3}}, 90)
    repaired = cluster.run(gpu_sharing.main, gpu_pools=[three], wait_timeout=90)
    assert not repaired.get("failed"), repaired["msg"]
    assert sorted(reasons(repaired["gpu_sharing"]["unusual_nodes"])) == ["disabled-1", "kubevirt-1", "passthrough-1"]

    # A user disables the operands on a node of the pool: neither a wait nor a rollback helps, and the other nodes are changed.
    cluster.kubectl("label", "node", "t4-2", f"{OPERANDS_LABEL}=false")
    two = {**POOL, "sharing": {"mode": "time-slicing", "replicas": 2}}
    began = time.monotonic()
    failed = cluster.run(gpu_sharing.main, gpu_pools=[two], wait_timeout=300)
    assert f"t4-2 (pool notebooks): label {OPERANDS_LABEL}=false" in failed["msg"]
    assert time.monotonic() - began < 150, "it waited for the time limit"
    assert cluster.offered("t4-1") == {"t4-1": {"nvidia.com/gpu": 2}}
    assert not cluster.nodes()["t4-2"]["spec"].get("unschedulable")
    cluster.kubectl("label", "node", "t4-2", f"{OPERANDS_LABEL}-")
    again = cluster.run(gpu_sharing.main, gpu_pools=[two], wait_timeout=90)
    assert not again.get("failed"), again["msg"]
    assert cluster.offered("t4-2") == {"t4-2": {"nvidia.com/gpu": 2}}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.usual(240)
def test_a_driver_that_breaks_on_a_node_of_a_pool_does_not_keep_site_waiting(lab: Lab, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"groups": GROUPS[:1]}))
    lab.reset(fleet)
    cluster = Cluster(lab)

    def run(playbook: str, replicas: int, *arguments: str) -> tuple[PlaybookRun, float]:
        pool = {**POOL, "sharing": {"mode": "time-slicing", "replicas": replicas}}
        variables = {"gpu_pools": [pool], "gpu_operator_wait_timeout": 600}
        began = time.monotonic()
        result = run_playbook(playbook, environ=lab.env, variables=variables, arguments=arguments)
        return result, time.monotonic() - began

    run("accel.gpu.site", 4)[0].require_success()
    lab.command("fault", "inject", f"driver-broken={MESSAGE}", "--nodes", "t4-2")

    site, seconds = run("accel.gpu.site", 3)
    assert "node(s) failed" in site.failure()
    assert MESSAGE in site.failure()
    assert site.shown("In a pool, but without usable GPUs: t4-2"), "the report does not follow the failure"
    assert seconds < 300, "it waited for the time limit"
    cluster.until(lambda: cluster.offered("t4-1") == {"t4-1": {"nvidia.com/gpu": 3}}, 30)
    assert cluster.nodes()["t4-2"]["metadata"]["labels"][CONFIG_LABEL].startswith("time-slicing-4-")

    # The report has the cause, too, although the node is discovered.
    info = cluster.run(gpu_info.main, gpu_pools=[POOL])["gpu_info"]
    (unusual,) = info["unusual_nodes"]
    assert (unusual["name"], MESSAGE in unusual["reason"]) == ("t4-2", True)
    assert any(text.startswith("In a pool, but without usable GPUs: t4-2: ") for text in info["warnings"])

    # Without gpu_sharing, the wait for the operator fails for the node.
    for playbook, arguments in (("accel.gpu.upgrade", ()), ("accel.gpu.site", ("--tags", "gpu_operator"))):
        failed, seconds = run(playbook, 3, *arguments)
        assert "ready, except on 1 node(s) that belong to pools" in failed.failure()
        assert MESSAGE in failed.failure()
        assert seconds < 300, "it waited for the time limit"

    # A node on which a user disables the operands is no reason to wait either.
    cluster.kubectl("label", "node", "t4-2", f"{OPERANDS_LABEL}=false")
    site, seconds = run("accel.gpu.site", 3)
    assert f"t4-2 (pool notebooks): label {OPERANDS_LABEL}=false" in site.failure()
    assert seconds < 300, "it waited for the time limit"
    cluster.kubectl("label", "node", "t4-2", f"{OPERANDS_LABEL}-")

    lab.command("fault", "clear", "driver-broken", "--nodes", "t4-2")
    run("accel.gpu.site", 3)[0].require_success()
    assert cluster.offered("t4-2") == {"t4-2": {"nvidia.com/gpu": 3}}
