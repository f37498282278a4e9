# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods a drain evicts from a node."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import (
    blocking_gpu_pods,
    blocking_pods,
    gpu_pods_to_evict,
    join_remedies,
    option_names,
    pods_to_await,
    pods_to_evict,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode, parse_pods
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import DEFAULT_ROLLOUT
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions
from tests.helpers.fleet import pod


def user(name: str = "p", *ways: str, **more: t.Any) -> PodOnNode:
    return PodOnNode("team", name, name, {}, ways, **more)


def test_pods_that_are_evicted_kept_and_blocking() -> None:
    pods = [
        user("b"),
        user("a"),
        user("ds", keep_reason="DaemonSet x"),
        user("mirror", keep_reason="static pod"),
        user("job", unmanaged=True),
    ]
    assert [evicted.full_name for evicted in pods_to_evict(pods, DrainOptions())] == ["team/a", "team/b"]
    assert [evicted.full_name for evicted in pods_to_evict(pods, DrainOptions(force=True))] == [
        "team/a",
        "team/b",
        "team/job",
    ]
    assert list(map(str, blocking_pods(pods, DrainOptions()))) == ["team/job (no controller recreates it)"]
    assert blocking_pods(pods, DrainOptions(force=True)) == []
    assert pods_to_await(pods, DrainOptions()) == {}


def test_without_evictions_the_drain_waits_for_all_pods_that_end() -> None:
    options = DrainOptions(evict=False)
    pods = [user("a"), user("ds", keep_reason="DaemonSet x"), user("job", unmanaged=True)]
    assert [*pods_to_await(pods, options)] == ["a", "job"]
    assert (pods_to_evict(pods, options), blocking_pods(pods, options)) == ((), [])


def test_each_remedy_is_given_once_and_names_the_option_of_the_caller() -> None:
    blocking = blocking_pods([user("a", unmanaged=True), user("b", unmanaged=True)], DrainOptions())
    names = option_names("drain.{option}", "drain.evict: true")
    assert join_remedies((pod.remedy for pod in blocking), names) == (
        "Save the data of pods without a controller and delete them, or set drain.force, which evicts them permanently."
    )


GPU = {"nvidia.com/gpu": 1}


@pytest.mark.parametrize(
    ("pod", "settings", "device_files", "blocks", "evicted"),
    [
        (PodOnNode("team", "p", "p", GPU), {}, True, "", ["team/p", "team/web"]),
        (PodOnNode("team", "p", "p", GPU), {"drain": "gpu-pods"}, True, "", ["team/p"]),
        (PodOnNode("team", "p", "p", GPU), {"drain": "none"}, True, "", []),
        (user("p", unmanaged=True), {}, True, "team/p (no controller recreates it)", ["team/web"]),
        (user("p", unmanaged=True), {"drain": "none"}, True, "", []),
        (user("p", "mounts /dev/nvidia0", keep_reason="DaemonSet x"), {"force": True}, True, "team/p (DaemonSet x, mounts /dev/nvidia0)", ["team/web"]),
        (user("p", "mounts /dev/nvidia0", keep_reason="DaemonSet x"), {}, False, "", ["team/web"]),
        (user("p", keep_reason="DaemonSet x", pausable=True), {}, True, "", ["team/web"]),
    ],
)  # fmt: skip
def test_the_drain_of_gpus(
    pod: PodOnNode, settings: dict[str, t.Any], device_files: bool, blocks: str, evicted: list[str]
) -> None:
    rollout = replace(DEFAULT_ROLLOUT, **{"drain": "all", **settings})
    blocking = blocking_gpu_pods([pod], rollout, device_files=device_files)
    assert "".join(map(str, blocking)) == blocks
    assert [item.full_name for item in gpu_pods_to_evict([pod], [user("web")], rollout)] == evicted


def test_all_pods_are_listed_including_operands() -> None:
    operand = pod("plugin", on="n1")
    operand["metadata"].update(namespace="gpu-operator", labels={"app": "nvidia-device-plugin-daemonset"})
    actual = parse_pods([operand, pod("web", on="n1"), pod("waiting"), pod("done", on="n1", phase="Succeeded")])
    assert [pod_on_node.name for pod_on_node in actual["n1"]] == ["web", "plugin"]
