# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers that a rotation restarts, after their nodes were drained."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers.licensing import FIRST_HOST, NEW_HOST, Licensing
from tests.helpers.polling import until

pytestmark = [
    pytest.mark.lab,
    pytest.mark.sampled(3, group="licensing"),
    pytest.mark.usual(60),
    pytest.mark.timeout(900),
]


def run_gpu_pod(licensing: Licensing, name: str, node: str, **fields: Any) -> None:
    """A pod that can use the GPU of only this node."""
    kubectl = licensing.cluster.kubectl
    kubectl("create", "deployment", name, f"--image=registry.example.com/{name}", "--replicas=0")
    container = {"name": name, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container], **fields}
    kubectl("patch", "deployment", name, "-p", json.dumps({"spec": {"replicas": 1, "template": {"spec": spec}}}))
    until(lambda: runs(licensing, name), limit=60)


def runs(licensing: Licensing, name: str) -> bool:
    return bool(licensing.cluster.get("deployment", name)["status"].get("readyReplicas") == 1)


def cordons(licensing: Licensing) -> list[str]:
    return [name for name, node in licensing.cluster.nodes().items() if node["spec"].get("unschedulable")]


@pytest.mark.sampled(1, group="whole runs of licensing")
def test_drivers_restart_on_drained_nodes(licensing: Licensing) -> None:
    nodes = ["vdi-1", "vdi-2"]
    run_gpu_pod(licensing, "work", "vdi-1")
    run_gpu_pod(licensing, "web", "vdi-2")
    licensing.cluster.kubectl("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=1")
    until(lambda: licensing.cluster.get("pdb", "web")["status"].get("currentHealthy") == 1, limit=60)
    drivers = {node: licensing.driver_pod(node) for node in nodes}
    licensing.put_token(licensing.token(NEW_HOST))

    pools = [{**licensing.pool, "rollout": {"drain_timeout": 5}}]
    options: dict[str, Any] = {"pools": pools, "node_names": nodes, "restart_drivers": True}
    before = licensing.pods()
    predicted = licensing.rotate(**options, check=True)["license_rotation"]
    assert predicted["restarted"] == nodes
    assert [name.rpartition("-")[0].rpartition("-")[0] for name in predicted["evicted"]] == [
        "default/work",
        "default/web",
    ]
    assert licensing.pods() == before

    failed = licensing.rotate(**options)
    assert failed["code"] == "partial", failed
    assert "The rotation stopped at node vdi-2, while it was drained: " in failed["msg"]
    assert "PodDisruptionBudget default/web" in failed["msg"]
    assert "The node was uncordoned again." in failed["msg"]
    result = failed["license_rotation"]
    assert (result["rotated"], result["restarted"], result["reached"]) == (["vdi-1"], ["vdi-1"], "draining")
    assert cordons(licensing) == []
    states = licensing.states()
    assert (states["vdi-1"]["server"], states["vdi-2"]["server"]) == (NEW_HOST, FIRST_HOST)
    assert licensing.driver_pod("vdi-1") != drivers["vdi-1"]
    assert licensing.driver_pod("vdi-2") == drivers["vdi-2"]

    licensing.cluster.kubectl("delete", "poddisruptionbudget", "web")
    variables: dict[str, Any] = {"gpu_licensing_node_names": nodes, "gpu_licensing_restart_drivers": True}
    environ = licensing.lab.env_as("license_rotate")
    run = licensing.play("license_rotate", environ=environ, gpu_licensing_verify=False, **variables).require_success()
    (module,) = run.module_results("accel.gpu.license_rotation")
    assert module["license_rotation"]["restarted"] == ["vdi-2"]
    assert licensing.driver_pod("vdi-2") != drivers["vdi-2"]
    assert licensing.states()["vdi-2"]["token_sha256"] == licensing.digest()
    assert cordons(licensing) == []
    # The new pods wait only until the GPUs of their nodes are offered again.
    until(lambda: runs(licensing, "work") and runs(licensing, "web"), limit=120)
    assert not licensing.rotate(**options)["changed"]


def test_a_new_token_with_restarts_is_tried_on_one_node(licensing: Licensing) -> None:
    nodes = ["vdi-1", "vdi-2"]
    drivers = {name: licensing.driver_pod(name) for name in nodes}
    options: dict[str, Any] = {"gpu_licensing_node_names": nodes, "gpu_licensing_restart_drivers": True}
    options |= {"token": licensing.token(NEW_HOST), "gpu_licensing_verify": False}
    predicted = licensing.play("license_rotate", arguments=("--check",), **options).require_success()
    run = licensing.play("license_rotate", **options).require_success()
    for name in ("accel.gpu.license", "accel.gpu.license_rotation"):
        (expected,), (actual,) = predicted.module_results(name), run.module_results(name)
        key = name.rpartition(".")[2]
        assert expected[key] == actual[key]
    assert actual["license_rotation"]["restarted"] == nodes
    assert {name: licensing.driver_pod(name) == pod for name, pod in drivers.items()} == dict.fromkeys(nodes, False)
    assert {licensing.states()[name]["token_sha256"] for name in nodes} == {licensing.digest()}
    assert cordons(licensing) == []


@pytest.mark.soak
def test_a_driver_is_not_deleted_beneath_a_pod_that_tolerates_the_cordon(licensing: Licensing) -> None:
    run_gpu_pod(licensing, "work", "vdi-1", tolerations=[{"operator": "Exists"}])
    driver = licensing.driver_pod("vdi-1")
    licensing.put_token(licensing.token(NEW_HOST))
    failed = licensing.rotate(node_names=["vdi-1"], restart_drivers=True)
    assert failed["code"] == "partial", failed
    assert "because these pods were scheduled to the node during the drain: default/work-" in failed["msg"]
    assert "The node was uncordoned again." in failed["msg"]
    assert cordons(licensing) == []
    assert licensing.driver_pod("vdi-1") == driver
