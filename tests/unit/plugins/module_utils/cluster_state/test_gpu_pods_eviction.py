# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods a drain evicts from a node."""

from __future__ import annotations

import typing as t

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_pods import (
    PodOnNode,
    blocking_pods,
    parse_pods,
    pods_to_evict,
)
from tests.helpers.fleet import pod


def user(name: str = "p", *ways: str, **more: t.Any) -> PodOnNode:
    return PodOnNode("team", name, name, {}, ways, **more)


def test_what_a_drain_takes_and_what_it_leaves() -> None:
    found = [
        user("b"),
        user("a"),
        user("ds", keep_reason="DaemonSet x"),
        user("mirror", keep_reason="static pod"),
        user("job", unmanaged=True),
    ]
    assert [of.full_name for of in pods_to_evict(found, force=False)] == ["team/a", "team/b"]
    assert [of.full_name for of in pods_to_evict(found, force=True)] == ["team/a", "team/b", "team/job"]
    assert blocking_pods(found, force=False) == ["team/job (no controller recreates it)"]
    assert blocking_pods(found, force=True) == []


def test_all_pods_are_listed_including_operands() -> None:
    operand = pod("plugin", on="n1")
    operand["metadata"].update(namespace="gpu-operator", labels={"app": "nvidia-device-plugin-daemonset"})
    found = parse_pods([operand, pod("web", on="n1"), pod("waiting"), pod("done", on="n1", phase="Succeeded")])
    assert [of.name for of in found["n1"]] == ["web", "plugin"]
