# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with pods on them for tests of draining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import NodeDrainer, SharedLease
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions
from tests.helpers.kube import Kube
from tests.helpers.polling import until

NOTE = "accel.gpu/cordoned"
Object = dict[str, Any]


@dataclass
class DrainFixture:
    """Nodes of one test (kwok plays their kubelets) and pods on them, with or without a controller."""

    kube: Kube
    nodes: list[str]
    namespace: str
    owner: Object

    def pod(self, name: str, node: int = 0, *, bare: bool = False, labels: Object | None = None) -> None:
        container = {"name": "main", "image": "example.org/main"}
        metadata: Object = {"name": name, "labels": {"app": name, **(labels or {})}}
        if not bare:
            metadata["ownerReferences"] = [self.owner]
        spec = {"nodeName": self.nodes[node], "containers": [container], "terminationGracePeriodSeconds": 1}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.kube.client.create(f"/api/v1/namespaces/{self.namespace}/pods", body)

    def pods(self) -> list[str]:
        return sorted(
            pod["metadata"]["name"] for pod in self.kube.client.list(f"/api/v1/namespaces/{self.namespace}/pods")
        )

    def budget(self, app: str) -> str:
        """A budget that allows no eviction of the app's pods; returns its path."""
        collection = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
        self.kube.client.create(collection, body)
        path = f"{collection}/{app}"
        until(lambda: (self.kube.require(path).get("status") or {}).get("currentHealthy", 0) >= 1, limit=30)
        return path

    def cordons(self) -> list[tuple[bool, str]]:
        """For each node: whether it is cordoned, and the annotation of the cordon."""
        actual = [self.kube.node(name) for name in self.nodes]
        notes = [(node["metadata"].get("annotations") or {}).get(NOTE, "") for node in actual]
        return [(bool(node["spec"].get("unschedulable")), note) for node, note in zip(actual, notes, strict=True)]

    def drainer(self, client: Client | None = None, run: str = "test", wait: float = 0, **options: Any) -> NodeDrainer:
        used = client or self.kube.client

        def lease() -> Lease:
            return Lease(used, run, namespace="default", name=self.kube.prefix, wait_timeout=wait)

        return NodeDrainer(
            used, DrainOptions(**{"drain_timeout": 20, **options}), SharedLease(lease), lambda node, text: None
        )
