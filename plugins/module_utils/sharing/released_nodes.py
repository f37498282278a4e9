# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that a run would release from their pools, or whose sharing it would take away, and whether it may (pure).

Both are usually a mistake in the variables: a file that was not read, a name that was misspelled.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..catalog.names import CONFIG_LABEL, MIG_CONFIG_LABEL
from ..cluster_state.ownership import POOLS, recorded_keys
from ..nvidia_config.device_plugin import EXCLUSIVE, MODES
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node
    from ..cluster_state.ownership import NodeEdit
    from ..pools.plan import PoolPlan
    from .node_change import NodeChange

ALL = "all"
# Of nodes that have lost the label with the name of their pool.
UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class ReleasedNodes:
    """`steps` are the releases of this run, those that it leaves for another run included. `unclaimed`: every node that the
    variables leave without a pool, whatever the run is restricted to, with the pool that it is in. `emptied`: the declared pools
    without nodes. `unshared`: how many nodes of each pool would lose their sharing although no variable says sharing.mode.
    `managed`: how many nodes stay in a pool.
    """

    steps: tuple[NodeChange, ...] = ()
    unclaimed: t.Mapping[str, str] = field(default_factory=dict)
    emptied: t.Collection[str] = ()
    unshared: t.Mapping[str, int] = field(default_factory=dict)
    managed: int = 0

    @property
    def nodes(self) -> dict[str, str]:
        """The released nodes, each with its pool."""
        return {of.node: of.leaves or UNKNOWN for of in sorted(self.steps, key=lambda of: of.node)}

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes each pool loses."""
        return dict(sorted(Counter(self.nodes.values()).items()))

    @property
    def pods(self) -> list[str]:
        """The pods that are evicted for it, as far as pods were listed."""
        return sorted(user.shown for of in self.steps for user in of.evicted)

    def uncovered(self, allowed: t.Collection[str]) -> list[str]:
        """The pools whose release has to be allowed and is not; empty where the run may go ahead.

        One pool of several may be taken out of the variables. All managed nodes, those of more than one pool, and all nodes of
        a pool that is still declared, need a permission.
        """
        many = len(set(self.unclaimed.values())) > 1 or (bool(self.unclaimed) and not self.managed)
        required = [name for name in self.counts if many or name in self.emptied]
        return [] if ALL in allowed else [name for name in required if name not in allowed]

    def refusal(self, allowed: t.Collection[str], *, begun: bool = False) -> str:
        """Why the run is refused, and how to allow it; empty where it may go ahead. `begun`: something else was changed before."""
        nothing = f"Nothing {'more ' if begun else ''}was changed."
        reasons = [self._release_refusal(allowed, nothing), self._sharing_refusal(nothing)]
        return " ".join(filter(None, reasons))

    def _release_refusal(self, allowed: t.Collection[str], nothing: str) -> str:
        if not self.uncovered(allowed):
            return ""
        unknown = sorted(set(allowed) - set(self.counts))
        misspelled = f" gpu_allow_release names {abbreviate(unknown)}, of which no node is released." if unknown else ""
        return (
            f"This run would release {self.words()}. No pool in gpu_pools claims these nodes any more. "
            f"{nothing} If this is a mistake, look in gpu_pools for a pool that is missing or misspelled, or for a changed match."
            f"{misspelled} To release the nodes, run once with -e {self.variable()} (option allow_release of gpu_sharing)."
        )

    def _sharing_refusal(self, nothing: str) -> str:
        if not self.unshared:
            return ""
        of_pools = ", ".join(f"{name}: {count}" for name, count in sorted(self.unshared.items()))
        return (
            f"This run would stop the sharing of GPUs on {sum(self.unshared.values())} node(s) ({of_pools}) although neither these pools "
            f"nor gpu_defaults set sharing.mode. {nothing} If this is a mistake, look for a gpu_defaults or sharing that is missing or "
            "misspelled. To offer whole GPUs, set sharing: {mode: none} in these pools."
        )

    def words(self) -> str:
        """How many nodes of which pools, and which pods are evicted, as a part of a sentence."""
        of_pools = ", ".join(f"{name}: {count}" for name, count in self.counts.items())
        everything = "" if self.managed else ", all that this collection manages,"
        pods = f"{len(self.pods)} pod(s): {abbreviate(self.pods)}" if self.pods else "no pods"
        return f"{len(self.nodes)} node(s) ({of_pools}){everything} and evict {pods}"

    def variable(self) -> str:
        """What allows it, as it is written on the command line."""
        names = [name for name in self.counts if name != UNKNOWN]
        return f"gpu_allow_release={ALL if UNKNOWN in self.counts else ','.join(names)}"

    def as_dict(self, allowed: t.Collection[str], limit: int) -> dict[str, t.Any]:
        """The releases as gpu_info returns them, with up to `limit` names."""
        return {
            "pools": self.counts,
            "nodes": dict(list(self.nodes.items())[:limit]),
            "pods": self.pods[:limit],
            "unshared": dict(self.unshared),
            "refusal": self.refusal(allowed),
        }


def stops_sharing_silently(node: Node, pool: PoolPlan, change: NodeEdit | None) -> bool:
    """Whether a change takes the node's sharing away although no variable says how the pool's GPUs are shared.

    What gpu-feature-discovery says counts, and a configuration that a pool has given the node: whoever shared the GPUs, silence
    does not undo it.
    """
    if pool.declares_sharing or change is None:
        return False
    configured = CONFIG_LABEL in recorded_keys(node.annotations, POOLS.labels) and _shares(
        node.labels.get(CONFIG_LABEL, "")
    )
    shared = CONFIG_LABEL in change.labels and (configured or node.replicas > 1 or _shares(f"{node.mode}-"))
    cut = MIG_CONFIG_LABEL in change.labels and bool(node.mig_devices)
    return shared or cut


def _shares(entry: str) -> bool:
    """Whether a name of a configuration (nvidia_config.device_plugin.entry_name) is that of shared or cut GPUs."""
    return entry.startswith(tuple(f"{mode}-" for mode in MODES if mode != EXCLUSIVE))
