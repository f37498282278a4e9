# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Laws of patches of a node: applying twice equals once, foreign entries survive, managed entries can be removed."""

from __future__ import annotations

import copy
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node_metadata import (
    ConflictingSets,
    NodeSet,
    node_sets,
    required_metadata,
    required_metadata_edit,
)

TAINT = {"key": "k", "effect": "NoSchedule"}
_keys = st.sampled_from(["a", "b", "example.com/c"])
_marks = st.dictionaries(_keys, st.sampled_from(["", "1", "2"]), max_size=3)
_effects = st.sampled_from(["NoSchedule", "NoExecute"])
_taints = st.lists(
    st.fixed_dictionaries({"key": _keys, "effect": _effects}, optional={"value": st.sampled_from(["1", "2"])}),
    max_size=3,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)
_nodes = st.builds(
    lambda labels, annotations, taints: Node("n", labels, annotations, tuple(taints), resource_version="1"),
    _marks,
    _marks,
    _taints,
)
_wanted = st.fixed_dictionaries({"labels": _marks, "annotations": _marks, "taints": _taints}).filter(
    lambda text: any(text.values())
)


def sets(text: dict[str, t.Any], **more: t.Any) -> list[NodeSet]:
    return node_sets([{"label_selectors": [], **text, **more}])


def after(node: Node, chosen: list[NodeSet]) -> Node:
    """The node once it is patched, as a merge patch does it."""
    required = required_metadata(node, chosen)
    edit = required_metadata_edit(node, required) if required else None
    if edit is None:
        return node

    def merged(live: t.Mapping[str, str], patch: dict[str, t.Any]) -> dict[str, str]:
        return {key: value for key, value in {**live, **patch}.items() if value is not None}

    metadata = edit.patch["metadata"]
    return Node(
        node.name,
        merged(node.labels, metadata.get("labels", {})),
        merged(node.annotations, metadata.get("annotations", {})),
        tuple(edit.patch.get("spec", {}).get("taints", node.taints)),
        resource_version="2",
    )


def bare(node: Node) -> tuple[t.Any, ...]:
    annotations = {key: value for key, value in node.annotations.items() if not key.startswith("accel.gpu/")}
    return dict(node.labels), annotations, [dict(taint) for taint in node.taints]


@given(_nodes, _wanted)
def test_twice_is_once(node: Node, text: dict[str, t.Any]) -> None:
    once = after(node, sets(text))
    assert after(once, sets(text)) is once


@given(_nodes, _wanted)
def test_wanted_is_there_afterwards(node: Node, text: dict[str, t.Any]) -> None:
    now = after(node, sets(text))
    assert text["labels"].items() <= now.labels.items()
    assert text["annotations"].items() <= now.annotations.items()
    assert all(taint in now.taints for taint in text["taints"])


@given(_nodes, _wanted)
def test_what_is_not_named_survives(node: Node, text: dict[str, t.Any]) -> None:
    now = after(node, sets(text))
    assert {k: v for k, v in node.labels.items() if k not in text["labels"]}.items() <= now.labels.items()
    places = [(taint["key"], taint["effect"]) for taint in text["taints"]]
    for taint in node.taints:
        assert (taint["key"], taint["effect"]) in places or taint in now.taints


@given(_nodes, _wanted)
def test_what_we_added_can_be_taken_out(node: Node, text: dict[str, t.Any]) -> None:
    """On a node that had none of it, both ways lead back to where it was."""
    empty = Node("n", {"other": "x"}, {"note": "y"}, ({"key": "other", "effect": "NoSchedule"},), resource_version="1")
    put = after(empty, sets(text))
    for leave in ({"purge": True}, {**text, "state": "absent"}):
        assert bare(after(put, sets(leave))) == bare(empty)
        assert after(put, sets(leave)).annotations == empty.annotations


@given(_nodes, _wanted, _wanted)
def test_purge_leaves_what_was_there_before_us(node: Node, first: dict[str, t.Any], second: dict[str, t.Any]) -> None:
    once = after(after(node, sets(first)), sets(second, purge=True))
    untouched = {
        key: value for key, value in node.labels.items() if key not in first["labels"] and key not in second["labels"]
    }
    assert once.labels == {**untouched, **kept(node, first["labels"], second["labels"]), **second["labels"]}


