# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the license states of a cluster's current nodes, repeatedly while a run waits."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from .overview import NodeState, node_states
from .token import utc_now

if t.TYPE_CHECKING:
    from ..common.progress import Progress
    from .cluster import LicenseCluster
    from .container import LicenseContainers
    from .driver_pods import LicenseNode, Reading

    class ReadAll(t.Protocol):
        """A function that reads nodes."""

        def __call__(self, nodes: t.Sequence[LicenseNode], *, on_done: t.Callable[[int], None]) -> dict[str, Reading]:
            """Return the readings by name; `on_done` is called with the number of nodes that were read."""


class LicenseVerification:
    """The license states of all nodes. Each read lists the nodes and pods once, and reads the state only of nodes where it may have changed."""

    def __init__(
        self,
        cluster: t.Callable[[], LicenseCluster],
        read_all: ReadAll,
        progress: Progress,
    ) -> None:
        """Store the arguments; no request is sent yet. `cluster` returns a new LicenseCluster, from which nothing has been read yet, and `read_all`
        returns the readings of nodes.
        """
        self._new_cluster = cluster
        self._read_all = read_all
        self._progress = progress
        self._readings: dict[str, Reading] = {}
        self.cluster = cluster()
        self.states: list[NodeState] = []

    def read(self) -> list[NodeState]:
        """The current nodes with their states; nodes with a problem come first."""
        cluster = self._new_cluster()
        nodes = cluster.license_nodes()
        known = {state.node.name: state for state in self.states}
        pending = [node for node in nodes if _is_outdated(known.get(node.name), node)]
        self._readings |= self._read_all(
            pending,
            on_done=lambda count: self._progress.report("reading the licenses of nodes", count, len(pending)),
        )
        self.cluster = cluster
        return self._evaluate(nodes)

    def check_services(self, containers: LicenseContainers) -> list[NodeState]:
        """Check the license servers from the nodes that need a license now, but have none; returns the states of all nodes."""
        unlicensed = [state.node for state in self.states if state.is_missing and state.reading.is_unlicensed]
        for name, services in containers.check_all(unlicensed, self.cluster.expected_of).items():
            self._readings[name] = replace(self._readings[name], services=services)
        return self._evaluate([state.node for state in self.states])

    def _evaluate(self, nodes: t.Iterable[LicenseNode]) -> list[NodeState]:
        self.states = node_states(nodes, self._readings, self.cluster.expected_of, utc_now())
        return self.states


def _is_outdated(known: NodeState | None, node: LicenseNode) -> bool:
    """Whether a node must be read, for the first time or again: the node has no license but needs one, or its driver pod has changed, for example because
    the node was replaced.
    """
    if known is None or known.node.pod != node.pod:
        return True
    return not known.reading.is_licensed and not node.not_required
