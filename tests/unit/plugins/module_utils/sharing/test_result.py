# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Only nodes whose change was made count as changed."""

from __future__ import annotations

from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import Transition
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import NodeChange
from ansible_collections.accel.gpu.plugins.module_utils.sharing.reader import (
    DONE,
    GONE,
    INTERRUPTED,
    QUARANTINED,
    ROLLED_BACK,
    UNCORDONED,
    NodeResult,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rollout import RolloutResult, build_result
from tests.helpers.fleet import node, pool


def change(name: str, kind: str = "mig-geometry") -> NodeChange:
    return NodeChange(name, pool(), None, Transition(kind, True), rolling=True, released_from="notebooks")


@pytest.mark.parametrize(
    ("result", "changed"),
    [
        (NodeResult("a", DONE, written=True), True),
        # Another run had made the change.
        (NodeResult("a", DONE), False),
        (NodeResult("a", UNCORDONED, failure="blocked"), False),
        (NodeResult("a", UNCORDONED, failure="its budget", written=True), False),
        (NodeResult("a", ROLLED_BACK, failure="why", written=True), False),
        (NodeResult("a", QUARANTINED, failure="why", written=True), False),
        (NodeResult("a", INTERRUPTED, failure="not uncordoned", written=True), False),
        # The run was stopped before the cordon.
        (NodeResult("a", DONE, failure="the run was stopped", error=PermissionError()), False),
        (NodeResult("a", GONE, written=True), False),
    ],
)
def test_a_node_is_changed_only_if_its_change_was_made(result: NodeResult, changed: bool) -> None:
    done = RolloutResult()
    done.add(change("a"), result)
    assert done.changed == ({"a"} if changed else set())
    # A written cordon counts, even if it is undone.
    assert done.any is result.written


def test_all_numbers_are_of_changed_nodes() -> None:
    done = RolloutResult()
    for name in "abc":
        done.add(change(name), NodeResult(name, written=True))
    done.add(change("d"), NodeResult("d", UNCORDONED, failure="its budget", written=True))
    done.add(change("e", "labels"), NodeResult("e", UNCORDONED, failure="a bare pod"))
    state = mock.Mock(nodes={}, missing={}, members=lambda name: [node(name) for name in "abcde"])
    state.plan.pools = (pool(),)
    state.changes = mock.Mock(limited=(), pool_of={}, held_back=())
    state.membership = mock.Mock(overlaps={}, empty=(), undeclared_pins={}, mismatched={})
    result = build_result(state, {}, done, {})
    assert (result["changed_nodes"], result["changed_count"]) == (["a", "b", "c"], 3)
    assert result["change_counts"] == {"mig-geometry": 3}
    assert result["pools"]["notebooks"]["changed"] == 3
    assert result["released_nodes"] == dict.fromkeys("abc", "notebooks")
    assert list(result["steps"]) == list("abcde")
    assert list(result["failed"]) == ["d", "e"]


def test_a_prediction_contains_every_change() -> None:
    changes = mock.Mock(node_changes=[change("a"), change("b", "labels")])
    for entries in (changes.device_plugin, changes.mig):
        entries.added = entries.removed = ()
    done = RolloutResult.predict(changes)
    assert done.changed == {"a", "b"}
    assert {step["change"] for step in done.steps.values()} == {"labels", "mig-geometry"}


def test_annotated_pods_are_a_change() -> None:
    assert RolloutResult(refreshed_pods=1).any
