# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a turn waits for its node: what is said when that was in vain, and what is done about labels that do not arrive."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node_check import check as prove
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.transition import Transition
from ansible_collections.accel.gpu.plugins.module_utils.common.wait import Since
from ansible_collections.accel.gpu.plugins.module_utils.drain.pods_on_nodes import PodsByNode
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.sharing import late_labels, watched_nodes
from ansible_collections.accel.gpu.plugins.module_utils.sharing.diagnosis import diagnose_node
from ansible_collections.accel.gpu.plugins.module_utils.sharing.node_change import NodeChange
from ansible_collections.accel.gpu.plugins.module_utils.sharing.node_result import NodeFailure, RunnerContext
from ansible_collections.accel.gpu.plugins.module_utils.sharing.node_runner import NodeRunner
from ansible_collections.accel.gpu.plugins.module_utils.sharing.watched_nodes import WatchedNodes
from tests.helpers.fleet import node, pool

TIMEOUT = 600.0
LATE = {"nvidia.com/gpu.replicas": "1"}
PATH = "/api/v1/namespaces/gpu-operator/pods"


class Cluster:
    """A client and a lease: whoever looks waits ten seconds; GFD's pods can be deleted, with what follows from it."""

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


def waiting(cluster: Cluster, of_node_: Node, of_pool: PoolPlan | None) -> NodeRunner:
    """The turn of this node, changed and now to be proven."""
    cluster.nodes = WatchedNodes(cluster, {of_node_.name: of_node_}, "1", clock=cluster.clock)  # type: ignore[arg-type]
    since = Since(cluster.clock)
    plan = derive({"name": "lab"}, {}, [])
    tools = RunnerContext(
        client=cluster,  # type: ignore[arg-type]
        lease=cluster,  # type: ignore[arg-type]
        live=cluster.nodes,
        look=lambda name: PodsByNode({}, {}),
        tell=functools.partial(diagnose_node, cluster, plan, since),  # type: ignore[arg-type]
        since=since,
        say=lambda name, text: None,
        reboot=None,  # type: ignore[arg-type]
        held=(),
        namespace="gpu-operator",
        wait_timeout=TIMEOUT,
        repair=False,
    )
    return NodeRunner(tools, NodeChange(of_node_.name, of_pool, None, Transition("sharing")))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the cluster's clock counts."""
    monkeypatch.setattr(watched_nodes, "_LOOK", 0.001)


def test_a_failure_says_for_how_long_the_node_has_been_so() -> None:
    cluster = Cluster()
    with pytest.raises(NodeFailure) as failure:
        waiting(cluster, node(), pool(replicas=4))._prove(None, pool(replicas=4))
    told = re.search(r"so for (\d+) s", str(failure.value))
    assert told is not None
    assert TIMEOUT - 60 <= int(told[1]) <= TIMEOUT + 60
    assert cluster.deleted == []


def test_so_does_that_of_a_release() -> None:
    left = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"}
    cut = node(labels=left, allocatable={"nvidia.com/mig-3g.40gb": 2})
    with pytest.raises(NodeFailure) as failure:
        waiting(Cluster(), cut, None)._prove_whole()
    told = re.search(r"so for (\d+) s", str(failure.value))
    assert told is not None
    assert TIMEOUT - 60 <= int(told[1]) <= TIMEOUT + 60


def test_labels_that_do_not_arrive_are_written_again_by_a_new_pod() -> None:
    """The node offers what it should, and NFD's master has dropped the update of its labels."""
    wanted = node(replicas=4)

    def arrive(cluster: Cluster) -> None:
        assert cluster.nodes is not None
        cluster.nodes.note(wanted)

    cluster = Cluster(arrive)
    turn = waiting(cluster, node(replicas=4, labels=LATE), pool(replicas=4))
    turn._prove(None, pool(replicas=4))
    assert cluster.deleted == [f"{PATH}/gfd-n1"]
    assert late_labels.LABELS_LATE <= cluster.now < late_labels.LABELS_LATE + 60
    assert turn.fate.repaired == late_labels.RESTARTED


def test_that_is_tried_once_and_then_told() -> None:
    cluster = Cluster()
    with pytest.raises(NodeFailure, match=r"gpu\.replicas is 1, 4 is expected; so for \d\d\d s"):
        waiting(cluster, node(replicas=4, labels=LATE), pool(replicas=4))._prove(None, pool(replicas=4))
    assert cluster.deleted == [f"{PATH}/gfd-n1"]


@pytest.mark.parametrize(
    ("of_node_", "labels_only"),
    [
        (node(replicas=4, labels=LATE), True),
        (node(), False),
        (node(replicas=4, allocatable={"nvidia.com/gpu": 1}), False),
        (node(replicas=4, labels={**LATE, "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}), False),
        (node(replicas=4, labels={"nvidia.com/gpu.product": "Tesla-T4-MIG-INVALID"}), False),
    ],
)
def test_whose_labels_alone_are_late(of_node_: Node, labels_only: bool) -> None:
    finding = prove(of_node_, pool(replicas=4))
    assert finding is not None
    assert finding.labels_only is labels_only
    assert (finding.blamed == "gpu-feature-discovery") is labels_only
