# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The explanation of nodes that do not match their declaration."""

from __future__ import annotations

import typing as t
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_check import check_node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing.verification import diagnose
from tests.helpers.fleet import node, pool

PLUGIN = "nvidia-device-plugin-daemonset"
PLAN = derive({"name": "lab"}, {}, [{"name": "notebooks", "match": {"model": "T4"}}])


class Cluster:
    """One node with a device plugin that is ready or not."""

    def __init__(self, ready: bool) -> None:
        self.ready = ready

    def list(self, path: str, **dummy: t.Any) -> list[dict[str, t.Any]]:
        if not path.endswith("/pods"):
            return []
        conditions = [{"type": "Ready", "status": str(self.ready)}]
        metadata = {"name": f"{PLUGIN}-x", "labels": {"app": PLUGIN}}
        return [{"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"conditions": conditions}}]

    def text(self, dummy_path: str, query: dict[str, t.Any]) -> str:
        return f"the log of {query['container']}: XidCriticalError"


def explained(of_node: Node, ready: bool) -> str:
    finding = check_node(of_node, pool())
    assert finding is not None
    context = mock.Mock(client=Cluster(ready), plan=PLAN, namespace="gpu-operator")
    context.since.seconds.return_value = 600.0
    return diagnose(context, {"n1": finding})


@pytest.mark.parametrize("capacity", [{"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 0}])
def test_a_node_with_only_unhealthy_gpus_has_a_device_plugin(capacity: dict[str, int]) -> None:
    text = explained(node(allocatable={"nvidia.com/gpu": 0}, capacity=capacity), ready=True)
    assert f"its {PLUGIN} pod is ready, so the GPUs that are missing are unhealthy" in text
    assert "the log of nvidia-device-plugin: XidCriticalError" in text
    assert "GPUs that are missing" not in explained(
        node(allocatable={"nvidia.com/gpu": 0}, capacity=capacity), ready=False
    )


def test_a_node_with_other_labels_has_no_unhealthy_gpus() -> None:
    assert "unhealthy:" not in explained(node(replicas=4, allocatable={"nvidia.com/gpu": 0}), ready=True)


def test_undiscovered_nodes_are_described_by_what_they_lack() -> None:
    undiscovered = [Node("a", {"feature.node.kubernetes.io/pci-10de.present": "true"}), Node("b")]
    context = mock.Mock(client=Cluster(ready=True), plan=PLAN, namespace="gpu-operator")
    first, second, *dummy = diagnose(context, {}, undiscovered).splitlines()
    assert first == "1 GPU node(s) that gpu-feature-discovery has not labeled: a"
    assert second.startswith("1 node(s) that NFD has not labeled although its worker runs there: b")
