# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The changes of declared groups, as tables and properties."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import (
    ReconcileOptions,
    ReconcileResult,
    reconcile,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import (
    CREATE,
    DELETE,
    NOTHING,
    REPLACE,
    UPDATE,
    NodeGroupSpec,
    NodeGroupState,
    field_differences,
    merge_field,
    plan_group_changes,
    range_problems,
)
from ansible_collections.accel.gpu.plugins.module_utils.schema.providers import (
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    group_mark,
    marked_owner,
    may_be_replacement,
    replacement_name,
)

from .slow_cloud import SlowCloud, Time

FIXED = frozenset({"flavor"})


def actual(name: str = "train", **more: Any) -> NodeGroupState:
    fields = {"flavor": "g4", "node_labels": {"theirs": "stays"}, **more.pop("fields", {})}
    return NodeGroupState(f"id-{name}", name, "UPDATE_COMPLETE", True, False, **{"count": 2, "fields": fields, **more})


def marked(name: str, **more: Any) -> NodeGroupState:
    """A replacement with a valid mark."""
    return actual(name, owner="train", **more)


def deleting(name: str = "train") -> NodeGroupState:
    return dataclasses.replace(marked(name), status="DELETE_IN_PROGRESS", settled=False)


def desired(**more: Any) -> NodeGroupSpec:
    return NodeGroupSpec("train", **{"count": 2, "fields": {"flavor": "g4"}, **more})


@pytest.mark.parametrize(
    ("spec", "states", "action", "different"),
    [
        (desired(), [], CREATE, {"node_count", "flavor"}),
        (desired(), [actual()], NOTHING, set()),
        (desired(count=3), [actual()], UPDATE, {"node_count"}),
        (desired(min_count=1, max_count=4), [actual()], UPDATE, {"min_node_count", "max_node_count"}),
        (desired(min_count=0, max_count=4), [actual(max_count=4)], NOTHING, set()),
        (desired(fields={"node_labels": {"team": "x"}}), [actual()], UPDATE, {"node_labels"}),
        (desired(fields={"node_labels": {"theirs": "stays"}}), [actual()], NOTHING, set()),
        (desired(fields={"node_labels": {"gone": None}}), [actual()], NOTHING, set()),
        (desired(fields={"node_labels": {"theirs": None}}), [actual()], UPDATE, {"node_labels"}),
        (desired(present=False), [actual()], DELETE, set()),
        (desired(present=False), [], NOTHING, set()),
        (desired(fields={"flavor": "g5"}), [actual()], REPLACE, {"flavor"}),
        # The autoscaler chooses the number inside of the range only.
        (
            desired(autoscaled=True, min_count=1, max_count=6),
            [actual(count=5, min_count=1, max_count=6)],
            NOTHING,
            set(),
        ),
        (
            desired(autoscaled=True, min_count=1, max_count=4),
            [actual(count=5, min_count=1, max_count=4)],
            UPDATE,
            {"node_count"},
        ),
        (
            desired(autoscaled=True, min_count=3, max_count=6),
            [actual(min_count=3, max_count=6)],
            UPDATE,
            {"node_count"},
        ),
        # A fixed number removes the group's range.
        (desired(no_range=True), [actual(min_count=1, max_count=4)], UPDATE, {"min_node_count", "max_node_count"}),
        (
            desired(no_range=True, count=9),
            [actual(min_count=1, max_count=4)],
            UPDATE,
            {"node_count", "min_node_count", "max_node_count"},
        ),
        (desired(no_range=True), [actual()], NOTHING, set()),
        # A group that the cloud is deleting needs no second request.
        (desired(), [deleting()], CREATE, {"node_count", "flavor"}),
        (desired(present=False), [deleting()], NOTHING, set()),
        (desired(present=False), [deleting("train-5f3a"), actual()], DELETE, set()),
        (desired(fields={"flavor": "g4"}), [deleting(), marked("train-5f3a")], NOTHING, set()),
        (desired(fields={"flavor": "g5"}), [deleting(), marked("train-5f3a")], REPLACE, {"flavor"}),
        (desired(), [dataclasses.replace(deleting(), settled=True, failed=True)], UPDATE, set()),
        # A failed group is retried.
        (desired(), [dataclasses.replace(actual(), failed=True)], UPDATE, set()),
    ],
)
def test_the_change_of_a_group(
    spec: NodeGroupSpec, states: list[NodeGroupState], action: str, different: set[str]
) -> None:
    (change,), dummy = plan_group_changes([spec], states, FIXED, 255)
    assert (change.action, set(change.differences)) == (action, different)


