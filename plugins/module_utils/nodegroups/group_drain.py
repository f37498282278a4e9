# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes of a group that are to go: emptied before the cloud takes their machines, and open again where it does not."""

from __future__ import annotations

import contextlib
import typing as t

from ..common.errors import ServiceError
from .provider import ClusterNode, Drainer, NodeGroupProvider
from .spec import NodeGroupState

T = t.TypeVar("T")
_TOLD = 5


class GroupFailed(Exception):
    """What was asked of a group has failed, or cannot be done."""


class GroupVanished(GroupFailed):
    """The group that something was asked of is there no more."""


class GroupDrain:
    """Chooses and empties nodes; where nobody can empty them, none is chosen, and the cloud takes which it likes."""

    def __init__(self, cloud: NodeGroupProvider, emptier: Drainer | None, say: t.Callable[[str], None]) -> None:
        """Ask for nothing yet."""
        self._cloud, self._emptier, self._say = cloud, emptier, say

    @property
    def empties(self) -> bool:
        """Whether nodes are emptied at all."""
        return self._emptier is not None

    def check(self) -> None:
        """Raise what ends all work on the group: the lease of the cluster whose nodes are emptied was lost."""
        if self._emptier is not None:
            self._emptier.check()

    def checked(self, read: t.Callable[[], T]) -> t.Callable[[], T]:
        """The same call, for a wait that is to end with what check() raises."""

        def look() -> T:
            self.check()
            return read()

        return look

    def chosen(self, live: NodeGroupState, count: int | None) -> list[ClusterNode]:
        """The nodes that a shrink to `count` costs least, emptied; none where the cloud does not ask which are to go."""
        if self._emptier is None or not self._cloud.removes_chosen or count is None or count >= live.count:
            return []
        its = {machine.name: machine for machine in self._members(live)}
        names = self._emptier.scale_down_candidates(sorted(its), min(live.count - count, len(its)))
        return self._empty(live, self._emptier, [its[name] for name in names])

    def all_of(self, live: NodeGroupState) -> list[ClusterNode]:
        """The nodes of a group that is to be deleted, emptied; none when its end was asked for before."""
        if self._emptier is None or live.status.startswith("DELET"):
            return []
        return self._empty(live, self._emptier, self._members(live))

    def nodes(self, live: NodeGroupState) -> list[ClusterNode]:
        """The group's nodes in the cluster; none where nobody says how that is reached."""
        return self._cloud.members(live, self._emptier.cluster_nodes()) if self._emptier is not None else []

    def stay(self, live: NodeGroupState, its: t.Sequence[ClusterNode]) -> None:
        """Open the nodes of a group that stays, which a killed run may have begun to empty; not where more are there than are to stay."""
        if self._emptier is not None and len(its) <= live.count:
            self._emptier.uncordon([machine.name for machine in its])

    @contextlib.contextmanager
    def stay_if_refused(self, leaving: t.Sequence[ClusterNode]) -> t.Iterator[None]:
        """When the cloud refuses what is asked in here, the nodes that were emptied for it are to stay."""
        self.check()
        try:
            yield
        except ServiceError as error:
            if leaving and self._emptier is not None and not error.outcome_unknown:
                # It is the cloud's refusal that is told; nodes that stay closed are opened by the next run.
                with contextlib.suppress(Exception):
                    self._emptier.uncordon([machine.name for machine in leaving])
            raise

    def _members(self, live: NodeGroupState) -> list[ClusterNode]:
        """The group's nodes in the cluster, which has to be the one that the cloud's machines have joined."""
        its = self.nodes(live)
        told = [*live.machines, *live.addresses]
        if told and not its:
            raise GroupFailed(
                f"None of the machines {', '.join(told[:_TOLD])} of node group {live.name} is a node of the cluster that kubernetes "
                "names, so that they cannot be emptied: give that cluster's own kubeconfig. If they never joined it, leave kubernetes out."
            )
        return its

    def _empty(self, live: NodeGroupState, emptier: Drainer, leaving: list[ClusterNode]) -> list[ClusterNode]:
        if leaving:
            self._say(f"{live.name}: emptying {len(leaving)} nodes")
            emptier.drain([machine.name for machine in leaving])
        return leaving
