# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cordon of the collection is set and removed; any other cordon stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state import cordon
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
from tests.helpers.fleet import node

NOTE = "accel.gpu/cordoned"


def of(note: str | None, unschedulable: bool) -> Node:
    return replace(
        node(),
        annotations={} if note is None else {NOTE: note},
        unschedulable=unschedulable,
        resource_version="7",
    )


@pytest.mark.parametrize(
    ("before", "leave", "stay"),
    [
        (of(None, False), {"spec": {"unschedulable": True}, NOTE: cordon.REMOVAL_REASON}, None),
        # A foreign cordon must not be removed later.
        (of(None, True), None, None),
        (of(cordon.REMOVAL_REASON, True), None, {"spec": {"unschedulable": None}, NOTE: None}),
        # A change of sharing was killed here; from now on the node is closed for another reason.
        (of("the sharing of its GPUs is being changed", True), {NOTE: cordon.REMOVAL_REASON}, None),
    ],
)
def test_a_node_that_is_to_leave(before: Node, leave: dict[str, object] | None, stay: dict[str, object] | None) -> None:
    for found, wanted in ((cordon.cordon_for_removal(before), leave), (cordon.cancel_removal(before), stay)):
        if wanted is None:
            assert found is None
            continue
        assert found is not None
        assert found["metadata"]["resourceVersion"] == "7"
        assert found["metadata"]["annotations"] == {NOTE: wanted[NOTE]}
        assert found.get("spec") == wanted.get("spec")


RESTARTING = "its driver pod driver-a is being restarted to load a licensing token"


@pytest.mark.parametrize(
    ("before", "pod", "start", "end"),
    [
        (of(None, False), None, {"spec": {"unschedulable": True}, NOTE: RESTARTING}, None),
        (of(None, True), None, None, None),
        (of(cordon.REMOVAL_REASON, True), None, None, None),
        (of(RESTARTING, True), "driver-a", None, {"spec": {"unschedulable": None}, NOTE: None}),
        # NVIDIA's driver manager may have uncordoned the node.
        (
            of(RESTARTING, False),
            "driver-a",
            {"spec": {"unschedulable": True}, NOTE: RESTARTING},
            {"spec": {"unschedulable": None}, NOTE: None},
        ),
        (
            of(RESTARTING.replace("-a", "-b"), True),
            "driver-b",
            {"spec": {"unschedulable": True}, NOTE: RESTARTING},
            {"spec": {"unschedulable": None}, NOTE: None},
        ),
    ],
)
def test_a_node_whose_driver_restarts(
    before: Node, pod: str | None, start: dict[str, object] | None, end: dict[str, object] | None
) -> None:
    assert cordon.driver_pod_to_restart(before) == pod
    patches = (cordon.cordon_for_driver_restart(before, "driver-a"), cordon.end_driver_restart(before))
    for found, expected in zip(patches, (start, end), strict=True):
        if expected is None:
            assert found is None
            continue
        assert found is not None
        assert found["metadata"] == {"resourceVersion": "7", "annotations": {NOTE: expected[NOTE]}}
        assert found["spec"] == expected["spec"]


def test_a_long_reason_is_cut() -> None:
    assert len(cordon.cordon_edit(node(), "x" * 5000)[1][NOTE] or "") == cordon.MAX_REASON
