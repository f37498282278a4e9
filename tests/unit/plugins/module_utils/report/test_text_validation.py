# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of a report about failed validations, and the same in the HTML page."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.report.facts import verification
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines

FAILURE = {
    "status": "failed",
    "node": "t4-1",
    "devices": {"GPU-1": 4},
    "problems": ["p: hung", "q: lost"],
    "time": "2026-01-01T00:00:00Z",
    "current": True,
}
EARLIER = {**FAILURE, "node": "", "current": False}
DRIFT = {"as_declared": False, "drifted_nodes": 1, "drift": ["t4-1 is not ready"]}


def _report(**changes: Any) -> str:
    pool = {
        "model": "Tesla-T4",
        "mode": "none",
        "resource": "nvidia.com/gpu",
        "nodes": 4,
        "gpus": 4,
        "expected": 4,
        "allocatable": 4,
        "changes": {},
        "drift": [],
        "drifted_nodes": 0,
        "as_declared": True,
        **changes,
    }
    info = {
        "reachable": True,
        "cluster": "lab",
        "pools": {"a": pool},
        "totals": {"nodes": 9, "gpu_nodes": 4, "gpus": 4, "allocatable": {}},
    }
    return " ".join("\n".join(lines(info)).split())


@pytest.mark.parametrize(
    ("changes", "state", "text"),
    [
        ({}, "ok", "a: as declared, not validated yet"),
        (
            {"validation": FAILURE},
            "failed",
            "a: as declared; validation failed, 2026-01-01T00:00:00Z on t4-1: p: hung; q: lost",
        ),
        (
            {"validation": EARLIER},
            "ok",
            "a: as declared; validation failed before its last change, 2026-01-01T00:00:00Z: p: hung; q: lost",
        ),
        (
            {"validation": FAILURE, **DRIFT},
            "drift",
            "a: drift on 1 node(s): t4-1 is not ready; validation failed, 2026-01-01T00:00:00Z on t4-1: p: hung; q: lost",
        ),
    ],
)
def test_a_failed_validation_in_the_report(changes: dict[str, Any], state: str, text: str) -> None:
    report = _report(**changes)
    assert text in report
    assert f" {state} a:" in report


@pytest.mark.parametrize(
    ("validation", "text"),
    [
        (FAILURE, "Validation failed, 2026-01-01T00:00:00Z on t4-1: p: hung; q: lost"),
        (EARLIER, "Validation failed before the last change, 2026-01-01T00:00:00Z: p: hung; q: lost"),
    ],
)
def test_a_failed_validation_on_the_page(validation: dict[str, Any], text: str) -> None:
    assert verification({"validation": validation}) == text


def test_a_pool_without_nodes_that_may_be_empty_is_idle() -> None:
    actual = _report(nodes=0, nodegroup={"name": "a", "flavor": "f", "size": "0 to 2", "may_be_empty": True})
    assert "idle" in actual
    assert "a: no nodes, as declared (its number of nodes may be 0)" in actual
    assert "no node of the cluster belongs to it" in _report(nodes=0, as_declared=False)
