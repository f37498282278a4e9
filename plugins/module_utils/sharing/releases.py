# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that a run would release from their pools, and whether it may (pure).

A release of many nodes is usually a mistake in the variables: a file that was not read, a name that was misspelled.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import dataclass, field

from ..pools.words import some

if t.TYPE_CHECKING:
    from .steps import Step

ALL = "all"
# Of nodes that have lost the label with the name of their pool.
UNKNOWN = "(unknown)"


@dataclass(frozen=True)
class Releases:
    """`steps` are the releases of this run, those that it leaves for another run included. `unclaimed`: every node that the
    variables leave without a pool, whatever the run is restricted to, with the pool that it is in. `managed`: how many nodes
    stay in a pool.
    """

    steps: tuple[Step, ...] = ()
    unclaimed: t.Mapping[str, str] = field(default_factory=dict)
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

        One pool of several may go. All managed nodes, or those of more than one pool, need a permission.
        """
        many = len(set(self.unclaimed.values())) > 1 or (bool(self.unclaimed) and not self.managed)
        return [] if not many or ALL in allowed else [name for name in self.counts if name not in allowed]

    def refusal(self, allowed: t.Collection[str], *, begun: bool = False) -> str:
        """Why the run is refused, and how to allow it; empty where it may go ahead. `begun`: something else was changed before."""
        missing = self.uncovered(allowed)
        if not missing:
            return ""
        everything = ", all that this collection manages" if not self.managed else ""
        return (
            f"This run would release {self.words()}{everything}. No pool in gpu_pools claims these nodes any more. "
            f"Nothing {'more ' if begun else ''}was changed. If this is a mistake, look in gpu_pools for a pool that is missing or misspelled, or for a "
            f"changed match. To release the nodes, set {self.variable()} (option allow_release of node_profile)."
        )

    def words(self) -> str:
        """How many nodes of which pools, and which pods are evicted, as a part of a sentence."""
        of_pools = ", ".join(f"{name}: {count}" for name, count in self.counts.items())
        pods = f" and evict {len(self.pods)} pod(s): {some(self.pods)}" if self.pods else " and evict no pod"
        return f"{len(self.nodes)} node(s) ({of_pools}){pods}"

    def variable(self) -> str:
        """What allows it, as it is written in YAML."""
        names = [name for name in self.counts if name != UNKNOWN]
        return f"gpu_allow_release: {ALL}" if UNKNOWN in self.counts else f"gpu_allow_release: [{', '.join(names)}]"

    def as_dict(self, allowed: t.Collection[str], limit: int) -> dict[str, t.Any]:
        """The releases as gpu_info returns them, with up to `limit` names."""
        return {
            "pools": self.counts,
            "nodes": dict(list(self.nodes.items())[:limit]),
            "pods": self.pods[:limit],
            "refusal": self.refusal(allowed),
        }
