# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drivers of pools by NVIDIADriver objects of the real operator: one pool rolls, upgrades are counted, others' objects stay."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800), pytest.mark.usual(420)]

FLEET = {
    "defaults": {"os": "ubuntu-24.04"},
    "groups": [
        {"name": "a100", "count": 2, "model": "NVIDIA-A100-SXM4-80GB", "gpus": 1, "labels": {"rack": "a"}},
        {"name": "t4", "count": 3, "model": "Tesla-T4", "gpus": 1, "labels": {"rack": "b"}},
        {"name": "cpu", "count": 1},
    ],
}
A100 = {"name": "a100", "match": {"labels": {"rack": "a"}}}
T4 = {"name": "t4", "match": {"labels": {"rack": "b"}}}
OF_CHART, OLD, NEW = "580.105.08", "570.148.08", "575.57.08"
TAINT = {"key": "restricted", "value": "yes", "effect": "NoSchedule"}
# The tests continue from each other's state, in this order.
Pods = dict[str, tuple[str, str]]


class Scenario:
    """A lab with two racks, and the operator's chart under the next version number."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.cluster = lab, Cluster(lab)
        (folder / "fleet.yaml").write_text(yaml.safe_dump(FLEET))
        lab.reset(folder / "fleet.yaml")
        self.chart = f"{lab.env['LAB_CHARTS']}/gpu-operator"
        self.next_chart = folder / "chart"
        shutil.copytree(self.chart, self.next_chart)
        metadata = self.next_chart / "Chart.yaml"
        metadata.write_text(metadata.read_text().replace("v25.10.1", "v25.10.2"))

    def play(self, *pools: Mapping[str, Any], allow: bool = False, name: str = "site", **operator: Any) -> PlaybookRun:
        """Run a playbook for these pools; a failure is returned, too."""
        arguments = ("--tags", "nfd,gpu_operator,sharing") if name == "site" else ()
        variables = {
            "gpu_cluster": {
                "name": self.lab.name,
                "operator": {"version": "v25.10.1", "chart": self.chart, **operator},
                "nfd": {"chart": f"{self.lab.env['LAB_CHARTS']}/node-feature-discovery"},
            },
            "gpu_pools": list(pools),
            "gpu_operator_allow_driver_rollout": allow,
            "gpu_uninstall_allow_driver_rollout": allow,
            "gpu_confirm": [self.lab.name],
        }
        return run_playbook(
            f"accel.gpu.{name}", environ=self.lab.env, variables=variables, arguments=arguments, timeout=1200
        )

    def pods(self) -> Pods:
        """UID and driver version of the driver pod of each node."""
        selector = "app.kubernetes.io/component=nvidia-driver"
        pods = self.cluster.get("pods", "-n", NAMESPACE, "-l", selector)["items"]
        return {
            pod["spec"]["nodeName"]: (
                pod["metadata"]["uid"],
                pod["spec"]["containers"][0]["image"].rpartition(":")[2].partition("-")[0],
            )
            for pod in pods
        }

    def versions(self) -> dict[str, str]:
        """The driver of each node."""
        return {node: version for node, (dummy, version) in sorted(self.pods().items())}


@pytest.fixture(scope="module")
def scenario(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return Scenario(lab, tmp_path_factory.mktemp("drivers"))


def expected(a100: str, t4: str) -> dict[str, str]:
    return {"a100-1": a100, "a100-2": a100, "t4-1": t4, "t4-2": t4, "t4-3": t4}


def policy_of(played: PlaybookRun) -> Mapping[str, Any]:
    """The module's last result."""
    actual: Mapping[str, Any] = played.module_results("accel.gpu.cluster_policy")[-1]["cluster_policy"]
    return actual


def with_driver(version: str) -> dict[str, Any]:
    return {**A100, "driver": {"version": version}}


def test_a_new_cluster_gets_the_driver_of_each_pool(scenario: Scenario) -> None:
    played = scenario.play(with_driver(OLD), T4).require_success()
    assert scenario.versions() == expected(OLD, OF_CHART)
    assert policy_of(played)["driver_nodes"] == 0
    assert scenario.play(with_driver(OLD), T4).require_success().changed() == 0


