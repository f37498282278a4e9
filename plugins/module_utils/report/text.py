# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan before a run, and the report after it, as lines for a terminal (pure)."""

from __future__ import annotations

import typing as t

from ..mig import layout as layouts
from ..schema.messages import abbreviate
from ..sharing_modes.registry import mode_title
from .identity_lines import identity_lines
from .impact_lines import impact_lines
from .layout_lines import layout_lines
from .nodegroup_lines import nodegroup_lines
from .sharing_lines import profiles_of, sharing_lines
from .table import WIDTH, Column, paragraph, table

Document = t.Mapping[str, t.Any]

KINDS = ("plan", "report")
_NEGATIVE_CHECKS = {"one_more": "one more waited", "two_shares": "two at once were refused"}
_NO_NODE = "no node of the cluster belongs to it"


def lines(info: Document, kind: str = "report", width: int = WIDTH) -> list[str]:
    """The lines of a plan or a report of what gpu_info returned."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; it is one of {', '.join(KINDS)}")
    pools: Document = info.get("pools") or {}
    title = f"{'Plan' if kind == 'plan' else 'Report'} of cluster {info.get('cluster') or '(unnamed)'}"
    if not info.get("reachable"):
        title = f"{title}: not reached, only what follows from the variables"[:width]
    impact = impact_lines(info, width) if kind == "plan" else []
    rest = [*_notes(info, width), *_totals(info, width), *identity_lines(info, kind, width)]
    if not pools:
        return [title, "No pools are declared: nothing is shared, labelled or verified.", *impact, *rest]
    groups = nodegroup_lines(info, kind, width)
    sections = [layout_lines(pools, width), sharing_lines(pools, width), impact] if kind == "plan" else []
    return [
        *(title, "", *_table(info, pools, kind, width), ""),
        *_pool_paragraphs(info, pools, kind, width),
        *(line for section in (groups, *sections) if section for line in ("", *section)),
        *rest,
    ]


def _table(info: Document, pools: Document, kind: str, width: int) -> list[str]:
    columns = [
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
    reachable = bool(info.get("reachable"))
    rows = []
    for name, pool in pools.items():
        nodes, gpus, offered = "?", "?", "?"
        if reachable:
            nodes, gpus, offered = str(pool["nodes"]), str(pool["gpus"]), str(pool["expected"])
            if kind == "report":
                offered = f"{pool['allocatable']}/{offered}"
        rows.append(
            [
                *(name, nodes, _model(pool), gpus, mode_title(pool["mode"], pool.get("replicas") or 1)),
                *(_resource(pool), offered, _memory(pool), _state(pool, kind, info)),
            ]
        )
    return table(columns, rows, width)


def _model(pool: Document) -> str:
    models = pool.get("models") or ([pool["model"]] if pool.get("model") else [])
    return str(models[0]).removeprefix("NVIDIA-") if len(models) == 1 else f"{len(models)} models" if models else "any"


def _resource(pool: Document) -> str:
    others = len(pool.get("resources") or ()) - 1
    name = str(pool["resource"]).removeprefix("nvidia.com/")
    return f"{name} +{others}" if others > 0 else name


def _memory(pool: Document) -> str:
    """For MIG devices the sizes in their names, the only source, from the smallest to the largest."""
    mib = pool.get("memory_mib_per_share")
    if mib:
        return f"{mib / 1024:.1f} GiB"
    sizes = sorted({layouts.nominal_gb(profile) for profile in profiles_of(pool)})
    shares = [f"{size / (pool.get('replicas') or 1):g}" for size in sizes]
    return f"{'-'.join(dict.fromkeys((shares[0], shares[-1])))} GB" if shares else "?"


def _state(pool: Document, kind: str, info: Document) -> str:
    if not info.get("reachable"):
        return "?"
    if not pool["nodes"]:
        return "after discovery" if _awaits_discovery(kind, info) else "no nodes"
    if kind == "plan":
        return f"{pool['changes']['nodes']} nodes" if pool["changes"] else "none"
    return "ok" if pool["as_declared"] else "drift"


def _pool_paragraphs(info: Document, pools: Document, kind: str, width: int) -> list[str]:
    if not info.get("reachable"):
        return paragraph("cluster", str(info.get("reason") or "not reached"), width)
    if _awaits_discovery(kind, info):
        text = "no node is known to have GPUs yet; once installed, NFD and the GPU operator discover the nodes of each pool"
        return paragraph("after discovery", text, width)
    describe = _changes if kind == "plan" else _verdict
    return [
        line
        for name, pool in pools.items()
        for line in paragraph(name, "; ".join([describe(pool), *_layout(pool)]), width)
    ]


def _layout(pool: Document) -> t.Iterator[str]:
    if pool.get("demand"):
        yield f"{layouts.format_layout(pool['demand'])} in total"
    for part in pool.get("layout") or ():
        gpus = f"GPU {', '.join(map(str, part['devices']))}" if part["devices"] else "each GPU"
        devices = " + ".join(f"{count} x {profile}" for profile, count in sorted(part["profiles"].items()))
        yield f"{gpus} with {devices}" if devices else f"{gpus} whole"


def _awaits_discovery(kind: str, info: Document) -> bool:
    """Whether it is the plan for a cluster with unknown hardware."""
    return (
        kind == "plan" and not any(pool["nodes"] for pool in info["pools"].values()) and not info["totals"]["gpu_nodes"]
    )


def _verdict(pool: Document) -> str:
    if not pool["nodes"]:
        return _NO_NODE
    if pool["as_declared"]:
        return f"as declared{_validation(pool)}"
    drift = [*pool["drift"], *([f"to change: {_changes(pool)}"] if pool["changes"] else [])]
    more = pool["drifted_nodes"] - len(drift)
    return f"drift on {pool['drifted_nodes']} node(s): {'; '.join(drift)}" + (f"; and {more} more" if more > 0 else "")


def _validation(pool: Document) -> str:
    validation = pool.get("validation")
    if not validation:
        return ", not validated yet"
    pods, devices = sum(validation["devices"].values()), len(validation["devices"])
    text = f"{pods} pods on {validation['node']} ran together on {devices} device(s){negative_checks(validation)}"
    return f"; {text}" if validation["current"] else f"; validated before its last change: {text}"


def negative_checks(validation: Document) -> str:
    """The results of one pod too many and of a request that is too large, as the end of a sentence; empty if not tested."""
    return "".join(f", {text}" for key, text in _NEGATIVE_CHECKS.items() if validation.get(key))


def _changes(pool: Document) -> str:
    if not pool["nodes"]:
        return _NO_NODE
    changes = pool["changes"]
    if not changes:
        return "no change"
    desired = mode_title(pool["mode"], pool.get("replicas") or 1)
    parts = [
        f"{count} node(s) from {mode} to {desired}"
        for mode, count in changes["switched_from"].items()
        if mode != desired
    ]
    if changes["joining"]:
        parts.append(f"{changes['joining']} node(s) join the pool")
    parts.extend(f"{kind} {abbreviate(changes[kind])}" for kind in ("labels", "taints") if changes[kind])
    return "; ".join(parts) or f"annotations of {changes['nodes']} node(s)"


def _notes(info: Document, width: int) -> list[str]:
    """Unmanaged installations, warnings, driver upgrades, and nodes that are undiscovered or released."""
    notes: list[str] = []
    for component, installation in (info.get("installed") or {}).items():
        if installation["adopted"] or installation["problem"] or installation["notes"]:
            adopted = [f"{installation['what']} is used unmanaged"] if installation["adopted"] else []
            notes += paragraph(
                component, installation["problem"] or "; ".join([*adopted, *installation["notes"]]), width
            )
    for warning in info.get("warnings") or ():
        notes += paragraph("warning", warning, width)
    upgrade = info.get("driver_upgrade") or {}
    if upgrade.get("states"):
        states = ", ".join(f"{count} node(s) {state}" for state, count in upgrade["states"].items())
        failed = f"; failed: {abbreviate(upgrade['failed'])}" if upgrade["failed"] else ""
        notes += paragraph("driver", f"upgrade in progress: {states}{failed}", width)
    undiscovered = info.get("undiscovered") or []
    if undiscovered:
        text = f"{len(undiscovered)} GPU node(s) not labelled by gpu-feature-discovery yet: {abbreviate(undiscovered)}"
        notes += paragraph("after discovery", text, width)
    return [*notes, *_released(info, width)]


def _released(info: Document, width: int) -> list[str]:
    """The nodes that are released from their pools, and why a run would be refused."""
    released = info.get("released") or []
    release: Document = info.get("release") or {}
    refusal = paragraph("REFUSED", str(release["refusal"]), width) if release.get("refusal") else []
    if not released:
        return refusal
    by_pool = release.get("pools") or {}
    pools = "; ".join(f"{nodes} of pool {name}" for name, nodes in by_pool.items())
    count = sum(by_pool.values()) or len(released)
    text = f"{count} node(s) are released, which removes their pool's labels{f' ({pools})' if pools else ''}: {abbreviate(released)}"
    return [*paragraph("released", text, width), *refusal]


def _totals(info: Document, width: int) -> list[str]:
    totals = info.get("totals")
    if not totals:
        return []
    offered = ", ".join(f"{count} {name}" for name, count in totals["allocatable"].items() if count) or "nothing"
    text = f"{totals['gpu_nodes']} of {totals['nodes']} nodes have {totals['gpus']} GPUs and offer {offered}"
    return paragraph("total", text, width)
