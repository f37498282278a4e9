# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Upgrades to a chart with the CRD and the manifest of v26: only manual changes are rejected, the collection's values stay, and the plan says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.operator_chart import DRIVER, VERSION, derive_chart, write_definition
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import LAB, Lab
from tests.programs import run

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usual(80), pytest.mark.sampled(1, group="whole runs")]

PINNED, OLDER = "v25.10.1", "v25.3.2"
STANDARD, OWN = "default-mig-parted-config", "accel-gpu-mig-parted"
FLEET = {
    "defaults": {"os": "ubuntu-24.04"},
    "groups": [
        {"name": "t4", "count": 1, "model": "Tesla-T4", "gpus": 1},
        {"name": "a100", "count": 1, "model": "A100-SXM4-40GB", "gpus": 1},
        {"name": "cpu", "count": 1},
    ],
}
T4 = {"name": "notebooks", "match": {"model": "Tesla-T4"}, "gpus_per_node": 1, "sharing": {"mode": "none"}}
MIG = {
    "name": "train",
    "match": {"model": "A100-SXM4-40GB"},
    "gpus_per_node": 1,
    "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}},
}
# All nodes at the same time: how the operator distributes an upgrade is not tested here.
QUICKLY = {"driver": {"upgradePolicy": {"maxParallelUpgrades": 0, "maxUnavailable": "100%"}}}
UPGRADE = f"operator {PINNED} becomes {VERSION}"


class Scenario:
    """A lab with the pinned operator, installed by the collection, and the charts of both releases."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.cluster, self.folder = lab, Cluster(lab), folder
        self.fleet = folder / "fleet.yaml"
        self.fleet.write_text(yaml.safe_dump(FLEET))
        pinned = Path(lab.env["LAB_CHARTS"]) / "gpu-operator"
        self.charts = {PINNED: pinned, VERSION: derive_chart(pinned, folder, PINNED)}

    def install(self, *pools: dict[str, Any], version: str = PINNED) -> None:
        self.play(version, *pools).require_success()

    def play(
        self,
        version: str,
        *pools: dict[str, Any],
        name: str = "accel.gpu.site",
        check: bool = False,
        allow: bool = False,
        values: dict[str, Any] | None = None,
        **operator: Any,
    ) -> PlaybookRun:
        """Run a playbook with an operator version; a failure is returned, too."""
        operator = {
            "version": version,
            "chart": str(self.charts[version]),
            "values": {**QUICKLY, **(values or {})},
            **operator,
        }
        variables = {
            "gpu_cluster": {
                "name": self.lab.name,
                "operator": operator,
                "nfd": {"chart": f"{self.lab.env['LAB_CHARTS']}/node-feature-discovery"},
            },
            "gpu_pools": list(pools),
            "gpu_operator_allow_driver_rollout": allow,
        }
        arguments = [
            *(["--tags", "nfd,gpu_operator,sharing"] if name.endswith("site") else []),
            *(["--check"] if check else []),
        ]
        return run_playbook(name, environ=self.lab.env, variables=variables, arguments=arguments, timeout=1200)

    def plan(self, *pools: dict[str, Any], **options: Any) -> PlaybookRun:
        return self.play(VERSION, *pools, name="accel.gpu.plan", **options).require_success()

    def refusal(self, *pools: dict[str, Any], **options: Any) -> str:
        """The message with which site refuses the upgrade; it and its check mode change nothing, and the plan has the same message."""
        before = self.policy()
        refused = self.play(VERSION, *pools, **options)
        assert refused.rc != 0
        message = refused.failure()
        assert self.play(VERSION, *pools, check=True, **options).failure() == message
        assert self.plan(*pools, **options).shown(f"REFUSED: {message}")
        assert self.policy() == before
        return message

    def policy(self) -> Any:
        return self.cluster.get("clusterpolicy", "cluster-policy")["spec"]

    def mig_name(self) -> str | None:
        name: str | None = self.policy()["migManager"]["config"].get("name")
        return name

    def edit(self, spec: dict[str, Any]) -> None:
        """Change the ClusterPolicy manually."""
        words = ["patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", json.dumps({"spec": spec})]
        self.cluster.kubectl(*words)

    def values(self) -> Any:
        """The values of the Helm release."""
        return json.loads(run("helm", "get", "values", "gpu-operator", "-n", NAMESPACE, "-o", "json", env=self.lab.env))

    def mig_managers(self) -> int:
        """The number of templates that the MIG manager's DaemonSet has had."""
        return int(self.cluster.get("daemonset", "nvidia-mig-manager", "-n", NAMESPACE)["metadata"]["generation"])