def kept(node: Node, first: dict[str, str], second: dict[str, str]) -> dict[str, str]:
    """Metadata that already existed as the first set required it, so the set did not write it."""
    return {key: value for key, value in first.items() if node.labels.get(key) == value and key not in second}


def test_the_taint_list_is_written_only_over_what_was_read() -> None:
    node = Node("n", resource_version="7")
    required = required_metadata(node, sets({"taints": [{"key": "k", "effect": "NoSchedule"}]}))
    assert required is not None
    edit = required_metadata_edit(node, required)
    assert edit is not None
    assert edit.patch["metadata"]["resourceVersion"] == "7"
    assert json.loads(edit.patch["metadata"]["annotations"]["accel.gpu/taints"]) == ["k:NoSchedule"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"labels": {"a": "1"}}, {"labels": {"a": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {"a": None}}),
        ({"annotations": {"a": "1"}}, {"annotations": {"a": "2"}}),
        (
            {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            {"taints": [{"key": "k", "effect": "NoSchedule", "value": "x"}]},
        ),
        ({"taints": [TAINT]}, {"taints": [TAINT], "state": "absent"}),
    ],
)
def test_sets_that_contradict_each_other(one: dict[str, t.Any], other: dict[str, t.Any]) -> None:
    chosen = node_sets([{"label_selectors": [], **one}, {"label_selectors": [], **other}])
    for order in (chosen, chosen[::-1]):
        with pytest.raises(ConflictingSets, match="Node n is in the sets"):
            required_metadata(Node("n"), order)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ({"labels": {"a": "1"}}, "sets[0]: selects no nodes"),
        ({"label_selectors": []}, "sets[0]: changes nothing"),
        ({"match": {"model": None}, "labels": {"a": "1"}}, "sets[0].match: is empty"),
        ({"match": {"model": "T5"}, "labels": {"a": "1"}}, "sets[0].match.model:"),
        (
            {"label_selectors": [], "purge": True, "state": "absent"},
            "sets[0].purge: cannot be combined with state: absent",
        ),
        ({"label_selectors": [], "labels": {"accel.gpu/labels": "x"}}, "is reserved"),
        ({"label_selectors": [], "labels": {"a": True}}, "sets[0].labels.a"),
        ({"label_selectors": 1.5, "labels": {"a": "1"}}, "sets[0].label_selectors: is not a list"),
        ({"label_selectors": "a in b", "labels": {"a": "1"}}, "sets[0].label_selectors[0]"),
        ({"label_selectors": [], "state": "gone", "labels": {"a": "1"}}, "sets[0].state"),
        (
            {"label_selectors": [], "taints": [{"key": "k", "effect": "NoSchedule"}] * 2},
            "sets[0].taints: k:NoSchedule is listed more than once",
        ),
    ],
)
def test_mistakes(text: dict[str, t.Any], problem: str) -> None:
    with pytest.raises(InvalidOptions) as caught:
        node_sets([copy.deepcopy(text)])
    assert any(problem in actual for actual in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("label_selectors", "labels", "expected"),
    [
        ([], {}, True),
        ("zone in (a, b), !keep", {"zone": "b"}, True),
        ("zone in (a, b), !keep", {"zone": "b", "keep": ""}, False),
        (["zone in (a", "b)"], {"zone": "b"}, True),
        (["zone=a", "disk=ssd"], {"zone": "a", "disk": "ssd"}, True),
        (["zone=a", "disk=ssd"], {"zone": "a"}, False),
    ],
)
def test_label_selectors_are_a_list_or_text(label_selectors: t.Any, labels: dict[str, str], expected: bool) -> None:
    (chosen,) = node_sets([{"label_selectors": label_selectors, "purge": True}])
    assert chosen.contains(Node("n", labels)) is expected


@pytest.mark.parametrize("label_selectors", ["", " ", ",", " , ", "[]", "[,]", [","], [""], ["zone=a", ""], [None]])
def test_an_empty_selector_does_not_select_all_nodes(label_selectors: t.Any) -> None:
    with pytest.raises(InvalidOptions):
        node_sets([{"label_selectors": label_selectors, "purge": True}])
