# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nodegroup_nodes on nodes of a cloud of the lab: it waits for them, completes their labels and taints, and explains a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import nodegroup_nodes
from lab.layout import Lab as LabLayout
from lab.machines import Machines
from tests.helpers.kube import Kube
from tests.labs import Lab

Object = dict[str, Any]

GROUP, FLAVOR = "magnum.openstack.org/nodegroup", "g2.5xlarge"
TAINT = {"key": "example.com/team", "value": "x", "effect": "NoSchedule"}
Make = Callable[..., list[str]]

# The cluster's identity: read by every module that has a cluster name.
RECORD = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/accel-gpu"


@pytest.fixture
def make(lab: Lab, kube: Kube) -> Iterator[Make]:
    """Creates machines of a group that sets only the cloud's own labels."""
    machines = Machines(LabLayout.named(lab.name), "magnum")
    created: list[str] = []

    def create(*names: str, labels: dict[str, str] | None = None, taints: list[Object] | None = None) -> list[str]:
        full = [f"{kube.prefix}-{name}" for name in names]
        created.extend(full)
        machines.create(
            kube.prefix,
            full,
            FLAVOR,
            labels={GROUP: kube.prefix, **(labels or {})},
            taints=taints or [],
            provider_ids={name: f"openstack:///{name}" for name in full},
        )
        return full

    yield create
    machines.delete(created)


def module_options(kube: Kube, count: int = 2, **more: Any) -> Object:
    """The module's options for one pool, whose group has the test's name."""
    pool = {
        "name": f"pool-{kube.prefix}",
        "nodes": {"name": kube.prefix, "flavor": FLAVOR, "count": count},
        "labels": {"example.com/team": "x"},
        "taints": [TAINT],
        "sharing": {"mode": "time-slicing", "replicas": 4},
    }
    named = kube.client.connection.cluster_name
    return {
        "gpu_cluster": {"name": named, "cloud": {"magnum": {}}},
        "gpu_pools": [pool],
        "wait_timeout": 60,
        "wait_sleep": 1,
        **more,
    }


@pytest.mark.usual(10)
def test_nodes_of_a_cloud_without_registration_labels(kube: Kube, make: Make) -> None:
    names = make("a", "b")
    options = module_options(kube)
    predicted = kube.run(nodegroup_nodes.main, check=True, **options)
    assert predicted["changed"] is True
    done = kube.run(nodegroup_nodes.main, **options)
    assert done["diff"] == predicted["diff"]
    assert done["nodegroup_nodes"]["changed_nodes"] == names
    reported = {"group": kube.prefix, "desired": 2, "nodes": 2, "ready": 2}
    assert done["nodegroup_nodes"]["pools"] == {f"pool-{kube.prefix}": reported}
    node = kube.node(names[0])
    assert TAINT in node["spec"]["taints"]
    assert node["metadata"]["labels"]["accel.gpu/pool"] == f"pool-{kube.prefix}"
    assert node["metadata"]["labels"]["nvidia.com/device-plugin.config"].startswith("time-slicing-4-")
    assert "example.com/team" in node["metadata"]["annotations"]["accel.gpu/pool-labels"]
    with kube.watched() as watched:
        again = kube.run(nodegroup_nodes.main, kubeconfig=watched.kubeconfig, **options)
        assert again["changed"] is False
        assert watched.new_requests() == [f"GET {RECORD}", "GET /api/v1/nodes"]


@pytest.mark.usual(10)
def test_nodes_with_registration_labels_are_only_awaited(kube: Kube, make: Make) -> None:
    options = module_options(kube, count=1)
    ahead = kube.run(nodegroup_nodes.main, check=True, **options)
    assert ahead["changed"] is True
    assert ahead["nodegroup_nodes"]["missing"] == {f"pool-{kube.prefix}": 1}
    (name,) = make("first")
    kube.run(nodegroup_nodes.main, **options)
    node = kube.node(name)
    labels = node["metadata"]["labels"]
    registered = {key: labels[key] for key in ("accel.gpu/pool", "nvidia.com/device-plugin.config", "example.com/team")}
    (second,) = make("second", labels=registered, taints=[TAINT])
    done = kube.run(nodegroup_nodes.main, **module_options(kube, count=2))
    assert done["changed"] is False
    assert "accel.gpu/pool-labels" not in kube.node(second)["metadata"]["annotations"]


@pytest.mark.usual(10)
def test_a_node_that_registers_later(kube: Kube, make: Make) -> None:
    make("a")
    coming = threading.Timer(2, make, ["late"])
    coming.start()
    reported = {kube.prefix: {"node_count": 2}}
    done = kube.run(nodegroup_nodes.main, **module_options(kube, count=1, nodegroups=reported))
    coming.join()
    assert done["nodegroup_nodes"]["changed_nodes"] == [f"{kube.prefix}-a", f"{kube.prefix}-late"]


@pytest.mark.usual(10)
def test_missing_and_unready_nodes_are_reported(kube: Kube, make: Make) -> None:
    make("a")
    # A node without heartbeats of a kubelet.
    (silent,) = kube.nodes(1, labels={GROUP: kube.prefix})
    failed = kube.run(nodegroup_nodes.main, **module_options(kube, count=3, wait_timeout=3))
    assert failed["failed"] is True
    assert failed["code"] == "timeout"
    message = failed["msg"]
    assert f"Node group {kube.prefix} (pool pool-{kube.prefix}): 1 of 3 nodes are ready" in message
    assert "; 1 never joined the cluster; " in message
    assert f"{silent} is not ready for" in message
    assert "accel.gpu.magnum_nodegroup_info" in message
    assert failed["nodegroup_nodes"]["changed_count"] == 2
    assert silent in failed["nodegroup_nodes"]["not_ready"]


def test_a_pool_without_nodegroup_cannot_be_named(kube: Kube) -> None:
    options = module_options(kube, pool_names=["other", "old"])
    options["gpu_pools"].append({"name": "old", "match": {"model": "T4"}})
    with kube.watched() as watched:
        failed = kube.run(nodegroup_nodes.main, kubeconfig=watched.kubeconfig, **options)
        assert watched.new_requests() == []
    assert failed["code"] == "invalid"
    assert "pool_names: pool other is not declared" in failed["msg"]
    assert "pool_names: pool old has no node group (nodes)" in failed["msg"]


def test_pools_without_node_groups_send_no_list(kube: Kube) -> None:
    with kube.watched() as watched:
        options: Object = {
            "gpu_cluster": {"name": kube.client.connection.cluster_name},
            "gpu_pools": [{"name": "old", "match": {"model": "T4"}}],
        }
        done = kube.run(nodegroup_nodes.main, kubeconfig=watched.kubeconfig, **options)
        assert watched.new_requests() == [f"GET {RECORD}"]
    assert done["changed"] is False
    assert done["nodegroup_nodes"]["pools"] == {}
