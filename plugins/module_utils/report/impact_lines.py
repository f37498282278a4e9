# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plan costs, as lines for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..cluster_state.impact import COUNTS
from ..schema.messages import abbreviate
from .table import Column, paragraph, table

Document = t.Mapping[str, t.Any]

_HEADS = dict(zip(COUNTS, ("DRIVERS ROLLED", "PODS LOSE GPU", "AGENT PODS", "NODES CUT", "GPU RESETS"), strict=True))


def impact_lines(info: Document, width: int) -> list[str]:
    """A table of the pools that cost something, and what is to be known about it; empty where nobody asked for costs."""
    total: Document | None = info.get("impact")
    if total is None:
        return []
    told: list[str] = []
    dear = {name: pool["impact"] for name, pool in info["pools"].items() if any(pool["impact"].values())}
    if dear:
        columns = [Column("COSTS", cuts=True), *(Column(_HEADS[count], number=True) for count in COUNTS)]
        told += [
            *table(columns, [[name, *(counts[key] for key in COUNTS)] for name, counts in dear.items()], width),
            "",
        ]
    elif any(pool["changes"] for pool in info["pools"].values()):
        text = "no driver is rolled, no pod loses its GPU, none of NVIDIA's pods starts anew"
        told += paragraph("impact", text, width)
    for head, text in (*_explained(total), *_turns(info.get("steps") or {})):
        told += paragraph(head, text, width)
    return told


def _turns(steps: Document) -> t.Iterator[tuple[str, str]]:
    """Who goes from where."""
    evicted = {node: of["evicts"] for node, of in steps.items() if of["evicts"]}
    pods = [pod for of in evicted.values() for pod in of]
    if pods:
        yield "pods", f"{len(pods)} pod(s) are evicted from {abbreviate(sorted(evicted))}: {abbreviate(pods)}"
    for key, head, text in (
        ("blocked_by", "blocked", "cannot be changed, since no drain evicts the pods that use their GPUs"),
        ("stops", "stopped", "have DaemonSets' pods stopped for the change"),
    ):
        found = {node: of[key] for node, of in steps.items() if of.get(key)}
        if found:
            yield (
                head,
                f"{abbreviate(sorted(found))} {text}: {abbreviate([pod for names in found.values() for pod in names])}",
            )
    reboots = sorted(node for node, of in steps.items() if of["reboot"] != "no")
    if reboots:
        yield "reboots", f"{abbreviate(reboots)} may need a reboot, for which rollout.reboot names the way"


def _explained(total: Document) -> t.Iterator[tuple[str, str]]:
    if total["release"]:
        installed, wanted = total["release"]["installed"], total["release"]["desired"]
        yield "operator", f"{installed} becomes {wanted}, so that all of NVIDIA's pods start anew"
    if total["drivers"]:
        without = "held back" if total["held_back"] else "refused"
        yield "drivers", f"{_roll(total)}; {without}, unless gpu_operator_allow_driver_rollout is true"
    if total["cut_nodes"]:
        text = f"GPUs of {total['cut_nodes']} node(s) are cut anew, each node in its turn: cordoned, emptied, cut, proven, opened"
        yield "mig", text
    if total["resets"]:
        text = (
            f"the MIG mode of {total['resets']} node(s) with Ampere GPUs is switched, for which these are reset; where they are "
            "passed through to a virtual machine, that may need a reboot of the node"
        )
        yield "resets", text


def _roll(total: Document) -> str:
    why = "; ".join(total["reasons"])
    if not total["max_parallel"]:
        return f"the driver is to follow on {total['drivers']} node(s), on each once somebody deletes its driver pod: {why}"
    evicted = "pods that hold a GPU there are evicted first"
    return (
        f"the driver rolls on {total['drivers']} node(s), at most {total['max_parallel']} at a time: {why}; {evicted}"
    )
