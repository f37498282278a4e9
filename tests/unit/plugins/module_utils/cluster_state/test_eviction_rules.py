# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods a drain evicts from a node."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.eviction_rules import (
    blocking_pods,
    pods_to_evict,
    remedies,
)
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_pods import PodOnNode, parse_pods
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
    assert [evicted.full_name for evicted in pods_to_evict(pods, force=False)] == ["team/a", "team/b"]
    assert [evicted.full_name for evicted in pods_to_evict(pods, force=True)] == ["team/a", "team/b", "team/job"]
    assert list(map(str, blocking_pods(pods, force=False))) == ["team/job (no controller recreates it)"]
    assert blocking_pods(pods, force=True) == []


def test_each_remedy_is_given_once_and_names_the_option_of_the_caller() -> None:
    blocking = blocking_pods([user("a", unmanaged=True), user("b", unmanaged=True)], force=False)
    assert remedies(blocking, "drain.force") == (
        "Save the data of pods without a controller and delete them, or set drain.force, which evicts them permanently."
    )


def test_all_pods_are_listed_including_operands() -> None:
    operand = pod("plugin", on="n1")
    operand["metadata"].update(namespace="gpu-operator", labels={"app": "nvidia-device-plugin-daemonset"})
    found = parse_pods([operand, pod("web", on="n1"), pod("waiting"), pod("done", on="n1", phase="Succeeded")])
    assert [of.name for of in found["n1"]] == ["web", "plugin"]
