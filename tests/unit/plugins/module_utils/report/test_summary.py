# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summary for the next job of a workflow: small, without names of nodes, and with the impact as a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.approval_problems import approval_problems
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


NOTHING = report_summary(INFO, "plan")
SOMETHING = report_summary({**INFO, "impact": {"pods": 3, "driver_restarts": 2}}, "plan", PREVIEW)
UNREACHABLE = report_summary({"reachable": False}, "plan")


def _plan(**fields: Any) -> dict[str, Any]:
    """A plan that says only this."""
    return {"reachable": True, "uid": None, "declaration": NOTHING["declaration"], **fields}


@pytest.mark.parametrize(
    ("plans", "problem"),
    [
        ({"gpu_plan_of_job_7": {"prod": NOTHING}}, ""),
        # The slices of a job have a variable each.
        ({"gpu_plan_of_job_7": {"test": NOTHING}, "gpu_plan_of_job_8": {"prod": NOTHING}}, ""),
        ({"gpu_plan_of_job_7": {"test": NOTHING}}, "prod is not in the plan that was approved (job 7), so nobody has seen its changes"),
        ({"gpu_plan_of_job_10": {}, "gpu_plan_of_job_9": {"test": NOTHING}}, "the plan that was approved (job 9 and 10)"),
        ({"gpu_plan_of_job_7": {"prod": UNREACHABLE}}, "approved (job 7) did not reach the cluster prod"),
        # A further plan cannot widen an approval.
        ({"gpu_plan_of_job_10": {"prod": NOTHING}, "gpu_plan_of_job_9": {"prod": UNREACHABLE}}, "(job 9) did not reach"),
        ({"gpu_plan_of_job_9": {"prod": NOTHING}, "gpu_plan_of_job_10": {"prod": UNREACHABLE}}, "(job 10) did not reach"),
        # Nothing that is no plan is an approval.
        ({"gpu_plan_of_job_7": {"prod": True}}, "did not reach the cluster prod"),
        ({"gpu_plan_of_job_7": {"prod": None}}, "did not reach the cluster prod"),
        ({"gpu_plan_of_job_7": {"prod": {}}}, "did not reach the cluster prod"),
        ({"gpu_plan_of_job_7": "prod"}, "prod is not in the plan that was approved, so"),
        ({"gpu_plan_of_job_7": ["prod"]}, "prod is not in the plan that was approved, so"),
    ],
)  # fmt: skip
def test_a_cluster_without_a_plan_is_refused(plans: dict[str, Any], problem: str) -> None:
    problems = approval_problems(plans, "prod")
    assert len(problems) == bool(problem)
    assert all(
        problem in text and "This run changes nothing on it. Launch the workflow again" in text for text in problems
    )


@pytest.mark.parametrize(
    ("approved", "change", "problem"),
    [
        (SOMETHING, {}, ""),
        (SOMETHING, NOTHING["impact"], ""),
        (SOMETHING, {"pods": 2, "created_nodes": 0, "deleted_nodegroups": ["old (1 node)"]}, ""),
        (SOMETHING, {"pods": 4}, "pods that lose their GPU: 4 instead of 3."),
        (SOMETHING, {"driver_restarts": 5}, "nodes whose driver restarts: 5 instead of 2."),
        (SOMETHING, {"repartitioned_nodes": 1}, "nodes that are partitioned anew: 1 instead of 0."),
        (SOMETHING, {"created_nodes": 9}, "nodes to create, which the cloud may bill: 9 instead of 3."),
        (SOMETHING, {"removed_nodes": 3}, "nodes to remove: 3 instead of 2."),
        (
            SOMETHING,
            {"pods": 4, "removed_nodes": 3},
            "lose their GPU: 4 instead of 3; nodes to remove: 3 instead of 2.",
        ),
        (SOMETHING, {"deleted_nodegroups": ["new (1 node)"]}, "node group to delete: new."),
        (
            SOMETHING,
            {"deleted_nodegroups": ["old (4 nodes)"]},
            "nodes of the node group to delete, old: 4 instead of 3.",
        ),
        # What the plan did not know was not approved.
        (_plan(), {"pods": 1}, "pods that lose their GPU: 1 instead of 0"),
        (_plan(impact={"pods": "many"}), {"pods": 1}, "pods that lose their GPU: 1 instead of 0"),
        (_plan(impact={"deleted_nodegroups": "old (3 nodes)"}), {}, "node group to delete: old"),
    ],
)
def test_a_greater_impact_than_the_approved_one_is_refused(
    approved: dict[str, Any], change: dict[str, Any], problem: str
) -> None:
    now = {**SOMETHING, "impact": {**SOMETHING["impact"], **change}}
    problems = approval_problems({"gpu_plan_of_job_7": {"prod": approved}}, "prod", now)
    assert len(problems) == bool(problem)
    assert all(problem in text and "the plan that was approved (job 7)" in text for text in problems)