def test_an_immutable_field_is_refused_with_its_values_and_a_remedy() -> None:
    dummy, problems = plan_group_changes([desired(fields={"flavor": "g5"})], [actual()], FIXED, 255)
    assert problems == [
        "Node group train: flavor is 'g4', not 'g5', and the cloud cannot change that. Restore the old value, or set "
        "nodes.recreate: true (option recreate of the module) to replace the group: a new group is created, the pods move to it, and this one is deleted."
    ]


def test_an_interrupted_replacement_is_found_again() -> None:
    spec = desired(recreate=True, fields={"flavor": "g5"})
    (begun,), problems = plan_group_changes([spec], [actual()], FIXED, 255)
    assert not problems
    assert [old.name for old in begun.superseded] == ["train"]
    new = marked(begun.name, fields={"flavor": "g5"})
    (again,), dummy = plan_group_changes([spec], [actual(), new], FIXED, 255)
    assert (again.action, again.current, again.name) == (REPLACE, new, begun.name)
    assert [old.name for old in again.superseded] == ["train"]
    # A later run finds the replacement; without recreate the old group is only reported.
    (done,), dummy = plan_group_changes([spec], [new], FIXED, 255)
    assert (done.action, done.name) == (NOTHING, begun.name)
    (reported,), dummy = plan_group_changes([desired(fields={"flavor": "g5"})], [actual(), new], FIXED, 255)
    assert (reported.action, [orphan.name for orphan in reported.orphans]) == (NOTHING, ["train"])


def test_a_group_of_another_spec_is_not_a_replacement() -> None:
    both = [desired(), NodeGroupSpec("train-00ff", count=1, fields={"flavor": "g5"})]
    planned, problems = plan_group_changes(
        both, [actual(), actual("train-00ff", count=1, fields={"flavor": "g5"})], FIXED, 255
    )
    assert [change.action for change in planned] == [NOTHING, NOTHING]
    assert not problems


@pytest.mark.parametrize(
    ("spec", "state", "message"),
    [
        (desired(min_count=3, max_count=2), None, "min_node_count (3) must not exceed max_node_count (2)"),
        (desired(count=5), actual(max_count=3), "node_count (5) is more than max_node_count (3)"),
        (desired(count=0), actual(min_count=1), "node_count (0) is less than min_node_count (1)"),
        (desired(count=5, max_count=6), actual(max_count=3), ""),
        (desired(autoscaled=True, min_count=1, max_count=6), actual(count=9, max_count=3), ""),
    ],
)
def test_counts_outside_of_their_range_are_refused(
    spec: NodeGroupSpec, state: NodeGroupState | None, message: str
) -> None:
    (change,), dummy = plan_group_changes([spec], [state] if state else [], FIXED, 255)
    assert message in "".join(range_problems(change))
    assert bool(message) == bool(list(range_problems(change)))


_MAPS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]))
_DECLARED = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", None]))
_COUNTS = st.none() | st.integers(0, 6)


@given(_MAPS, _DECLARED)
def test_a_merged_map_needs_no_second_merge(have: dict[str, str], want: dict[str, str | None]) -> None:
    once = merge_field(have, want)
    assert merge_field(once, want) == once
    assert {key: once[key] for key in once if key not in want} == {key: have[key] for key in have if key not in want}


@given(_COUNTS, _COUNTS, _COUNTS, st.booleans(), _MAPS, _DECLARED, st.integers(0, 6))
def test_an_applied_change_leaves_no_difference(
    count: int | None,
    low: int | None,
    high: int | None,
    autoscaled: bool,
    have: dict[str, str],
    want: dict[str, str | None],
    now: int,
) -> None:
    spec = NodeGroupSpec(
        "train", count=count, min_count=low, max_count=high, autoscaled=autoscaled, fields={"labels": want}
    )
    existing = actual(count=now, fields={"labels": have})
    after = {field: value for field, (dummy, value) in field_differences(spec, existing).items()}
    changed = dataclasses.replace(
        existing,
        count=after.get(NODE_COUNT, existing.count),
        min_count=after.get(MIN_NODE_COUNT, existing.min_count),
        max_count=after.get(MAX_NODE_COUNT, existing.max_count),
        fields={**existing.fields, "labels": after.get("labels", have)},
    )
    assert not field_differences(spec, changed)


