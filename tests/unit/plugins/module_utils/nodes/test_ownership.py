# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Managed metadata of a node is set, kept and removed; foreign metadata stays."""

from __future__ import annotations

import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT_KEY
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import (
    NODE_METADATA_OWNER,
    POOL_OWNER,
    NodeEdit,
    Owner,
    metadata_edit,
    recorded,
    replaced_entries,
    reverted_entries,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import NodeMetadata

MANAGED = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}
OLD = {"key": "restricted-access", "value": "no", "effect": "NoSchedule"}
FOREIGN = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def _node(
    labels: dict[str, str] | None = None,
    taints: t.Sequence[dict[str, t.Any]] = (),
    own_labels: t.Sequence[str] = (),
    own_taints: t.Sequence[str] = (),
) -> Node:
    annotations = {}
    if own_labels:
        annotations[POOL_OWNER.labels] = json.dumps(list(own_labels))
    if own_taints:
        annotations[POOL_OWNER.taints] = json.dumps(list(own_taints))
    return Node("n1", labels or {}, annotations, tuple(taints), resource_version="7")


def _metadata(labels: t.Mapping[str, str] | None = None, taints: t.Sequence[dict[str, t.Any]] = ()) -> NodeMetadata:
    return NodeMetadata(labels=labels or {}, taints={f"{taint['key']}:{taint['effect']}": taint for taint in taints})


def _after(node: Node, patch: dict[str, t.Any] | None) -> Node:
    """The node as the API server has it after a merge patch."""
    if patch is None:
        return node

    def merged(live: t.Mapping[str, str], part: str) -> dict[str, str]:
        expected = {**live, **(patch["metadata"].get(part) or {})}
        return {key: value for key, value in expected.items() if value is not None}

    taints = tuple(patch["spec"]["taints"]) if "spec" in patch else node.taints
    return Node("n1", merged(node.labels, "labels"), merged(node.annotations, "annotations"), taints)


LABELS: list[tuple[str, Node, dict[str, str | None], dict[str, str], list[str]]] = [
    ("new", _node(), {"a": "1"}, {"a": "1"}, ["a"]),
    ("other value", _node({"a": "0"}), {"a": "1"}, {"a": "1"}, ["a"]),
    ("present before the collection", _node({"a": "1"}), {"a": "1"}, {"a": "1"}, []),
    ("managed and desired", _node({"a": "1"}, own_labels=["a"]), {"a": "1"}, {"a": "1"}, ["a"]),
    ("managed and no longer desired", _node({"a": "1", "b": "2"}, own_labels=["a"]), {}, {"b": "2"}, []),
    ("managed, already removed", _node({"b": "2"}, own_labels=["a"]), {}, {"b": "2"}, []),
    ("none removes a managed label", _node({"a": "1"}, own_labels=["a"]), {"a": None}, {}, []),
    ("none leaves others'", _node({"a": "1"}), {"a": None}, {"a": "1"}, []),
]


@pytest.mark.parametrize(
    ("node", "expected", "labels", "owned"), [case[1:] for case in LABELS], ids=[c[0] for c in LABELS]
)
def test_labels(node: Node, expected: dict[str, str | None], labels: dict[str, str], owned: list[str]) -> None:
    change = metadata_edit(node, POOL_OWNER, NodeMetadata(labels=expected), remove_others=True)
    result = _after(node, change.patch if change else None)
    assert dict(result.labels) == labels
    assert json.loads(result.annotations.get(POOL_OWNER.labels, "[]")) == owned


TAINTS: list[tuple[str, Node, list[dict[str, t.Any]], list[dict[str, t.Any]], list[str]]] = [
    ("new", _node(taints=[FOREIGN]), [MANAGED], [FOREIGN, MANAGED], ["restricted-access=yes:NoSchedule"]),
    ("present before the collection", _node(taints=[MANAGED]), [MANAGED], [MANAGED], []),
    ("other value", _node(taints=[OLD, FOREIGN]), [MANAGED], [MANAGED, FOREIGN], ["restricted-access=yes:NoSchedule"]),
    (
        "managed, no longer desired",
        _node(taints=[MANAGED, FOREIGN], own_taints=["restricted-access=yes:NoSchedule"]),
        [],
        [FOREIGN],
        [],
    ),
    ("changed by others since", _node(taints=[OLD], own_taints=["restricted-access=yes:NoSchedule"]), [], [OLD], []),
]


