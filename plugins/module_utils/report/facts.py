# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the facts about pools, nodes and the cluster that the report shows on the terminal and on the HTML page (pure).

To add a fact, add an entry to POOL_FACTS or NODE_FACTS; the result of gpu_info must contain its data.
"""

from __future__ import annotations

import operator
import typing as t
from dataclasses import dataclass

from ..mig import layout as layouts
from ..schema.messages import abbreviate
from ..sharing_modes.modes import mode_with_replicas
from .formatting import (
    device_counts,
    has_failed_validation,
    memory,
    mig_layout,
    number,
    plural,
    sharing_mode,
    short_model,
)
from .mig_devices import SUCCESS
from .plan_text import gpus_of, profiles_of
from .table import Column

Document = t.Mapping[str, t.Any]

KINDS = PLAN, REPORT = ("plan", "report")


@dataclass(frozen=True, kw_only=True)
class PoolFact:
    """Where and how a fact about a pool is shown. Each function gets the pool from the result of gpu_info; an empty string is not shown.

    column: the column in the table on the terminal, for these `kinds`; the rows of the table also have the keys name and awaits_discovery.
    detail: the text below this table, after the name of the pool, for facts that are too long for a column. page: the text on the card of the pool.
    observed: whether the fact is known only if the cluster was reached. The page shows observed facts in the second line, and only if the pool has nodes.
    """

    column: Column | None = None
    detail: t.Callable[[Document], str] | None = None
    page: t.Callable[[Document], str] | None = None
    observed: bool = False
    kinds: tuple[str, ...] = KINDS


def _model(pool: Document) -> str:
    models = pool.get("models") or ([pool["model"]] if pool.get("model") else [])
    return short_model(models[0]) if len(models) == 1 else f"{len(models)} models" if models else "any"


def _all_models(pool: Document) -> str:
    return abbreviate([short_model(model) for model in pool.get("models") or [pool.get("model") or "any GPU"]])


def _mode_and_layout(pool: Document) -> str:
    return ": ".join(filter(None, [sharing_mode(pool.get("mode"), pool.get("replicas")), mig_layout(pool)]))


def _layout(pool: Document) -> str:
    parts = [f"{layouts.format_layout(pool['demand'])} in total"] if pool.get("demand") else []
    for part in pool.get("layout") or ():
        devices = " + ".join(f"{count} x {profile}" for profile, count in sorted(part["profiles"].items()))
        parts.append(f"{gpus_of(part)} with {devices}" if devices else f"{gpus_of(part)} whole")
    return "; ".join(parts)


def _resource(pool: Document) -> str:
    others = len(pool.get("resources") or ()) - 1
    name = str(pool["resource"]).removeprefix("nvidia.com/")
    return f"{name} +{others}" if others > 0 else name


def _memory(pool: Document) -> str:
    """The memory of a share. For MIG devices, this is the smallest and the largest size in the names of their profiles, which are the only source."""
    mib = pool.get("memory_mib_per_share")
    if mib:
        return f"{mib / 1024:.1f} GiB"
    sizes = sorted({layouts.nominal_gb(profile) for profile in profiles_of(pool)})
    shares = [f"{size / (pool.get('replicas') or 1):g}" for size in sizes]
    return f"{'-'.join(dict.fromkeys((shares[0], shares[-1])))} GB" if shares else "?"


def _memory_on_page(pool: Document) -> str:
    share = pool.get("memory_mib_per_share")
    return f"{memory(share)} per {'GPU' if pool.get('shares_per_gpu') == 1 else 'share'}" if share else ""


def is_idle(pool: Document) -> bool:
    """Whether a pool has no nodes because its node group may be empty, for example because an autoscaler has scaled it to zero."""
    return not pool.get("nodes") and bool((pool.get("nodegroup") or {}).get("may_be_empty"))


def _state(pool: Document) -> str:
    if not pool["nodes"]:
        return "idle" if is_idle(pool) else "no nodes"
    if not pool["as_declared"]:
        return "drift"
    return "failed" if has_failed_validation(pool) else "ok"


def _planned_changes(pool: Document) -> str:
    if not pool["nodes"]:
        return "after discovery" if pool["awaits_discovery"] else "no nodes"
    return plural(pool["changes"]["nodes"], "node") if pool["changes"] else "none"


# In the order of the columns on the terminal, and of the entries on the card. The card shows a pool's resources and state as drawings.
POOL_FACTS: tuple[PoolFact, ...] = (
    PoolFact(
        column=Column("NODES", operator.itemgetter("nodes"), number=True),
        page=lambda pool: plural(pool.get("nodes") or 0, "node"),
        observed=True,
    ),
    PoolFact(column=Column("MODEL", _model), page=_all_models),
    PoolFact(
        column=Column("GPUS", operator.itemgetter("gpus"), number=True),
        page=lambda pool: plural(pool.get("gpus") or 0, "GPU"),
        observed=True,
    ),
    PoolFact(
        column=Column("MODE", lambda pool: mode_with_replicas(pool["mode"], pool.get("replicas") or 1)),
        detail=_layout,
        page=_mode_and_layout,
    ),
    PoolFact(column=Column("nvidia.com/", _resource)),
    PoolFact(
        column=Column("AFTER", operator.itemgetter("expected"), number=True),
        observed=True,
        kinds=(PLAN,),
    ),
    PoolFact(
        column=Column("OFFERED", lambda pool: f"{pool['allocatable']}/{pool['expected']}", number=True),
        observed=True,
        kinds=(REPORT,),
    ),
    PoolFact(column=Column("MEM/SHARE", _memory, number=True), page=_memory_on_page),
    PoolFact(column=Column("CHANGES", _planned_changes), observed=True, kinds=(PLAN,)),
    PoolFact(column=Column("STATE", _state), observed=True, kinds=(REPORT,)),
)


def pool_columns(kind: str, *, reachable: bool) -> list[Column]:
    """The columns of the table of pools, after the column with their names. Observed facts are unknown unless the cluster is reachable."""
    return [
        fact.column._replace(value=lambda pool: "?") if fact.observed and not reachable else fact.column
        for fact in POOL_FACTS
        if fact.column and kind in fact.kinds
    ]


def pool_details(pool: Document) -> list[str]:
    """The facts about a pool that the terminal shows below the table."""
    return [text for fact in POOL_FACTS if fact.detail and (text := fact.detail(pool))]


def page_facts(pool: Document, *, observed: bool) -> list[str]:
    """The facts on the card of a pool: either the observed or the declared ones."""
    return [text for fact in POOL_FACTS if fact.page and fact.observed == observed and (text := fact.page(pool))]


def _mig_devices(row: Document) -> str:
    return device_counts(sorted((_mig(row).get("devices") or {}).items()))


def _mig_config(row: Document) -> str:
    mig = _mig(row)
    if not _mig_devices(row) and mig.get("state") in (None, SUCCESS):
        return ""
    return f"MIG configuration {mig.get('config') or 'none'} ({mig.get('state') or 'no state'})"


def _mig(row: Document) -> Document:
    mig: Document = row.get("mig") or {}
    return mig


def _sharing(row: Document) -> str:
    return sharing_mode(row["mode"], row["replicas"]) if row.get("mode") and not _mig_devices(row) else ""


# The facts about a node on the page, from its row in the result of gpu_info; an empty string is not shown. Facts that most nodes of a pool have in common
# are shown once for the pool. The terminal does not list nodes, and the JSON file contains the complete result.
NODE_FACTS: dict[str, t.Callable[[Document], str]] = {
    "model": lambda row: short_model(row.get("model") or ""),
    "gpus": lambda row: f"{plural(row['gpus'], 'GPU')} of {memory(row['memory_mib'])}" if row["gpus"] else "",
    "mode": _sharing,
    "devices": lambda row: f"MIG devices: {devices}" if (devices := _mig_devices(row)) else "",
    "config": _mig_config,
    "driver": lambda row: f"driver {row['driver']}" if row.get("driver") else "",
}


def node_facts(row: Document) -> dict[str, str]:
    """The known facts about a node, by their keys in NODE_FACTS."""
    return {key: text for key, describe in NODE_FACTS.items() if (text := describe(row))}


def totals_text(totals: Document) -> str:
    """The cluster's totals, for the terminal."""
    offered = ", ".join(f"{count} {name}" for name, count in totals["allocatable"].items() if count) or "nothing"
    return f"{totals['gpu_nodes']} of {totals['nodes']} nodes have {totals['gpus']} GPUs and advertise {offered}"


def totals_title(totals: Document) -> str:
    """The cluster's totals, for the heading above the table of resources on the page."""
    gpu_nodes, nodes = number(totals.get("gpu_nodes") or 0), plural(totals.get("nodes") or 0, "node")
    return f"{plural(totals.get('gpus') or 0, 'GPU')} on {gpu_nodes} of {nodes}"
