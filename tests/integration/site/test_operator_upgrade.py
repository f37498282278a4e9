# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator from v25.3.2 to v25.10.1, both real: the preview, the refused changes, and a single rollout of the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import Playbook, PlaybookRun, run_playbook
from tests.labs import LAB, Lab
from tests.programs import run

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800), pytest.mark.usual(240)]

OLD, NEW = "v25.3.2", "v25.10.1"
NODES = ("t4-1", "t4-2", "t4-3")
FLEET = {
    "defaults": {"os": "ubuntu-24.04"},
    "groups": [{"name": "t4", "count": len(NODES), "model": "Tesla-T4", "gpus": 1}, {"name": "cpu", "count": 1}],
}
REFUSED = "Not upgraded, because the upgrade would restart the driver on 3 nodes, at most 1 at a time: chart gpu-operator-v25.3.2 becomes gpu-operator-v25.10.1"
COST = {
    "nodes": 3,
    "max_parallel": 1,
    "in_place": False,
    "reasons": [
        "chart gpu-operator-v25.3.2 becomes gpu-operator-v25.10.1",
        "driver.manager.version v0.8.0 becomes v0.9.1",
        "driver.version 570.148.08 becomes 580.105.08",
    ],
}
BY_HAND = {"toolkit": {"env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd.sock"}]}}
WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "training", "namespace": "default"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "training"}},
        "template": {
            "metadata": {"labels": {"app": "training"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "example.com/training",
                        "command": ["sleep", "inf"],
                        "resources": {"limits": {"nvidia.com/gpu": 1}},
                    }
                ]
            },
        },
    },
}


class Scenario:
    """A lab with the older operator, installed by the collection, with foreign settings and a workload."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.cluster, self.folder = lab, Cluster(lab), folder
        fleet = folder / "fleet.yaml"
        fleet.write_text(yaml.safe_dump(FLEET))
        built = run(LAB, "build", "gpu-operator-25.3").splitlines()[-1].split(maxsplit=1)[1]
        self.charts = {OLD: f"{built}/charts/gpu-operator", NEW: f"{lab.env['LAB_CHARTS']}/gpu-operator"}
        lab.reset(fleet)

    def play(self, version: str, *arguments: str, name: str = "accel.gpu.site", **more: Any) -> PlaybookRun:
        """Run a playbook with an operator version; a failure is returned, too."""
        return run_playbook(name, **self.options(version, *arguments, **more), timeout=1200)

    def options(self, version: str, *arguments: str, allow: bool = False, **operator: Any) -> dict[str, Any]:
        """The playbook's options."""
        document = {
            "name": self.lab.name,
            "operator": {"version": version, "chart": self.charts[version], **operator},
            "nfd": {"chart": f"{self.lab.env['LAB_CHARTS']}/node-feature-discovery"},
        }
        variables = {
            "gpu_cluster": document,
            "gpu_pools": [{"name": "notebooks", "match": {"model": "Tesla-T4"}, "gpus_per_node": 1}],
            "gpu_operator_allow_driver_rollout": allow,
        }
        return {"environ": self.lab.env, "variables": variables, "arguments": arguments}

    def policy(self) -> Mapping[str, Any]:
        """The ClusterPolicy's spec."""
        spec: Mapping[str, Any] = self.cluster.get("clusterpolicy", "cluster-policy")["spec"]
        return spec

    def patch(self, spec: Mapping[str, Any]) -> None:
        """Change the ClusterPolicy manually."""
        self.cluster.kubectl(
            "patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": spec})
        )

    def operator(self) -> Mapping[str, Any]:
        """The operator's Deployment."""
        actual: Mapping[str, Any] = self.cluster.get("deployment", "gpu-operator", "-n", NAMESPACE)
        return actual

    def image(self) -> str:
        """The tag of its image."""
        image: str = self.operator()["spec"]["template"]["spec"]["containers"][0]["image"]
        return image.rpartition(":")[2]

    def drivers(self) -> dict[str, str]:
        """The driver of each node, from the labels of gpu-feature-discovery."""
        return {
            name: self.cluster.nodes()[name]["metadata"]["labels"].get("nvidia.com/cuda.driver-version.full", "")
            for name in NODES
        }

    def driver_pods(self) -> dict[str, str]:
        """The UIDs of the driver pods by node."""
        pods = self.cluster.get("pods", "-n", NAMESPACE, "-l", "app=nvidia-driver-daemonset")["items"]
        return {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in pods}

    def driver_deletions(self, mark: str) -> int:
        """The number of driver pods that the operator has deleted since a mark: one for each node in each rollout."""
        listed = self.lab.command("audit", "--since", mark, "--list").splitlines()
        return sum("delete" in line and "/pods/nvidia-driver-daemonset-" in line for line in listed)


