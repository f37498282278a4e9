# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which metadata is removed from a node, what NVIDIA's operator and NFD leave on it, and which foreign metadata stays."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import (
    NODE_METADATA_OWNER,
    POOL_OWNER,
    NodeEdit,
    former_labels,
    metadata_edit,
)
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import NodeMetadata
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import (
    AgentEntries,
    NodeRestoration,
    former_parts,
    kept_parts,
    managed_parts,
    mig_action,
    nfd_residue,
    operator_residue,
    removal_edit,
    restore_node,
)

MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
CONFIG, POOL = "nvidia.com/device-plugin.config", "accel.gpu/pool"
MANAGED = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}
THEIRS = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def node(
    labels: dict[str, str] | None = None,
    annotations: dict[str, t.Any] | None = None,
    taints: t.Sequence[dict[str, t.Any]] = (),
    **more: t.Any,
) -> Node:
    """A node; annotations that are no text are written as JSON."""
    spelled = {key: text if isinstance(text, str) else json.dumps(text) for key, text in (annotations or {}).items()}
    return Node("n1", labels or {}, spelled, tuple(taints), resource_version="7", **more)


def after(before: Node, change: NodeEdit | None) -> Node:
    """The node as the API server has it after a merge patch."""
    if change is None:
        return before
    metadata = change.patch["metadata"]

    def merged(live: t.Mapping[str, str], part: str) -> dict[str, str]:
        return {key: value for key, value in {**live, **metadata.get(part, {})}.items() if value is not None}

    spec = change.patch.get("spec", {})
    labels, annotations = merged(before.labels, "labels"), merged(before.annotations, "annotations")
    return dataclasses.replace(
        before,
        labels=labels,
        annotations=annotations,
        taints=tuple(spec.get("taints", before.taints)),
        unschedulable=bool(spec.get("unschedulable", before.unschedulable)),
    )


LEFT = {"key": "accel.gpu/failed", "value": "drain", "effect": "NoSchedule"}

RETURNS: list[tuple[str, Node, Node]] = [
    (
        "a change that failed",
        node({}, {"accel.gpu/cordoned": "why", "accel.gpu/failed": "why"}, [THEIRS, LEFT], unschedulable=True),
        node({}, {}, [THEIRS]),
    ),
    ("a foreign cordon", node(unschedulable=True), node(unschedulable=True)),
    ("nothing managed", node({"a": "1"}, {"b": "2"}, [THEIRS]), node({"a": "1"}, {"b": "2"}, [THEIRS])),
    (
        "a pool's",
        node(
            {POOL: "train", "team": "x", "rack": "7"},
            {POOL_OWNER.labels: [POOL, "team"], POOL_OWNER.taints: ["restricted-access=yes:NoSchedule"], "b": "2"},
            [MANAGED, THEIRS],
        ),
        node({"rack": "7"}, {"b": "2"}, [THEIRS]),
    ),
    (
        "what the module nodes has set",
        node({"a": "1"}, {NODE_METADATA_OWNER.labels: ["a"], "accel.gpu/annotations": ["note"], "note": "x"}),
        node(),
    ),
    ("a pin of the user's own", node({POOL: "train", "a": "1"}, {POOL_OWNER.labels: ["a"]}), node({POOL: "train"})),
    ("an equal foreign taint", node({}, {POOL_OWNER.taints: []}, [MANAGED]), node({}, {}, [MANAGED])),
    (
        "any annotation of the collection",
        node({}, {"accel.gpu/gpus": "8", "lab.accel.gpu/os": "x"}),
        node({}, {"lab.accel.gpu/os": "x"}),
    ),
    ("a note that cannot be read", node({"a": "1"}, {POOL_OWNER.labels: "["}), node({"a": "1"})),
    ("noted, and gone already", node({}, {POOL_OWNER.labels: ["a"]}), node()),
]


@pytest.mark.parametrize(("before", "expected"), [case[1:] for case in RETURNS], ids=[case[0] for case in RETURNS])
def test_gives_back(before: Node, expected: Node) -> None:
    actual = restore_node(before, reset_mig=True)
    assert not actual.partitioned
    assert after(before, actual.edit) == expected
    assert restore_node(expected, reset_mig=True).edit is None


