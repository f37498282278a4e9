# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A wait for a driver upgrade lasts as long as the upgrade progresses, and no longer."""

from __future__ import annotations

from typing import Any

from tests.helpers.readiness import Scenario


def upgrading(scenario: Scenario, *states: str, **policy: Any) -> None:
    """A driver upgrade in progress; upgraded nodes have the new driver."""
    scenario.driver["metadata"]["labels"] = {"app.kubernetes.io/component": "nvidia-driver"}
    scenario.policy["spec"] = {"driver": {"upgradePolicy": {"autoUpgrade": True, **policy}}}
    for actual, state in zip(scenario.nodes, states, strict=False):
        actual["metadata"]["labels"]["nvidia.com/gpu-driver-upgrade-state"] = state
    scenario.driver["status"]["updatedNumberScheduled"] = states.count("upgrade-done")


def test_a_driver_upgrade_is_waited_for() -> None:
    scenario = Scenario()
    upgrading(scenario, "upgrade-done", "pod-restart-required", "upgrade-required")
    verdict = scenario.verdict()
    assert verdict.upgrade.working == {"gpu-1": "pod-restart-required"}
    assert "the driver is being upgraded on gpu-1 (pod-restart-required)" in verdict.waiting
    assert verdict.blocked == ()
    # A node whose upgrade is not done is not ready, whatever the state of its pods.
    upgrading(scenario, "upgrade-done", "upgrade-done", "uncordon-required")
    scenario.driver["status"]["updatedNumberScheduled"] = 3
    assert scenario.verdict().waiting == ("the driver is being upgraded on gpu-2 (uncordon-required)",)
    upgrading(scenario, *["upgrade-done"] * 3)
    assert scenario.verdict().ready


def test_a_driver_upgrade_that_does_not_go_on_ends_the_wait() -> None:
    scenario = Scenario()
    upgrading(scenario, "upgrade-done", "upgrade-failed", "upgrade-required")
    assert "kubectl label node --overwrite gpu-1" in scenario.verdict().blocked[0]
    upgrading(
        scenario, "upgrade-done", "upgrade-failed", "upgrade-required", maxParallelUpgrades=2, maxUnavailable="100%"
    )
    assert scenario.verdict().blocked == ()


def test_without_the_upgrade_controller_old_pods_stay() -> None:
    scenario = Scenario()
    upgrading(scenario, "", "", "", autoUpgrade=False)
    assert "delete its driver pod" in scenario.verdict().blocked[0]
    # As long as its controller has not looked at the new template, the numbers are those of the old one.
    scenario.driver["metadata"]["generation"] = 3
    assert scenario.verdict().blocked == ()


def test_what_a_driver_that_is_gone_has_left_on_nodes_says_nothing() -> None:
    scenario = Scenario()
    upgrading(scenario, "upgrade-failed", "upgrade-required", "upgrade-done")
    scenario.driver = scenario.plugin
    assert scenario.verdict().ready
