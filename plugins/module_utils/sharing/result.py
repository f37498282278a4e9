# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What gpu_sharing returns of a fleet: small, whatever the number of nodes (pure)."""

from __future__ import annotations

import collections
import typing as t

from ..cluster_state import expected_state
from ..cluster_state.pool_assignment import awaited_nodes as awaited
from ..cluster_state.pool_assignment import undiscovered_cluster
from ..cluster_state.unusual_nodes import as_list
from ..cluster_state.unusual_nodes import warnings as unusual_warnings
from ..cluster_state.warnings import NAMES_LIMIT, not_ready_message, of_membership
from ..mig.layout import format_layout
from ..schema.messages import abbreviate
from . import late_labels
from .change_plan import held_taints
from .node_result import BROKEN_OFF, GONE, LEFT, ROLLED_BACK
from .released_nodes import UNKNOWN

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from .change_plan import ChangePlan
    from .reader import FleetState
    from .rollout import RolloutResult


def result(
    fleet: FleetState,
    findings: t.Mapping[str, Finding],
    done: RolloutResult | None,
    limit: int | None = NAMES_LIMIT,
    *,
    unusual: t.Mapping[str, str] | None = None,
) -> dict[str, t.Any]:
    """Counts of each pool and the names of what changed; done is None in check mode: what would be changed.

    `unusual` are the GPU nodes that are not waited for, with the reason.
    """
    changes = fleet.profile
    steps = done.steps if done else {of.node: of.told() for of in changes.steps}
    changed = sorted(done.changed) if done else [of.node for of in changes.steps]
    of_changed = set(changed)
    not_ready = sorted(name for name in changes.pool_of if name in fleet.nodes and not fleet.nodes[name].ready)
    pools = {}
    for pool in fleet.plan.pools:
        nodes = fleet.of_pool(pool.name)
        members = {node.name for node in nodes}
        pools[pool.name] = {
            "nodes": len(nodes),
            "changed": len(members & of_changed),
            "proven": sum(1 for node in nodes if node.ready and node.name not in findings),
            **expected_state.expected_resources(nodes, pool),
            **({"missing": dict(fleet.missing[pool.name])} if pool.name in fleet.missing else {}),
        }
    membership = fleet.membership
    return {
        "pools": pools,
        "changed_nodes": changed[:limit],
        "changed_count": len(changed),
        "released_nodes": dict(_released(fleet, done)[:limit]),
        "change_counts": dict(sorted(collections.Counter(of["change"] for of in steps.values()).items())),
        "steps": dict(sorted(steps.items())[:limit]),
        "failed": dict(sorted(done.failed.items())[:limit]) if done else {},
        "rolled_back": done.named(ROLLED_BACK)[:limit] if done else [],
        "left_cordoned": done.named(LEFT, BROKEN_OFF)[:limit] if done else [],
        "gone": done.named(GONE)[:limit] if done else [],
        "not_begun": sorted({*changes.limited, *(done.not_begun if done else ())})[:limit],
        "repaired": dict(sorted(_repaired(changes, done).items())[:limit]),
        "not_as_declared": [str(findings[name]) for name in sorted(findings)][:limit],
        "not_ready": not_ready[:limit],
        "unusual_nodes": as_list(unusual or {}, limit),
        "held_back": held_taints(changes, fleet.nodes, fleet.plan.pools),
        "config_entries": {
            "added": list(done.added if done else (*changes.entries.added, *changes.mig_entries.added)),
            "collected": list(done.collected if done else (*changes.entries.collected, *changes.mig_entries.collected)),
        },
        "refreshed_pods": done.refreshed_pods if done else 0,
        "overlaps": dict(sorted(membership.overlaps.items())[:limit]),
        "empty_pools": list(membership.empty),
        "undeclared_pins": {pool: names[:limit] for pool, names in membership.left.items()},
        "mismatched": {pool: names[:limit] for pool, names in membership.mismatched.items()},
    }


def _released(fleet: FleetState, done: RolloutResult | None) -> list[tuple[str, str]]:
    """The nodes that are released from their pools, or are to be, each with its pool."""
    if done is None:
        return [(of.node, of.leaves or UNKNOWN) for of in fleet.profile.steps if of.leaves is not None]
    return [
        (name, of["leaves"] or UNKNOWN)
        for name, of in sorted(done.steps.items())
        if "leaves" in of and name in done.changed and name not in done.failed
    ]


def _repaired(changes: ChangePlan, done: RolloutResult | None) -> dict[str, str]:
    """By node, what was wrong and is mended, or is to be."""
    if done is None:
        return {of.node: of.remedy for of in changes.steps if of.remedy}
    in_turn = {name: fate.repaired for name, fate in done.fates.items() if fate.repaired and not fate.failed}
    return {**dict.fromkeys(done.rediscovered, late_labels.RESTARTED), **in_turn}


def after_discovery(fleet: FleetState, failing: t.Collection[str] = ()) -> dict[str, t.Any]:
    """What cannot be said before NVIDIA's agents have been at work: nodes of unknown model, pools of unknown nodes.

    Nothing is expected of nodes on which NVIDIA's pods are `failing`.
    """
    awaited_nodes = awaited(fleet.plan.pools, fleet.nodes.values(), fleet.membership)
    nodes = [name for name in awaited_nodes if name not in failing]
    unknown = fleet.membership.empty if undiscovered_cluster(fleet.nodes.values()) else []
    if not nodes and not unknown:
        return {}
    return {"nodes": nodes[:NAMES_LIMIT], "nodes_count": len(nodes), "pools": list(unknown)}


def _announced(fleet: FleetState, done: RolloutResult | None) -> t.Iterator[str]:
    by_pool: dict[str, list[str]] = {}
    for name, pool in _released(fleet, done):
        by_pool.setdefault(pool, []).append(name)
    for pool, names in sorted(by_pool.items()):
        verb = "is to be" if done is None else "was"
        yield f"pool {pool}: no pool of gpu_pools claims its node(s) {abbreviate(names)} any more; each {verb} released"


def warnings(
    fleet: FleetState, done: RolloutResult | None = None, *, unusual: t.Mapping[str, str] | None = None
) -> list[str]:
    """What a user should know although it is no failure."""
    told = [*of_membership(fleet.membership, fleet.profile.released)]
    told += _announced(fleet, done)
    told += unusual_warnings(unusual or {}, fleet.profile.pool_of)
    gone = done.named(GONE) if done else []
    if gone:
        told.append(
            f"{abbreviate(gone)} disappeared from the cluster in the middle of the change; nothing is left to be done there"
        )
    for pool, taints in held_taints(fleet.profile, fleet.nodes, fleet.plan.pools).items():
        told.append(
            f"{', '.join(taints)} of pool {pool} was held back: the ClusterPolicy does not tolerate it, so NVIDIA's pods "
            "could not come back on those nodes. Let the driver roll (allow_driver_rollout of cluster_policy), then run again."
        )
    blocked = [f"{of.node} by {', '.join(of.blocked)}" for of in fleet.profile.turns if of.blocked]
    if blocked:
        told.append(f"{len(blocked)} node(s) cannot be changed, because their GPUs are in use: {abbreviate(blocked)}")
    told += fleet.profile.mig_entries.doubts
    told += fleet.doubts
    told += [
        f"pool {name} lacks {format_layout(missing)} of its sharing.demand: its nodes have no room for them"
        for name, missing in fleet.missing.items()
    ]
    away = sorted(name for name in fleet.profile.pool_of if name in fleet.nodes and not fleet.nodes[name].ready)
    if away:
        told.append(not_ready_message(away))
    return told
