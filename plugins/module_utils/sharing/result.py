# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the result of gpu_sharing, whose size does not grow with the number of nodes (pure)."""

from __future__ import annotations

import collections
import typing as t

from ..cluster_state import expected_state
from ..cluster_state.pool_assignment import awaited_nodes, undiscovered_cluster
from ..cluster_state.unusual_nodes import as_list
from ..cluster_state.unusual_nodes import warnings as unusual_warnings
from ..cluster_state.warnings import NAMES_LIMIT, not_ready_message, of_membership
from ..mig.layout import format_layout
from ..schema.messages import abbreviate
from .change_plan import held_back_taints
from .operands import DISCOVERY_RESTARTED
from .released_nodes import UNKNOWN
from .run_context import GONE, INTERRUPTED, QUARANTINED, ROLLED_BACK

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from .change_plan import ChangePlan
    from .reader import ClusterState
    from .rollout import RolloutResult


def build_result(
    state: ClusterState,
    findings: t.Mapping[str, Finding],
    done: RolloutResult | None,
    limit: int | None = NAMES_LIMIT,
    *,
    unusual: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """Counts by pool and the names of changed nodes; without `done` (check mode), what would be changed.

    `unusual` are the GPU nodes that are not waited for, with the reason.
    """
    changes = state.changes
    steps = done.steps if done else {change.node: change.as_dict() for change in changes.node_changes}
    changed = sorted(done.changed) if done else [change.node for change in changes.node_changes]
    entries = (changes.device_plugin, changes.mig)
    not_ready = sorted(name for name in changes.pool_of if name in state.nodes and not state.nodes[name].ready)
    pools = {}
    for pool in state.plan.pools:
        nodes = state.members(pool.name)
        pools[pool.name] = {
            "nodes": len(nodes),
            "changed": len({node.name for node in nodes} & set(changed)),
            "verified": sum(1 for node in nodes if node.ready and node.name not in findings),
            **expected_state.expected_resources(nodes, pool),
            **({"missing": dict(state.missing[pool.name])} if pool.name in state.missing else {}),
        }
    membership = state.membership
    return {
        "pools": pools,
        "changed_nodes": changed[:limit],
        "changed_count": len(changed),
        "released_nodes": dict(_released(state, done)[:limit]),
        "change_counts": dict(sorted(collections.Counter(step["change"] for step in steps.values()).items())),
        "steps": dict(sorted(steps.items())[:limit]),
        "failed": dict(sorted(done.failed.items())[:limit]) if done else {},
        "rolled_back": done.nodes_with(ROLLED_BACK)[:limit] if done else [],
        "left_cordoned": done.nodes_with(QUARANTINED, INTERRUPTED)[:limit] if done else [],
        "gone": done.nodes_with(GONE)[:limit] if done else [],
        "not_started": sorted({*changes.limited, *(done.not_started if done else ())})[:limit],
        "repaired": dict(sorted(_repaired(changes, done).items())[:limit]),
        "not_as_declared": [str(findings[name]) for name in sorted(findings)][:limit],
        "not_ready": not_ready[:limit],
        "unusual_nodes": as_list(unusual or {}, limit),
        "held_back": held_back_taints(changes, state.nodes, state.plan.pools),
        "config_entries": {
            "added": list(done.added if done else (name for of_map in entries for name in of_map.added)),
            "removed": list(done.removed if done else (name for of_map in entries for name in of_map.removed)),
        },
        "refreshed_pods": done.refreshed_pods if done else 0,
        "overlaps": dict(sorted(membership.overlaps.items())[:limit]),
        "empty_pools": list(membership.empty),
        "undeclared_pins": {pool: names[:limit] for pool, names in membership.left.items()},
        "mismatched": {pool: names[:limit] for pool, names in membership.mismatched.items()},
    }


def _released(state: ClusterState, done: RolloutResult | None) -> list[tuple[str, str]]:
    """The released nodes, or those to release, each with its pool."""
    if done is None:
        return [
            (change.node, change.released_from or UNKNOWN)
            for change in state.changes.node_changes
            if change.released_from is not None
        ]
    return [
        (name, step["released_from"] or UNKNOWN)
        for name, step in sorted(done.steps.items())
        if "released_from" in step and name in done.changed and name not in done.failed
    ]


def _repaired(changes: ChangePlan, done: RolloutResult | None) -> dict[str, str]:
    """By node, what was repaired, or is to be."""
    if done is None:
        return {change.node: change.stuck for change in changes.node_changes if change.stuck}
    repaired = {name: node.repaired for name, node in done.results.items() if node.repaired and not node.failure}
    return {**dict.fromkeys(done.discovery_restarted, DISCOVERY_RESTARTED), **repaired}


def after_discovery(state: ClusterState, failing: t.Collection[str] = ()) -> dict[str, t.Any]:
    """What is unknown before the discovery: nodes without a model, and pools without nodes; `failing` nodes are left out."""
    awaited = awaited_nodes(state.plan.pools, state.nodes.values(), state.membership)
    nodes = [name for name in awaited if name not in failing]
    unknown = state.membership.empty if undiscovered_cluster(state.nodes.values()) else []
    if not nodes and not unknown:
        return {}
    return {"nodes": nodes[:NAMES_LIMIT], "nodes_count": len(nodes), "pools": list(unknown)}


def _release_warnings(state: ClusterState, done: RolloutResult | None) -> t.Iterator[str]:
    by_pool: dict[str, list[str]] = {}
    for name, pool in _released(state, done):
        by_pool.setdefault(pool, []).append(name)
    for pool, names in sorted(by_pool.items()):
        verb = "is to be" if done is None else "was"
        yield f"pool {pool}: no pool in gpu_pools claims its node(s) {abbreviate(names)} any more; each {verb} released"


def warnings(
    state: ClusterState, done: RolloutResult | None = None, *, unusual: t.Mapping[str, str] | None = None
) -> list[str]:
    """The warnings about a preview, or about a run (`done`)."""
    texts = [*of_membership(state.membership, state.changes.released)]
    texts += _release_warnings(state, done)
    texts += unusual_warnings(unusual or {}, state.changes.pool_of)
    gone = done.nodes_with(GONE) if done else []
    if gone:
        texts.append(f"{abbreviate(gone)} disappeared from the cluster during the change")
    for pool, taints in held_back_taints(state.changes, state.nodes, state.plan.pools).items():
        texts.append(
            f"{', '.join(taints)} of pool {pool} was held back: the ClusterPolicy does not tolerate it, so NVIDIA's pods "
            "could not restart on these nodes. Allow the driver rollout (allow_driver_rollout of cluster_policy), then run again."
        )
    blocked = [
        f"{change.node} by {', '.join(change.blocking_pods)}"
        for change in state.changes.rolling_changes
        if change.blocking_pods
    ]
    if blocked:
        texts.append(f"{len(blocked)} node(s) cannot be changed, because their GPUs are in use: {abbreviate(blocked)}")
    texts += state.changes.mig.generated_warnings
    texts += state.warnings
    texts += [
        f"pool {name} lacks {format_layout(missing)} of its sharing.demand: they do not fit its nodes"
        for name, missing in state.missing.items()
    ]
    not_ready = sorted(name for name in state.changes.pool_of if name in state.nodes and not state.nodes[name].ready)
    if not_ready:
        texts.append(not_ready_message(not_ready))
    return texts
