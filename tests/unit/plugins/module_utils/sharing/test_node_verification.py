# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NodeVerifier: the message after a timeout, and the restart of gpu-feature-discovery for labels that are late."""

from __future__ import annotations

import re
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, StateTimer
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import check_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan, RebootPlan
from ansible_collections.accel.gpu.plugins.module_utils.sharing import reader, verification
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import EVERYTHING
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    NodeFailure,
    NodeResult,
    RolloutContext,
    StateReader,
    WatchedNode,
    WatchedNodes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.verification import NodeVerifier
from tests.helpers.fleet import node, pool
from tests.helpers.modules import run_module
from tests.helpers.programs import run_program

TIMEOUT = 600.0
LATE = {"nvidia.com/gpu.replicas": "1"}
PATH = "/api/v1/namespaces/gpu-operator/pods"


class Cluster:
    """A client and a lease: each check takes ten seconds; GFD's pods can be deleted, which calls `on_delete`."""

    def __init__(self, on_delete: Callable[[Cluster], None] = lambda cluster: None) -> None:
        self.now = 0.0
        self.nodes: WatchedNodes | None = None
        self.deleted: list[str] = []
        self.lost = threading.Event()
        self._on_delete = on_delete

    def clock(self) -> float:
        return self.now

    def check(self) -> None:
        self.now += 10

    def list(self, path: str, label_selector: str = "", **dummy: Any) -> list[dict[str, Any]]:
        if not path.endswith("/pods"):
            return []
        return [
            {
                "metadata": {"name": f"gfd-{name}", "labels": {"app": "gpu-feature-discovery"}},
                "spec": {"nodeName": name},
            }
            for name in ("n1", "n2")
        ]

    def text(self, path: str, query: Any) -> str:
        return ""

    def delete(self, path: str) -> bool:
        self.deleted.append(path)
        self._on_delete(self)
        return True


def verifier(cluster: Cluster, actual: Node, to: PoolPlan | None, result: NodeResult | None = None) -> NodeVerifier:
    """Verifies this node after its change."""
    cluster.nodes = WatchedNodes(cluster, {actual.name: actual}, "1", clock=cluster.clock)  # type: ignore[arg-type]
    plan = derive({"name": "lab"}, {}, [])
    context = RolloutContext(
        client=cluster,  # type: ignore[arg-type]
        plan=plan,
        scope=EVERYTHING,
        reader=StateReader(cluster, plan),  # type: ignore[arg-type]
        progress=Progress(None),
        run_id="test",
        run_command=run_program,
        wait_timeout=TIMEOUT,
        since=StateTimer(cluster.clock),
        lease=cluster,  # type: ignore[arg-type]
        nodes=cluster.nodes,
        held_back=(),
        report=lambda name, text: None,
    )
    result = result or NodeResult(actual.name)
    return NodeVerifier(context, WatchedNode(context, result), to, result)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits depend only on the cluster's clock."""
    monkeypatch.setattr(reader, "_CHECK", 0.001)


def test_a_timeout_names_the_duration_of_the_finding() -> None:
    cluster = Cluster()
    with pytest.raises(NodeFailure) as failure:
        verifier(cluster, node(), pool(replicas=4)).verify(None)
    match = re.search(r"unchanged for (\d+) s", str(failure.value))
    assert match is not None
    assert TIMEOUT - 60 <= int(match[1]) <= TIMEOUT + 60
    assert cluster.deleted == []


def test_a_timeout_of_a_release_names_it_too() -> None:
    remaining = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
    cut = node(labels=remaining, allocatable={"nvidia.com/mig-3g.40gb": 2})
    with pytest.raises(NodeFailure) as failure:
        verifier(Cluster(), cut, None).verify(None)
    match = re.search(r"unchanged for (\d+) s", str(failure.value))
    assert match is not None
    assert TIMEOUT - 60 <= int(match[1]) <= TIMEOUT + 60