def test_only_managed_fields_are_shown_and_a_list_replaces_the_one_that_was_read() -> None:
    before = node(
        {"a": "1", "b": "2"},
        {POOL_OWNER.labels: ["a"], POOL_OWNER.taints: ["restricted-access=yes:NoSchedule"]},
        [MANAGED],
    )
    change = restore_node(before, reset_mig=True).edit
    assert change is not None
    assert change.patch["metadata"]["resourceVersion"] == "7"
    assert (change.before["labels"], change.after["labels"]) == ({"a": "1"}, {})
    assert (change.before["taints"], change.after["taints"]) == (["restricted-access=yes:NoSchedule"], [])


def test_a_node_keeps_managed_metadata_until_mig_is_disabled() -> None:
    marks = {CONFIG: "mig-1", POOL: "cut"}
    notes = {
        POOL_OWNER.labels: [CONFIG, MIG, POOL],
        POOL_OWNER.taints: ["restricted-access=yes:NoSchedule"],
        "accel.gpu/gpus": "8",
    }
    before = node({MIG: "mig-3g.40gb-2-abc", STATE: "success", **marks}, notes, [MANAGED, THEIRS])
    first = restore_node(before, reset_mig=True)
    assert first.partitioned
    asked = after(before, first.edit)
    # The notes still list everything, so that a run that is killed here takes all of it the next time.
    assert asked == node({MIG: "all-disabled", **marks}, notes, [MANAGED, THEIRS])
    # Nothing more is sent until the MIG manager is through, and a run that begins here waits as well.
    for state in ({}, {STATE: "pending"}, {STATE: "failed"}):
        waiting = restore_node(dataclasses.replace(asked, labels={**asked.labels, **state}), reset_mig=True)
        assert (waiting.partitioned, waiting.edit) == (True, None)
    done = dataclasses.replace(asked, labels={**asked.labels, STATE: "success"})
    last = restore_node(done, reset_mig=True)
    assert not last.partitioned
    # The state is the MIG manager's own.
    assert after(done, last.edit) == node({STATE: "success"}, {}, [THEIRS])


def test_the_taint_of_a_failed_change_goes_before_gpus_are_made_whole() -> None:
    """NVIDIA's pods do not tolerate it, and are started again by the change."""
    notes = {POOL_OWNER.labels: [MIG], "accel.gpu/cordoned": "why", "accel.gpu/failed": "why"}
    before = node({MIG: "mig-x", STATE: "failed"}, notes, [THEIRS, LEFT], unschedulable=True)
    first = restore_node(before, reset_mig=True)
    assert first.edit is not None
    assert first.edit.patch["metadata"]["resourceVersion"] == "7"
    asked = after(before, first.edit)
    assert asked == node({MIG: "all-disabled"}, notes, [THEIRS], unschedulable=True)
    whole = dataclasses.replace(asked, labels={**asked.labels, STATE: "success"})
    assert after(whole, restore_node(whole, reset_mig=True).edit) == node({STATE: "success"}, {}, [THEIRS])


def test_a_run_before_this_version_noted_the_mig_configuration_alone() -> None:
    before = node({MIG: "all-disabled", STATE: "failed"}, {POOL_OWNER.labels: [MIG]})
    assert restore_node(before, reset_mig=True) == NodeRestoration(None, partitioned=True)


def test_cut_gpus_may_stay_cut() -> None:
    before = node({MIG: "mig-x", POOL: "cut"}, {POOL_OWNER.labels: [MIG, POOL]})
    actual = restore_node(before, reset_mig=False)
    assert (actual.partitioned, after(before, actual.edit)) == (False, node())


def test_a_foreign_layout_is_not_changed() -> None:
    before = node({MIG: "all-balanced", POOL: "p"}, {POOL_OWNER.labels: [POOL]})
    assert after(before, restore_node(before, reset_mig=True).edit) == node({MIG: "all-balanced"})