def test_a_change_is_counted_and_held_back_and_rolls_only_its_pool(scenario: Scenario) -> None:
    before = scenario.pods()
    plan = scenario.play(with_driver(NEW), T4, name="plan").require_success()
    info = next(result["gpu_info"] for _name, result in plan.results() if "gpu_info" in result)
    assert info["impact"]["driver_restarts"] == 2
    assert info["impact"]["reasons"] == [f"version {OLD} becomes {NEW} in NVIDIADriver accel-gpu-a100"]
    assert {name: pool["impact"]["driver_restarts"] for name, pool in info["pools"].items()} == {"a100": 2, "t4": 0}
    held = scenario.play(with_driver(NEW), T4).require_success()
    assert policy_of(held)["held_back"] == ["NVIDIADriver accel-gpu-a100"]
    assert scenario.pods() == before
    rolled = scenario.play(with_driver(NEW), T4, allow=True).require_success()
    assert policy_of(rolled)["driver_nodes"] == 2
    assert scenario.versions() == expected(NEW, OF_CHART)
    after = scenario.pods()
    assert {node for node in before if before[node] != after[node]} == {"a100-1", "a100-2"}


def test_silence_keeps_drivers_and_a_taint_reaches_only_its_pool(scenario: Scenario) -> None:
    before = scenario.pods()
    # Even with the permission.
    silent = scenario.play(A100, T4, allow=True).require_success()
    assert silent.changed() == 0
    warnings = [text for _name, result in silent.results() for text in result.get("warnings", ())]
    assert any("Pool a100 no longer declares its driver" in text for text in warnings)
    tainted = scenario.play(A100, {**T4, "taints": [TAINT]}).require_success()
    assert policy_of(tainted)["held_back"] == ["NVIDIADriver accel-gpu-t4"]
    assert scenario.pods() == before


def test_an_export_has_the_declared_driver(scenario: Scenario) -> None:
    exported = scenario.play(name="export").require_success()
    pools = next(result["gpu_pools"] for _name, result in exported.results() if "remarks" in result)
    assert {pool["name"]: pool.get("driver") for pool in pools} == {"a100": {"version": NEW}, "t4": None}


def test_an_upgrade_is_counted_with_objects_of_others_that_stay(scenario: Scenario) -> None:
    scenario.cluster.kubectl("label", "nvidiadriver", "--all", "app.kubernetes.io/managed-by-")
    before, objects = scenario.pods(), scenario.cluster.get("nvidiadrivers")["items"]
    newer: dict[str, Any] = {"version": "v25.10.2", "chart": str(scenario.next_chart)}
    plan = scenario.play(A100, T4, name="plan", **newer).require_success()
    info = next(result["gpu_info"] for _name, result in plan.results() if "gpu_info" in result)
    assert (info["impact"]["driver_restarts"], info["impact"]["max_parallel"]) == (5, 1)
    assert [(item["name"], item["managed"], item["nodes"]) for item in info["nvidia_drivers"]] == [
        ("accel-gpu-a100", False, 2),
        ("accel-gpu-t4", False, 3),
    ]
    refused = scenario.play(A100, T4, **newer)
    assert (
        "Not upgraded, because the upgrade would restart the driver on 5 nodes, at most 1 at a time"
        in refused.failure()
    )
    conflicting = scenario.play(with_driver(OLD), T4)
    named = "NVIDIADriver accel-gpu-a100 was not created by this collection, but pool a100 needs its name"
    assert named in conflicting.failure()
    assert scenario.pods() == before
    assert [item["spec"] for item in scenario.cluster.get("nvidiadrivers")["items"]] == [
        item["spec"] for item in objects
    ]


def test_an_uninstallation_removes_the_objects(scenario: Scenario) -> None:
    scenario.cluster.kubectl("label", "nvidiadriver", "--all", "app.kubernetes.io/managed-by=accel.gpu")
    scenario.play(A100, T4, name="uninstall").require_success()
    crds = scenario.cluster.get("customresourcedefinitions")["items"]
    assert "nvidiadrivers.nvidia.com" not in {item["metadata"]["name"] for item in crds}
    assert scenario.pods() == {}
