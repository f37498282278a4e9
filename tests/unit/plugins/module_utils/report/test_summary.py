# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary for the next job of a workflow: small, without names of nodes, and with the impact as a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.report_summary import report_summary

INFO: dict[str, Any] = {"reachable": True, "totals": {"gpu_nodes": 2, "gpus": 8}, "drift": [], "warnings": []}
DRIFT = [{"pool": "train", "node": "node-1"}, {"pool": "train", "node": "node-2"}, {"pool": None}]
PREVIEW = {
    "nodegroups": {
        "new": {"action": "create", "node_count": 2},
        "grown": {"action": "update", "node_count": 5},
        "shrunk": {"action": "update", "node_count": 1},
        "same": {"action": "none", "node_count": 9},
        "old": {"action": "delete", "node_count": 0, "deletes": ["old (3 nodes)"]},
    },
    "diff": {"before": {"grown": {"node_count": 4}, "shrunk": {"node_count": 3}}},
}


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({}, "as_declared"),
        ({"drift": DRIFT}, "drift"),
        ({"pools": {"train": {"as_declared": False}}}, "drift"),
        ({"pools": {"train": {"as_declared": True}}}, "as_declared"),
        ({"reachable": False, "drift": None, "totals": None}, "unreachable"),
    ],
)
def test_drift_is_no_failure(change: dict[str, Any], result: str) -> None:
    actual = report_summary({**INFO, **change})
    assert actual["result"] == result
    assert "impact" not in actual
    assert "node-1" not in str(actual)


def test_pools_with_drift_are_named_once() -> None:
    actual = report_summary({**INFO, "drift": DRIFT})
    assert (actual["drift"], actual["drift_pools"]) == (3, ["train"])


@pytest.mark.parametrize(
    ("impact", "preview", "text"),
    [
        (None, {}, "No pod loses its GPU, no driver restarts, no node is created or removed."),
        ({"pods": 3, "driver_restarts": 2}, {}, "Pods that lose their GPU: 3; nodes whose driver restarts: 2."),
        ({"repartitioned_nodes": 1}, {}, "Nodes that are partitioned anew: 1."),
        (
            None,
            PREVIEW,
            "Nodes to create, which the cloud may bill: 3; nodes to remove: 2; node groups to delete: old (3 nodes).",
        ),
        (None, {"msg": "timed out"}, "No pod loses its GPU, no driver restarts, no node is created or removed; the cloud was not reached, so"),
    ],
)  # fmt: skip
def test_the_impact_is_a_sentence(impact: Any, preview: dict[str, Any], text: str) -> None:
    actual = report_summary({**INFO, "impact": impact}, "plan", preview)
    assert actual["text"].startswith(text)
    assert actual["impact"]["pods"] == (impact or {}).get("pods", 0)


def test_an_unreachable_cluster_is_not_a_harmless_plan() -> None:
    actual = report_summary({"reachable": False}, "plan")
    assert actual["text"] == "The cluster was not reached, so the impact is unknown."


@pytest.mark.parametrize(("info", "kind"), [({}, "plan"), ("", "plan"), (INFO, "plans")])
def test_wrong_input(info: Any, kind: str) -> None:
    with pytest.raises(AnsibleFilterError, match=r"accel\.gpu\.report_summary"):
        report_summary(info, kind)