FORMER = "accel.gpu/former-labels"
DEVICES = {"nvidia.com/mig-1g.10gb.count": "56"}
POOL_CONFIG, POOL_LAYOUT = "time-slicing-4-0123abcd", "mig-7x1g.10gb-0123abcd"
X10 = AgentEntries(frozenset({"x10"}))


def adopted(live: dict[str, str]) -> Node:
    """A node with these labels of another tool, once a pool shares it with MIG."""
    before = node(live)
    desired = NodeMetadata({POOL: "cut", CONFIG: POOL_CONFIG, MIG: POOL_LAYOUT})
    return after(before, metadata_edit(before, POOL_OWNER, desired, remove_others=True))


def with_labels(node: Node, **labels: str) -> Node:
    return dataclasses.replace(node, labels={**node.labels, **labels})


def test_a_layout_that_was_there_before_stays_and_its_label_is_set_back() -> None:
    live = {MIG: "all-1g.10gb", CONFIG: "x10", **DEVICES}
    used = with_labels(adopted({**live, STATE: "success"}), **{STATE: "success"})
    assert used.labels[MIG] == POOL_LAYOUT
    # Later changes keep the first record.
    later = NodeMetadata({POOL: "cut", CONFIG: "mps-2-0123abcd", MIG: "mig-2x3g.40gb-0123abcd"})
    changed = after(used, metadata_edit(used, POOL_OWNER, later, remove_others=True))
    assert changed.annotations[FORMER] == used.annotations[FORMER]
    for state in ("success", "pending", "failed"):
        actual = restore_node(with_labels(used, **{STATE: state}), reset_mig=True, entries=X10)
        assert not actual.partitioned
        assert after(used, actual.edit) == node({**live, STATE: "success"})
    assert list(former_parts(used, X10)) == [
        f"label {CONFIG} is set back from {POOL_CONFIG} to x10",
        f"MIG devices (56 x 1g.10gb): label {MIG} is set back from {POOL_LAYOUT} to all-1g.10gb, which has the same layout",
    ]


def test_another_layout_is_replaced_by_the_former_one() -> None:
    used = adopted({MIG: "all-1g.10gb", STATE: "success", **DEVICES})
    labels = {key: value for key, value in used.labels.items() if key not in DEVICES}
    used = dataclasses.replace(used, labels={**labels, "nvidia.com/mig-3g.40gb.count": "16", STATE: "success"})
    entries = AgentEntries(mig=frozenset({"all-1g.10gb"}))
    first = restore_node(used, reset_mig=True, entries=entries)
    assert (first.partitioned, first.mig_config) == (True, "all-1g.10gb")
    assert mig_action(used, first.mig_config).startswith("replaced by the MIG manager with those of the former")
    asked = after(used, first.edit)
    assert (asked.labels[MIG], asked.labels.get(STATE), asked.labels[POOL]) == ("all-1g.10gb", None, "cut")
    assert restore_node(with_labels(asked, **{STATE: "failed"}), reset_mig=True, entries=entries).partitioned
    done = with_labels(asked, **{STATE: "success"})
    last = restore_node(done, reset_mig=True, entries=entries)
    assert not last.partitioned
    assert after(done, last.edit) == node({MIG: "all-1g.10gb", STATE: "success", "nvidia.com/mig-3g.40gb.count": "16"})
    # The MIG manager does not know the configuration any longer, or does not run.
    lost = restore_node(used, reset_mig=True)
    assert (lost.partitioned, lost.mig_config) == (True, "all-disabled")
    assert "has no entry for the former configuration all-1g.10gb" in mig_action(used, lost.mig_config)
    assert MIG not in after(used, restore_node(used, reset_mig=False, entries=entries).edit).labels


