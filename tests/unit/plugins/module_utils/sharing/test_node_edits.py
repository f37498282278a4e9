# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is put on a node while it is changed, and taken back: ours, and nothing of anybody else's."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.taints import STARTUP_TAINT_KEY
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.cordon import Patch
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.pool_edit import (
    LastGood,
    is_working,
    last_good,
    node_edit,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing import node_edits
from tests.helpers.fleet import node, pool

CORDON, FAILED = "accel.gpu/cordoned", "accel.gpu/failed"
CONFIG, CUT, STATE = "nvidia.com/device-plugin.config", "nvidia.com/mig.config", "nvidia.com/mig.config.state"
THEIRS = {"key": "team", "value": "a", "effect": "NoSchedule"}
LEFT = {"key": FAILED, "value": "drain", "effect": "NoSchedule"}
STARTUP = {"key": STARTUP_TAINT_KEY, "effect": "NoSchedule"}


def patched(of: Node, patch: Patch | None) -> Node:
    """The node after a merge patch."""
    if patch is None:
        return of
    annotations = {**of.annotations, **patch["metadata"].get("annotations", {})}
    labels = {**of.labels, **patch["metadata"].get("labels", {})}
    spec = patch.get("spec", {})
    return replace(
        of,
        annotations={key: value for key, value in annotations.items() if value is not None},
        labels={key: value for key, value in labels.items() if value is not None},
        taints=tuple(spec.get("taints", of.taints)),
        unschedulable=bool(spec["unschedulable"]) if "unschedulable" in spec else of.unschedulable,
    )


nodes = st.builds(
    lambda cordoned, ours, failed, taints: replace(
        node(),
        unschedulable=cordoned or ours,
        annotations={**({CORDON: "why"} if ours else {}), **({FAILED: "story"} if failed else {})},
        taints=tuple(taints),
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from([THEIRS, LEFT, STARTUP]), unique_by=lambda taint: taint["key"]),
)


@given(nodes)
def test_what_is_closed_and_opened_has_nothing_of_ours_left(of: Node) -> None:
    opened = patched(
        patched(of, node_edits.cordon_patch(of, "why")),
        node_edits.uncordon_patch(patched(of, node_edits.cordon_patch(of, "why"))),
    )
    assert not {CORDON, FAILED} & set(opened.annotations)
    assert [taint for taint in opened.taints if taint["key"] != "team"] == []
    # A cordon that was there before, and is not ours, is still there; any other is gone.
    assert opened.unschedulable is (of.unschedulable and CORDON not in of.annotations)
    assert (THEIRS in opened.taints) is (THEIRS in of.taints)
    assert node_edits.uncordon_patch(opened) is None


@given(nodes)
def test_nobody_is_scheduled_on_a_closed_node(of: Node) -> None:
    closed = patched(of, node_edits.cordon_patch(of, "why"))
    assert closed.unschedulable or STARTUP in closed.taints
    assert LEFT not in closed.taints
    assert node_edits.cordon_patch(closed, "why") is None


@given(nodes, st.sampled_from(["drain", "mig-failed"]))
def test_a_node_that_is_left_says_why_and_a_run_again_opens_it(of: Node, reason: str) -> None:
    closed = patched(of, node_edits.cordon_patch(of, "why"))
    left = patched(closed, node_edits.quarantine_patch(closed, reason, "story"))
    assert {"key": FAILED, "value": reason, "effect": "NoSchedule"} in left.taints
    assert left.annotations[FAILED] == "story"
    assert node_edits.quarantine_patch(left, reason, "story") is None
    again = patched(left, node_edits.cordon_patch(left, "why"))
    assert FAILED not in {taint["key"] for taint in again.taints}
    assert patched(again, node_edits.uncordon_patch(again)).annotations == {}


def test_a_node_that_went_back_is_open_and_says_why() -> None:
    closed = patched(node(), node_edits.cordon_patch(node(), "why"))
    back = patched(closed, node_edits.uncordon_patch(closed, failed="story"))
    assert (back.unschedulable, back.annotations, back.taints) == (False, {FAILED: "story"}, ())


@pytest.mark.parametrize(
    ("labels", "good", "patch"),
    [
        ({CONFIG: "new"}, {CONFIG: "old", CUT: None}, {CONFIG: "old"}),
        ({CONFIG: "new"}, {CONFIG: None, CUT: None}, {CONFIG: None}),
        ({CONFIG: "new", CUT: "mig-a"}, {CONFIG: "old", CUT: "mig-b"}, {CONFIG: "old", CUT: "mig-b", STATE: None}),
        # Whole GPUs were nobody's word; the MIG manager has to be told so.
        ({CONFIG: "new", CUT: "mig-a"}, {CONFIG: "old", CUT: None}, {CONFIG: "old", CUT: "all-disabled", STATE: None}),
        ({CONFIG: "old", CUT: "all-disabled"}, {CONFIG: "old", CUT: None}, None),
    ],
)
def test_the_way_back(labels: dict[str, str], good: dict[str, str | None], patch: dict[str, t.Any] | None) -> None:
    found = node_edits.rollback_patch(node(labels=labels), LastGood(good, {"nvidia.com/gpu": 1}))
    assert (found["metadata"]["labels"] if found else None) == patch


MEMBER = {"accel.gpu/pool": "notebooks", CONFIG: "old"}


@pytest.mark.parametrize(
    ("of", "works"),
    [
        (node(labels=MEMBER), True),
        (node(labels=MEMBER, allocatable={}), False),
        (node(labels=MEMBER, ready=False), False),
        (node(labels={**MEMBER, STATE: "pending"}), False),
        (node(labels={**MEMBER, STATE: "failed"}), False),
        (node(labels={**MEMBER, STATE: "success", "nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}), False),
    ],
)
def test_the_profile_that_works_is_noted_with_the_change(of: Node, works: bool) -> None:
    change = node_edit(of, pool(replicas=4))
    assert change is not None
    noted = last_good(patched(of, change.patch))
    assert noted == (LastGood({CONFIG: "old", CUT: None}, {"nvidia.com/gpu": 1}) if works else None)
    assert noted == is_working(of)


def test_a_profile_that_does_not_work_does_not_replace_the_noted_one() -> None:
    noted = {"accel.gpu/last-good": str(LastGood({CONFIG: "first", CUT: None}, {"nvidia.com/gpu": 1}))}
    broken = replace(node(labels=MEMBER, allocatable={}), annotations=noted)
    change = node_edit(broken, pool(replicas=4))
    assert change is not None
    found = last_good(patched(broken, change.patch))
    assert found is not None
    assert found.labels[CONFIG] == "first"
    assert last_good(replace(broken, annotations={"accel.gpu/last-good": "no json"})) is None


CLIENT, PAUSED = "nvidia.com/gpu.deploy.client", "paused-for-mig-change"


def test_clients_are_stopped_where_they_run_and_run_again_when_the_node_is_opened() -> None:
    running = node(labels={CLIENT: "true"})
    stopped = patched(running, node_edits.pause_clients(running))
    assert stopped.labels[CLIENT] == PAUSED
    assert node_edits.pause_clients(stopped) is None
    assert node_edits.pause_clients(node()) is None
    opened = patched(stopped, node_edits.uncordon_patch(stopped))
    assert opened.labels == running.labels
    assert node_edits.uncordon_patch(running) is None
    # The MIG manager lets them run again itself.
    assert node_edits.uncordon_patch(replace(stopped, labels={**stopped.labels, STATE: "pending"})) is None