def test_gpu_feature_discovery_is_restarted_for_late_labels() -> None:
    """The node offers the right resources, and NFD's master has dropped the update of its labels."""
    expected = node(replicas=4)

    def arrive(cluster: Cluster) -> None:
        assert cluster.nodes is not None
        cluster.nodes.note(expected)

    cluster = Cluster(arrive)
    result = NodeResult("n1")
    verifier(cluster, node(replicas=4, labels=LATE), pool(replicas=4), result).verify(None)
    assert cluster.deleted == [f"{PATH}/gfd-n1"]
    assert verification.LABELS_LATE <= cluster.now < verification.LABELS_LATE + 60
    assert result.repaired == verification.DISCOVERY_RESTARTED


def test_gpu_feature_discovery_is_restarted_only_once() -> None:
    cluster = Cluster()
    with pytest.raises(NodeFailure, match=r"gpu\.replicas is 1, but 4 is expected; unchanged for \d\d\d s"):
        verifier(cluster, node(replicas=4, labels=LATE), pool(replicas=4)).verify(None)
    assert cluster.deleted == [f"{PATH}/gfd-n1"]


@pytest.mark.parametrize(
    ("actual", "labels_only"),
    [
        (node(replicas=4, labels=LATE), True),
        (node(), False),
        (node(replicas=4, allocatable={"nvidia.com/gpu": 1}), False),
        (node(replicas=4, labels={**LATE, "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}), False),
        (node(replicas=4, labels={"nvidia.com/gpu.product": "Tesla-T4-MIG-INVALID"}), False),
    ],
)
def test_labels_only(actual: Node, labels_only: bool) -> None:
    finding = check_node(actual, pool(replicas=4))
    assert finding is not None
    assert finding.labels_only is labels_only
    assert (finding.operand == "gpu-feature-discovery") is labels_only


def test_a_reboot_is_compared_with_the_boot_id_that_the_server_has_now() -> None:
    """The watch may be older than a reboot by the MIG manager, which must not count as the one that was requested."""
    now, after = node(boot_id="second"), node(boot_id="third")
    seen: list[bool | None] = []

    def wait(is_rebooted: Callable[[Node], bool | None], timeout: float) -> bool:
        seen.extend(map(is_rebooted, (now, after)))
        return True

    context = types.SimpleNamespace(report=lambda *dummy: None, reboot_lock=threading.Lock(), run_command=run_program)
    watched = types.SimpleNamespace(name="n1", latest=node(boot_id="first"), write=lambda dummy: now, wait=wait)
    result = NodeResult("n1")
    NodeVerifier(context, watched, None, result)._reboot(RebootPlan(("true", "{node}"), 60))  # type: ignore[arg-type]
    assert seen == [None, True]
    assert result.repaired == "rebooted"


@pytest.mark.parametrize(
    ("command", "timeout", "message"),
    [
        (
            ("no-such-program", "{node}"),
            60,
            "no-such-program (rollout.reboot.command) cannot be started for n1: No such",
        ),
        (
            ("sleep", "600"),
            0.2,
            "sleep (rollout.reboot.command) was stopped for n1 because it did not finish within 0.2 s",
        ),
        (("sh", "-c", "echo $0 >&2; exit 5", "~$HOME{node}"), 60, "exit status 5 and wrote to stderr: ~$HOMEn1"),
    ],
)
def test_a_reboot_command_that_fails_is_a_failure_of_its_node(
    command: tuple[str, ...], timeout: float, message: str
) -> None:
    """AnsibleModule.run_command itself would end the thread of the node, or replace variables of the shell."""

    def reboot() -> None:
        module = AnsibleModule({})
        context = types.SimpleNamespace(
            report=lambda *dummy: None, reboot_lock=threading.Lock(), run_command=module.run_command
        )
        watched = types.SimpleNamespace(name="n1", write=lambda dummy: node())
        try:
            NodeVerifier(context, watched, None, NodeResult("n1"))._reboot(RebootPlan(command, timeout))  # type: ignore[arg-type]
        except NodeFailure as failure:
            module.exit_json(reason=failure.reason, message=str(failure))

    result = run_module(reboot, {})
    assert result["reason"] == "reboot"
    assert message in result["message"]
