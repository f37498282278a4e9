# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the result of gpu_sharing, whose size does not grow with the number of nodes (pure)."""

from __future__ import annotations

import collections
import typing as t
from dataclasses import dataclass, field

from ..cluster_state import expected_state
from ..cluster_state.hidden_gpus import hidden_nodes
from ..cluster_state.node_check import check_node
from ..cluster_state.pool_assignment import awaited_nodes, is_undiscovered
from ..cluster_state.warnings import all_warnings, as_list
from ..common.results import MAX_LISTED
from ..mig.layout import format_layout
from ..schema.messages import abbreviate
from .change_plan import ChangePlan, held_back_taints
from .operand_restart import DISCOVERY_RESTARTED
from .released_nodes import UNKNOWN
from .run_context import GONE, INTERRUPTED, QUARANTINED, ROLLED_BACK, NodeResult

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import NodeDrift
    from .node_change import NodeChange
    from .reader import ClusterState

_OUTCOMES = {
    ROLLED_BACK: " (it is back on its last good configuration)",
    QUARANTINED: " (it is left cordoned and tainted; the next run continues with it)",
    INTERRUPTED: " (it is left cordoned; the next run continues with it)",
}


@dataclass
class RolloutResult:
    """The changes that were made so far, or the predicted changes; `steps` contains the started changes with the evicted pods.

    written: the nodes that were patched or whose pods were evicted, including nodes that failed, were rolled back, or are gone.
    not_started: the nodes whose change was not started, each with the option that held it back.
    """

    written: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    results: dict[str, NodeResult] = field(default_factory=dict)
    steps: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    not_started: dict[str, str] = field(default_factory=dict)
    refreshed_pods: int = 0
    # Nodes whose gpu-feature-discovery was restarted outside the rolling update.
    discovery_restarted: set[str] = field(default_factory=set)
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    predicted: bool = False

    @classmethod
    def predict(cls, changes: ChangePlan) -> RolloutResult:
        """The result of a run that makes all these changes."""
        return cls(
            written={change.node for change in changes.node_changes},
            results={change.node: NodeResult(change.node, repaired=change.stuck) for change in changes.node_changes},
            steps={change.node: change.as_dict() for change in changes.node_changes},
            added=[*changes.device_plugin.added, *changes.mig.added],
            removed=[*changes.device_plugin.removed, *changes.mig.removed],
            predicted=True,
        )

    @property
    def any(self) -> bool:
        """Whether the run has written anything, even if no change of a node was completed."""
        return bool(self.written or self.added or self.removed or self.refreshed_pods or self.discovery_restarted)

    @property
    def changed(self) -> set[str]:
        """The nodes whose change was completed."""
        return self.written - self.failed.keys() - {name for name, node in self.results.items() if not node.completed}

    @property
    def left_cordoned(self) -> list[str]:
        """The nodes that remain cordoned."""
        return self.nodes_with(QUARANTINED, INTERRUPTED)

    def nodes_with(self, *outcomes: str) -> list[str]:
        """The nodes with one of these outcomes."""
        return sorted(name for name, result in self.results.items() if result.outcome in outcomes)

    def add(self, change: NodeChange, result: NodeResult) -> None:
        """Add the result of one node."""
        self.results[change.node] = result
        self.steps[change.node] = {**change.as_dict(), "evicts": result.evicted}
        if result.written:
            self.written.add(change.node)
        if result.failure:
            self.failed[change.node] = f"{result.failure}{_OUTCOMES.get(result.outcome, '')}"


def build_result(
    state: ClusterState,
    findings: t.Mapping[str, NodeDrift],
    done: RolloutResult,
    unusual: t.Mapping[str, str],
    limit: int | None = MAX_LISTED,
) -> dict[str, t.Any]:
    """The result of the module with at most `limit` names in each list; `unusual` is the result of unusual_nodes()."""
    changed = done.changed
    pools = {}
    for pool in state.plan.pools:
        nodes = state.members(pool.name)
        pools[pool.name] = {
            "nodes": len(nodes),
            "changed": len({node.name for node in nodes} & changed),
            "verified": sum(1 for node in nodes if node.ready and check_node(node, pool) is None),
            **expected_state.pool_resources(nodes, pool),
            **({"missing": dict(state.missing[pool.name])} if pool.name in state.missing else {}),
        }
    membership = state.membership
    return {
        "pools": pools,
        "changed_nodes": sorted(changed)[:limit],
        "changed_count": len(changed),
        "released_nodes": dict(_released(done)[:limit]),
        "change_counts": dict(sorted(collections.Counter(done.steps[name]["change"] for name in changed).items())),
        "steps": dict(sorted(done.steps.items())[:limit]),
        "failed": dict(sorted(done.failed.items())[:limit]),
        "rolled_back": done.nodes_with(ROLLED_BACK)[:limit],
        "left_cordoned": done.left_cordoned[:limit],
        "gone": done.nodes_with(GONE)[:limit],
        "not_started": sorted({*state.changes.limited, *done.not_started})[:limit],
        "repaired": dict(sorted(_repaired(done).items())[:limit]),
        "not_as_declared": [str(findings[name]) for name in sorted(findings)][:limit],
        "not_ready": _not_ready(state)[:limit],
        "unusual_nodes": as_list(unusual, limit),
        "held_back": held_back_taints(state.changes, state.nodes, state.plan.pools),
        "config_entries": {"added": list(done.added), "removed": list(done.removed)},
        "refreshed_pods": done.refreshed_pods,
        "overlaps": dict(sorted(membership.overlaps.items())[:limit]),
        "empty_pools": list(membership.empty),
        "undeclared_pins": {pool: names[:limit] for pool, names in membership.undeclared_pins.items()},
        "mismatched": {pool: names[:limit] for pool, names in membership.mismatched.items()},
    }


