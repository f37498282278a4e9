# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a terminal shows of the fleet: the plan before a run, and the report with its verdicts after it (pure)."""

from __future__ import annotations

import typing as t

from ..cluster_state import gpu_layouts
from ..mig import layout as mig
from ..schema.messages import abbreviate
from .identity_lines import identity_lines
from .impact_lines import impact_lines
from .nodegroup_lines import nodegroup_lines
from .sharing_lines import mode_of, profiles_of, sharing_lines
from .table import WIDTH, Column, paragraph, table

Document = t.Mapping[str, t.Any]

KINDS = ("plan", "report")
_ANSWERS = {"one_more": "one more waited", "two_shares": "two at once were refused"}


def lines(info: Document, kind: str = "report", width: int = WIDTH) -> list[str]:
    """The lines of a plan or a report over what gpu_info returned."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}")
    pools: Document = info.get("pools") or {}
    head = [_title(info, kind, width)]
    if not pools:
        none = "No pools are declared: nothing is shared, labelled or proven."
        costs = impact_lines(info, width) if kind == "plan" else []
        return [*head, none, *costs, *_notes(info, width), *_fleet(info, width), *identity_lines(info, kind, width)]
    rows = [_row(name, pool, kind, info) for name, pool in pools.items()]
    body = table(_columns(kind), rows, width)
    costs = impact_lines(info, width) if kind == "plan" else []
    slices = gpu_layouts.lines(pools, width) if kind == "plan" else []
    sharing = sharing_lines(pools, width) if kind == "plan" else []
    groups = nodegroup_lines(info, kind, width)
    return [
        *(*head, "", *body, ""),
        *_verdicts(info, pools, kind, width),
        *(["", *groups] if groups else []),
        *(["", *slices] if slices else []),
        *(["", *sharing] if sharing else []),
        *(["", *costs] if costs else []),
        *_notes(info, width),
        *_fleet(info, width),
        *identity_lines(info, kind, width),
    ]


def _title(info: Document, kind: str, width: int) -> str:
    word = "Plan" if kind == "plan" else "Report"
    title = f"{word} of cluster {info.get('cluster') or '(unnamed)'}"
    return title if info.get("reachable") else f"{title}: not reached, so only what follows from the pools"[:width]


def _columns(kind: str) -> list[Column]:
    return [
        Column("POOL", cuts=True),
        Column("NODES", number=True),
        Column("MODEL", cuts=True),
        Column("GPUS", number=True),
        Column("MODE"),
        Column("nvidia.com/"),
        Column("OFFERED" if kind == "report" else "AFTER", number=True),
        Column("MEM/SHARE", number=True),
        Column("STATE" if kind == "report" else "CHANGES"),
    ]


def _row(name: str, pool: Document, kind: str, info: Document) -> list[str]:
    reachable = bool(info.get("reachable"))
    mode = mode_of(pool)
    seen = f"{pool['allocatable']}/{pool['wanted']}" if reachable else "?"
    return [
        name,
        str(pool["nodes"]) if reachable else "?",
        _model(pool),
        str(pool["gpus"]) if reachable else "?",
        mode,
        _resource(pool),
        seen if kind == "report" else (str(pool["wanted"]) if reachable else "?"),
        _memory(pool),
        _state(pool, kind, info),
    ]


def _model(pool: Document) -> str:
    found = pool.get("models") or ([pool["model"]] if pool.get("model") else [])
    return str(found[0]).removeprefix("NVIDIA-") if len(found) == 1 else f"{len(found)} models" if found else "any"


def _resource(pool: Document) -> str:
    others = len(pool.get("resources") or ()) - 1
    name = str(pool["resource"]).removeprefix("nvidia.com/")
    return f"{name} +{others}" if others > 0 else name


def _memory(pool: Document) -> str:
    """Of MIG devices what their names say, since nothing else tells; from the smallest to the largest."""
    mib = pool.get("memory_mib_per_share")
    if mib:
        return f"{mib / 1024:.1f} GiB"
    sizes = sorted({mig.nominal_gb(profile) for profile in profiles_of(pool)})
    shares = [f"{size / (pool.get('replicas') or 1):g}" for size in sizes]
    return f"{'-'.join(dict.fromkeys((shares[0], shares[-1])))} GB" if shares else "?"


def _state(pool: Document, kind: str, info: Document) -> str:
    if not info.get("reachable"):
        return "?"
    if not pool["nodes"]:
        return "after discovery" if _awaits_discovery(kind, info) else "no nodes"
    if kind == "plan":
        return f"{pool['changes']['nodes']} nodes" if pool["changes"] else "none"
    return "ok" if pool["as_declared"] else "differs"


def _verdicts(info: Document, pools: Document, kind: str, width: int) -> list[str]:
    if not info.get("reachable"):
        return paragraph("cluster", str(info.get("reason") or "not reached"), width)
    told: list[str] = []
    if _awaits_discovery(kind, info):
        text = "no node is known to have GPUs yet; NFD and the GPU operator, once installed, find out which belong to a pool"
        return paragraph("after discovery", text, width)
    for name, pool in pools.items():
        said = _change(pool) if kind == "plan" else _verdict(pool)
        told.extend(paragraph(name, "; ".join([said, *_layout(pool)]), width))
    return told


def _layout(pool: Document) -> t.Iterator[str]:
    """What the GPUs are cut into, or offer together."""
    if pool.get("demand"):
        yield f"{mig.format_layout(pool['demand'])} in all"
    for part in pool.get("layout") or ():
        gpus = f"GPU {', '.join(map(str, part['devices']))}" if part["devices"] else "each GPU"
        cut = " + ".join(f"{count} x {profile}" for profile, count in sorted(part["profiles"].items()))
        yield f"{gpus} in {cut}" if cut else f"{gpus} whole"


def _awaits_discovery(kind: str, info: Document) -> bool:
    """Whether the plan is for a cluster of whose hardware nothing is known."""
    return (
        kind == "plan" and not any(pool["nodes"] for pool in info["pools"].values()) and not info["totals"]["gpu_nodes"]
    )


def _verdict(pool: Document) -> str:
    if not pool["nodes"]:
        return "no node of the cluster belongs to it"
    if pool["as_declared"]:
        return f"as declared{_proof(pool)}"
    told = list(pool["differs"])
    if pool["changes"]:
        told.append(f"to change: {_change(pool)}")
    more = pool["differing_nodes"] - len(told)
    return f"differs on {pool['differing_nodes']} node(s): {'; '.join(told)}" + (
        f"; and {more} more" if more > 0 else ""
    )


def _proof(pool: Document) -> str:
    proof = pool.get("proof")
    if not proof:
        return ", not proven by workloads yet"
    pods = sum(proof["devices"].values())
    found = f"{pods} pods on {proof['node']} ran together on {len(proof['devices'])} device(s)"
    found += answers(proof)
    return f"; {found}" if proof["current"] else f"; proven before it last changed: {found}"


def answers(proof: Document) -> str:
    """How the cluster answered a pod too many and a request too large, as the end of a sentence; empty: not tried."""
    return "".join(f", {words}" for key, words in _ANSWERS.items() if proof.get(key))


def _change(pool: Document) -> str:
    if not pool["nodes"]:
        return "no node of the cluster belongs to it"
    changes = pool["changes"]
    if not changes:
        return "no change"
    told: list[str] = []
    wanted = mode_of(pool)
    told.extend(
        f"{count} node(s) from {mode} to {wanted}" for mode, count in changes["switched_from"].items() if mode != wanted
    )
    if changes["joining"]:
        told.append(f"{changes['joining']} node(s) join the pool")
    told.extend(f"{what} {abbreviate(changes[what])}" for what in ("labels", "taints") if changes[what])
    return "; ".join(told) or f"{changes['nodes']} node(s) noted as ours"


def _notes(info: Document, width: int) -> list[str]:
    """What somebody else has installed, what is odd, and the nodes which nobody knows yet or which leave their pool."""
    told: list[str] = []
    for component, found in (info.get("installed") or {}).items():
        if found["adopted"] or found["problem"] or found["notes"]:
            adopted = [f"{found['what']} is used as it is"] if found["adopted"] else []
            text = found["problem"] or "; ".join([*adopted, *found["notes"]])
            told += paragraph(component, text, width)
    for warning in info.get("warnings") or ():
        told += paragraph("warning", warning, width)
    told += _driver(info, width)
    undiscovered = info.get("undiscovered") or []
    if undiscovered:
        text = f"{len(undiscovered)} GPU node(s) not labelled by gpu-feature-discovery yet: {abbreviate(undiscovered)}"
        told += paragraph("after discovery", text, width)
    return [*told, *_released(info, width)]


def _released(info: Document, width: int) -> list[str]:
    """The nodes that no pool claims any more, and why a run would be refused that releases them or stops the sharing of others."""
    released = info.get("released") or []
    release: Document = info.get("release") or {}
    refused = paragraph("REFUSED", str(release["refusal"]), width) if release.get("refusal") else []
    if not released:
        return refused
    of_pools = "; ".join(f"{nodes} of pool {name}" for name, nodes in (release.get("pools") or {}).items())
    count = sum((release.get("pools") or {}).values()) or len(released)
    text = f"{count} node(s) are released and give their pool's labels back{f' ({of_pools})' if of_pools else ''}: {abbreviate(released)}"
    return [*paragraph("released", text, width), *refused]


def _driver(info: Document, width: int) -> list[str]:
    """How far a driver upgrade is that has begun."""
    upgrade = info.get("driver_upgrade") or {}
    if not upgrade.get("states"):
        return []
    text = ", ".join(f"{count} node(s) {state}" for state, count in upgrade["states"].items())
    failed = f"; failed: {abbreviate(upgrade['failed'])}" if upgrade["failed"] else ""
    return paragraph("driver", f"upgrade under way: {text}{failed}", width)


def _fleet(info: Document, width: int) -> list[str]:
    totals = info.get("totals")
    if not totals:
        return []
    offered = (
        ", ".join(f"{count} {resource}" for resource, count in totals["allocatable"].items() if count) or "nothing"
    )
    text = f"{totals['gpu_nodes']} of {totals['nodes']} nodes have {totals['gpus']} GPUs and offer {offered}"
    return paragraph("fleet", text, width)
