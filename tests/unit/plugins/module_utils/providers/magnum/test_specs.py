# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the options of a group come to, and which mistakes are told without a cloud."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum import specs

Options = dict[str, Any]


def of(cluster_labels: dict[str, str] | None = None, *, labelled: bool = True, **options: Any) -> specs.DeclaredGroup:
    return specs.declared_group({"name": "g", **options}, cluster_labels=cluster_labels or {}, node_labels=labelled)


def test_what_is_not_given_is_not_declared() -> None:
    assert of().wish.fields == {}
    assert specs.body_of(of(), "g", None) == {"name": "g"}


def test_everything() -> None:
    declared = of(
        flavor="f",
        image="i",
        role="gpu",
        labels={"a": True, "gone": None},
        docker_volume_size=5,
        node_labels={"x": 1, "old": None},
        node_taints=[{"key": "k", "effect": "NoSchedule"}],
        min_node_count=1,
        max_node_count=4,
    )
    assert declared.wish.fields["labels"] == {"a": "true", "gone": None}
    assert specs.body_of(declared, "g-1234", 2) == {
        "name": "g-1234",
        "node_count": 2,
        "min_node_count": 1,
        "max_node_count": 4,
        "flavor_id": "f",
        "image_id": "i",
        "role": "gpu",
        "docker_volume_size": 5,
        "labels": {"a": "true"},
        "merge_labels": True,
        "node_labels": {"x": "1"},
        "node_taints": [{"key": "k", "effect": "NoSchedule"}],
    }


def test_a_magnum_without_labels_of_nodes_is_told_none() -> None:
    declared = of(labelled=False, node_labels={"x": "1"}, node_taints=[{"key": "k", "effect": "NoSchedule"}])
    assert not declared.wish.fields.keys() & {"node_labels", "node_taints"}


@pytest.mark.parametrize(
    ("options", "cluster_labels", "autoscaled"),
    [
        ({}, {}, False),
        ({"autoscaling": True, "min_node_count": 1, "max_node_count": 2}, {}, True),
        ({"min_node_count": 1, "max_node_count": 2}, {"auto_scaling_enabled": "True"}, True),
        ({"min_node_count": 2, "max_node_count": 2}, {"auto_scaling_enabled": "True"}, False),
        ({"max_node_count": 2}, {"auto_scaling_enabled": "True"}, False),
        ({"min_node_count": 1, "max_node_count": 2, "autoscaling": False}, {"auto_scaling_enabled": "true"}, False),
        ({"min_node_count": 1, "max_node_count": 2, "labels": {"auto_scaling_enabled": True}}, {}, True),
    ],
)
def test_whose_the_number_of_nodes_is(options: Options, cluster_labels: dict[str, str], autoscaled: bool) -> None:
    assert of(cluster_labels, **options).wish.autoscaled is autoscaled


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": ""}, "name is empty"),
        ({"node_count": -1}, "node_count is -1"),
        ({"max_node_count": 0}, "no limit at all"),
        ({"autoscaling": True, "min_node_count": 1}, "needs min_node_count and max_node_count"),
        ({"role": "master"}, "no further groups of masters"),
        ({"docker_volume_size": 0}, "1 GB or more"),
        ({"node_labels": {"node-role.kubernetes.io/gpu": ""}}, "a kubelet may not"),
        ({"node_taints": [{"key": "a b", "effect": "NoSchedule"}]}, "no key of a taint"),
    ],
)
def test_mistakes(options: Options, said: str) -> None:
    [problem] = specs.problems([{"name": "g", **options}])
    assert said in problem
    assert problem.startswith(f"Node group {options.get('name', 'g')}: ")


def test_all_mistakes_of_all_groups_at_once() -> None:
    assert (
        len(specs.problems([{"name": "a", "node_count": -1, "role": "master"}, {"name": "b", "max_node_count": 0}]))
        == 3
    )