@pytest.mark.parametrize(
    ("node", "expected", "taints", "owned"), [case[1:] for case in TAINTS], ids=[c[0] for c in TAINTS]
)
def test_taints(node: Node, expected: list[dict[str, t.Any]], taints: list[dict[str, t.Any]], owned: list[str]) -> None:
    change = metadata_edit(node, POOL_OWNER, _metadata(taints=expected), remove_others=True)
    result = _after(node, change.patch if change else None)
    assert list(result.taints) == taints
    assert json.loads(result.annotations.get(POOL_OWNER.taints, "[]")) == owned
    if change and "spec" in change.patch:
        assert change.patch["metadata"]["resourceVersion"] == "7"


def test_two_owners_do_not_take_each_other_out() -> None:
    node = _after(
        _node(), t.cast("t.Any", metadata_edit(_node(), NODE_METADATA_OWNER, _metadata({"user": "1"}, [OLD]))).patch
    )
    change = metadata_edit(node, POOL_OWNER, NodeMetadata(labels={"pool": "x"}), remove_others=True)
    result = _after(node, change.patch if change else None)
    assert dict(result.labels) == {"user": "1", "pool": "x"}
    assert list(result.taints) == [OLD]


def test_labels_alone_carry_no_resource_version() -> None:
    change = metadata_edit(_node(), POOL_OWNER, NodeMetadata(labels={"a": "1"}))
    assert change is not None
    assert "resourceVersion" not in change.patch["metadata"]


_NAMES = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)
_TAINTS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from("xy"),
            "value": st.sampled_from("12"),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        }
    ),
    unique_by=lambda taint: (taint["key"], taint["effect"]),
    max_size=3,
)


@given(_NAMES, _TAINTS, _NAMES, _TAINTS)
def test_a_second_edit_is_none_and_leaving_restores(
    labels: dict[str, str], taints: list[dict[str, str]], expected: dict[str, str], wanted_taints: list[dict[str, str]]
) -> None:
    node = _node(labels, taints)
    first = metadata_edit(node, POOL_OWNER, _metadata(expected, wanted_taints), remove_others=True)
    existing = _after(node, first.patch if first else None)
    assert metadata_edit(existing, POOL_OWNER, _metadata(expected, wanted_taints), remove_others=True) is None
    leaving = metadata_edit(existing, POOL_OWNER, NodeMetadata(), remove_others=True)
    remaining = _after(existing, leaving.patch if leaving else None)
    overwritten = {key for key in expected if key in labels and labels[key] != expected[key]}
    assert {key: value for key, value in labels.items() if key not in overwritten} == dict(remaining.labels)
    assert POOL_OWNER.labels not in remaining.annotations
    assert POOL_OWNER.taints not in remaining.annotations


def test_the_mig_state_is_removed_with_the_configuration_that_it_is_about_and_only_then() -> None:
    config, state = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
    node = _node({config: "a", state: "success"})
    change = metadata_edit(node, POOL_OWNER, NodeMetadata(labels={config: "b"}))
    assert change is not None
    assert change.labels == {config: "b", state: None}
    assert change.before["labels"] == {config: "a", state: "success"}
    assert metadata_edit(node, POOL_OWNER, NodeMetadata(labels={config: "a"})) is None
    change = metadata_edit(_node({config: "a"}), POOL_OWNER, NodeMetadata(labels={config: "b"}))
    assert change is not None
    assert change.labels == {config: "b", state: None}
    assert change.before["labels"] == {config: "a"}


def test_annotations_come_and_go() -> None:
    change = metadata_edit(_node(), POOL_OWNER, NodeMetadata(), own_annotations={"gpus": "8"})
    assert change is not None
    existing = _after(_node(), change.patch)
    assert existing.annotations == {"gpus": "8"}
    assert metadata_edit(existing, POOL_OWNER, NodeMetadata(), own_annotations={"gpus": "8"}) is None
    change = metadata_edit(existing, POOL_OWNER, NodeMetadata(), own_annotations={"gpus": None})
    assert change is not None
    assert change.patch["metadata"]["annotations"] == {"gpus": None}
    assert metadata_edit(_node(), POOL_OWNER, NodeMetadata(), own_annotations={"gpus": None}) is None


@pytest.mark.parametrize("owner", [POOL_OWNER, NODE_METADATA_OWNER])
def test_owned_annotations_are_recorded_and_removed(owner: Owner) -> None:
    before = Node("n1", {}, {"theirs": "1"})
    change = metadata_edit(before, owner, NodeMetadata(annotations={"a": "1", "theirs": "1"}), remove_others=True)
    existing = _after(before, change.patch if change else None)
    assert recorded(existing, POOL_OWNER, NODE_METADATA_OWNER).annotations == {"a"}
    released = metadata_edit(existing, owner, NodeMetadata(), remove_others=True)
    assert _after(existing, released.patch if released else None) == before


