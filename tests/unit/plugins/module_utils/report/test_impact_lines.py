# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The impact of releases in a plan: nodes without a pool have a row of their own, and the text does not contradict the table."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import COUNTS
from ansible_collections.accel.gpu.plugins.module_utils.report.facts import _total_impact, impact_lines

NONE = dict.fromkeys(COUNTS, 0)
RELEASE = {**NONE, "pods": 2, "operand_pods": 20, "repartitioned_nodes": 4, "resets": 4}
NO_IMPACT = "impact: no driver or operand is restarted, and no pod loses its GPU"
ROW = "NODES REPARTITIONED GPU RESETS {} 0 2 20 4 4"


def shown(
    total: dict[str, int], pools: dict[str, dict[str, int]], steps: dict[str, list[str]] | None = None, **changes: t.Any
) -> str:
    """The lines for the total and the pools, each with its impact; `steps` are the evicted pods by node."""
    info = {
        "impact": {**total, "release": None, "upgrade": None},
        "pools": {name: {"impact": counts, "changes": {}} for name, counts in pools.items()},
        "steps": {node: {"evicts": pods, "reboot": "no"} for node, pods in (steps or {}).items()},
        **changes,
    }
    return " ".join(" ".join(impact_lines(info, 100)).split())


@pytest.mark.parametrize("pools", [{}, {"a": NONE}], ids=["no pools", "a pool without an impact"])
def test_released_nodes_have_a_row(pools: dict[str, dict[str, int]]) -> None:
    text = shown(RELEASE, pools, released=["a1", "a2", "a3", "a4"])
    assert ROW.format("(released)") in text
    assert NO_IMPACT not in text


def test_the_row_has_only_what_the_pools_do_not_have() -> None:
    text = shown({**RELEASE, "pods": 5}, {"a": {**NONE, "pods": 3}}, released=["a1"])
    assert "GPU RESETS a 0 3 0 0 0 (released) 0 2 20 4 4" in text


def test_the_row_names_the_kinds_of_its_nodes() -> None:
    assert ROW.format("(no pool)") in shown(RELEASE, {}, unclaimed=["b1"])
    assert ROW.format("(released, no pool)") in shown(RELEASE, {}, released=["a1"], unclaimed=["b1"])


def test_a_release_without_an_impact_is_stated() -> None:
    assert shown(NONE, {}, released=["a1"]) == NO_IMPACT
    assert shown(NONE, {"a": NONE}) == ""


def test_one_node_and_several_nodes() -> None:
    assert "pods: a1 has pods to evict (2): x/a, x/b" in shown(RELEASE, {}, {"a1": ["x/a", "x/b"]}, released=["a1"])
    text = shown(RELEASE, {}, {"a1": ["x/a"], "a2": ["x/b"]}, released=["a1", "a2"])
    assert "pods: a1, a2 have pods to evict (2): x/a, x/b" in text


def test_disabled_operands_and_changed_values_are_stated() -> None:
    values = [{"path": "dcgmExporter.enabled", "before": None, "after": False}, {"path": "driver.env"}]
    upgrade = {"refusals": [], "problem": "", "values": values}
    disabled = [{"field": "spec.dcgmExporter.enabled", "effect": "metrics of the GPUs are no longer collected"}]
    total: t.Any = {**NONE, "release": None, "upgrade": upgrade, "disabled": disabled}
    text = " ".join(" ".join(impact_lines({"impact": total, "pools": {}}, 100)).split())
    assert (
        "DISABLED: spec.dcgmExporter.enabled of the ClusterPolicy becomes false: metrics of the GPUs are no longer"
        in text
    )
    assert "dcgmExporter.enabled (not set) becomes false; driver.env (not shown)" in text


def test_workloads_that_fit_no_node_are_named() -> None:
    field = "spec.nodeSelector[nvidia.com/gpu.product]"
    workloads = [
        {"owner": "Deployment team/serve", "field": field, "value": "Tesla-T4", "fitting": "Tesla-T4-SHARED"},
        {"owner": "Job team/train", "field": "x", "value": "2", "fitting": ""},
    ]
    total: t.Any = {**NONE, "release": None, "upgrade": None, "workloads": workloads}
    text = " ".join(" ".join(impact_lines({"impact": total, "pools": {}}, 100)).split())
    assert f"2 workload(s) fit no node after the change: Deployment team/serve ({field}: Tesla-T4; change it to" in text
    assert "Job team/train (x: 2)" in text


def test_an_older_operator_is_a_downgrade() -> None:
    total = {**dict.fromkeys(COUNTS, 0), "release": {"installed": "v25.10.1", "desired": "v25.3.2"}, "upgrade": None}
    (paragraph,) = _total_impact(total)
    assert paragraph[1].startswith("DOWNGRADE from v25.10.1, which is newer than the declared version, to v25.3.2")
    assert "set gpu_cluster.operator.version: v25.10.1" in paragraph[1]