@given(st.text(st.sampled_from("abc-09"), min_size=1, max_size=20), st.text(max_size=3), st.integers(8, 255))
def test_the_name_of_a_replacement(name: str, flavor: str, longest: int) -> None:
    actual = replacement_name(name, {"flavor": flavor}, longest)
    assert len(actual) <= longest
    assert may_be_replacement(actual, name, longest)
    assert may_be_replacement(name, name, longest)
    assert actual == replacement_name(name, {"flavor": flavor}, longest)


MACHINES = frozenset({"template"})


def with_template(name: str = "train", template: str = "old", **more: Any) -> NodeGroupState:
    return actual(name, fields={"template": template}, **more)


def changes_of(spec: NodeGroupSpec, *states: NodeGroupState) -> Any:
    """The change of a group whose template only affects new machines."""
    (change,), problems = plan_group_changes([spec], states, frozenset(), 20, MACHINES)
    assert problems == []
    return change


def test_a_change_for_new_machines_only_names_the_machines_that_stay() -> None:
    change = changes_of(desired(fields={"template": "new"}), with_template(machines=("a", "b")))
    assert (change.action, change.outdated) == (UPDATE, ("a", "b"))
    assert change.after()["outdated"] == ["a", "b"]


@pytest.mark.parametrize(
    ("state", "action"),
    [
        (with_template(), REPLACE),
        (with_template(template="new", outdated=("a",)), REPLACE),
        (with_template(template="new"), NOTHING),
        (with_template(count=0), UPDATE),
    ],
)
def test_with_recreate_a_group_with_other_machines_is_replaced(state: NodeGroupState, action: str) -> None:
    spec = desired(count=state.count, recreate=True, fields={"template": "new"})
    assert changes_of(spec, state).action == action


def test_outdated_machines_may_be_replaced_in_their_group() -> None:
    spec = desired(recreate=True, fields={"template": "new"})
    spec = dataclasses.replace(spec, recreate=False, replaces_outdated=True)
    change = changes_of(spec, with_template())
    assert (change.action, change.name, change.superseded, change.outdated) == (UPDATE, "train", (), ())
    assert "outdated" not in change.after()
    assert changes_of(spec, with_template(template="new", outdated=("a",))).action == NOTHING
    state = with_template(template="new", outdated=("a",))
    assert ReconcileResult([changes_of(spec, state)], {"train": state}).warnings == []


REFRESH = "run the playbook templates_refresh with -e gpu_pool=vdi -e gpu_confirm=CLUSTER; if the pool has no vgpu, "
IN_PLACE = "run the playbook nodegroups with -e gpu_nodegroups_replace_outdated=true -e gpu_confirm=CLUSTER. Or set nodes.recreate"


@pytest.mark.parametrize(
    ("can_replace", "fields", "advice"),
    [
        (True, {"template": "new", "node_labels": {"accel.gpu/pool": "vdi"}}, f"{REFRESH}{IN_PLACE}"),
        (True, {"node_labels": {"accel.gpu/pool": "vdi"}}, IN_PLACE),
        (True, {"template": "new"}, IN_PLACE),
        (
            False,
            {},
            "Set nodes.recreate: true (option recreate of the module), which creates as many new machines before",
        ),
    ],
)
def test_the_cheapest_way_to_replace_outdated_machines_is_named_first(
    can_replace: bool, fields: dict[str, Any], advice: str
) -> None:
    state = with_template(template="new", outdated=("a",))
    change = dataclasses.replace(
        changes_of(desired(fields={"template": "new"}), state),
        spec=desired(fields=fields, can_replace_machines=can_replace),
    )
    (warning,) = ReconcileResult([change], {"train": state}).warnings
    first = "To replace them some at a time, " if can_replace else ""
    assert f"so these keep other settings: a. {first}{advice}" in warning


def test_a_replacement_gets_a_name_that_no_group_has() -> None:
    spec = desired(recreate=True, fields={"template": "new"})
    first = changes_of(spec, with_template())
    assert first.name == replacement_name("train", {"template": "new"}, 20)
    again = changes_of(spec, with_template(first.name, "new", outdated=("a",), owner="train"))
    assert (again.action, again.name) == (REPLACE, "train")
    finished = changes_of(
        spec, with_template(outdated=("a",), template="new"), with_template(first.name, "new", owner="train")
    )
    assert (finished.action, finished.name, [old.name for old in finished.superseded]) == (
        REPLACE,
        first.name,
        ["train"],
    )


