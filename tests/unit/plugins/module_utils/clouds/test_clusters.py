# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The differences of a cluster from its declaration."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds import magnum_clusters

LIVE = {
    "name": "c",
    "uuid": "1",
    "cluster_template_id": "t-id",
    "flavor_id": "f-id",
    "master_count": 1,
    "node_count": 2,
    "labels": {"a": "True", "b": "1"},
}


def same(option: str, one: str, other: str) -> bool:
    return {one, other} in ({"t-id", "template"}, {"f-id", "flavor"})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {}),
        ({"cluster_template": "template", "flavor": "flavor", "labels": {"a": True}, "master_count": 1}, {}),
        ({"node_count": 9, "create_timeout": 5}, {}),
        ({"cluster_template": "other"}, {"cluster_template": ("t-id", "other")}),
        ({"master_count": 3}, {"master_count": (1, 3)}),
        (
            {"labels": {"a": "false", "b": 1, "c": "x"}},
            {"labels": ({"a": "true", "c": None}, {"a": "false", "c": "x"})},
        ),
    ],
)
def test_differences(options: dict[str, Any], expected: dict[str, Any]) -> None:
    assert magnum_clusters.cluster_differences({"name": "c", **options}, LIVE, same) == expected


def test_the_request() -> None:
    options = {
        "name": "c",
        "cluster_template": "t",
        "flavor": "f",
        "node_count": 0,
        "labels": {"x": True},
        "merge_labels": True,
    }
    assert magnum_clusters.cluster_body(options) == {
        "name": "c",
        "cluster_template_id": "t",
        "flavor_id": "f",
        "node_count": 0,
        "labels": {"x": "true"},
        "merge_labels": True,
    }


def test_mistakes() -> None:
    reported = magnum_clusters.cluster_problems({"name": "9", "master_count": 2, "node_count": -1})
    assert [problem.partition(" ")[0] for problem in reported] == ["name:", "node_count", "master_count"]
    assert magnum_clusters.cluster_problems({"name": "c", "master_count": 3}) == []