def _released(done: RolloutResult) -> list[tuple[str, str]]:
    """The released nodes, each with its pool."""
    steps = {name: done.steps[name] for name in sorted(done.changed)}
    return [(name, step["released_from"] or UNKNOWN) for name, step in steps.items() if "released_from" in step]


def _repaired(done: RolloutResult) -> dict[str, str]:
    """The problem that was repaired, by node."""
    repaired = {name: node.repaired for name, node in done.results.items() if node.repaired and not node.failure}
    return {**dict.fromkeys(done.discovery_restarted, DISCOVERY_RESTARTED), **repaired}


def _not_ready(state: ClusterState) -> list[str]:
    return sorted(name for name in state.changes.pool_of if name in state.nodes and not state.nodes[name].ready)


def after_discovery(state: ClusterState, failing: t.Collection[str] = ()) -> dict[str, t.Any]:
    """The nodes and pools whose changes are unknown before discovery: nodes without a model, except `failing` nodes, and pools without nodes."""
    awaited = awaited_nodes(state.plan.pools, state.nodes.values(), state.membership)
    nodes = [name for name in awaited if name not in failing]
    unknown = state.membership.empty if is_undiscovered(state.nodes.values()) else []
    if not nodes and not unknown:
        return {}
    return {"nodes": nodes[:MAX_LISTED], "nodes_count": len(nodes), "pools": list(unknown)}


def warnings(state: ClusterState, done: RolloutResult, unusual: t.Mapping[str, str]) -> list[str]:
    """The warnings of a run or its prediction: warnings about the nodes and about the run's changes."""
    nodes = state.nodes.values()
    # A preview before discovery lists the empty pools in after_discovery().
    before_discovery = done.predicted and is_undiscovered(nodes)
    released: dict[str, list[str]] = {}
    for name, pool_name in _released(done):
        released.setdefault(pool_name, []).append(name)
    texts = [
        *all_warnings(
            nodes,
            state.membership,
            state.changes.released,
            unusual,
            run=True,
            before_discovery=before_discovery,
            hidden=hidden_nodes(state.plan, nodes, state.membership, unusual, before_discovery=before_discovery),
        ),
        *(
            f"No pool in gpu_pools claims {abbreviate(names)} of pool {name} any longer; each {'will be' if done.predicted else 'was'} released."
            for name, names in sorted(released.items())
        ),
    ]
    gone = done.nodes_with(GONE)
    if gone:
        texts.append(f"{abbreviate(gone)} disappeared from the cluster during the change.")
    for pool, taints in held_back_taints(state.changes, state.nodes, state.plan.pools).items():
        texts.append(
            f"Taint {', '.join(taints)} of pool {pool} was held back: the ClusterPolicy, or the NVIDIADriver of its nodes, does not tolerate "
            "it, so NVIDIA's pods could not restart on these nodes. Allow the driver rollout with gpu_operator_allow_driver_rollout, then run "
            "the playbook again."
        )
    blocked = [
        f"{change.node} by {', '.join(map(str, change.blocking_pods))}"
        for change in state.changes.rolling_changes
        if change.blocking_pods
    ]
    if blocked:
        fails = (
            "; the run will fail; with rollout.pause_on_failure: false, it first changes the other nodes"
            if done.predicted
            else ""
        )
        texts.append(
            f"{len(blocked)} node(s) cannot be changed because pods that cannot be evicted use their GPUs: {abbreviate(blocked)}{fails}."
        )
    texts += state.warnings
    texts += [
        f"Pool {name} lacks {format_layout(missing)} of its sharing.demand: they do not fit its nodes."
        for name, missing in state.missing.items()
    ]
    return texts
