# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How values are said to Magnum, and which ones a group cannot have."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum import decode


@pytest.mark.parametrize(
    ("given_", "said"),
    [(True, "true"), ("True", "true"), (False, "false"), (3, "3"), (1.5, "1.5"), ("v1.30", "v1.30"), ("", "")],
)
def test_labels_are_text(given_: Any, said: str) -> None:
    assert decode.labels({"a": given_}) == {"a": said}


def test_taints_there_and_back() -> None:
    taints = [
        {"key": "a.b/c", "value": "x", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoExecute"},
        {"key": "old", "effect": "NoSchedule", "state": "absent"},
    ]
    mapped = decode.taint_map(taints)
    assert mapped == {"a.b/c:NoSchedule": "x", "k:NoExecute": "", "old:NoSchedule": None}
    assert decode.taint_list(mapped) == taints[:2]


@given(st.dictionaries(st.text(), st.text()))
def test_what_stands_in_a_patch_is_what_python_reads(labels: dict[str, str]) -> None:
    assert ast.literal_eval(decode.patch_text(labels)) == labels


@pytest.mark.parametrize("name", ["g", "gpu-t4", "A_b.c", "x" * 63, "9a"])
def test_names(name: str) -> None:
    assert decode.name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "500"),
        ("x" * 64, "64 characters"),
        ("a b", "letters, digits"),
        ("-a", "both ends"),
        ("a/b", "letters, digits"),
        ("12", "for an id"),
        ("0d358554-95b3-463f-86fc-21344a3cf48c", "for an id"),
    ],
)
def test_names_that_no_group_should_have(name: str, said: str) -> None:
    assert said in (decode.name_problem(name) or "")


@pytest.mark.parametrize(
    ("key", "may"),
    [
        ("a", True),
        ("accel.gpu/pool", True),
        ("nvidia.com/gpu", True),
        ("node.kubernetes.io/x", True),
        ("topology.kubernetes.io/zone", True),
        ("kubernetes.io/x", False),
        ("node-role.kubernetes.io/gpu", False),
        ("x.k8s.io/y", False),
    ],
)
def test_what_a_kubelet_may_say_of_its_node(key: str, may: bool) -> None:
    assert decode.kubelet_may(key) is may
    assert (not list(decode.node_label_problems({key: "v"}))) is may


def test_labels_and_taints_that_cannot_be() -> None:
    problems = [*decode.node_label_problems({"a b": "1", "x": "y" * 64, "A.b/c": "1", "gone": None})]
    assert [problem.partition(":")[0] for problem in problems] == [
        "node_labels.a b",
        "node_labels.x",
        "node_labels.A.b/c",
    ]
    taints = [
        {"key": "k", "effect": "NoSchedule"},
        {"key": "k", "effect": "NoSchedule"},
        {"key": "", "value": "a b", "effect": "NoExecute"},
    ]
    told = [problem.partition(":")[0] for problem in decode.taint_problems(taints)]
    assert told == ["node_taints[1]", "node_taints[2].key", "node_taints[2].value"]
