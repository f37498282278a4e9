# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text on the terminal about the node groups that create the nodes of pools."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.text import nodegroup_paragraphs

GROUP = {"name": "gpus", "flavor": "g2.5xlarge", "size": "1 to 6 nodes"}
POOLS: dict[str, t.Any] = {"made": {"nodegroup": GROUP}, "found": {"nodegroup": None}, "old": {}}
TEXT = "node group gpus of g2.5xlarge, 1 to 6 nodes"


@pytest.mark.parametrize(
    ("kind", "asked", "expected"),
    [
        ("report", {"nodegroups": {"gpus": {"action": "create"}}}, ""),
        ("plan", {}, ""),
        ("plan", {"nodegroups": {"gpus": {"action": "none"}}}, "; as declared"),
        ("plan", {"nodegroups": {"gpus": {"action": "create"}}}, "; will be created"),
        ("plan", {"nodegroups": {"gpus": {"action": "update"}}}, "; will be updated"),
        (
            "plan",
            {"nodegroups": {"gpus": {"action": "recreate"}}},
            "; differs in immutable fields, and will be replaced",
        ),
    ],
)
def test_node_group_of_a_pool(kind: str, asked: dict[str, t.Any], expected: str) -> None:
    assert list(nodegroup_paragraphs({"pools": POOLS, "nodegroups": asked}, kind)) == [
        ("nodes of made", f"{TEXT}{expected}")
    ]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"node_count": 3}, {"node_count": 1}, ": node_count 3 -> 1"),
        (
            {"max_node_count": None, "labels": {"a": "1"}},
            {"max_node_count": 3, "labels": {"a": "1"}},
            ": max_node_count none -> 3",
        ),
        ({"labels": {"team": "x", "a": "1"}}, {"labels": {"team": "y", "a": "1"}}, ": labels team x -> y"),
        ({"taints": []}, {"taints": [{"key": "k", "effect": "NoExecute"}]}, ": taints k:NoExecute none -> set"),
        (
            {"taints": [{"key": "k", "effect": "NoExecute", "value": "a"}], "image": "i"},
            {"taints": [{"key": "k", "effect": "NoExecute", "value": "b"}], "image": "j"},
            ": image i -> j, taints k:NoExecute a -> b",
        ),
        ({}, {}, ""),
    ],
)
def test_what_differs_of_a_group(before: dict[str, t.Any], after: dict[str, t.Any], expected: str) -> None:
    diff = {"before": {"gpus": before}, "after": {"gpus": after}}
    asked = {"nodegroups": {"gpus": {"action": "update"}}, "diff": diff}
    assert list(nodegroup_paragraphs({"pools": POOLS, "nodegroups": asked}, "plan")) == [
        ("nodes of made", f"{TEXT}; will be updated{expected}")
    ]


def test_each_group_that_a_replacement_deletes_is_named() -> None:
    result = {"action": "recreate", "deletes": ["gpus (2 nodes)", "gpus-1a2b (1 node)"]}
    diff = {"before": {"gpus": {"flavor": "a"}}, "after": {"gpus": {"flavor": "b", "deletes": result["deletes"]}}}
    ((dummy, text),) = nodegroup_paragraphs(
        {"pools": POOLS, "nodegroups": {"nodegroups": {"gpus": result}, "diff": diff}}, "plan"
    )
    assert text == (
        f"{TEXT}; differs in immutable fields, and will be replaced: flavor a -> b; "
        "then gpus (2 nodes) and gpus-1a2b (1 node) will be drained and deleted"
    )


def test_a_cloud_that_does_not_answer() -> None:
    away = {"msg": "Keystone did not answer."}
    assert list(nodegroup_paragraphs({"pools": POOLS, "nodegroups": away}, "plan")) == [
        ("nodes of made", TEXT),
        ("cloud", "not reached, so the state of the node groups is unknown: Keystone did not answer."),
    ]
    assert list(nodegroup_paragraphs({"pools": {"old": {}}, "nodegroups": away}, "plan")) == []


ZONES = {
    "name": "a",
    "flavor": "g4dn.xlarge",
    "size": "3 nodes",
    "members": [{"name": "a-z1", "zone": "z1", "size": "2 nodes"}, {"name": "a-z2", "zone": "z2", "size": "1 node"}],
}


@pytest.mark.parametrize(
    ("preview", "expected"),
    [
        ({}, ""),
        (
            {
                "nodegroups": {"a-z1": {"action": "update"}, "a-z2": {"action": "create"}},
                "diff": {"before": {"a-z1": {"node_count": 1}}, "after": {"a-z1": {"node_count": 2}}},
            },
            "; a-z1: will be updated: node_count 1 -> 2; a-z2: will be created",
        ),
    ],
    ids=["offline", "with the cluster"],
)
def test_the_groups_in_zones_are_named_with_their_nodes(preview: dict[str, t.Any], expected: str) -> None:
    info = {"pools": {"p": {"nodegroup": ZONES}}, "nodegroups": preview}
    text = f"node groups a-z1 (2 nodes) and a-z2 (1 node) of g4dn.xlarge, 3 nodes{expected}"
    assert list(nodegroup_paragraphs(info, "plan")) == [("nodes of p", text)]
