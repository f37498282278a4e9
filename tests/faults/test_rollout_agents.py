# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling change while NVIDIA's agents or the machines fail: one node is told with its remedy, and the others finish."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.helpers.rolling import ALL_AT_ONCE, CORDONED, FAILED, HALVES, MPS, NONE, VICTIM, Rolling
from tests.helpers.workloads import GPU
from tests.labs import LAB

pytestmark = [
    pytest.mark.sampled(1, of="faults of a rolling change"),
    pytest.mark.usual(60),
    pytest.mark.timeout(600),
]

PATIENCE = 25
PAUSED = "nvidia.com/gpu.deploy.device-plugin"


def require_told(rolling: Rolling, result: dict[str, Any], *words: str, offered: dict[str, int]) -> None:
    """The victim alone has failed, with these words; all others are as declared."""
    assert result["failed"] is True
    told = result["gpu_sharing"]
    assert list(told["failed"]) == [VICTIM], told["failed"]
    for word in (VICTIM, *words):
        assert word in result["msg"], result["msg"]
    for word in words:
        assert word in told["failed"][VICTIM]
    rolling.require_offered(offered, but=VICTIM)


def require_back(rolling: Rolling, result: dict[str, Any]) -> None:
    """The victim is as it was before, at work, and told so."""
    assert result["gpu_sharing"]["rolled_back"] == [VICTIM]
    assert result["gpu_sharing"]["left_cordoned"] == []
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {GPU: 1}})
    deploys = {
        key: value
        for key, value in rolling.cluster.nodes()[VICTIM]["metadata"]["labels"].items()
        if key.startswith("nvidia.com/gpu.deploy.")
    }
    assert not [key for key, value in deploys.items() if "paused" in value]
    assert not rolling.cluster.nodes()[VICTIM]["spec"].get("unschedulable")


def fault(rolling: Rolling, name: str) -> None:
    rolling.lab.command("fault", "inject", name, "--nodes", VICTIM)


def share(rolling: Rolling, sharing: dict[str, Any], *, settled: bool = True, **rollout: Any) -> dict[str, Any]:
    return rolling.share(sharing, rollout={**ALL_AT_ONCE, **rollout}, settled=settled, wait_timeout=PATIENCE)


def test_a_mig_change_fails(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES)
    require_told(rolling, result, "nvidia.com/mig.config.state", "failed", offered={GPU: 2})
    require_back(rolling, result)


def test_after_a_failure_no_other_node_begins(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES, max_unavailable=1, order="name")
    assert list(result["gpu_sharing"]["failed"]) == [VICTIM]
    assert result["gpu_sharing"]["not_begun"] == ["a100-3"]
    assert rolling.cluster.offered("a100-1") == {"a100-1": {GPU: 2}}
    assert rolling.cluster.offered("a100-3") == {"a100-3": {GPU: 1}}
    require_back(rolling, result)


