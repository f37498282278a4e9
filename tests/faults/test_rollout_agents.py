# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling updates while NVIDIA's operands or nodes fail: the failure of one node is reported, and the others finish."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.helpers.rolling import ALL_AT_ONCE, CORDONED, FAILED, HALVES, MPS, NONE, TARGET, Rolling
from tests.helpers.workloads import GPU
from tests.labs import LAB

pytestmark = [
    pytest.mark.sampled(1, group="faults of a rolling update"),
    pytest.mark.usual(60),
    pytest.mark.timeout(600),
]

WAIT_TIMEOUT = 25
PAUSED = "nvidia.com/gpu.deploy.device-plugin"


def require_one_failure(rolling: Rolling, result: dict[str, Any], *texts: str, offered: dict[str, int]) -> None:
    """Only the broken node has failed, with these texts in the message; all others are as declared."""
    assert result["failed"] is True
    failed = result["gpu_sharing"]["failed"]
    assert list(failed) == [TARGET], failed
    for text in (TARGET, *texts):
        assert text in result["msg"], result["msg"]
    for text in texts:
        assert text in failed[TARGET]
    rolling.require_offered(offered, but=TARGET)


def require_rolled_back(rolling: Rolling, result: dict[str, Any]) -> None:
    """The broken node is rolled back and in use, and does not count as changed."""
    assert TARGET not in result["gpu_sharing"]["changed_nodes"]
    assert result["gpu_sharing"]["rolled_back"] == [TARGET]
    assert result["gpu_sharing"]["left_cordoned"] == []
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {GPU: 1}})
    deploys = {
        key: value
        for key, value in rolling.cluster.nodes()[TARGET]["metadata"]["labels"].items()
        if key.startswith("nvidia.com/gpu.deploy.")
    }
    assert not [key for key, value in deploys.items() if "paused" in value]
    assert not rolling.cluster.nodes()[TARGET]["spec"].get("unschedulable")


def fault(rolling: Rolling, name: str) -> None:
    rolling.lab.command("fault", "inject", name, "--nodes", TARGET)


def share(rolling: Rolling, sharing: dict[str, Any], *, settled: bool = True, **rollout: Any) -> dict[str, Any]:
    return rolling.share(sharing, rollout={**ALL_AT_ONCE, **rollout}, settled=settled, wait_timeout=WAIT_TIMEOUT)


def test_a_failed_mig_change_is_rolled_back(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES)
    require_one_failure(rolling, result, "nvidia.com/mig.config.state", "failed", offered={GPU: 2})
    require_rolled_back(rolling, result)


def test_after_a_failure_no_other_node_starts(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES, max_unavailable=1, order="name")
    assert list(result["gpu_sharing"]["failed"]) == [TARGET]
    assert result["gpu_sharing"]["not_started"] == ["a100-3"]
    assert rolling.cluster.offered("a100-1") == {"a100-1": {GPU: 2}}
    assert rolling.cluster.offered("a100-3") == {"a100-3": {GPU: 1}}
    require_rolled_back(rolling, result)


