# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels and taints that Kubernetes does not allow."""

from __future__ import annotations

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import (
    node_label_problems,
    node_taint_problems,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import kubelet_label


def test_labels() -> None:
    problems = [*node_label_problems({"a b": "1", "x": "y" * 64, "A.b/c": "1", "gone": None, "yes": True})]
    assert [problem.partition(" is ")[0].partition(" has ")[0] for problem in problems] == [
        "node_labels: 'a b'",
        f"node_labels.x: '{'y' * 64}'",
        "node_labels: 'A.b/c'",
    ]


def test_further_rules_for_keys() -> None:
    (problem,) = node_label_problems({"node-role.kubernetes.io/gpu": "", "team": "x"}, kubelet_label)
    assert "a kubelet must not use" in problem


def test_taints() -> None:
    taints = [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoSchedule"},
        {"key": "", "value": "a b", "effect": "NoExecute"},
    ]
    problems = [problem.partition(":")[0] for problem in node_taint_problems(taints)]
    assert problems == ["node_taints[1]", "node_taints[2].key", "node_taints[2].value"]