@pytest.fixture(scope="module")
def charts(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    return Scenario(lab, tmp_path_factory.mktemp("charts"))


@pytest.fixture
def plain(charts: Scenario) -> Scenario:
    """Pools without MIG on the pinned operator."""
    charts.lab.become("operator-plain", lambda: charts.install(T4), charts.fleet)
    assert charts.mig_name() == STANDARD
    return charts


@pytest.fixture
def partitioned(charts: Scenario) -> Scenario:
    """Pools with and without MIG on the pinned operator."""
    charts.lab.become("operator-mig", lambda: charts.install(T4, MIG), charts.fleet)
    assert charts.mig_name() == OWN
    return charts


def test_an_upgrade_of_an_untouched_cluster(plain: Scenario) -> None:
    refused = plain.refusal(T4)
    assert refused.startswith(
        "Not upgraded, because the upgrade would restart the driver on 2 nodes, at most 2 at a time: chart gpu-operator-v25.10.1 becomes"
    )
    assert "set manually" not in refused

    announced = plain.plan(T4, allow=True)
    assert announced.shown(
        f"the driver restarts on 2 node(s), at most 2 at a time: {UPGRADE}; pods that use a GPU on these nodes are evicted first"
    )
    assert announced.shown("allowed by gpu_operator_allow_driver_rollout")
    assert not announced.shown("REFUSED")

    played = plain.play(VERSION, T4, allow=True).require_success()
    warnings = [
        line for result in played.module_results("accel.gpu.helm_release") for line in result.get("warnings", ())
    ]
    assert [line for line in warnings if line.startswith("The driver restarts on 2 nodes, at most 2 at a time: chart ")]
    # The MIG manager generates the configuration of each node.
    assert plain.mig_name() is None
    assert plain.policy()["driver"]["version"] == DRIVER
    assert plain.policy()["hostPaths"]["kubeletRootDir"] == "/var/lib/kubelet"
    again = plain.play(VERSION, T4)
    assert again.require_success().changed() == 0
    unchanged = plain.plan(T4)
    assert unchanged.shown("the driver restarts") is False
    assert not unchanged.shown("operator: upgrade")


def test_manual_changes_are_refused_with_their_writer(plain: Scenario) -> None:
    """An edit, both after an interrupted upgrade that has replaced the CRD and with the value that keeps it."""
    definition = write_definition(plain.charts[VERSION], plain.folder / "definition.yaml")
    plain.cluster.kubectl("replace", "-f", str(definition))
    # The value is the default of the CRD that is gone, and no edit.
    assert not plain.plan(T4, allow=True).shown("REFUSED")

    plain.edit({"migManager": {"config": {"name": "mine"}}, "vfioManager": {"driverManager": {"version": "v0.9.0"}}})
    refused = plain.refusal(T4, allow=True)
    assert "spec.migManager.config.name (set by kubectl-patch; Helm would remove it)" in refused
    assert "(release_values; gpu_cluster.operator.values): migManager.config.name: mine" in refused
    # The charts agree about this field, so that Helm leaves it as it is.
    assert "vfioManager" not in refused
    kept = {"migManager": {"config": {"name": "mine"}}}
    assert not plain.plan(T4, allow=True, values=kept).shown("REFUSED")
    # Both reasons at the same time.
    both = plain.play(VERSION, T4, check=True).failure()
    assert both.startswith(refused)
    planned = plain.plan(T4)
    assert planned.shown(f"REFUSED: {refused}")
    assert planned.shown(f"REFUSED: {both.removeprefix(refused).strip()}")


def test_the_collections_values_stay(partitioned: Scenario) -> None:
    announced = partitioned.plan(T4, MIG, allow=True)
    assert not announced.shown("REFUSED")
    templates = partitioned.mig_managers()
    played = partitioned.play(VERSION, T4, MIG, allow=True).require_success()
    prepared = played.module_results("accel.gpu.helm_release")[-1]["helm_release"]
    assert prepared["initial_values"]["migManager"] == {"config": {"name": OWN}}
    assert partitioned.mig_name() == OWN
    assert partitioned.values()["migManager"] == {"config": {"name": OWN}}
    # Once for the new release, and not once more for the name.
    assert partitioned.mig_managers() == templates + 1
    again = partitioned.play(VERSION, T4, MIG)
    assert again.require_success().changed() == 0
    assert partitioned.cluster.offered("a100") == {"a100-1": {"nvidia.com/gpu": 7}}


def test_a_plan_without_the_chart_says_so(plain: Scenario) -> None:
    missing = plain.plan(T4, chart=str(plain.folder / "missing" / "gpu-operator"))
    assert missing.shown(f"the driver restarts on 2 node(s), at most 2 at a time: {UPGRADE}")
    assert missing.shown("site may fail for reasons that this plan does not show: The chart")


@pytest.mark.soak
@pytest.mark.parametrize("pools", [[T4], [T4, MIG]], ids=["without MIG", "with MIG"])
def test_from_an_older_release(charts: Scenario, pools: list[dict[str, Any]]) -> None:
    built = run(LAB, "build", "gpu-operator-25.3").splitlines()[-1].split(maxsplit=1)[1]
    charts.charts[OLDER] = Path(built) / "charts" / "gpu-operator"
    charts.lab.reset(charts.fleet)
    charts.install(*pools, version=OLDER)
    name = charts.mig_name()
    assert name == (STANDARD if len(pools) == 1 else OWN)
    assert "set manually" not in charts.refusal(*pools)
    charts.play(VERSION, *pools, allow=True).require_success()
    assert charts.mig_name() == (None if len(pools) == 1 else OWN)
    assert charts.play(VERSION, *pools).require_success().changed() == 0
