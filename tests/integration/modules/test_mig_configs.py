# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG manager's ConfigMap on a real API server: generated entries of NVIDIA stay, the collection's are added and removed in time."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy_client import ClusterPolicyClient
from ansible_collections.accel.gpu.plugins.module_utils.kube.paths import NODES, collection_path, object_path
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    SharingConfigMaps,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted
from lab import build
from tests.helpers.kube import Kube
from tests.helpers.mig import generated_entries, generated_of
from tests.labs import Lab

MODELS = {"A100-SXM4-40GB": "NVIDIA-A100-SXM4-40GB", "A100-SXM4-80GB": "NVIDIA-A100-SXM4-80GB", "A30": "NVIDIA-A30"}


class NoLease:
    """Replaces the lease: there is no other client in the namespace."""

    def check(self) -> None:
        """The lease is held."""


class Fleet:
    """Three nodes of three models, each with the entries that its MIG manager generates, and a pool of the second model."""

    def __init__(self, kube: Kube, **sharing: Any) -> None:
        self.kube, self.namespace = kube, kube.namespace()
        self.names = kube.nodes(len(MODELS))
        for name, product in zip(self.names, MODELS.values(), strict=True):
            labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": "1", "nvidia.com/gpu.present": "true"}
            kube.client.patch(f"{NODES}/{name}", {"metadata": {"labels": labels}})
            # A change of a node that is not ready would wait until it is.
            kube.client.patch(
                f"{NODES}/{name}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            )
        path = collection_path("v1", "ConfigMap", self.namespace)
        for name, model in zip(self.names, MODELS, strict=True):
            kube.client.create(path, generated_of(name, generated_entries(model), self.namespace))

    def plan(self, layout: dict[str, int] | None) -> Plan:
        sharing = {"mode": "mig", "layout": layout} if layout else {"mode": "none"}
        pool = {
            "name": self.kube.prefix,
            "match": {"model": "A100-SXM4-80GB", "labels": {"test": self.kube.prefix}},
            "sharing": sharing,
        }
        return derive({"name": "lab", "operator": {"namespace": self.namespace}}, {}, [pool])

    def nodes(self) -> list[Node]:
        return [parse_node(raw) for raw in self.kube.client.list(NODES, label_selector=f"test={self.kube.prefix}")]

    def compared(self, plan: Plan, configs: SharingConfigMaps) -> ChangePlan:
        nodes = self.nodes()
        return plan_sharing_changes(plan, nodes, assign_pools(plan.pools, nodes), configs.read(nodes))

    def text(self) -> str:
        """The file of the MIG manager."""
        live = self.kube.client.get(object_path("v1", "ConfigMap", "accel-gpu-mig-parted", self.namespace))
        assert live
        return str(live["data"]["config.yaml"])

    def entries(self) -> dict[str, Any]:
        return mig_parted.parse_configmap({"data": {"config.yaml": self.text()}})


@pytest.fixture
def fleet(kube: Kube) -> Fleet:
    return Fleet(kube)


@pytest.mark.usual(3)
def test_generated_entries_are_included_and_nvidias_parser_accepts_the_file(
    lab: Lab, fleet: Fleet, tmp_path: Path
) -> None:
    plan = fleet.plan({"3g.40gb": 2})
    configs = SharingConfigMaps(fleet.kube.client, plan)
    changes = fleet.compared(plan, configs)
    assert configs.read(fleet.nodes()).generated.warnings == ()
    configs.add_entries(changes)
    generated = {name: item for model in MODELS for name, item in generated_entries(model).items()}
    assert set(fleet.entries()) == {*generated, plan.pools[0].mig_key}
    for_80 = [part for part in fleet.entries()["all-balanced"] if "0x20B210DE" in part["device-filter"]]
    assert [part["mig-devices"] for part in for_80] == [{"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}]
    assert not fleet.compared(plan, SharingConfigMaps(fleet.kube.client, plan)).mig.changed

    # The ConfigMap that cluster_policy creates is identical.
    path = object_path("v1", "ConfigMap", "accel-gpu-mig-parted", fleet.namespace)
    text = fleet.text()
    fleet.kube.client.delete(path)
    created = ClusterPolicyClient(fleet.kube.client, fleet.namespace).missing_configmaps(plan, None)
    assert [body["data"]["config.yaml"] for body in created if body["metadata"]["name"] == "accel-gpu-mig-parted"] == [
        text
    ]

    file = tmp_path / "config.yaml"
    file.write_text(text)
    simulator = build.cached("sim")
    assert simulator is not None
    done = subprocess.run(
        [simulator / "bin" / "sim", "mig-config", file], capture_output=True, text=True, env=lab.env, check=False
    )
    assert done.stdout == f"{file}: ok\n", done.stderr


@pytest.mark.usual(3)
def test_an_entry_exists_before_and_as_long_as_a_node_names_it(fleet: Fleet) -> None:
    client = fleet.kube.client
    # No other node of the lab has this layout: its entry would stay for that node.
    mixed, sevenths = fleet.plan({"2g.20gb": 1, "1g.10gb": 1}), fleet.plan({"1g.10gb": 7})
    SharingConfigMaps(client, mixed).add_entries(fleet.compared(mixed, SharingConfigMaps(client, mixed)))
    node = fleet.names[1]
    client.patch(f"{NODES}/{node}", {"metadata": {"labels": dict(mixed.pools[0].node_labels)}})

    configs = SharingConfigMaps(client, sevenths)
    changes = fleet.compared(sevenths, configs)
    assert changes.mig.removed == (mixed.pools[0].mig_key,)
    configs.add_entries(changes)
    # Both exist while the labels change.
    assert {mixed.pools[0].mig_key, sevenths.pools[0].mig_key} <= set(fleet.entries())
    # The node has not been labeled yet, whatever the plan was: its entry stays.
    assert mixed.pools[0].mig_key not in configs.remove_entries(changes, NoLease())  # type: ignore[arg-type]
    assert mixed.pools[0].mig_key in fleet.entries()
    client.patch(f"{NODES}/{node}", {"metadata": {"labels": dict(sevenths.pools[0].node_labels)}})
    assert mixed.pools[0].mig_key in configs.remove_entries(changes, NoLease())  # type: ignore[arg-type]
    assert mixed.pools[0].mig_key not in fleet.entries()

    # No generated entry is removed with a pool or with its source.
    for name in fleet.names:
        client.delete(object_path("v1", "ConfigMap", f"{name}-mig-config", fleet.namespace))
    generated = {name for model in MODELS for name in generated_entries(model)}
    assert generated <= set(fleet.entries())
    assert not fleet.compared(sevenths, SharingConfigMaps(client, sevenths)).mig.changed
