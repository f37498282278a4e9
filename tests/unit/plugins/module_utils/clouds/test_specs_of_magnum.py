# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specs of a group's options, the request that creates it, and mistakes that are visible without a cloud."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds import magnum_groups
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.module import require_valid
from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import group_mark, marked_owner

Options = dict[str, Any]


def of(
    cluster_labels: dict[str, str] | None = None, *, version: tuple[int, int] = (1, 14), **options: Any
) -> magnum_groups.MagnumSpec:
    return magnum_groups.spec_of({"name": "g", **options}, cluster_labels=cluster_labels or {}, version=version)


def problems(*groups: Options) -> list[str]:
    try:
        require_valid(groups, magnum_groups.option_problems)
    except InvalidOptions as error:
        return error.problems
    return []


def test_unset_options_are_not_declared() -> None:
    assert of().fields == {}
    mark = {"accel_gpu_nodegroup_mark": group_mark("", "g", "g")}
    assert magnum_groups.create_body(of(), "g", None) == {"name": "g", "merge_labels": True, "labels": mark}


@pytest.mark.parametrize(
    ("options", "labels", "merged"),
    [
        ({}, {}, True),
        # Without labels of its own, the group inherits those of the cluster.
        ({"merge_labels": False}, {}, True),
        ({"merge_labels": False, "labels": {"a": "1"}}, {"a": "1"}, False),
        ({"labels": {"a": "1"}}, {"a": "1"}, True),
    ],
)
@pytest.mark.parametrize("name", ["g", "g-2026"])
def test_a_new_group_has_a_mark(options: Options, labels: dict[str, str], merged: bool, name: str) -> None:
    body = magnum_groups.create_body(of(**options), name, 1, "cluster-id")
    assert body["merge_labels"] is merged
    assert marked_owner(body["labels"].pop("accel_gpu_nodegroup_mark"), "cluster-id", name) == "g"
    assert body["labels"] == labels


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
    assert declared.fields["labels"] == {"a": "true", "gone": None}
    assert magnum_groups.create_body(declared, "g", 2) == {
        "name": "g",
        "node_count": 2,
        "min_node_count": 1,
        "max_node_count": 4,
        "flavor_id": "f",
        "image_id": "i",
        "role": "gpu",
        "docker_volume_size": 5,
        "labels": {"a": "true", "accel_gpu_nodegroup_mark": group_mark("", "g", "g")},
        "merge_labels": True,
        "node_labels": {"x": "1"},
        "node_taints": [{"key": "k", "effect": "NoSchedule"}],
    }


def test_a_magnum_without_node_labels_receives_none() -> None:
    declared = of(version=(1, 13), node_labels={"x": "1"}, node_taints=[{"key": "k", "effect": "NoSchedule"}])
    assert not declared.fields.keys() & {"node_labels", "node_taints"}


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
def test_who_chooses_the_number_of_nodes(options: Options, cluster_labels: dict[str, str], autoscaled: bool) -> None:
    assert of(cluster_labels, **options).autoscaled is autoscaled


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": ""}, "name is empty"),
        ({"node_count": -1}, "node_count is -1"),
        ({"max_node_count": 0}, "Magnum interprets as no limit"),
        ({"autoscaling": True, "min_node_count": 1}, "needs min_node_count and max_node_count"),
        ({"role": "master"}, "Magnum does not create additional groups with this role"),
        ({"docker_volume_size": 0}, "a volume has at least 1 GiB"),
        ({"node_labels": {"node-role.kubernetes.io/gpu": ""}}, "a kubelet must not use"),
        ({"node_taints": [{"key": "a b", "effect": "NoSchedule"}]}, "is not a taint key"),
    ],
)
def test_mistakes(options: Options, message: str) -> None:
    [problem] = problems({"name": "g", **options})
    assert message in problem
    assert problem.startswith(f"Node group {options.get('name', 'g')}: ")


def test_all_mistakes_of_all_groups_at_once() -> None:
    messages = problems({"name": "a", "node_count": -1, "role": "master"}, {"name": "b", "max_node_count": 0})
    assert len(messages) == 3