@pytest.fixture(scope="module")
def scenario(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    scenario = Scenario(lab, tmp_path_factory.mktemp("upgrade"))
    scenario.play(OLD, "--tags", "nfd,gpu_operator,sharing").require_success()
    assert scenario.image() == OLD
    assert set(scenario.drivers().values()) == {"570.148.08"}
    scenario.patch(BY_HAND)
    (scenario.folder / "workload.json").write_text(json.dumps(WORKLOAD))
    scenario.cluster.kubectl("apply", "-f", str(scenario.folder / "workload.json"))
    scenario.cluster.until(lambda: running(scenario) == 2)
    scenario.play(OLD, "--tags", "nfd,gpu_operator,sharing").require_success()
    return scenario


def prepared(played: PlaybookRun) -> Mapping[str, Any]:
    """The module's result about the operator's release before Helm ran."""
    actual: Mapping[str, Any] = played.module_results("accel.gpu.helm_release")[-1]["helm_release"]
    return actual


def running(scenario: Scenario) -> int:
    """The number of ready pods of the workload."""
    return int(scenario.cluster.get("deployment", "training")["status"].get("readyReplicas") or 0)


def test_the_plan_announces_the_driver_rollout(scenario: Scenario) -> None:
    reported = scenario.play(NEW, name="accel.gpu.plan").require_success()
    assert reported.shown("the driver restarts on 3 node(s), at most 1 at a time: operator v25.3.2 becomes v25.10.1")
    assert reported.shown(f"REFUSED: {REFUSED}")
    same = scenario.play(OLD, name="accel.gpu.plan").require_success()
    assert not same.shown("the driver restarts")
    assert not same.shown("REFUSED")


def test_without_permission_nothing_is_upgraded(scenario: Scenario) -> None:
    before = scenario.driver_pods()
    for mode in ((), ("--check", "--diff")):
        refused = scenario.play(NEW, "--tags", "gpu_operator", *mode)
        assert refused.rc != 0
        assert REFUSED in refused.failure()
        assert "gpu_operator_allow_driver_rollout" in refused.failure()
        assert "keep version v25.3.2" in refused.failure()
    assert scenario.image() == OLD
    assert not knows_secret_name(scenario)
    # Only the driver's values are held back, the other changes are applied.
    held = scenario.play(OLD, "--tags", "gpu_operator", driver={"version": "570.172.08"}).require_success()
    assert held.changed() == 0
    assert prepared(held)["held_back"] == ["driver.version"]
    assert prepared(held)["driver_rollout"]["reasons"] == ["driver.version 570.148.08 becomes 570.172.08"]
    # Helm would replace the values of the other operands and of the driver together.
    mixed = scenario.play(OLD, "--tags", "gpu_operator", image_pull_secrets=["registry"])
    assert "driver.imagePullSecrets (not set) becomes registry" in mixed.failure()
    assert "set driver.imagePullSecrets" in mixed.failure()
    assert "in gpu_cluster.operator.values to the installed value" in mixed.failure()
    kept = scenario.play(
        OLD,
        "--tags",
        "gpu_operator",
        "--check",
        image_pull_secrets=["registry"],
        values={"driver": {"imagePullSecrets": []}},
    ).require_success()
    assert prepared(kept)["driver_rollout"]["nodes"] == 0
    assert scenario.driver_pods() == before


def test_values_that_helm_would_overwrite_are_refused(scenario: Scenario) -> None:
    charts = scenario.policy()["vfioManager"]["version"]
    scenario.patch({"vfioManager": {"version": "mine"}})
    refused = scenario.play(NEW, "--tags", "gpu_operator", allow=True)
    scenario.patch({"vfioManager": {"version": charts}})
    assert (
        "cluster-policy: spec.vfioManager.version (set by kubectl-patch; Helm would set a different value). To keep"
        in refused.failure()
    )
    assert "Nothing has been upgraded" in refused.failure()
    assert scenario.image() == OLD


def test_a_run_killed_after_the_stop_of_the_operator_is_reverted(scenario: Scenario) -> None:
    options = scenario.options(NEW, "--tags", "gpu_operator", allow=True)
    playbook = Playbook("accel.gpu.site", **options)
    scenario.cluster.until(lambda: scenario.operator()["spec"]["replicas"] == 0, 240)
    playbook.kill()
    playbook.wait()
    scenario.cluster.until(lambda: not scenario.operator()["status"].get("replicas"))
    if scenario.image() == NEW:
        pytest.skip("Helm was quicker than the kill")
    scenario.play(OLD, "--tags", "gpu_operator").require_success()
    assert scenario.operator()["spec"]["replicas"] == 1
    assert scenario.image() == OLD


def test_a_single_rollout_of_the_driver(scenario: Scenario) -> None:
    before, mark = scenario.driver_pods(), scenario.cluster.mark()
    predicted = scenario.play(NEW, "--tags", "gpu_operator,sharing", "--check", "--diff", allow=True).require_success()
    assert prepared(predicted)["driver_rollout"] == COST
    assert scenario.driver_pods() == before
    played = scenario.play(NEW, "--tags", "gpu_operator,sharing", allow=True).require_success()
    assert prepared(played)["driver_rollout"] == COST
    assert played.changed() == predicted.changed()
    assert "the driver is being upgraded on t4-" in played.stderr

    assert scenario.image() == NEW
    assert knows_secret_name(scenario)
    assert scenario.policy()["toolkit"]["env"] == BY_HAND["toolkit"]["env"]
    assert scenario.policy()["driver"]["version"] == "580.105.08"
    assert set(scenario.drivers().values()) == {"580.105.08"}
    assert scenario.driver_deletions(mark) == len(NODES)
    assert set(scenario.driver_pods()) == set(NODES)
    assert not set(scenario.driver_pods().values()) & set(before.values())
    for name in NODES:
        node = scenario.cluster.nodes()[name]
        assert node["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] == "upgrade-done"
        assert not node["spec"].get("unschedulable")
    scenario.cluster.until(lambda: running(scenario) == 2)
    again = scenario.play(NEW, "--tags", "gpu_operator,sharing").require_success()
    assert again.changed() == 0


def test_a_node_whose_upgrade_fails_is_reported(scenario: Scenario) -> None:
    bare = {**WORKLOAD["spec"]["template"]["spec"], "nodeName": "t4-3"}  # type: ignore[index]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": "default"}, "spec": bare}
    scenario.cluster.kubectl("delete", "deployment", "training", "--wait")
    scenario.cluster.until(lambda: not scenario.cluster.get("pods", "-l", "app=training")["items"])
    (scenario.folder / "bare.json").write_text(json.dumps(pod))
    scenario.cluster.kubectl("apply", "-f", str(scenario.folder / "bare.json"))
    scenario.cluster.until(lambda: scenario.cluster.get("pod", "bare")["status"]["phase"] == "Running")
    stuck = scenario.play(NEW, "--tags", "gpu_operator", allow=True, driver={"version": "580.82.07"})
    assert "the driver upgrade failed on t4-3" in stuck.failure()
    assert "nvidia.com/gpu-driver-upgrade-state=upgrade-required" in stuck.failure()
    reported = scenario.play(NEW, name="accel.gpu.plan", driver={"version": "580.82.07"}).require_success()
    assert reported.shown("failed: t4-3")
    scenario.cluster.kubectl("delete", "pod", "bare")
    scenario.cluster.kubectl(
        "label", "node", "--overwrite", "t4-3", "nvidia.com/gpu-driver-upgrade-state=upgrade-required"
    )
    scenario.play(NEW, "--tags", "gpu_operator", driver={"version": "580.82.07"}).require_success()
    assert set(scenario.drivers().values()) == {"580.82.07"}


def knows_secret_name(scenario: Scenario) -> bool:
    """Whether the CRD has the fields of the new release."""
    return "secretName" in scenario.cluster.kubectl("get", "crd", "clusterpolicies.nvidia.com", "-o", "json")
