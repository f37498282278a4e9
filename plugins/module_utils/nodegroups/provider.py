# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the interface between the reconciler and a cloud, which provides the node groups of one cluster."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.node import Node
from ..common.errors import ServiceError
from .spec import NodeGroupSpec, NodeGroupState


@dataclass(frozen=True)
class CloudRequest:
    """One request of an update. `took_effect` returns whether a later state shows the effect of the request."""

    description: str
    send: t.Callable[[], object]
    took_effect: t.Callable[[NodeGroupState], bool]


@dataclass(frozen=True)
class ListedGroup:
    """A row of the cloud's list. settled: no operation is in progress, as far as the row shows."""

    id: str
    name: str
    status: str
    settled: bool


class NodeGroupProvider(t.Protocol):
    """The node groups of one cluster. Every method may raise ServiceError."""

    # Fields that no request can change.
    immutable_fields: frozenset[str]
    # Fields that a request changes only for new machines. With `recreate`, a group that has machines is replaced instead.
    machine_fields: frozenset[str]
    # The maximum length of a group's name, in characters.
    max_name_length: int
    # The number of seconds after which an accepted request without a visible effect counts as lost.
    patience: float
    # Whether a group accepts a request while an operation is in progress, so that a stuck operation can be corrected.
    takes_requests_anytime: bool
    # Whether the groups are objects in the cluster, so that every change to a group needs the cluster's Lease.
    in_cluster: bool

    @property
    def can_choose_nodes(self) -> bool:
        """Whether the request for a scale-down can specify the nodes to remove."""

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose names `selects` accepts, with all fields."""

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """An error message with a remedy for each part of these specs that the cloud cannot provide; the state is None for a new group."""

    def list_groups(self) -> list[ListedGroup]:
        """All groups of the cluster, with as few requests as possible."""

    def get(self, group: str) -> NodeGroupState | None:
        """The group with this id, with all fields; None if it no longer exists."""

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request a group with this name and `count` nodes; None selects the cloud's default.

        The group carries the mark that makes the spec the owner of the group (NodeGroupState.owner and `marked`).
        """

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """The remaining requests, in an order that the cloud accepts; this method sends nothing. leaving: the nodes that a scale-down removes."""

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Prevent autoscalers from adding nodes to a group that will be deleted. This is called before the group's nodes are drained."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group; a group that no longer exists is not an error."""

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The group's nodes among the cluster's nodes."""

    def is_busy(self, error: ServiceError) -> bool:
        """Whether the cloud refuses the request only because another operation is in progress."""

    def events(self, state: NodeGroupState) -> list[str]:
        """The cloud's latest events about the group, with the newest last; may be empty."""
