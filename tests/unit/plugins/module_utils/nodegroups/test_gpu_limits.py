# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of resourceLimits.gpus: those of others survive, and a second merge changes nothing."""

from __future__ import annotations

import typing as t

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import GPU_LIMITS_ANNOTATION
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.scaling_state import (
    limit_entries,
    merge_limits,
    recorded_limits,
    with_limits,
    without_limits,
)

KINDS = ("T4", "L4", "A100", "H100")
COUNTS = st.integers(1, 64)
LIMITS = st.dictionaries(st.sampled_from(KINDS), COUNTS)
ENTRIES = st.lists(
    st.builds(
        lambda kind, low, more: {"type": kind, "min": low, "max": low + more},
        st.sampled_from(KINDS),
        st.integers(0, 4),
        COUNTS,
    ),
    unique_by=lambda entry: entry["type"],
)


@given(ENTRIES, LIMITS, st.booleans())
def test_a_second_merge_changes_nothing(entries: list[t.Any], limits: dict[str, int], change_foreign: bool) -> None:
    first = merge_limits(entries, {}, limits, (), change_foreign=change_foreign)
    again = merge_limits(first.entries, first.record, limits, (), change_foreign=change_foreign)
    assert (again.entries, again.record) == (first.entries, first.record)


@given(ENTRIES, LIMITS)
def test_entries_of_others_survive_every_merge(entries: list[t.Any], limits: dict[str, int]) -> None:
    merged = merge_limits(entries, {}, limits, ())
    assert merged.entries[: len(entries)] == entries, "in their order"
    assert {kind for kind, *dummy in merged.foreign} == {
        entry["type"] for entry in entries if limits.get(entry["type"], entry["max"]) != entry["max"]
    }


@given(ENTRIES, LIMITS, LIMITS)
def test_with_force_the_limits_are_set_and_a_removal_restores_all_others(
    entries: list[t.Any], limits: dict[str, int], later: dict[str, int]
) -> None:
    merged = merge_limits(entries, {}, limits, (), change_foreign=True)
    assert {entry["type"]: entry["max"] for entry in merged.entries}.items() >= limits.items()
    changed = merge_limits(merged.entries, merged.record, {**limits, **later}, (), change_foreign=True)
    removed = without_limits(changed.entries, changed.record, changed.record.keys())
    assert removed.entries == entries
    assert removed.record == {}
    assert merge_limits(changed.entries, changed.record, {}, ()).entries == entries


def test_an_entry_that_another_manager_has_changed_belongs_to_it() -> None:
    first = merge_limits((), {}, {"T4": 8}, ())
    edited = [{"type": "T4", "min": 0, "max": 2}]
    again = merge_limits(edited, first.record, {"T4": 12}, ())
    assert (again.entries, again.foreign) == (edited, (("T4", 2, 12),))
    assert without_limits(edited, first.record, ["T4"]).entries == edited


def test_an_entry_stays_as_long_as_a_machine_set_has_its_type() -> None:
    first = merge_limits((), {}, {"T4": 8}, ())
    assert merge_limits(first.entries, first.record, {}, {"T4"}).entries == first.entries
    assert merge_limits(first.entries, first.record, {}, {"L4"}).entries == []


def test_the_minimum_never_exceeds_the_maximum() -> None:
    entry = {"type": "T4", "min": 6, "max": 8}
    assert merge_limits([entry], {}, {"T4": 4}, (), change_foreign=True).entries == [{"type": "T4", "min": 4, "max": 4}]


def test_the_object_keeps_its_other_fields() -> None:
    live = {"metadata": {"name": "default"}, "spec": {"resourceLimits": {"maxNodesTotal": 9}}}
    changes = merge_limits(limit_entries(live), recorded_limits(live), {"T4": 8}, ())
    written = with_limits(live, changes)
    assert written["spec"]["resourceLimits"] == {"maxNodesTotal": 9, "gpus": [{"type": "T4", "min": 0, "max": 8}]}
    assert recorded_limits(written) == {"T4": {"max": 8}}
    assert with_limits(written, without_limits(limit_entries(written), recorded_limits(written), ["T4"])) == live


def test_a_malformed_record_is_ignored() -> None:
    for text in ("", "x", "[]", '{"T4": 3}', '{"T4": {"max": "3"}}', '{"T4": {"max": 3, "former": 1}}'):
        assert recorded_limits({"metadata": {"annotations": {GPU_LIMITS_ANNOTATION: text}}}) == {}
