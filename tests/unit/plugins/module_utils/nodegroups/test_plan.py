# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to become of declared groups, as tables and laws."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.names import is_of, replacement
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.plan import (
    CREATE,
    DELETE,
    NOTHING,
    RECREATE,
    UPDATE,
    field_edits,
    merge_field,
    out_of_range,
    plan_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import FieldNames, NodeGroupSpec, NodeGroupState

WORDS = FieldNames("node_count", "min_node_count", "max_node_count")
FIXED = frozenset({"flavor"})


def live(name: str = "train", **more: Any) -> NodeGroupState:
    fields = {"flavor": "g4", "node_labels": {"theirs": "stays"}, **more.pop("fields", {})}
    return NodeGroupState(f"id-{name}", name, "UPDATE_COMPLETE", True, False, **{"count": 2, "fields": fields, **more})


def deleting(name: str = "train") -> NodeGroupState:
    return dataclasses.replace(live(name), status="DELETE_IN_PROGRESS", settled=False)


def wish(**more: Any) -> NodeGroupSpec:
    return NodeGroupSpec("train", **{"count": 2, "fields": {"flavor": "g4"}, **more})


@pytest.mark.parametrize(
    ("wished", "there", "action", "edited"),
    [
        (wish(), [], CREATE, {"node_count", "flavor"}),
        (wish(), [live()], NOTHING, set()),
        (wish(count=3), [live()], UPDATE, {"node_count"}),
        (wish(low=1, high=4), [live()], UPDATE, {"min_node_count", "max_node_count"}),
        (wish(low=0, high=4), [live(high=4)], NOTHING, set()),
        (wish(fields={"node_labels": {"team": "x"}}), [live()], UPDATE, {"node_labels"}),
        (wish(fields={"node_labels": {"theirs": "stays"}}), [live()], NOTHING, set()),
        (wish(fields={"node_labels": {"gone": None}}), [live()], NOTHING, set()),
        (wish(fields={"node_labels": {"theirs": None}}), [live()], UPDATE, {"node_labels"}),
        (wish(present=False), [live()], DELETE, set()),
        (wish(present=False), [], NOTHING, set()),
        (wish(fields={"flavor": "g5"}), [live()], RECREATE, {"flavor"}),
        # An autoscaled group's number is the autoscaler's, inside of the range only.
        (wish(autoscaled=True, low=1, high=6), [live(count=5, low=1, high=6)], NOTHING, set()),
        (wish(autoscaled=True, low=1, high=4), [live(count=5, low=1, high=4)], UPDATE, {"node_count"}),
        (wish(autoscaled=True, low=3, high=6), [live(low=3, high=6)], UPDATE, {"node_count"}),
        # A number that is to have no range takes the group's range away.
        (wish(unranged=True), [live(low=1, high=4)], UPDATE, {"min_node_count", "max_node_count"}),
        (
            wish(unranged=True, count=9),
            [live(low=1, high=4)],
            UPDATE,
            {"node_count", "min_node_count", "max_node_count"},
        ),
        (wish(unranged=True), [live()], NOTHING, set()),
        # What the cloud is deleting is there no more, and needs no second request to go.
        (wish(), [deleting()], CREATE, {"node_count", "flavor"}),
        (wish(present=False), [deleting()], NOTHING, set()),
        (wish(present=False), [deleting("train-5f3a"), live()], DELETE, set()),
        (wish(fields={"flavor": "g4"}), [deleting(), live("train-5f3a")], NOTHING, set()),
        (wish(fields={"flavor": "g5"}), [deleting(), live("train-5f3a")], RECREATE, {"flavor"}),
        (wish(), [dataclasses.replace(deleting(), settled=True, failed=True)], UPDATE, set()),
        # Whatever failed is tried again.
        (wish(), [dataclasses.replace(live(), failed=True)], UPDATE, set()),
    ],
)
def test_what_is_to_become_of_a_group(
    wished: NodeGroupSpec, there: list[NodeGroupState], action: str, edited: set[str]
) -> None:
    (change,), dummy = plan_changes([wished], there, WORDS, FIXED, 255)
    assert (change.action, set(change.edits)) == (action, edited)


def test_a_refusal_names_field_values_and_the_way_out() -> None:
    dummy, problems = plan_changes([wish(fields={"flavor": "g5"})], [live()], WORDS, FIXED, 255)
    assert problems == [
        "Node group train: flavor is 'g4', not 'g5', and the cloud changes that on no group that exists. Declare what it is, or set "
        "recreate: true, which makes another group, moves the pods to it and deletes this one."
    ]


def test_a_replacement_that_was_broken_off_is_found_again() -> None:
    wished = wish(recreate=True, fields={"flavor": "g5"})
    (begun,), problems = plan_changes([wished], [live()], WORDS, FIXED, 255)
    assert not problems
    assert [old.name for old in begun.leftovers] == ["train"]
    new = live(begun.name, fields={"flavor": "g5"})
    (again,), dummy = plan_changes([wished], [live(), new], WORDS, FIXED, 255)
    assert (again.action, again.live, again.name) == (RECREATE, new, begun.name)
    assert [old.name for old in again.leftovers] == ["train"]
    # The next run finds it in its place, and whoever does not ask for a replacement is told of the other one.
    (done,), dummy = plan_changes([wished], [new], WORDS, FIXED, 255)
    assert (done.action, done.name) == (NOTHING, begun.name)
    (told,), dummy = plan_changes([wish(fields={"flavor": "g5"})], [live(), new], WORDS, FIXED, 255)
    assert (told.action, [spare.name for spare in told.spare]) == (NOTHING, ["train"])


def test_a_group_of_another_wish_is_no_replacement() -> None:
    both = [wish(), NodeGroupSpec("train-00ff", count=1, fields={"flavor": "g5"})]
    planned, problems = plan_changes(
        both, [live(), live("train-00ff", count=1, fields={"flavor": "g5"})], WORDS, FIXED, 255
    )
    assert [change.action for change in planned] == [NOTHING, NOTHING]
    assert not problems


@pytest.mark.parametrize(
    ("wished", "there", "says"),
    [
        (wish(low=3, high=2), None, "min_node_count is 3 and max_node_count 2"),
        (wish(count=5), live(high=3), "node_count is 5, and max_node_count 3"),
        (wish(count=0), live(low=1), "node_count is 0, and min_node_count 1"),
        (wish(count=5, high=6), live(high=3), ""),
        (wish(autoscaled=True, low=1, high=6), live(count=9, high=3), ""),
    ],
)
def test_numbers_outside_their_range_are_refused(
    wished: NodeGroupSpec, there: NodeGroupState | None, says: str
) -> None:
    (change,), dummy = plan_changes([wished], [there] if there else [], WORDS, FIXED, 255)
    assert says in "".join(out_of_range(change, WORDS))
    assert bool(says) == bool(list(out_of_range(change, WORDS)))


_MAPS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]))
_WISHED = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", None]))
_COUNTS = st.none() | st.integers(0, 6)