def test_a_node_that_failed_is_left_cordoned_and_tainted_where_that_was_asked_for(rolling: Rolling) -> None:
    fault(rolling, "mig-failed")
    result = share(rolling, HALVES, on_failure="leave")
    require_told(rolling, result, "failed", offered={GPU: 2})
    assert result["gpu_sharing"]["left_cordoned"] == [VICTIM]
    assert result["gpu_sharing"]["rolled_back"] == []
    node = rolling.cluster.nodes()[VICTIM]
    assert node["spec"]["unschedulable"] is True
    assert {"key": FAILED, "value": "mig-failed", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert {CORDONED, FAILED} <= set(node["metadata"]["annotations"])
    rolling.lab.command("fault", "clear")
    healed = share(rolling, HALVES)
    assert not healed.get("failed"), healed["msg"]
    rolling.require_clean()


def test_a_mig_change_hangs_in_pending(rolling: Rolling) -> None:
    fault(rolling, "mig-pending")
    result = share(rolling, HALVES)
    require_told(rolling, result, "pending", offered={GPU: 2})
    require_back(rolling, result)


def test_a_mig_change_that_hung_is_done_by_repair(rolling: Rolling) -> None:
    """The label asks for it still, as after somebody's own change; the remedy is a new MIG manager."""
    assert not share(rolling, HALVES).get("failed")
    fault(rolling, "mig-pending")
    whole = "nvidia.com/mig.config=all-disabled"
    rolling.cluster.kubectl("label", "--overwrite", "node", VICTIM, whole, "nvidia.com/mig.config.state-")
    label = "nvidia.com/mig.config.state"
    rolling.cluster.until(lambda: rolling.cluster.nodes()[VICTIM]["metadata"]["labels"].get(label) == "pending")
    rolling.cluster.until(lambda: "did not shutdown" in manager_says(rolling), 60)
    rolling.lab.command("fault", "clear")
    healed = rolling.share(HALVES, state="repaired", settled=False, wait_timeout=PATIENCE)
    assert not healed.get("failed"), healed["msg"]
    assert list(healed["gpu_sharing"]["repaired"]) == [VICTIM]
    rolling.cluster.until(lambda: label_of(rolling, label) == "success")


def manager_says(rolling: Rolling) -> str:
    """The log of the victim's MIG manager; nothing while there is none."""
    words = ("-n", "gpu-operator", "-l", "app=nvidia-mig-manager", "--field-selector", f"spec.nodeName={VICTIM}")
    (pod,) = rolling.cluster.kubectl("get", "pods", *words, "-o", "name").split()
    command = ["kubectl", "logs", "-n", "gpu-operator", pod]
    return subprocess.run(command, env=rolling.lab.env, capture_output=True, text=True, check=False).stdout


def label_of(rolling: Rolling, label: str) -> str:
    """A label of the victim."""
    return str(rolling.cluster.nodes()[VICTIM]["metadata"]["labels"].get(label, ""))


def repair_what_was_paused(rolling: Rolling) -> None:
    """The victim's device plugin has been stopped for a change and never started again, until the repair."""
    rolling.cluster.kubectl("label", "--overwrite", "node", VICTIM, f"{PAUSED}=paused-for-mig-change")
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {}})
    healed = rolling.share(NONE, state="repaired", wait_timeout=PATIENCE)
    assert not healed.get("failed"), healed["msg"]
    assert list(healed["gpu_sharing"]["repaired"]) == [VICTIM]


def test_operands_that_were_left_paused_are_let_go(rolling: Rolling) -> None:
    repair_what_was_paused(rolling)
    assert label_of(rolling, PAUSED) == "true"
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {GPU: 1}})


def test_a_repair_leaves_to_other_runs_what_is_declared_anew(rolling: Rolling) -> None:
    """The pool is to have whole GPUs, and no run has said so to its nodes yet; one of them is stuck meanwhile."""
    assert not share(rolling, MPS).get("failed")
    repair_what_was_paused(rolling)
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {GPU: 4}})
    rolling.require_offered({GPU: 4})
    rolling.require_clean()


def said(rolling: Rolling, result: dict[str, Any]) -> None:
    """Whatever of ours is still on the victim is told."""
    cordoned = bool(rolling.cluster.nodes()[VICTIM]["spec"].get("unschedulable"))
    assert (result["gpu_sharing"]["left_cordoned"] == [VICTIM]) is cordoned


def test_a_mig_manager_that_hears_nothing_is_started_anew(rolling: Rolling) -> None:
    """Its last `success` stands on the node already when the change begins."""
    assert label_of(rolling, "nvidia.com/mig.config.state") == "success"
    fault(rolling, "mig-watch-hung")
    done = share(rolling, HALVES)
    assert not done.get("failed"), done["msg"]
    rolling.require_offered({GPU: 2})
    rolling.require_clean()


