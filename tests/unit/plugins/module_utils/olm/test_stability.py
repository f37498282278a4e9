# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The evidence that a ClusterServiceVersion stays Succeeded: its Deployments run with the Subscription's configuration."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.olm.assessment import (
    is_executed,
    is_rolled_out,
    missing_config,
    unstable_reason,
)
from tests.helpers.olm_objects import NEW, PACKAGE, csv, deployment, installed, observed, plan

INFRA = {"key": "infra", "operator": "Exists", "effect": "NoSchedule"}
OTHER = {"key": "other", "operator": "Exists"}


@pytest.mark.parametrize(
    ("pod", "declared", "config", "former", "missing"),
    [
        ({}, {}, {}, {}, ""),
        ({"tolerations": [OTHER, INFRA]}, {"tolerations": [OTHER]}, {"tolerations": [INFRA]}, {}, ""),
        ({"tolerations": [OTHER]}, {"tolerations": [OTHER]}, {"tolerations": [INFRA]}, {}, "tolerations"),
        ({"tolerations": [INFRA]}, {"tolerations": [OTHER]}, {}, {}, "tolerations"),
        # An entry of someone else in the Deployment is no evidence against it; a removed one of the Subscription is.
        ({"tolerations": [INFRA]}, {}, {}, {}, ""),
        ({"tolerations": [INFRA]}, {}, {}, {"tolerations": [INFRA]}, "tolerations without the removed ones"),
        ({"tolerations": [INFRA]}, {"tolerations": [INFRA]}, {}, {"tolerations": [INFRA]}, ""),
        ({"nodeSelector": {"a": "b"}}, {}, {"nodeSelector": {"a": "b"}}, {}, ""),
        ({}, {}, {"nodeSelector": {"a": "b"}}, {}, "nodeSelector"),
        ({}, {"nodeSelector": {"a": "b"}}, {"nodeSelector": {}}, {}, ""),
        ({"nodeSelector": {"a": "b"}}, {}, {}, {"nodeSelector": {"a": "b"}}, "nodeSelector without the removed labels"),
        ({"containers": [{"env": [{"name": "A", "value": "1"}]}]}, {}, {"env": [{"name": "A", "value": "1"}]}, {}, ""),
        (
            {"containers": [{"env": [{"name": "A", "value": "2"}]}]},
            {},
            {"env": [{"name": "A", "value": "1"}]},
            {},
            "env A",
        ),
        ({"containers": [{"env": [{"name": "A"}]}]}, {}, {"env": [{"name": "A", "value": ""}]}, {}, ""),
        ({"containers": [{}]}, {}, {"env": [{"name": "A", "valueFrom": {}}]}, {}, "env A"),
        (
            {"containers": [{"env": [{"name": "A", "valueFrom": {"x": 1}}]}]},
            {},
            {"env": [{"name": "A", "valueFrom": {}}]},
            {},
            "",
        ),
    ],
)
def test_configuration(pod: Any, declared: Any, config: Any, former: Any, missing: str) -> None:
    assert missing_config(pod, declared, config, former) == missing


@pytest.mark.parametrize(
    ("change", "done"),
    [
        ({}, True),
        ({"replicas": 2}, False),
        ({"updatedReplicas": 0}, False),
        ({"availableReplicas": 0}, False),
        ({"observedGeneration": 0}, False),
    ],
)
def test_a_rollout_is_done_when_all_pods_run_the_current_template(change: dict[str, int], done: bool) -> None:
    live = deployment()
    live["status"].update(change)
    assert is_rolled_out(live) is done


@pytest.mark.parametrize(
    ("actual", "done"),
    [
        (plan(NEW, phase="Complete"), True),
        (plan(NEW, phase="Installing", plan=[{"status": "Created"}, {"status": "Present"}]), True),
        (plan(NEW, phase="Installing", plan=[{"status": "Created"}, {"status": "Unknown"}]), False),
        (plan(NEW, phase="Installing", plan=[]), False),
        (plan(NEW, phase="Failed", plan=[{"status": "Created"}, {"status": "Unknown"}]), False),
    ],
)
def test_a_plan_is_executed_when_all_its_steps_are_done(actual: Any, done: bool) -> None:
    assert is_executed(actual) is done


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ({}, ""),
        ({"deployments": []}, f"Deployment {PACKAGE} does not exist"),
        ({"deployments": [deployment(ready=0)]}, f"Deployment {PACKAGE}: 0 of 1 pods are ready"),
        (
            {"csvs": [csv(metadata={"deletionTimestamp": "2026-11-24T05:00:00Z"})]},
            f"ClusterServiceVersion {NEW} is being deleted",
        ),
    ],
)
def test_reason(objects: dict[str, Any], reason: str) -> None:
    state = observed(**objects)
    assert unstable_reason(state, state.csvs[0], state.subscriptions[0]) == reason


def test_a_plan_of_another_version_does_not_count() -> None:
    state = observed(plans=[plan("other.v1", phase="Installing")])
    assert unstable_reason(state, state.csvs[0], installed()) == ""
