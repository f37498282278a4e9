# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The small summary of a report or plan that AWX passes to the next job of a workflow, and that a person reads before an approval (pure)."""

from __future__ import annotations

import re
import typing as t

from ..core.messages import MAX_LISTED, abbreviate, join_words, printable

Document = t.Mapping[str, t.Any]
# The numbers of gpu_info's impact that the summary has. They are 0 if the impact is unknown.
_IMPACT = ("driver_restarts", "pods", "repartitioned_nodes")
_TEXTS = {
    "pods": "pods that lose their GPU",
    "driver_restarts": "nodes whose driver restarts",
    "repartitioned_nodes": "nodes that are partitioned anew",
    "created_nodes": "nodes to create, which the cloud may bill",
    "removed_nodes": "nodes to remove",
}
_MAX_POOLS = 20


def summary(info: Document, kind: str, nodegroups: Document) -> dict[str, t.Any]:
    """The summary of gpu_info; for a plan with its impact. `nodegroups`: the preview of the cloud's module."""
    totals, drift = info.get("totals") or {}, info.get("drift") or []
    # A pool without nodes, or without an operator, has no node that differs, and yet is not as declared.
    different = [name for name, pool in (info.get("pools") or {}).items() if pool.get("as_declared") is False]
    pools = sorted({*different, *(item["pool"] for item in drift if isinstance(item.get("pool"), str))})
    reachable = bool(info.get("reachable"))
    result: dict[str, t.Any] = {
        "result": "unreachable" if not reachable else "drift" if drift or different else "as_declared",
        "reachable": reachable,
        "gpu_nodes": totals.get("gpu_nodes") or 0,
        "gpus": totals.get("gpus") or 0,
        "drift": len(drift),
        "drift_pools": pools[:_MAX_POOLS],
        "warnings": len(info.get("warnings") or []),
    }
    if kind == "plan":
        result["impact"] = impact = _impact(info.get("impact") or {}, nodegroups)
        result["text"] = printable(
            _sentence(impact, nodegroups) if reachable else "The cluster was not reached, so the impact is unknown."
        )
    return result


def _impact(impact: Document, preview: Document) -> dict[str, t.Any]:
    """The numbers of pods, nodes and machines. A deleted node group is named with the number of its nodes."""
    groups = preview.get("nodegroups") or {}
    before = (preview.get("diff") or {}).get("before") or {}
    created = removed = 0
    for name, group in groups.items():
        action, count = group.get("action"), group.get("node_count") or 0
        present = (before.get(name) or {}).get("node_count") or 0
        if action in ("create", "recreate"):
            created += count
        elif action == "update":
            created += max(count - present, 0)
            removed += max(present - count, 0)
    deleted = [text for group in groups.values() for text in group.get("deletes") or ()]
    return {
        **{name: impact.get(name) or 0 for name in _IMPACT},
        "created_nodes": created,
        "removed_nodes": removed,
        "deleted_nodegroups": deleted[:_MAX_POOLS],
    }


def _sentence(impact: Document, preview: Document) -> str:
    counts = {text: impact[key] for key, text in _TEXTS.items() if impact[key]}
    parts = [f"{text}: {count}" for text, count in counts.items()]
    if impact["deleted_nodegroups"]:
        parts.append(f"node groups to delete: {abbreviate(impact['deleted_nodegroups'])}")
    sentence = "; ".join(parts) or "no pod loses its GPU, no driver restarts, no node is created or removed"
    if preview.get("msg") and not preview.get("nodegroups"):
        sentence += "; the cloud was not reached, so the changes of node groups are unknown"
    return f"{sentence[:1].upper()}{sentence[1:]}."


# Before its first change, a run that applies an approved plan compares its impact with that of the plan. Somebody else may have changed the cluster since.

_GROUP = re.compile(r"(.+) \(([0-9]+) nodes?\)")


def approval_problems(plans: Document, cluster: str, now: Document | None) -> list[str]:
    """Why the approval of plans does not cover a run on this cluster; empty if it does.

    plans: by the name of the variable that ends with the number of the plan's job, the summaries of this job by cluster. Of several plans of a cluster, the
    latest counts. now: the summary of a plan at this time; None to compare only which clusters the plans contain.
    """
    numbers = {int(name.rpartition("_")[2]): plan for name, plan in plans.items() if isinstance(plan, t.Mapping)}
    jobs = [str(number) for number in sorted(numbers)]
    planned = [(number, plan[cluster]) for number, plan in sorted(numbers.items()) if cluster in plan]
    remedy = "This run changes nothing on it. Launch the workflow again, and approve its plan."
    if not planned:
        known = f"the plan that was approved (job {join_words(jobs)})" if jobs else "the plan that was approved"
        return [
            f"The cluster {cluster} is not in {known}, so nobody has seen its changes: it was added to the inventory after the plan, or its plan failed. "
            f"{remedy}"
        ]
    job, approved = planned[-1]
    if not isinstance(approved, t.Mapping) or not approved.get("reachable"):
        return [
            f"The plan that was approved (job {job}) did not reach the cluster {cluster}, so nobody has seen its changes. {remedy} If this run creates the "
            "cluster, so that no plan can reach it, launch site without the workflow."
        ]
    greater = list(_greater(approved.get("impact"), now.get("impact") or {})) if now is not None else []
    if not greater:
        return []
    return [
        printable(
            f"On the cluster {cluster}, this run would do more than the plan that was approved (job {job}): {abbreviate(greater, MAX_LISTED, '; ')}. "
            f"Somebody has changed the cluster or its declaration since. {remedy}"
        )
    ]


def _greater(approved: t.Any, now: Document) -> t.Iterator[str]:
    """The numbers that are greater than the approved ones, and the node groups whose deletion was not approved. An unknown number was not approved."""
    known = approved if isinstance(approved, t.Mapping) else {}
    for key, text in _TEXTS.items():
        before = known.get(key)
        limit = before if isinstance(before, int) else 0
        if now[key] > limit:
            yield f"{text}: {now[key]} instead of {limit}"
    groups = known.get("deleted_nodegroups")
    listed = dict(map(_group, groups)) if isinstance(groups, list) else {}
    for name, count in map(_group, now["deleted_nodegroups"]):
        if name not in listed:
            yield f"node group to delete: {name}"
        elif count > listed[name]:
            yield f"nodes of the node group to delete, {name}: {count} instead of {listed[name]}"


def _group(text: t.Any) -> tuple[str, int]:
    """The name and the number of nodes of a node group to delete."""
    match = _GROUP.fullmatch(str(text))
    return (match[1], int(match[2])) if match else (str(text), 0)