def test_a_layout_that_is_made_in_part(rolling: Rolling) -> None:
    fault(rolling, "mig-partial")
    result = share(rolling, HALVES)
    require_told(rolling, result, GPU, offered={GPU: 2})
    require_back(rolling, result)


def test_operands_that_a_change_leaves_paused(rolling: Rolling) -> None:
    fault(rolling, "mig-paused")
    result = share(rolling, HALVES)
    rolling.require_offered({GPU: 2}, but=VICTIM)
    if result.get("failed"):
        require_told(rolling, result, "paused", offered={GPU: 2})
        said(rolling, result)
    else:
        rolling.require_offered({GPU: 2})
        rolling.require_clean()


def test_gpus_that_are_called_invalid(rolling: Rolling) -> None:
    """Somebody has cut a node otherwise than its pool is offered: GFD calls its product invalid, and the plugin gives up."""
    assert not share(rolling, HALVES).get("failed")
    other = "nvidia.com/mig.config=all-balanced"
    rolling.cluster.kubectl("label", "--overwrite", "node", VICTIM, other, "nvidia.com/mig.config.state-")
    rolling.cluster.until(lambda: label_of(rolling, "nvidia.com/gpu.product").endswith("-MIG-INVALID"), 60)
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {}}, 60)
    done = share(rolling, HALVES, settled=False)
    assert not done.get("failed"), done["msg"]
    assert set(done["gpu_sharing"]["steps"]) == {VICTIM}
    rolling.require_offered({GPU: 2})
    rolling.require_clean()


def test_a_device_plugin_that_crash_loops(rolling: Rolling) -> None:
    """The node offers nothing when the change begins, so that it is closed to nobody and has nothing to go back to."""
    fault(rolling, "plugin-crash")
    rolling.cluster.until(lambda: rolling.cluster.offered(VICTIM) == {VICTIM: {}}, 60)
    result = share(rolling, MPS, settled=False)
    assert result["failed"] is True
    for word in (VICTIM, "CrashLoopBackOff", "kubectl"):
        assert word in result["msg"], result["msg"]
    rolling.require_offered({GPU: 4}, but=VICTIM)
    rolling.require_clean(VICTIM)
    said(rolling, result)


def test_the_lag_of_the_agents_copies_is_survived(rolling: Rolling) -> None:
    """Entries that no agent has ever seen, of both ConfigMaps: nobody crashes over them, and no change fails first."""
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
    """The boot id of each machine."""
    return {name: rolling.cluster.nodes()[name]["status"]["nodeInfo"]["bootID"] for name in rolling.nodes()}


@pytest.fixture
def unrebooting(rolling: Rolling) -> Any:
    """GPUs of the victim cannot be reset, and the MIG manager may reboot no node."""
    told = '{"spec": {"migManager": {"env": [{"name": "WITH_REBOOT", "value": "false"}]}}}'
    rolling.cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", told)
    rolling.cluster.kubectl("rollout", "status", "-n", "gpu-operator", "daemonset/nvidia-mig-manager")
    fault(rolling, "mig-reboot")
    yield rolling
    rolling.lab.command("fault", "clear")
    nothing = '{"spec": {"migManager": {"env": null}}}'
    rolling.cluster.kubectl("patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", nothing)


def test_a_change_that_needs_a_reboot_gets_it_by_the_hook_alone(unrebooting: Rolling) -> None:
    rolling, before = unrebooting, boots(unrebooting)
    refused = share(rolling, HALVES)
    require_told(rolling, refused, "reboot", offered={GPU: 2})
    assert boots(rolling) == before
    hook = {"command": [str(LAB), "--name", rolling.lab.name, "nodes", "reboot", "{node}"], "timeout": 60}
    done = rolling.share(HALVES, rollout={"reboot": hook}, wait_timeout=60)
    assert not done.get("failed"), done["msg"]
    rolling.require_offered({GPU: 2})
    assert {name for name, boot in boots(rolling).items() if boot != before[name]} == {VICTIM}
    rolling.require_clean()