@pytest.mark.parametrize(
    ("live", "entries", "config", "words"),
    [
        ({CONFIG: "x10"}, X10, "x10", [f"label {CONFIG} is set back from {POOL_CONFIG} to x10"]),
        (
            {CONFIG: "x10"},
            AgentEntries(frozenset({"x4"}), plugin_reason="ConfigMap gpus has no such entry"),
            None,
            [
                f"label {CONFIG}={POOL_CONFIG} is removed, and not set back to x10, because ConfigMap gpus has no such entry"
            ],
        ),
        # What another run of the collection has left is no former configuration.
        ({CONFIG: "mps-2-0123abcd"}, AgentEntries(frozenset({"mps-2-0123abcd"})), None, []),
        ({}, X10, None, []),
    ],
)
def test_a_former_plugin_configuration_is_set_back_if_it_still_exists(
    live: dict[str, str], entries: AgentEntries, config: str | None, words: list[str]
) -> None:
    before = node(live)
    desired = NodeMetadata({POOL: "slices", CONFIG: POOL_CONFIG})
    used = after(before, metadata_edit(before, POOL_OWNER, desired, remove_others=True))
    assert after(used, restore_node(used, reset_mig=True, entries=entries).edit).labels.get(CONFIG) == config
    assert list(former_parts(used, entries)) == words


@pytest.mark.parametrize(
    ("record", "former"),
    [
        ("[", {}),
        ("[]", {}),
        ('{"labels": []}', {}),
        ({"labels": {CONFIG: "x10", "other": "y", MIG: ["z"]}}, {CONFIG: "x10"}),
        ({"labels": {CONFIG: "not a label", MIG: "x" * 64}}, {}),
        ({"labels": {CONFIG: "x10\n"}, "mig_devices": {"1g.10gb": True, "2g": -1}}, {}),
    ],
)
def test_the_record_of_former_labels_is_not_trusted(record: t.Any, former: dict[str, str]) -> None:
    actual = former_labels(node({}, {FORMER: record}))
    assert (actual.labels, actual.mig_devices) == (former, {})


@pytest.mark.parametrize(
    "live", [{}, {MIG: "all-disabled"}, {MIG: POOL_LAYOUT}, {MIG: "mig-7x1g.5gb-0123abcd"}, {CONFIG: "none-0123abcd"}]
)
def test_what_is_no_former_label(live: dict[str, str]) -> None:
    assert FORMER not in adopted(live).annotations


marks = st.dictionaries(st.sampled_from(["a", "b", "example.com/c"]), st.sampled_from(["1", "2"]))
some_taints: st.SearchStrategy[list[dict[str, str]]] = st.lists(
    st.builds(dict, key=st.sampled_from(["k", "l"]), value=st.sampled_from(["v", "w"]), effect=st.just("NoSchedule")),
    max_size=2,
    unique_by=lambda taint: (taint["key"], taint["effect"]),
)


@given(marks, some_taints, marks, some_taints, marks)
def test_what_was_put_on_a_node_is_given_back_and_nothing_else(
    theirs: dict[str, str], taints: list[t.Any], pool: dict[str, str], pool_taints: list[t.Any], chosen: dict[str, str]
) -> None:
    """For any node, once a pool and a set of the module nodes have been at it; what they wrote over is lost."""
    before = node(theirs, {"note": "x"}, taints)
    used = after(
        before,
        metadata_edit(
            before,
            POOL_OWNER,
            NodeMetadata(
                {**pool, POOL: "p"}, taints={f"{taint['key']}:{taint['effect']}": taint for taint in pool_taints}
            ),
            remove_others=True,
        ),
    )
    used = after(
        used,
        metadata_edit(used, NODE_METADATA_OWNER, NodeMetadata({f"set/{key}": value for key, value in chosen.items()})),
    )
    back = after(used, restore_node(used, reset_mig=True).edit)
    over = {key for key, value in pool.items() if theirs.get(key, value) != value}
    places = {
        taint["key"] for taint in pool_taints for other in taints if taint["key"] == other["key"] and taint != other
    }
    assert back.labels == {key: value for key, value in theirs.items() if key not in over}
    assert list(back.taints) == [taint for taint in taints if taint["key"] not in places]
    assert back.annotations == {"note": "x"}
    assert restore_node(back, reset_mig=True).edit is None