def test_on_failure_leave_quarantines_the_node(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES, on_failure="leave")
    require_one_failure(rolling, result, "failed", offered={GPU: 2})
    assert result["gpu_sharing"]["left_cordoned"] == [TARGET]
    assert result["gpu_sharing"]["rolled_back"] == []
    node = rolling.cluster.nodes()[TARGET]
    assert node["spec"]["unschedulable"] is True
    assert {"key": FAILED, "value": "mig-failed", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert {CORDONED, FAILED} <= set(node["metadata"]["annotations"])
    rolling.lab.command("fault", "clear")
    repaired = share(rolling, HALVES)
    assert not repaired.get("failed"), repaired["msg"]
    rolling.require_clean()


def test_a_mig_change_that_stays_pending_is_rolled_back(rolling: Rolling) -> None:
    fault(rolling, "mig-pending")
    result = share(rolling, HALVES)
    require_one_failure(rolling, result, "pending", offered={GPU: 2})
    require_rolled_back(rolling, result)


def test_repair_completes_a_pending_mig_change(rolling: Rolling) -> None:
    """The label still has the configuration, as after a manual change; a restart of the MIG manager repairs it."""
    assert not share(rolling, HALVES).get("failed")
    fault(rolling, "mig-pending")
    whole = "nvidia.com/mig.config=all-disabled"
    rolling.cluster.kubectl("label", "--overwrite", "node", TARGET, whole, "nvidia.com/mig.config.state-")
    label = "nvidia.com/mig.config.state"
    rolling.cluster.until(lambda: rolling.cluster.nodes()[TARGET]["metadata"]["labels"].get(label) == "pending")
    rolling.cluster.until(lambda: "did not shutdown" in mig_manager_log(rolling), 60)
    rolling.lab.command("fault", "clear")
    repaired = rolling.share(HALVES, state="repaired", settled=False, wait_timeout=WAIT_TIMEOUT)
    assert not repaired.get("failed"), repaired["msg"]
    assert list(repaired["gpu_sharing"]["repaired"]) == [TARGET]
    rolling.cluster.until(lambda: label_of(rolling, label) == "success")


def mig_manager_log(rolling: Rolling) -> str:
    """The log of the broken node's MIG manager; empty while it has none."""
    options = ("-n", "gpu-operator", "-l", "app=nvidia-mig-manager", "--field-selector", f"spec.nodeName={TARGET}")
    (pod,) = rolling.cluster.kubectl("get", "pods", *options, "-o", "name").split()
    command = ["kubectl", "logs", "-n", "gpu-operator", pod]
    return subprocess.run(command, env=rolling.lab.env, capture_output=True, text=True, check=False).stdout


def label_of(rolling: Rolling, label: str) -> str:
    """A label of the broken node."""
    return str(rolling.cluster.nodes()[TARGET]["metadata"]["labels"].get(label, ""))


def repair_paused_operand(rolling: Rolling) -> None:
    """Pause the device plugin of a node as a MIG change does, and repair that."""
    rolling.cluster.kubectl("label", "--overwrite", "node", TARGET, f"{PAUSED}=paused-for-mig-change")
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {}})
    repaired = rolling.share(NONE, state="repaired", wait_timeout=WAIT_TIMEOUT)
    assert not repaired.get("failed"), repaired["msg"]
    assert list(repaired["gpu_sharing"]["repaired"]) == [TARGET]


def test_repair_resumes_paused_operands(rolling: Rolling) -> None:
    repair_paused_operand(rolling)
    assert label_of(rolling, PAUSED) == "true"
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {GPU: 1}})


def test_a_repair_does_not_apply_declared_changes(rolling: Rolling) -> None:
    """The pool now declares whole GPUs, which no run has applied; one node is stuck meanwhile."""
    assert not share(rolling, MPS).get("failed")
    repair_paused_operand(rolling)
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {GPU: 4}})
    rolling.require_offered({GPU: 4})
    rolling.require_clean()


def require_cordon_reported(rolling: Rolling, result: dict[str, Any]) -> None:
    """The result lists the broken node as cordoned if and only if it is."""
    cordoned = bool(rolling.cluster.nodes()[TARGET]["spec"].get("unschedulable"))
    assert (result["gpu_sharing"]["left_cordoned"] == [TARGET]) is cordoned


def test_a_mig_manager_with_a_hung_watch_is_restarted(rolling: Rolling) -> None:
    """Its last `success` is already on the node when the change begins."""
    assert label_of(rolling, "nvidia.com/mig.config.state") == "success"
    fault(rolling, "mig-watch-hung")
    done = share(rolling, HALVES)
    assert not done.get("failed"), done["msg"]
    rolling.require_offered({GPU: 2})
    rolling.require_clean()


def test_a_layout_that_is_applied_in_part(rolling: Rolling) -> None:
    fault(rolling, "mig-partial")
    result = share(rolling, HALVES)
    require_one_failure(rolling, result, GPU, offered={GPU: 2})
    require_rolled_back(rolling, result)


