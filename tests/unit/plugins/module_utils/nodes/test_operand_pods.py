# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Problems of the agents' pods, and which pods hold which GPUs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import (
    container_failures,
    gpu_requests,
    pod_of,
    requested_resources,
)
from tests.helpers.fleet import pod

CRASH = {
    "name": "config-manager",
    "restartCount": 5,
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2m40s"}},
    "lastState": {"terminated": {"exitCode": 1, "message": "number of replicas must be >= 2"}},
}
STARTING = {"name": "plugin", "state": {"waiting": {"reason": "PodInitializing"}}}
FINE = {"name": "plugin", "ready": True, "restartCount": 3, "state": {"running": {}}, "lastState": CRASH["lastState"]}

AILMENTS: list[tuple[str, dict[str, t.Any], str]] = [
    (
        "crash loop",
        {"containerStatuses": [CRASH]},
        "CrashLoopBackOff (exit 1: number of replicas must be >= 2), 5 restarts",
    ),
    ("init", {"initContainerStatuses": [CRASH], "containerStatuses": [STARTING]}, "config-manager: CrashLoopBackOff"),
    ("pending", {"phase": "Pending", "conditions": [{"status": "False", "message": "no room"}]}, "Pending: no room"),
]


@pytest.mark.parametrize(("status", "words"), [case[1:] for case in AILMENTS], ids=[case[0] for case in AILMENTS])
def test_ailments(status: dict[str, t.Any], words: str) -> None:
    actual = container_failures([pod("plugin-x", on="n1", **status)])
    assert words in str(actual["n1"][0])


def test_a_pod_that_recovered_is_not_named() -> None:
    assert container_failures([pod("plugin-x", on="n1", containerStatuses=[FINE])]) == {}


def test_the_pod_of_an_operand_on_a_node() -> None:
    served = pod("plugin-x", on="n1")
    served["metadata"]["labels"] = {"app": "nvidia-device-plugin-daemonset"}
    pods = [served, pod("other", on="n2")]
    assert [pod_of(pods, "nvidia-device-plugin-daemonset", name) for name in ("n1", "n2")] == ["plugin-x", None]


def test_holders() -> None:
    pods = [
        pod("a", on="n1", limits={"nvidia.com/gpu": 2, "cpu": 1}),
        pod("b", on="n1", limits={"nvidia.com/gpu.shared": 1}),
        pod("done", on="n1", phase="Succeeded", limits={"nvidia.com/gpu": 1}),
        pod("waiting", limits={"nvidia.com/gpu": 1}),
        pod("none", on="n2"),
    ]
    actual = gpu_requests(pods)
    assert list(actual) == ["n1"]
    assert [(holder.pod, holder.resource, holder.count) for holder in actual["n1"]] == [
        ("a", "nvidia.com/gpu", 2),
        ("b", "nvidia.com/gpu.shared", 1),
    ]


def test_the_largest_init_container_counts_as_the_scheduler_does() -> None:
    item = pod("a", limits={"nvidia.com/gpu": 1})
    item["spec"]["containers"].append({"resources": {"requests": {"nvidia.com/gpu": "1"}}})
    item["spec"]["initContainers"] = [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    assert requested_resources(item) == {"nvidia.com/gpu": 4}


@pytest.mark.parametrize(
    ("init", "count"),
    [
        # A sidecar runs beside the containers, and beside the init containers after it.
        ([("Always", 1)], 2),
        ([("Always", 1), ("", 2)], 3),
        ([("", 2), ("Always", 1)], 2),
        ([("Always", 1), ("", 1), ("Always", 2)], 4),
        ([("", 5), ("Always", 1)], 5),
    ],
)
def test_sidecars_count_as_the_scheduler_does(init: list[tuple[str, int]], count: int) -> None:
    item = pod("a", limits={"nvidia.com/gpu": 1})
    item["spec"]["initContainers"] = [
        {**({"restartPolicy": policy} if policy else {}), "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        for policy, gpus in init
    ]
    assert requested_resources(item) == {"nvidia.com/gpu": count}