def test_what_the_operator_leaves() -> None:
    actual = operator_residue(
        node(
            {
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.deploy.driver": "true",
                "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change",
                "nvidia.com/gpu.deploy.operands": "false",
                "nvidia.com/gpu-driver-upgrade-state": "upgrade-done",
                "nvidia.com/gpu-driver-upgrade.skip": "true",
                "nvidia.com/gpu-operator.driver.owner": "default",
                MIG: "all-disabled",
                STATE: "success",
                "nvidia.com/gpu.product": "Tesla-T4",
                "example.com/nvidia.com": "x",
            },
            {"nvidia.com/gpu-driver-upgrade-enabled": "true", "nvidia.com/other": "x"},
        )
    )
    assert actual.labels == {
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/gpu.deploy.dcgm",
        "nvidia.com/gpu-driver-upgrade-state",
        "nvidia.com/gpu-operator.driver.owner",
        MIG,
        STATE,
    }
    assert actual.annotations == {"nvidia.com/gpu-driver-upgrade-enabled"}


NFD_ANNOTATIONS = {
    "nfd.node.kubernetes.io/feature-labels": "pci-10de.present,nvidia.com/gpu.product,gone",
    "nfd.node.kubernetes.io/feature-annotations": "note",
    "nfd.node.kubernetes.io/extended-resources": "cards,example.com/fpga",
    "nfd.node.kubernetes.io/taints": "special=yes:NoSchedule",
    "nfd.node.kubernetes.io/worker.version": "v0.19.0",
    "feature.node.kubernetes.io/note": "x",
    "example.com/kept": "x",
}


def test_what_nfd_leaves() -> None:
    labels = {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.product": "Tesla-T4",
        "feature.node.kubernetes.io/not-noted": "true",
    }
    special = {"key": "special", "value": "yes", "effect": "NoSchedule"}
    before = node(labels, NFD_ANNOTATIONS, [special, THEIRS])
    leaving = nfd_residue(before)
    assert leaving.resources == {"feature.node.kubernetes.io/cards", "example.com/fpga"}
    remaining = after(before, removal_edit(before, leaving))
    kept = {"feature.node.kubernetes.io/not-noted": "true"}
    assert remaining == node(kept, {"example.com/kept": "x"}, [THEIRS])
    assert removal_edit(remaining, nfd_residue(remaining)) is None


def test_another_instance_of_nfd_keeps_its_own() -> None:
    annotations = {"mine.nfd.node.kubernetes.io/feature-labels": "a", "nfd.node.kubernetes.io/feature-labels": "b"}
    actual = nfd_residue(node({}, annotations), "mine")
    assert actual.labels == {"feature.node.kubernetes.io/a"}
    assert actual.annotations == {"mine.nfd.node.kubernetes.io/feature-labels"}


KEPT: list[tuple[Node, list[str]]] = [
    (node({POOL: "p"}, {POOL_OWNER.labels: [POOL]}), []),
    (node({POOL: "p"}), ["label accel.gpu/pool=p, which this collection did not set"]),
    (
        node({"nvidia.com/gpu.deploy.driver": "false"}),
        ["label nvidia.com/gpu.deploy.driver=false, which was set to keep"],
    ),
    (node({MIG: "all-balanced"}), ["label nvidia.com/mig.config=all-balanced, which this collection did not set"]),
    (node({MIG: "all-disabled"}), []),
    (node({"nvidia.com/gpu-driver-upgrade-state": "drain-required"}, unschedulable=True), ["cordon of the operator"]),
    (node({"nvidia.com/gpu-driver-upgrade-state": "upgrade-done"}, unschedulable=True), []),
    (node(unschedulable=True), []),
]


@pytest.mark.parametrize(("actual", "lines"), KEPT)
def test_kept_parts(actual: Node, lines: list[str]) -> None:
    reported = list(kept_parts(actual, operator=True))
    assert [line for line, expected in zip(reported, lines, strict=True) if line.startswith(expected)] == reported
    assert list(kept_parts(actual, operator=False)) == [
        line for line in reported if line.startswith("label accel.gpu/pool")
    ]


def test_annotations_of_the_collection_are_managed() -> None:
    assert managed_parts(node({}, {"accel.gpu/anything": "x", "other": "y"})).annotations == {"accel.gpu/anything"}