@given(st.text(max_size=9), st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_a_mark_is_valid_only_for_its_own_group(place: str, name: str, group: str) -> None:
    mark = group_mark(place, name, group)
    assert marked_owner(mark, place, group) == name
    assert marked_owner(mark, place, f"{group}x") == ""
    assert marked_owner(mark, f"{place}x", group) == ""
    # A tool that renames everything in a copy also renames the group in the mark.
    assert marked_owner(f"x{mark}", place, group) == ""
    assert marked_owner(None, place, group) == ""


@pytest.mark.parametrize("name", ["train-2026", "train-beef", "train-0002"])
@pytest.mark.parametrize(
    ("spec", "action"),
    [
        (desired(), NOTHING),
        (desired(recreate=True), NOTHING),
        (desired(recreate=True, fields={"flavor": "g5"}), REPLACE),
        (desired(present=False), DELETE),
    ],
)
def test_a_group_of_others_with_the_name_of_a_replacement_is_left_alone(
    spec: NodeGroupSpec, action: str, name: str
) -> None:
    (change,), problems = plan_group_changes([spec], [actual(), actual(name, fields={"flavor": "g5"})], FIXED, 255)
    assert not problems
    assert (change.action, change.lookalikes) == (action, (name,))
    assert [group.name for group in change.superseded] == (["train"] if action in (REPLACE, DELETE) else [])
    assert (change.orphans, change.deleting) == ((), ())
    warnings = ReconcileResult([change]).warnings
    assert [name in text for text in warnings] == ([True] if action != NOTHING else [])


def test_a_group_of_others_is_not_used_as_the_declared_group() -> None:
    (change,), dummy = plan_group_changes([desired()], [actual("train-2026")], FIXED, 255)
    assert (change.action, change.name) == (CREATE, "train")


def test_a_replacement_does_not_get_the_name_of_a_group_of_others() -> None:
    spec = desired(recreate=True, fields={"flavor": "g5"})
    (alone,), dummy = plan_group_changes([spec], [actual()], FIXED, 255)
    (change,), dummy = plan_group_changes([spec], [actual(), actual(alone.name)], FIXED, 255)
    assert change.name not in ("train", alone.name)
    assert may_be_replacement(change.name, "train")
    # A spec cannot take the name of a replacement that belongs to another spec.
    other = NodeGroupSpec(alone.name, count=2)
    dummy2, problems = plan_group_changes([other], [marked(alone.name)], FIXED, 255)
    assert problems == [
        f"Node group {alone.name}: the existing group with this name replaces node group train, and a run for train may delete it. "
        "Choose another name."
    ]


POOLED = {"node_labels": {"accel.gpu/pool": "train"}}
OTHERS = {"node_labels": {"accel.gpu/pool": "research"}}


@pytest.mark.parametrize(
    ("name", "more", "evidence"),
    [
        ("train-ab12", {"claims": {"label accel.gpu/nodegroup-mark": "train"}}, "label accel.gpu/nodegroup-mark with"),
        (
            "train-ab12",
            {"claims": {"label a": "train", "annotation b": "train"}},
            "label a and annotation b with the name",
        ),
        ("train-ab12", {"fields": POOLED}, "node label accel.gpu/pool=train"),
        ("train-ab12", {"claims": {"label accel.gpu/nodegroup-mark": "other"}}, ""),
        ("train-2026", {"fields": OTHERS}, ""),
        ("train-2026", {}, ""),
        ("train-copy", {"claims": {"label a": "train"}, "fields": POOLED}, ""),
    ],
)
def test_a_group_that_may_be_the_declared_one_is_never_doubled(name: str, more: dict[str, Any], evidence: str) -> None:
    """For example, a replacement whose mark is no longer valid after a restore from a backup."""
    spec, group = desired(fields={"flavor": "g4", **POOLED}), actual(name, **more)
    (change,), problems = plan_group_changes([spec], [group], FIXED, 255)
    assert change.action == CREATE
    assert [[text in problem for text in (evidence, f"is {name}", "or delete it")] for problem in problems] == (
        [[True] * 3] if evidence else []
    )
    (absent,), problems = plan_group_changes([desired(present=False, fields=POOLED)], [group], FIXED, 255)
    assert (absent.action, problems) == (NOTHING, [])
    assert [evidence in text for text in ReconcileResult([absent]).warnings] == ([True] if evidence else [])
    # Beside the declared group, its replacement, or a group in deletion, it is what a person has copied; and a group in deletion costs nothing.
    for own in (actual(fields=POOLED), marked("train-5f3a"), deleting(), deleting("train-5f3a")):
        dummy, problems = plan_group_changes([spec], [own, group], FIXED, 255)
        assert problems == []
    gone = dataclasses.replace(group, status="DELETING", settled=False)
    assert plan_group_changes([spec], [gone], FIXED, 255)[1] == []
    # The remedy: the name is declared.
    dummy, problems = plan_group_changes([dataclasses.replace(spec, name=name)], [group], FIXED, 255)
    assert problems == []


@pytest.mark.parametrize(
    ("spec", "states", "names"),
    [
        (desired(recreate=True, fields={"flavor": "g5"}), [actual()], ["train"]),
        (desired(recreate=True, fields={"flavor": "g5"}), [actual(marked=True)], []),
        (desired(recreate=True, fields={"flavor": "g5"}), [actual(owner="train")], ["train"]),
        (desired(recreate=True, fields={"flavor": "g5"}), [actual(), marked("train-5f3a", marked=True)], ["train"]),
        (desired(recreate=True), [marked("train-5f3a", marked=True), actual(fields={"flavor": "g5"})], ["train"]),
        (desired(count=1), [actual()], []),
        (desired(), [actual()], []),
        (desired(present=False), [actual()], ["train"]),
        (desired(present=False), [actual(marked=True)], ["train"]),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_a_group_that_the_collection_did_not_create_is_replaced_only_after_a_confirmation(
    spec: NodeGroupSpec, states: list[NodeGroupState], names: list[str], check: bool
) -> None:
    class Unconfirmed(Exception):
        pass

    asked: list[str] = []

    def ask(groups: Sequence[NodeGroupState]) -> None:
        asked.extend(group.name for group in groups)
        raise Unconfirmed

    cloud = SlowCloud(random.Random(0), Time(), states)
    options = ReconcileOptions(wait=False)
    with contextlib.suppress(Unconfirmed):
        reconcile(
            cloud,
            [spec],
            check_mode=check or not names,
            options=options,
            drainer=Mock(),
            progress=Progress(None),
            confirm_deletion=ask,
        )
    assert asked == names
    assert cloud.creations == []


def test_every_deletion_is_named() -> None:
    both = [actual(), marked("train-5f3a", count=1)]
    names = ["train (2 nodes)", "train-5f3a (1 node)"]
    (deleted,), dummy = plan_group_changes([desired(present=False)], both, FIXED, 255)
    shown = ReconcileResult([deleted]).result()
    assert shown["nodegroups"]["train"]["deletes"] == names
    assert shown["diff"]["before"]["train"]["deletes"] == names
    spec = desired(recreate=True, fields={"flavor": "g5"})
    (replaced,), dummy = plan_group_changes([spec], both, FIXED, 255)
    assert replaced.after()["deletes"] == names
    # After an interruption, the replacement exists already.
    new = marked("train-00ff", fields={"flavor": "g5"})
    (finished,), dummy = plan_group_changes([spec], [actual(), new], FIXED, 255)
    assert (finished.current, finished.after()["deletes"]) == (new, ["train (2 nodes)"])
    assert "deletes" not in finished.before()


def test_a_range_that_another_object_keeps_is_not_compared() -> None:
    spec = desired(count=None, min_count=1, max_count=4, autoscaled=True, external_range=True)
    assert field_differences(spec, actual()) == {}
    assert field_differences(spec, actual(count=0)) == {NODE_COUNT: (0, 1)}


@pytest.mark.parametrize("states", [[actual()], []])
def test_the_result_of_an_absent_group_has_its_name_in_the_first_and_in_the_second_run(
    states: list[NodeGroupState],
) -> None:
    (change,), dummy = plan_group_changes([desired(present=False)], states, FIXED, 255)
    group = ReconcileResult([change]).result()["nodegroups"]["train"]
    assert (group["action"], group["name"]) == (DELETE if states else NOTHING, "train")