def test_the_records_of_several_owners_are_combined() -> None:
    node = _node(own_labels=["a"], own_taints=["k:NoSchedule"])
    both = Node("n1", {}, {**node.annotations, NODE_METADATA_OWNER.labels: '["b"]'})
    assert recorded(both, POOL_OWNER, NODE_METADATA_OWNER).labels == {"a", "b"}
    assert recorded(both, POOL_OWNER).labels == {"a"}
    assert not recorded(Node("n1", {}, {POOL_OWNER.labels: "["}), POOL_OWNER)


def test_only_the_configuration_of_a_pool_removes_the_mig_state() -> None:
    change = metadata_edit(_node(), NODE_METADATA_OWNER, NodeMetadata(labels={"nvidia.com/mig.config": "a"}))
    assert change is not None
    assert change.labels == {"nvidia.com/mig.config": "a"}


LAYOUT, STARTUP = "nvidia.com/mig.config", {"key": STARTUP_TAINT_KEY, "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "desired", "entries"),
    [
        (_node(), _metadata({"a": "1"}, [MANAGED]), []),
        (_node({"b": "1"}), _metadata({"a": "1"}), []),
        (_node({"a": "1"}), _metadata({"a": "1"}), []),
        (_node({"a": "0"}), _metadata({"a": "1"}), [("labels", "a")]),
        # A label that is removed, because the pool no longer declares it.
        (_node({"a": "0"}, own_labels=["a"]), _metadata(), [("labels", "a")]),
        (_node({LAYOUT: "x", f"{LAYOUT}.state": "success"}), _metadata({LAYOUT: "y"}), [("labels", LAYOUT)]),
        (_node(taints=[FOREIGN]), _metadata(taints=[MANAGED]), [("taints", "")]),
        (_node(taints=[OLD], own_taints=["restricted-access=no:NoSchedule"]), _metadata(), [("taints", "")]),
        (_node(taints=[STARTUP]), _metadata(taints=[MANAGED]), []),
    ],
)
def test_the_entries_of_a_node_that_an_edit_replaces(
    node: Node, desired: NodeMetadata, entries: list[tuple[str, str]]
) -> None:
    edit = metadata_edit(node, POOL_OWNER, desired, remove_others=True)
    assert (replaced_entries(edit) if edit else []) == entries


def test_an_annotation_that_an_edit_replaces() -> None:
    edit = NodeEdit("n1", {"metadata": {}}, before={"annotations": {"team": "a", "accel.gpu/rollout": "{}"}})
    assert replaced_entries(edit) == [("annotations", "team")]


def _written(manager: str, fields: dict[str, t.Any], name: str = "n1", **entry: str) -> dict[str, t.Any]:
    fields_of = [{"manager": manager, "operation": "Update", "fieldsV1": fields, **entry}]
    return {"metadata": {"name": name, "managedFields": fields_of}}


_TEAM: dict[str, t.Any] = {"f:metadata": {"f:labels": {".": {}, "f:team": {}}}}
_LIST: dict[str, t.Any] = {"f:spec": {"f:taints": {}}}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([_written("kubectl-label", _TEAM)], []),
        ([_written("accel.gpu", _TEAM)], []),
        ([_written("argocd-controller", {"f:metadata": {"f:labels": {"f:other": {}}}})], []),
        ([_written("argocd-controller", _TEAM, subresource="status")], []),
        ([_written("argocd-controller", _TEAM)], ["Argo CD (field manager argocd-controller) sets label team of node n1,"]),
        ([_written("Terraform", _TEAM)], ["Terraform (field manager Terraform) sets label team"]),
        ([_written("nfd-master", _TEAM)], ["a rule of Node Feature Discovery (field manager nfd-master) sets label team"]),
        ([_written("kustomize-controller", _LIST)], ["Flux (field manager kustomize-controller) sets the list of taints of node n1"]),
        # NFD only keeps its own taints.
        ([_written("nfd-master", _LIST)], []),
        # One sentence for many nodes.
        ([_written("argocd-controller", _TEAM, f"n{number}") for number in range(1, 41)], ["sets label team of 40 nodes, n1, n10"]),
    ],
)  # fmt: skip
def test_who_reverts_the_entries_of_nodes(items: list[dict[str, t.Any]], words: list[str]) -> None:
    replaced = {item["metadata"]["name"]: [("labels", "team"), ("taints", "")] for item in items}
    texts = reverted_entries(replaced, items)
    assert len(texts) == len(words)
    assert [word for word, text in zip(words, texts, strict=True) if word not in text] == []


def test_a_node_that_no_edit_replaces_is_not_named() -> None:
    assert reverted_entries({"n2": [("labels", "team")]}, [_written("argocd-controller", _TEAM)]) == []