def test_operands_that_stay_paused_after_a_change(rolling: Rolling) -> None:
    fault(rolling, "mig-paused")
    result = share(rolling, HALVES)
    rolling.require_offered({GPU: 2}, but=TARGET)
    if result.get("failed"):
        require_one_failure(rolling, result, "paused", offered={GPU: 2})
        require_cordon_reported(rolling, result)
    else:
        rolling.require_offered({GPU: 2})
        rolling.require_clean()


def test_gpus_that_are_labeled_mig_invalid(rolling: Rolling) -> None:
    """A node is partitioned manually in a different way than its pool: GFD labels its product invalid, and the device plugin stops."""
    assert not share(rolling, HALVES).get("failed")
    other = "nvidia.com/mig.config=all-balanced"
    rolling.cluster.kubectl("label", "--overwrite", "node", TARGET, other, "nvidia.com/mig.config.state-")
    rolling.cluster.until(lambda: label_of(rolling, "nvidia.com/gpu.product").endswith("-MIG-INVALID"), 60)
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {}}, 60)
    done = share(rolling, HALVES, settled=False)
    assert not done.get("failed"), done["msg"]
    assert set(done["gpu_sharing"]["steps"]) == {TARGET}
    rolling.require_offered({GPU: 2})
    rolling.require_clean()


def test_a_device_plugin_in_a_crash_loop(rolling: Rolling) -> None:
    """The node offers nothing when the change begins, so no pod is affected and no good configuration is known."""
    fault(rolling, "plugin-crash")
    rolling.cluster.until(lambda: rolling.cluster.offered(TARGET) == {TARGET: {}}, 60)
    result = share(rolling, MPS, settled=False)
    assert result["failed"] is True
    for text in (TARGET, "CrashLoopBackOff", "kubectl"):
        assert text in result["msg"], result["msg"]
    rolling.require_offered({GPU: 4}, but=TARGET)
    rolling.require_clean(TARGET)
    require_cordon_reported(rolling, result)


def test_new_entries_do_not_crash_the_operands(rolling: Rolling) -> None:
    """New entries in both ConfigMaps, whose copies lag: no operand crashes, and no change fails."""
    restarts = rolling.cluster.restarts()
    new = {"mode": "mig", "layout": {"2g.20gb": 1, "1g.10gb": 3}, "replicas": 3}
    for sharing, offered in (
        ({"mode": "mps", "replicas": 7}, {GPU: 7}),
        (new, {"nvidia.com/mig-1g.10gb": 9, "nvidia.com/mig-2g.20gb": 3}),
    ):
        done = share(rolling, sharing)
        assert not done.get("failed"), done["msg"]
        rolling.require_offered(offered)
        assert rolling.cluster.restarts() <= restarts


def boots(rolling: Rolling) -> dict[str, str]:
    """The boot ID of each GPU node."""
    return {name: rolling.cluster.nodes()[name]["status"]["nodeInfo"]["bootID"] for name in rolling.nodes()}


@pytest.fixture
def without_reboots(rolling: Rolling) -> Any:
    """GPUs of the broken node cannot be reset, and the MIG manager may not reboot nodes."""
    env = '{"spec": {"migManager": {"env": [{"name": "WITH_REBOOT", "value": "false"}]}}}'
    rolling.cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", env)
    rolling.cluster.kubectl("rollout", "status", "-n", "gpu-operator", "daemonset/nvidia-mig-manager")
    fault(rolling, "mig-reboot")
    yield rolling
    rolling.lab.command("fault", "clear")
    no_env = '{"spec": {"migManager": {"env": null}}}'
    rolling.cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", no_env)


def test_a_node_is_rebooted_only_by_the_declared_command(without_reboots: Rolling) -> None:
    rolling, before = without_reboots, boots(without_reboots)
    refused = share(rolling, HALVES)
    require_one_failure(rolling, refused, "reboot", offered={GPU: 2})
    assert boots(rolling) == before
    hook = {"command": [str(LAB), "--name", rolling.lab.name, "nodes", "reboot", "{node}"], "timeout": 60}
    done = rolling.share(HALVES, rollout={"reboot": hook}, wait_timeout=60)
    assert not done.get("failed"), done["msg"]
    rolling.require_offered({GPU: 2})
    assert {name for name, boot in boots(rolling).items() if boot != before[name]} == {TARGET}
    rolling.require_clean()
