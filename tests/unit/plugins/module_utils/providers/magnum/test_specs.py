# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specs of a group's options, the request that creates it, mistakes that are visible without a cloud, and the way to another size."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum import specs
from ansible_collections.accel.gpu.plugins.module_utils.providers.magnum.specs import Size, next_size
from ansible_collections.accel.gpu.plugins.module_utils.providers.nodegroups import require_valid

Options = dict[str, Any]


def of(cluster_labels: dict[str, str] | None = None, *, labelled: bool = True, **options: Any) -> specs.MagnumSpec:
    return specs.spec_of({"name": "g", **options}, cluster_labels=cluster_labels or {}, node_metadata=labelled)


def problems(*groups: Options) -> list[str]:
    try:
        require_valid(groups, specs.problems_of)
    except InvalidOptions as error:
        return error.problems
    return []


def test_unset_options_are_not_declared() -> None:
    assert of().fields == {}
    assert specs.create_body(of(), "g", None) == {"name": "g"}


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
    assert specs.create_body(declared, "g-1234", 2) == {
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


def test_a_magnum_without_node_labels_receives_none() -> None:
    declared = of(labelled=False, node_labels={"x": "1"}, node_taints=[{"key": "k", "effect": "NoSchedule"}])
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
        ({"max_node_count": 0}, "Magnum reads as no limit"),
        ({"autoscaling": True, "min_node_count": 1}, "needs min_node_count and max_node_count"),
        ({"role": "master"}, "Magnum creates no more groups of it"),
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
    found = problems({"name": "a", "node_count": -1, "role": "master"}, {"name": "b", "max_node_count": 0})
    assert len(found) == 3


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), ("True", "true"), (False, "false"), (3, "3"), (1.5, "1.5"), ("v1.30", "v1.30"), ("", "")],
)
def test_magnum_labels_are_text(value: Any, text: str) -> None:
    assert specs.magnum_labels({"a": value}) == {"a": text}


@given(st.dictionaries(st.text(), st.text()))
def test_a_value_in_a_patch_is_a_python_literal(labels: dict[str, str]) -> None:
    assert ast.literal_eval(specs.patch_value(labels)) == labels


def path(now: Size, wanted: Size) -> Iterator[Size]:
    while now != wanted:
        now = next_size(now, wanted)
        yield now


def is_legal(size: Size) -> bool:
    """Whether Magnum accepts it."""
    return 0 <= size.low <= size.count and (size.high is None or size.count <= size.high)


@st.composite
def sizes(draw: st.DrawFn) -> Size:
    low = draw(st.integers(0, 9))
    high = draw(st.none() | st.integers(low, 12))
    count = draw(st.integers(low, 15 if high is None else high))
    # A range of no nodes at all is one without a limit for Magnum.
    return Size(count, low, high or None)


@given(sizes(), sizes())
def test_every_step_is_valid_and_the_last_one_is_the_desired_size(now: Size, wanted: Size) -> None:
    before = now
    steps = list(path(now, wanted))
    for size in steps:
        assert is_legal(size)
        # One request changes the bounds or the count; a resize is to a number inside of the bounds that there are.
        assert (size.count == before.count) != ((size.low, size.high) == (before.low, before.high))
        before = size
    assert before == wanted
    assert len(steps) <= 3


@pytest.mark.parametrize(
    ("now", "wanted", "steps"),
    [
        (Size(2, 0, None), Size(2, 0, None), []),
        (Size(2, 0, None), Size(5, 0, None), [Size(5, 0, None)]),
        (Size(2, 1, 3), Size(5, 4, 6), [Size(2, 1, 6), Size(5, 1, 6), Size(5, 4, 6)]),
        (Size(5, 4, 6), Size(1, 1, 2), [Size(5, 1, 6), Size(1, 1, 6), Size(1, 1, 2)]),
        (Size(2, 1, 3), Size(2, 2, 4), [Size(2, 2, 4)]),
        (Size(3, 1, 5), Size(4, 4, 4), [Size(4, 1, 5), Size(4, 4, 4)]),
    ],
)
def test_the_order(now: Size, wanted: Size, steps: list[Size]) -> None:
    assert list(path(now, wanted)) == steps
