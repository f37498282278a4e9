# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine asks of a cloud: one cluster's node groups, by a client that knows no Ansible."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.errors import ServiceError
from .spec import FieldNames, NodeGroupSpec, NodeGroupState


@dataclass(frozen=True)
class ClusterNode:
    """A node as Kubernetes knows it."""

    name: str
    ready: bool
    addresses: tuple[str, ...]
    provider_id: str
    labels: t.Mapping[str, str]


@dataclass(frozen=True)
class CloudRequest:
    """One request that brings a group nearer to what is wished; `seen` tells that it has, by what the cloud shows afterwards."""

    what: str
    send: t.Callable[[], object]
    seen: t.Callable[[NodeGroupState], bool]


@dataclass(frozen=True)
class ListedGroup:
    """What a cloud's list says of one group. settled: nothing is under way in it, as far as the list tells."""

    id: str
    name: str
    status: str
    settled: bool


class NodeGroupProvider(t.Protocol):
    """The node groups of one cluster. Every method may raise ServiceError."""

    words: FieldNames
    # Fields that no request can change.
    unchangeable: frozenset[str]
    # How long a group's name may be.
    longest_name: int
    # Seconds after which a request that was accepted and shows no effect is taken for lost.
    patience: float

    @property
    def removes_chosen(self) -> bool:
        """Whether a shrink can be told which nodes go."""

    def survey(self, wanted: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose names are wanted, with everything that is known of them."""

    def check(self, wishes: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """What of these wishes the cloud cannot do, a line each with the remedy; asks only about what would be sent. None: to be created."""

    def listed(self) -> list[ListedGroup]:
        """All groups of the cluster, by as few requests as that takes."""

    def get(self, group: str) -> NodeGroupState | None:
        """The group of this id with everything that is known of it; None when it is gone."""

    def create(self, wish: NodeGroupSpec, name: str, count: int | None) -> None:
        """Ask for a group of that name with so many nodes; None: as many as the cloud makes unless it is told."""

    def steps(self, live: NodeGroupState, wish: NodeGroupSpec, leaving: t.Sequence[ClusterNode]) -> list[CloudRequest]:
        """What remains to be sent, in an order that the cloud accepts; sends nothing. leaving: the nodes that are to go in a shrink."""

    def delete(self, live: NodeGroupState) -> None:
        """Ask for the end of a group; one that is gone is no error."""

    def members(self, live: NodeGroupState, machines: t.Sequence[ClusterNode]) -> list[ClusterNode]:
        """Which of the cluster's nodes are the group's."""

    def busy(self, error: ServiceError) -> bool:
        """Whether the cloud refuses only because something else is under way."""

    def events(self, live: NodeGroupState) -> list[str]:
        """What the cloud tells of the group's troubles, the latest last; empty where it tells nothing."""


class Drainer(t.Protocol):
    """Drains nodes of one cluster; a context manager that holds the cluster's Lease."""

    def __enter__(self) -> Drainer:
        """Take the Lease."""

    def __exit__(self, *exc_info: object) -> None:
        """Release the Lease."""

    def check(self) -> None:
        """Raise when the Lease was lost."""

    def cluster_nodes(self) -> list[ClusterNode]:
        """Return all nodes of the cluster."""

    def scale_down_candidates(self, names: t.Sequence[str], count: int) -> list[str]:
        """Return the `count` of these nodes whose removal has the least impact."""

    def drain(self, names: t.Sequence[str]) -> object:
        """Cordon the nodes and evict their pods; raises WaitTimeout after all of them are uncordoned again."""

    def uncordon(self, names: t.Sequence[str]) -> object:
        """Take back such cordons."""
