# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guards against unintended releases of nodes from their pools, and against changes to sharing that no variable requests (pure).

Both are usually caused by a mistake in the variables, such as a file that was not read or a misspelled name.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL
from ..cluster_state.ownership import POOL_OWNER, NodeEdit, recorded
from ..nvidia_config import device_plugin
from ..schema.messages import abbreviate
from ..sharing_modes.modes import MODES

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..pools.plan import PoolPlan
    from ..sharing_modes.base import SharingMode
    from .node_change import NodeChange

ALL = "all"
# The name shown for the pool of nodes that have lost their pool label.
UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class ReleasedNodes:
    """The releases of a run, and the data that determines whether they are allowed.

    changes: the releases, including releases that are left for another run. unclaimed: every node that no declared pool claims, with its pool,
    inside or outside the run's scope. pools_without_nodes: declared pools that lose all their nodes or have none.
    unshared: the number of nodes, by pool, that would lose their sharing or a foreign device plugin configuration even though no variable sets
    sharing.mode. managed: the number of nodes that remain in a pool.
    """

    changes: tuple[NodeChange, ...] = ()
    unclaimed: t.Mapping[str, str] = field(default_factory=dict)
    pools_without_nodes: t.Collection[str] = ()
    unshared: t.Mapping[str, int] = field(default_factory=dict)
    managed: int = 0

    @property
    def nodes(self) -> dict[str, str]:
        """The released nodes and the pools that they are released from."""
        return {
            change.node: change.released_from or UNKNOWN
            for change in sorted(self.changes, key=lambda change: change.node)
        }

    @property
    def counts(self) -> dict[str, int]:
        """The number of nodes that each pool loses."""
        return dict(sorted(Counter(self.nodes.values()).items()))

    @property
    def pods(self) -> list[str]:
        """The pods to evict for the releases, if pods were listed."""
        return sorted(pod.full_name for change in self.changes for pod in change.pods_to_evict)

    def uncovered(self, allowed: t.Collection[str]) -> list[str]:
        """The pools whose release requires a permission that `allowed` does not contain; empty if the run may continue.

        Removing one of several pools from the variables requires no permission. Releasing all managed nodes, nodes of more than one pool, or
        all nodes of a pool that is still declared requires a permission.
        """
        many = len(set(self.unclaimed.values())) > 1 or (bool(self.unclaimed) and not self.managed)
        required = [name for name in self.counts if many or name in self.pools_without_nodes]
        return [] if ALL in allowed else [name for name in required if name not in allowed]

    def refusal(self, allowed: t.Collection[str], *, begun: bool = False) -> str:
        """The reason why the run must fail, with the remedy; empty if it may continue. `begun`: whether the run has already made other changes."""
        nothing = f"Nothing {'more ' if begun else ''}was changed."
        reasons = [self._release_refusal(allowed, nothing), self._sharing_refusal(nothing)]
        return " ".join(filter(None, reasons))

    def _release_refusal(self, allowed: t.Collection[str], nothing: str) -> str:
        if not self.uncovered(allowed):
            return ""
        unknown = sorted(set(allowed) - set(self.counts))
        misspelled = (
            f" gpu_allow_release names {abbreviate(unknown)}, but none of their nodes is released." if unknown else ""
        )
        return (
            f"This run would release {self.summary()}. No pool in gpu_pools claims these nodes any longer. "
            f"{nothing} If this is a mistake, look in gpu_pools for a pool that is missing or misspelled, or for a changed match."
            f"{misspelled} To release the nodes, run once with -e {self.allow_variable()} (option allow_release of gpu_sharing)."
        )

    def _sharing_refusal(self, nothing: str) -> str:
        if not self.unshared:
            return ""
        of_pools = ", ".join(f"{name}: {count}" for name, count in sorted(self.unshared.items()))
        return (
            "This run would stop the sharing of GPUs, or replace foreign device plugin configurations, on "
            f"{sum(self.unshared.values())} node(s) ({of_pools}) even though neither these pools nor gpu_defaults set sharing.mode. "
            f"{nothing} Check whether gpu_defaults or sharing is missing or misspelled. To expose whole GPUs and replace such configurations, "
            "set sharing: {mode: none} in these pools."
        )

    def summary(self) -> str:
        """The number of released nodes by pool, and the evicted pods, as a part of a sentence."""
        of_pools = ", ".join(f"{name}: {count}" for name, count in self.counts.items())
        everything = "" if self.managed else ", which are all nodes that this collection manages,"
        pods = f"{len(self.pods)} pod(s): {abbreviate(self.pods)}" if self.pods else "no pods"
        return f"{len(self.nodes)} node(s) ({of_pools}){everything} and evict {pods}"

    def allow_variable(self) -> str:
        """The variable that allows the releases, in the notation of the command line."""
        names = [name for name in self.counts if name != UNKNOWN]
        return f"gpu_allow_release={ALL if UNKNOWN in self.counts else ','.join(names)}"

    def as_dict(self, allowed: t.Collection[str], limit: int) -> dict[str, t.Any]:
        """The releases in the format of gpu_info's result, with up to `limit` names in each list."""
        return {
            "pools": self.counts,
            "nodes": dict(list(self.nodes.items())[:limit]),
            "pods": self.pods[:limit],
            "unshared": dict(self.unshared),
            "refusal": self.refusal(allowed),
        }


def changes_sharing_silently(node: Node, pool: PoolPlan, edit: NodeEdit | None) -> bool:
    """Whether an edit ends the node's sharing, or replaces a foreign device plugin configuration, even though no variable sets sharing.mode.

    Sharing is detected from gpu-feature-discovery's labels, regardless of the tool that configured it, and from a configuration that a pool has set.
    """
    if pool.declares_sharing or edit is None:
        return False
    entry = node.labels.get(CONFIG_LABEL, "")
    mode = device_plugin.mode_of(entry)
    configured = CONFIG_LABEL in recorded(node, POOL_OWNER).labels and _shares(mode)
    is_foreign = bool(entry) and mode is None
    actually_shared = node.replicas > 1 or _shares(MODES.get(node.mode))
    plugin = CONFIG_LABEL in edit.labels and (configured or is_foreign or actually_shared)
    cut = MIG_CONFIG_LABEL in edit.labels and bool(node.mig_devices)
    return plugin or cut


def _shares(mode: SharingMode | None) -> bool:
    """Whether a mode shares or partitions GPUs."""
    return mode is not None and bool(mode.plugin_key)
