# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains the nodes that a change to a group removes, and uncordons them if the cloud refuses the change."""

from __future__ import annotations

import contextlib
import typing as t

from ..cluster_state.node import Node
from ..common.errors import ServiceError
from ..drain.drainer import NodeDrainer
from ..schema.messages import abbreviate
from .provider import NodeGroupProvider
from .spec import NodeGroupState


class GroupFailed(Exception):
    """A change to a group failed, or is impossible."""


class GroupVanished(GroupFailed):
    """The group was deleted during the change."""


class GroupDrain:
    """Chooses and drains nodes. Without a drainer, no nodes are chosen and the cloud decides which nodes it removes."""

    def __init__(self, provider: NodeGroupProvider, drainer: NodeDrainer | None, say: t.Callable[[str], None]) -> None:
        """Store the arguments; no request is sent yet."""
        self._provider, self._drainer, self._say = provider, drainer, say

    @property
    def enabled(self) -> bool:
        """Whether nodes are drained at all."""
        return self._drainer is not None

    def check(self) -> None:
        """Raise an error if the run has lost the lease of the cluster whose nodes are drained."""
        if self._drainer is not None:
            self._drainer.check()

    def drain_surplus(self, group: NodeGroupState, count: int | None) -> list[Node]:
        """Drain the nodes that a scale-down to `count` removes, and return them; empty if the cloud chooses the nodes."""
        if self._drainer is None or not self._provider.can_choose_nodes or count is None or count >= group.count:
            return []
        nodes = {node.name: node for node in self._required_nodes(group)}
        surplus = max(0, group.count - count - group.without_node)
        names = self._drainer.scale_down_candidates(sorted(nodes), min(surplus, len(nodes)))
        return self._drain(group, self._drainer, [nodes[name] for name in names])

    def drain_all(self, group: NodeGroupState) -> list[Node]:
        """Drain all nodes of a group that will be deleted, and return them; empty if the deletion was already requested."""
        if self._drainer is None or group.status.startswith("DELET"):
            return []
        return self._drain(group, self._drainer, self._required_nodes(group))

    def nodes(self, group: NodeGroupState) -> list[Node]:
        """The group's nodes in the cluster; empty if there is no drainer."""
        return self._provider.members(group, self._drainer.cluster_nodes()) if self._drainer is not None else []

    def uncordon(self, group: NodeGroupState, nodes: t.Sequence[Node]) -> None:
        """Uncordon nodes that a killed run may have cordoned in a group that is kept. Does nothing while the group has surplus nodes."""
        if self._drainer is not None and len(nodes) <= group.count:
            self._drainer.uncordon([node.name for node in nodes])

    @contextlib.contextmanager
    def uncordon_if_refused(self, leaving: t.Sequence[Node]) -> t.Iterator[None]:
        """Uncordon the drained nodes if the cloud refuses the request that the body of the `with` statement sends."""
        self.check()
        try:
            yield
        except ServiceError as error:
            if leaving and self._drainer is not None and not error.outcome_unknown:
                # The cloud's refusal is reported; the next run uncordons nodes that are still cordoned.
                with contextlib.suppress(Exception):
                    self._drainer.uncordon([node.name for node in leaving])
            raise

    def _required_nodes(self, group: NodeGroupState) -> list[Node]:
        """The group's nodes; raises GroupFailed if the machines joined a different cluster than the one in `kubernetes`."""
        nodes = self.nodes(group)
        machines = [*group.machines, *group.addresses]
        if machines and not nodes:
            raise GroupFailed(
                f"No machine of node group {group.name} ({abbreviate(machines)}) is a node of the cluster in `kubernetes`, so "
                "it cannot be drained. Use the kubeconfig of the group's cluster, or omit `kubernetes` if the machines never joined it."
            )
        return nodes

    def _drain(self, group: NodeGroupState, drainer: NodeDrainer, leaving: list[Node]) -> list[Node]:
        if leaving:
            self._say(f"{group.name}: draining {len(leaving)} nodes")
            drainer.drain([node.name for node in leaving])
        return leaving
