# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The impact of a plan as lines for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..cluster_state.impact import COUNTS
from ..schema.messages import abbreviate
from .table import Column, paragraph, table

Document = t.Mapping[str, t.Any]

_TITLES = ("DRIVER RESTARTS", "PODS LOSE GPU", "OPERAND PODS", "NODES REPARTITIONED", "GPU RESETS")


def impact_lines(info: Document, width: int) -> list[str]:
    """A table of the pools with an impact, and explanations; empty if the impact was not requested."""
    total: Document | None = info.get("impact")
    if total is None:
        return []
    lines: list[str] = []
    affected = {name: pool["impact"] for name, pool in info["pools"].items() if any(pool["impact"].values())}
    if affected:
        columns = [Column("IMPACT", cuts=True), *(Column(title, number=True) for title in _TITLES)]
        rows = [[name, *(counts[key] for key in COUNTS)] for name, counts in affected.items()]
        lines += [*table(columns, rows, width), ""]
    elif any(pool["changes"] for pool in info["pools"].values()):
        lines += paragraph("impact", "no driver or operand is restarted, and no pod loses its GPU", width)
    for head, text in (*_total_impact(total), *_node_changes(info.get("steps") or {})):
        lines += paragraph(head, text, width)
    return lines


def _node_changes(steps: Document) -> t.Iterator[tuple[str, str]]:
    for key, head, text in (
        ("evicts", "pods", "have pods that are evicted"),
        ("blocked_by", "blocked", "cannot be changed, since a drain does not evict the pods that use their GPUs"),
        ("stops", "stopped", "have DaemonSet pods that are stopped for the change"),
    ):
        pods_by_node = {node: step[key] for node, step in steps.items() if step.get(key)}
        pods = [pod for names in pods_by_node.values() for pod in names]
        if pods:
            yield head, f"{abbreviate(sorted(pods_by_node))} {text} ({len(pods)}): {abbreviate(pods)}"
    reboots = sorted(node for node, step in steps.items() if step["reboot"] != "no")
    if reboots:
        yield "reboots", f"{abbreviate(reboots)} may need a reboot, by the command in rollout.reboot"


def _total_impact(total: Document) -> t.Iterator[tuple[str, str]]:
    if total["release"]:
        installed, desired = total["release"]["installed"], total["release"]["desired"]
        yield "operator", f"upgrade from {installed} to {desired}, which restarts all operands"
    if total["drivers"]:
        otherwise = "held back" if total["held_back"] else "refused"
        yield "drivers", f"{_driver_restarts(total)}; {otherwise}, unless gpu_operator_allow_driver_rollout is true"
    if total["repartitioned_nodes"]:
        nodes = f"{total['repartitioned_nodes']} node(s)"
        yield "mig", f"GPUs of {nodes} are repartitioned in a rolling update: cordon, drain, change, verify, uncordon"
    if total["resets"]:
        yield (
            "resets",
            f"the MIG mode of {total['resets']} node(s) with Ampere GPUs is switched, which resets the GPUs; if they are "
            "passed through to a virtual machine, the node may need a reboot",
        )


def _driver_restarts(total: Document) -> str:
    reasons = "; ".join(total["reasons"])
    if not total["max_parallel"]:
        return f"the driver of {total['drivers']} node(s) is updated once its driver pod is deleted: {reasons}"
    return (
        f"the driver restarts on {total['drivers']} node(s), at most {total['max_parallel']} at a time: {reasons}; pods that use a GPU there are "
        "evicted first"
    )
