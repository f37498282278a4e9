# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cordon of the collection is set and removed; any other cordon stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes import node_check
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
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
        (of(None, False), {"spec": {"unschedulable": True}, NOTE: node_check.REMOVAL_REASON}, None),
        # A foreign cordon must not be removed later.
        (of(None, True), None, None),
        (of(node_check.REMOVAL_REASON, True), None, {"spec": {"unschedulable": None}, NOTE: None}),
        # A change of sharing was killed here; from now on the node is closed for another reason.
        (of("GPU sharing is being changed", True), {NOTE: node_check.REMOVAL_REASON}, None),
    ],
)
def test_a_node_that_is_to_leave(before: Node, leave: dict[str, object] | None, stay: dict[str, object] | None) -> None:
    for actual, expected in ((node_check.cordon_for_removal(before), leave), (node_check.cancel_removal(before), stay)):
        if expected is None:
            assert actual is None
            continue
        assert actual is not None
        assert actual["metadata"]["resourceVersion"] == "7"
        assert actual["metadata"]["annotations"] == {NOTE: expected[NOTE]}
        assert actual.get("spec") == expected.get("spec")


POD = "accel.gpu/driver-restart"
RESTARTING = "its driver is being restarted to load a licensing token"
CORDON = {"spec": {"unschedulable": True}, NOTE: RESTARTING, POD: "driver-a"}
RECORD = {POD: "driver-a"}
UNCORDON = {"spec": {"unschedulable": None}, NOTE: None, POD: None}


END_RECORD = {POD: None}


def restarting(pod: str, unschedulable: bool) -> Node:
    return replace(of(None, unschedulable), annotations={NOTE: RESTARTING, POD: pod})


def recorded(pod: str, unschedulable: bool) -> Node:
    """A node with the cordon of another tool or user, if any."""
    return replace(of(None, unschedulable), annotations={POD: pod})


@pytest.mark.parametrize(
    ("before", "pod", "start", "end"),
    [
        (of(None, False), None, CORDON, None),
        (of(None, True), None, RECORD, None),
        (recorded("driver-a", True), "driver-a", None, END_RECORD),
        (recorded("driver-b", True), "driver-b", RECORD, END_RECORD),
        # Its cordon was removed meanwhile.
        (recorded("driver-b", False), "driver-b", CORDON, END_RECORD),
        (of(node_check.REMOVAL_REASON, True), None, None, None),
        # Only the annotation names the pod, not the reason.
        (of(RESTARTING, True), None, None, None),
        (restarting("driver-a", True), "driver-a", None, UNCORDON),
        # NVIDIA's driver manager may have uncordoned the node.
        (restarting("driver-a", False), "driver-a", CORDON, UNCORDON),
        (restarting("driver-b", True), "driver-b", RECORD, UNCORDON),
        (restarting("driver-b", False), "driver-b", CORDON, UNCORDON),
    ],
)
def test_a_node_whose_driver_restarts(
    before: Node, pod: str | None, start: dict[str, object] | None, end: dict[str, object] | None
) -> None:
    assert node_check.driver_pod_to_restart(before) == pod
    patches = (node_check.cordon_for_driver_restart(before, "driver-a"), node_check.end_driver_restart(before))
    for actual, expected in zip(patches, (start, end), strict=True):
        if expected is None:
            assert actual is None
            continue
        assert actual is not None
        annotations = {key: value for key, value in expected.items() if key != "spec"}
        assert actual["metadata"] == {"resourceVersion": "7", "annotations": annotations}
        assert actual.get("spec") == expected.get("spec")


def test_a_removal_ends_the_restart_of_the_driver() -> None:
    before = restarting("driver-a", True)
    assert node_check.cordon_for_removal(before) == {
        "metadata": {"resourceVersion": "7", "annotations": {NOTE: node_check.REMOVAL_REASON, POD: None}}
    }
    assert node_check.uncordon_edit(before) == ({"unschedulable": None}, {NOTE: None, POD: None})
    # With the record, license_rotate would remove the new cordon.
    assert node_check.cordon_edit(recorded("driver-a", False), "x") == ({"unschedulable": True}, {NOTE: "x", POD: None})


def test_a_long_reason_is_cut() -> None:
    assert len(node_check.cordon_edit(node(), "x" * 5000)[1][NOTE] or "") == node_check.MAX_REASON
