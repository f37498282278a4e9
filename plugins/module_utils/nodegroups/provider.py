# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The interfaces that the reconciler needs: a cloud's node groups of one cluster, and the drain of their nodes."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.errors import ServiceError
from .spec import NodeGroupSpec, NodeGroupState


@dataclass(frozen=True)
class ClusterNode:
    """A node of the Kubernetes cluster."""

    name: str
    ready: bool
    addresses: tuple[str, ...]
    provider_id: str
    labels: t.Mapping[str, str]


@dataclass(frozen=True)
class CloudRequest:
    """One request of an update; `took_effect` says whether a later state shows its effect."""

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
    # The limit of a group's name, in characters.
    max_name_length: int
    # Seconds after which an accepted request that shows no effect counts as lost.
    patience: float

    @property
    def can_choose_nodes(self) -> bool:
        """Whether a scale-down can name the nodes to remove."""

    def read(self, wanted: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups with a wanted name, in full."""

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """A line with a remedy for each part of these specs that the cloud cannot provide; the state is None where the group is to be created."""

    def list_groups(self) -> list[ListedGroup]:
        """All groups of the cluster, with as few requests as possible."""

    def get(self, group: str) -> NodeGroupState | None:
        """The group with this id, in full; None when it is gone."""

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request a group of that name with `count` nodes; None: the cloud's default."""

    def requests(
        self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[ClusterNode]
    ) -> list[CloudRequest]:
        """The requests that remain, in an order that the cloud accepts; sends nothing. leaving: the nodes that a scale-down removes."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group; a group that is gone is no error."""

    def members(self, state: NodeGroupState, nodes: t.Sequence[ClusterNode]) -> list[ClusterNode]:
        """The group's nodes among the cluster's nodes."""

    def is_busy(self, error: ServiceError) -> bool:
        """Whether the cloud refuses only because another operation is in progress."""

    def events(self, state: NodeGroupState) -> list[str]:
        """The cloud's latest events of the group, the latest last; may be empty."""


class Drainer(t.Protocol):
    """The cluster's side of a group that loses nodes; a context manager that holds the cluster's lease."""

    def __enter__(self) -> Drainer:
        """Take the lease."""

    def __exit__(self, *exception: object) -> None:
        """Release the lease."""

    def check(self) -> None:
        """Raise when the lease was lost."""

    def cluster_nodes(self) -> list[ClusterNode]:
        """All nodes of the cluster."""

    def scale_down_candidates(self, names: t.Sequence[str], count: int) -> list[str]:
        """The `count` of these nodes whose removal costs least."""

    def drain(self, names: t.Sequence[str]) -> object:
        """Cordon and drain these nodes; raises WaitTimeout after all of them were uncordoned."""

    def uncordon(self, names: t.Sequence[str]) -> object:
        """Uncordon these nodes."""