def _pool(pods: int, nodes: int) -> dict[str, Any]:
    return {"changes": {"nodes": nodes}, "impact": {"pods": pods, "driver_restarts": 0, "repartitioned_nodes": nodes}}


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        ({}, ""),
        # A canceled run has made a part of the changes.
        ({"pools": {"sandbox": _pool(1, 1)}}, ""),
        ({"pools": {"sandbox": {}, "payments": _pool(3, 2)}}, "pool payments: nodes to change: 2 instead of 0; pool payments: pods that lose"),
        ({"pools": {"sandbox": _pool(3, 3)}}, "pool sandbox: nodes to change: 3 instead of 2"),
        ({"preview": {"nodegroups": {"b": {"action": "create", "node_count": 2}}}}, "node group b: nodes to create: 2 instead of 0"),
        ({"preview": {"msg": "timeout", "nodegroups": {}}}, "the changes of node groups cannot be read now"),
        ({"impact": None}, "the impact on pods and nodes cannot be read now"),
        ({"identity": {"uid": "2"}}, "The host of the cluster prod leads to another cluster than in the plan"),
        ({"declaration": {"gpu_pools": ["other"]}}, "The variables of the cluster prod (gpu_cluster, gpu_defaults or gpu_pools) have changed since"),
    ],
)  # fmt: skip
def test_another_change_with_equal_numbers_is_refused(now: dict[str, Any], problem: str) -> None:
    impact = {"pods": 3, "driver_restarts": 0, "repartitioned_nodes": 2}
    groups = {"nodegroups": {"a": {"action": "create", "node_count": 2}}}
    approved = report_summary(
        {**INFO, "identity": {"uid": "1"}, "impact": impact, "pools": {"sandbox": _pool(3, 2)}},
        "plan",
        groups,
        {"gpu_pools": []},
    )
    info = {
        **INFO,
        "identity": now.get("identity", {"uid": "1"}),
        "impact": now.get("impact", impact),
        "pools": now.get("pools", {"sandbox": _pool(3, 2)}),
    }
    actual = report_summary(info, "plan", now.get("preview", groups), now.get("declaration", {"gpu_pools": []}))
    problems = approval_problems({"gpu_plan_of_job_7": {"prod": approved}}, "prod", actual)
    assert len(problems) == bool(problem)
    assert all(problem in text and "Launch the workflow again" in text for text in problems)


def test_text_of_others_cannot_change_the_terminal() -> None:
    now = {**SOMETHING, "impact": {**SOMETHING["impact"], "deleted_nodegroups": ["old\x1b[2J (3 nodes)"]}}
    (problem,) = approval_problems({"gpu_plan_of_job_7": {"prod": SOMETHING}}, "prod", now)
    assert problem.isprintable()


@pytest.mark.parametrize(("plans", "now"), [([], None), ({}, []), ({}, {"result": "drift"})])
def test_other_input_is_no_plan(plans: Any, now: Any) -> None:
    with pytest.raises(AnsibleFilterError):
        approval_problems(plans, "prod", now)
