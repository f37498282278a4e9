# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups with nodes in the lab's Kubernetes: registered with the declared labels, and drained before their deletion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds import vks_client
from ansible_collections.accel.gpu.plugins.modules import vks_kubeconfig, vks_nodegroup
from lab import cloud_requests
from lab.layout import Lab as LabLayout
from tests.helpers.modules import run_module
from tests.helpers.workloads import NAMESPACE, Users
from tests.labs import Lab, build_lab, own_lab

Object = dict[str, Any]
POOL = {"accel.gpu/pool": "train"}
TAINT = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def cloud(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab whose own cluster is a VKS cluster."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        build_lab()
    with own_lab("vks", "vks") as lab:
        yield lab


def reconcile(lab: Lab, **more: Any) -> Object:
    """The result of vks_nodegroup for the group train."""
    vks_client.TOKENS.clear()
    args = {"cluster": lab.name, "name": "train", "confirm": [lab.name], "wait_sleep": 1, "wait_timeout": 400, **more}
    done = run_module(vks_nodegroup.main, args, env=lab.env)
    assert not done.get("failed"), done["msg"]
    return done


def nodes(users: Users) -> dict[str, Object]:
    """The pool's nodes by name."""
    actual = users.api.list("/api/v1/nodes", labelSelector="accel.gpu/pool=train")
    return {node["metadata"]["name"]: node for node in actual}


def deploy(users: Users) -> None:
    """A deployment that can run on every node of the pool."""
    pod = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "nodeSelector": POOL,
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "web", "image": "registry.example/web"}],
        },
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
    body = {"metadata": {"name": "web"}, "spec": spec}
    users.api.request("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", body)
    users.wait_running(2, "web")


@pytest.mark.soak
@pytest.mark.lab
@pytest.mark.usual(45)
def test_pods_move_to_the_replacing_group(cloud: Lab, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    vks_client.TOKENS.clear()
    created = run_module(vks_kubeconfig.main, {"cluster": cloud.name, "dest": str(kubeconfig)}, env=cloud.env)
    assert created["changed"], created
    reached = {"kubeconfig": str(kubeconfig)}

    group = {
        "flavor": "g3-standard-16x128-1A40",
        "disk_type": "SSD",
        "ssh_key": "lab",
        "node_labels": POOL,
        "node_taints": [TAINT],
    }
    first = reconcile(cloud, **group, node_count=2)
    users = Users(cloud).create_namespace()
    old = nodes(users)
    assert len(old) == 2
    assert all(TAINT in node["spec"]["taints"] for node in old.values())
    deploy(users)

    moved = reconcile(
        cloud, **{**group, "flavor": "g2-standard-16x64-1rtx4090"}, node_count=2, recreate=True, kubernetes=reached
    )
    assert moved["nodegroup"]["action"] == "recreate"
    assert moved["nodegroup"]["name"].startswith("train-")
    assert moved["nodegroup"]["id"] != first["nodegroup"]["id"]
    new = nodes(users)
    assert len(new) == 2
    assert not new.keys() & old.keys()
    assert {pod["spec"]["nodeName"] for pod in users.wait_running(2, "web")} <= new.keys()
    assert not any(node["spec"].get("unschedulable") for node in new.values())

    # It is the group with this name from now on, with or without `recreate`.
    layout = LabLayout.named(cloud.name)
    mark = cloud_requests.mark(layout)
    assert reconcile(cloud, **{**group, "flavor": "g2-standard-16x64-1rtx4090"}, node_count=2)["changed"] is False
    assert cloud_requests.writes(layout, mark) == []

    assert reconcile(cloud, state="absent", kubernetes=reached)["changed"] is True
    assert nodes(users) == {}
    assert users.running("web") == []
