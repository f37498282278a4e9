# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The small summary of a report or plan that AWX passes to the next job of a workflow, and that a person reads before an approval (pure)."""

from __future__ import annotations

import hashlib
import json
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
_NUMBERS = {
    "nodes": "nodes to change",
    "pods": _TEXTS["pods"],
    "driver_restarts": _TEXTS["driver_restarts"],
    "repartitioned_nodes": _TEXTS["repartitioned_nodes"],
    "created": "nodes to create",
    "removed": "nodes to remove",
}


def summary(info: Document, kind: str, nodegroups: Document, declaration: Document) -> dict[str, t.Any]:
    """The summary of gpu_info; for a plan with its impact.

    nodegroups: the preview of the cloud's module. declaration: the variables that describe the cluster and its pools, of which the summary has a hash.
    """
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
        result["changes"] = _changes(info.get("pools") or {}, nodegroups)
        result["unknown"] = [
            *([] if info.get("impact") else ["the impact on pods and nodes"]),
            *(["the changes of node groups"] if _is_unknown(nodegroups) else []),
        ]
        text = json.dumps(declaration, sort_keys=True, default=str)
        result["uid"] = (info.get("identity") or {}).get("uid")
        result["declaration"] = hashlib.sha256(text.encode()).hexdigest()[:16]
        result["text"] = printable(
            _sentence(impact, nodegroups) if reachable else "The cluster was not reached, so the impact is unknown."
        )
    return result


def _impact(impact: Document, preview: Document) -> dict[str, t.Any]:
    """The numbers of pods, nodes and machines. A deleted node group is named with the number of its nodes."""
    groups = preview.get("nodegroups") or {}
    machines = _machines(preview).values()
    deleted = [text for group in groups.values() for text in group.get("deletes") or ()]
    return {
        **{name: impact.get(name) or 0 for name in _IMPACT},
        "created_nodes": sum(created for created, dummy in machines),
        "removed_nodes": sum(removed for dummy, removed in machines),
        "deleted_nodegroups": deleted,
    }


def _machines(preview: Document) -> dict[str, tuple[int, int]]:
    """For each node group, the numbers of created and of removed nodes. The nodes of a group that is replaced are among those of `deletes`."""
    before = (preview.get("diff") or {}).get("before") or {}
    numbers = {}
    for name, group in (preview.get("nodegroups") or {}).items():
        action, count = group.get("action"), group.get("node_count") or 0
        present = (before.get(name) or {}).get("node_count") or 0
        if action in ("create", "recreate"):
            numbers[name] = (count, 0)
        elif action == "update":
            numbers[name] = (max(count - present, 0), max(present - count, 0))
    return numbers


def _is_unknown(preview: Document) -> bool:
    return bool(preview.get("msg")) and not preview.get("nodegroups")


def _changes(pools: Document, preview: Document) -> dict[str, dict[str, int]]:
    """What changes in each pool and node group, without those that do not change: the numbers in _NUMBERS that are not 0."""
    changes = {
        f"pool {name}": {
            "nodes": (pool.get("changes") or {}).get("nodes") or 0,
            **{key: (pool.get("impact") or {}).get(key) or 0 for key in _IMPACT},
        }
        for name, pool in pools.items()
    }
    for name, (created, removed) in _machines(preview).items():
        changes[f"node group {name}"] = {"created": created, "removed": removed}
    present = {name: {key: number for key, number in numbers.items() if number} for name, numbers in changes.items()}
    return {name: numbers for name, numbers in present.items() if numbers}


def _sentence(impact: Document, preview: Document) -> str:
    counts = {text: impact[key] for key, text in _TEXTS.items() if impact[key]}
    parts = [f"{text}: {count}" for text, count in counts.items()]
    if impact["deleted_nodegroups"]:
        parts.append(f"node groups to delete: {abbreviate(impact['deleted_nodegroups'])}")
    sentence = "; ".join(parts) or "no pod loses its GPU, no driver restarts, no node is created or removed"
    if _is_unknown(preview):
        sentence += "; the cloud was not reached, so the changes of node groups are unknown"
    return f"{sentence[:1].upper()}{sentence[1:]}."


# Before its first change, a run that applies an approved plan compares its impact with that of the plan. Somebody else may have changed the cluster since.

_GROUP = re.compile(r"(.+) \(([0-9]+) nodes?\)")


def approval_problems(plans: Document, cluster: str, now: Document | None) -> list[str]:
    """Why the approval of plans does not cover a run on this cluster; empty if it does.

    plans: by the name of the variable that ends with the number of the plan's job, the summaries of this job by cluster. Every plan of the cluster must cover
    the run, so that nobody widens an approval with another plan.
    now: the summary of a plan at this time; None to compare only which clusters the plans contain.
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
    return [problem for job, approved in planned for problem in _problems_of_one(job, approved, cluster, now, remedy)]


def _problems_of_one(job: int, approved: t.Any, cluster: str, now: Document | None, remedy: str) -> list[str]:
    if not isinstance(approved, t.Mapping) or not approved.get("reachable"):
        return [
            f"The plan that was approved (job {job}) did not reach the cluster {cluster}, so nobody has seen its changes. {remedy} If this run creates the "
            "cluster, so that no plan can reach it, launch site without the workflow."
        ]
    if now is None:
        return []
    if now["unknown"]:
        return [
            f"On the cluster {cluster}, {join_words(now['unknown'])} cannot be read now, and so not be compared with the approved plan (job {job}). "
            f"{remedy}"
        ]
    if now["uid"] != approved.get("uid"):
        return [
            f"The host of the cluster {cluster} leads to another cluster than in the plan that was approved (job {job}), or its UID cannot be read. {remedy}"
        ]
    if now["declaration"] != approved.get("declaration"):
        return [
            f"The variables of the cluster {cluster} (gpu_cluster, gpu_defaults or gpu_pools) have changed since the plan that was approved (job {job}). "
            f"{remedy}"
        ]
    greater = [*_greater(approved.get("impact"), now["impact"]), *_others(approved.get("changes"), now["changes"])]
    if not greater:
        return []
    return [
        printable(
            f"On the cluster {cluster}, this run would do more than the plan that was approved (job {job}): {abbreviate(greater, MAX_LISTED, '; ')}. "
            f"Somebody has changed the cluster since. {remedy}"
        )
    ]


def _above(approved: t.Any, now: Document, texts: t.Mapping[str, str]) -> t.Iterator[str]:
    """The numbers with a text that are greater than the approved ones. An unknown number was not approved."""
    known = approved if isinstance(approved, t.Mapping) else {}
    for key, text in texts.items():
        before = known.get(key)
        limit = before if isinstance(before, int) else 0
        if now.get(key, 0) > limit:
            yield f"{text}: {now[key]} instead of {limit}"


def _others(approved: t.Any, now: Document) -> t.Iterator[str]:
    """The numbers of pools and node groups that are greater than the approved ones. Fewer are left if a canceled run has made a part of the changes."""
    known = approved if isinstance(approved, t.Mapping) else {}
    for name, numbers in now.items():
        yield from (f"{name}: {text}" for text in _above(known.get(name), numbers, _NUMBERS))


def _greater(approved: t.Any, now: Document) -> t.Iterator[str]:
    """The totals that are greater than the approved ones, and the node groups whose deletion was not approved."""
    known = approved if isinstance(approved, t.Mapping) else {}
    yield from _above(known, now, _TEXTS)
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