@given(_MAPS, _WISHED)
def test_a_merged_map_needs_no_second_merge(have: dict[str, str], want: dict[str, str | None]) -> None:
    once = merge_field(have, want)
    assert merge_field(once, want) == once
    assert {key: once[key] for key in once if key not in want} == {key: have[key] for key in have if key not in want}


@given(_COUNTS, _COUNTS, _COUNTS, st.booleans(), _MAPS, _WISHED, st.integers(0, 6))
def test_what_was_edited_differs_no_more(
    count: int | None,
    low: int | None,
    high: int | None,
    autoscaled: bool,
    have: dict[str, str],
    want: dict[str, str | None],
    now: int,
) -> None:
    wished = NodeGroupSpec("train", count=count, low=low, high=high, autoscaled=autoscaled, fields={"labels": want})
    there = live(count=now, fields={"labels": have})
    after = {field: value for field, (dummy, value) in field_edits(wished, there, WORDS).items()}
    changed = dataclasses.replace(
        there,
        count=after.get(WORDS.count, there.count),
        low=after.get(WORDS.low, there.low),
        high=after.get(WORDS.high, there.high),
        fields={**there.fields, "labels": after.get("labels", have)},
    )
    assert not field_edits(wished, changed, WORDS)


@given(st.text(st.sampled_from("abc-09"), min_size=1, max_size=20), st.text(max_size=3), st.integers(8, 255))
def test_a_replacement_is_known_for_one(name: str, flavor: str, longest: int) -> None:
    found = replacement(name, {"flavor": flavor}, longest)
    assert len(found) <= longest
    assert is_of(found, name, longest)
    assert is_of(name, name, longest)
    assert found == replacement(name, {"flavor": flavor}, longest)
