# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIADriver objects: the nodes that each selects, and its state."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.cluster_policy import (
    driver_of_nodes,
    driver_results,
    driver_state_message,
    follows_own_policies,
    untolerated_by_driver,
)

Object = dict[str, Any]

GPU = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.deploy.driver": "true"}
NODES = [
    ("a-1", {**GPU, "accel.gpu/pool": "a"}),
    ("b-1", {**GPU, "accel.gpu/pool": "b"}),
    ("host-1", {**GPU, "accel.gpu/pool": "a", "nvidia.com/gpu.deploy.driver": "pre-installed"}),
    ("cpu-1", {}),
]


def driver(name: str, state: str = "ready", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": state}}


A, ALL, DEFAULT = driver("a", nodeSelector={"accel.gpu/pool": "a"}), driver("all"), driver("default", default=True)


def test_driver_of_nodes() -> None:
    assert driver_of_nodes([], NODES) == {"a-1": [], "b-1": []}
    assert driver_of_nodes([A], NODES) == {"a-1": ["a"], "b-1": []}
    assert driver_of_nodes([A, ALL], NODES) == {"a-1": ["a", "all"], "b-1": ["all"]}
    assert driver_of_nodes([DEFAULT, A], NODES) == {"a-1": ["a"], "b-1": ["default"]}


def test_state_message() -> None:
    assert driver_state_message(A) == ""
    assert driver_state_message({"metadata": {"name": "a"}}) == "state none"
    error = {"type": "Error", "status": "True", "reason": "ConflictingNodeSelector", "message": "two for one node"}
    failing: Object = {**A, "status": {"state": "notReady", "conditions": [error]}}
    assert driver_state_message(failing) == "state notReady (ConflictingNodeSelector): two for one node"


def test_driver_results() -> None:
    managed = driver("accel-gpu-b", version="1", nodeSelector={"accel.gpu/pool": "b"})
    managed["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "accel.gpu"}
    actual = driver_results([managed, A], NODES)
    assert [(item["name"], item["managed"], item["pool"], item["nodes"]) for item in actual] == [
        ("a", False, "a", 1),
        ("accel-gpu-b", True, "b", 1),
    ]


@pytest.mark.parametrize(
    ("drivers", "version", "own"),
    [
        ([], "v26.3.3", False),
        ([], "v26.7.0", True),
        ([], "", False),
        ([A, ALL], "v26.3.3", False),
        # The API server knows the field, whatever the version says.
        ([A, DEFAULT], "", True),
        ([A, driver("b", default=False)], "v25.10.1", True),
    ],
)
def test_operators_that_follow_the_policy_of_each_object(drivers: list[Object], version: str, own: bool) -> None:
    assert follows_own_policies(drivers, version) is own


TAINT = {"key": "restricted", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "restricted", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def test_taints_that_driver_pods_do_not_tolerate() -> None:
    tolerant = driver("a", nodeSelector={"accel.gpu/pool": "a"}, tolerations=[TOLERATION])
    managed: Object = {**A, "metadata": {"name": "a", "labels": {"app.kubernetes.io/managed-by": "accel.gpu"}}}
    assert untolerated_by_driver([A], "a", [TAINT, GPU_TAINT]) == [TAINT]
    assert untolerated_by_driver([tolerant, ALL], "a", [TAINT]) == []
    assert untolerated_by_driver([ALL], "a", [TAINT]) == [TAINT]
    assert untolerated_by_driver([A], "b", [TAINT]) == []
    # Only a managed object gets the tolerations of this run.
    assert untolerated_by_driver([managed], "a", [TAINT], [TOLERATION]) == []
    assert untolerated_by_driver([A], "a", [TAINT], [TOLERATION]) == [TAINT]
