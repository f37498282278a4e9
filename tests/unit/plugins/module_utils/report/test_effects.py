# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The remarks about the nodes that a run with the exported variables changes."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ReleaseRefused
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import GEOMETRY, LABELS, PLUGIN, Transition
from ansible_collections.accel.gpu.plugins.module_utils.report.export import effect_remarks, require_no_release
from tests.helpers.fleet import node

GPU = "nvidia.com/gpu"
NODES = [node(name, capacity={GPU: 4}) for name in ("n1", "n2", "n3")]
ALIKE = Transition(PLUGIN, offers={GPU: 4})


@pytest.mark.parametrize(
    "change",
    [
        Transition(GEOMETRY, True, {GPU: 4}),
        Transition(PLUGIN, offers={GPU: 1}),
        Transition(PLUGIN, True, {GPU: 4}),
    ],
    ids=["other MIG devices", "another number of shares", "evicted pods"],
)
def test_nodes_that_a_run_disturbs_are_counted_separately(change: Transition) -> None:
    remarks = effect_remarks(NODES, {"n1": ALIKE, "n2": Transition(LABELS), "n3": change}, [], [])
    assert [remark.split(":")[0].split(";")[0] for remark in remarks] == [
        "2 node(s) will get the labels that make them members of their pools",
        "1 node(s) will get different allocatable resources, or lose the pods that use their GPUs",
    ]
    assert ": n3. See" in remarks[1]


def test_nodes_that_a_run_leaves_for_another_run_are_counted_too() -> None:
    (remark,) = effect_remarks(NODES, {}, ["n2"], [])
    assert remark.startswith("1 node(s) will get different allocatable resources")


@pytest.mark.parametrize("change", [Transition(GEOMETRY, True), Transition(LABELS)])
def test_a_refused_run_changes_no_node(change: Transition) -> None:
    (remark,) = effect_remarks(NODES, {"n1": change}, ["n2"], ["b", "a"])
    assert (
        remark == "site and gpu_sharing reject these variables and change no nodes until sharing.mode is set for: a, b."
    )


def test_no_change_needs_no_remark() -> None:
    assert effect_remarks(NODES, {}, [], []) == []


def test_an_export_that_releases_nodes_is_refused() -> None:
    require_no_release({})
    with pytest.raises(
        ReleaseRefused, match=r"No exported pool contains 2 nodes, n1, n2, so a run .* label --overwrite"
    ):
        require_no_release({"n2": "a", "n1": "a"})
