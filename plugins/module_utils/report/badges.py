# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The badges of pools and nodes: the state in a word or two, with a severity (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.node import to_count
from .mig_devices import SUCCESS, gpu_layouts

Document = t.Mapping[str, t.Any]

OK = "ok"
# The most severe first.
SEVERITIES = BAD, WARN, NOTE = ("bad", "warn", "note")
DRIFT = "differs"


@dataclass(frozen=True)
class Badge:
    """A short text with a severity; detail is what the text leaves out."""

    text: str
    severity: str
    detail: str = ""


def pool_badge(pool: Document | None, reachable: bool) -> Badge:
    """The state of a pool, from what gpu_info returns for it; None for a pool that is not declared."""
    if pool is None:
        return Badge("not declared", NOTE)
    if not reachable:
        return Badge("not reachable", NOTE)
    if not pool.get("nodes"):
        return Badge("no nodes", WARN)
    return Badge("as declared", OK) if pool.get("as_declared") else Badge(DRIFT, WARN)


def node_badges(row: Document, declared: Document | None, info: Document) -> t.Iterator[Badge]:
    """Why a node needs attention, from its row in gpu_info; nothing if it does not."""
    name = str(row.get("name") or "")
    if not row.get("ready"):
        yield Badge("not ready", BAD)
    if not row.get("schedulable"):
        yield Badge("cordoned", NOTE, "accepts no new pods")
    mig: Document = row.get("mig") or {}
    state = mig.get("state")
    if state and state != SUCCESS:
        yield Badge(f"MIG {state}", BAD if state == "failed" else WARN)
    pools = (info.get("overlaps") or {}).get(name)
    if pools:
        yield Badge("several pools", WARN, f"matches the pools {', '.join(map(str, pools))}; the node is not changed")
    if name in (info.get("released") or ()):
        yield Badge("released", NOTE, "no longer in a pool; the labels of the pool are to be removed")
    if not row.get("model"):
        yield Badge("not discovered", WARN, "gpu-feature-discovery has not labelled it yet")
    elif declared is not None:
        reasons = list(_drift(row, name, declared))
        if reasons:
            yield Badge(DRIFT, WARN, "; ".join(reasons))


def _drift(row: Document, name: str, declared: Document) -> t.Iterator[str]:
    """How a node differs from its pool's declaration, as far as gpu_info reports single nodes."""
    head = f"{name} (pool {row.get('pool')}): "
    reported = [str(text).removeprefix(head) for text in declared.get("drift") or () if str(text).startswith(head)]
    if reported:
        yield from reported
        return
    if declared.get("mode") == "mig":
        state = (row.get("mig") or {}).get("state") or SUCCESS
        if (row.get("layout") or declared.get("layout")) and state == SUCCESS and not gpu_layouts(row, declared):
            yield "its MIG devices do not match the layout"
        return
    gpus, per_node = to_count(row.get("gpus")), declared.get("gpus_per_node")
    if per_node is not None and gpus != per_node:
        yield f"has {gpus} GPU(s), {per_node} is expected (gpus_per_node)"
    shares, resource = declared.get("shares_per_gpu"), declared.get("resource")
    if shares and resource:
        allocatable = to_count((row.get("allocatable") or {}).get(resource))
        if allocatable != gpus * shares:
            yield f"allocatable {resource} is {allocatable}, {gpus * shares} is expected"
