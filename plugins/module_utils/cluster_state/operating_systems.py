# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the operating systems of the nodes of each pool from NFD's labels; the tags of driver images depend on them (pure)."""

from __future__ import annotations

import functools
import re
import typing as t

from ..catalog.driver_images import KERNEL_LABEL, OS_LABELS
from ..catalog.names import NFD_PREFIX
from ..common.errors import InvalidOptions
from .node import parse_node
from .pool_assignment import assign_pools

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node

# ID and VERSION_ID of /etc/os-release.
System = tuple[str, str]
_SYSTEM = re.compile(r"(?P<system>[a-z]+(?:[-_][a-z]+)*)(?P<version>\d+(?:\.\d+)*)")


class NodeSystems:
    """The operating systems of pools: the given ones, or those of the pools' nodes if none are given."""

    def __init__(
        self, given: t.Sequence[str], pools: t.Sequence[PoolPlan], read_nodes: t.Callable[[], t.Iterable[t.Any]]
    ) -> None:
        """`read_nodes` lists the nodes; it is called only for kernels, or if no systems are given. Raises InvalidOptions with all errors in `given`."""
        self._given = parse_systems(given)
        self._pools, self._read_nodes = pools, read_nodes
        self._by_pool: dict[str, set[System]] = {}
        self._all: set[System] = set()
        if self._given:
            return
        nodes = self._nodes
        by_name = {node.name: system for node in nodes if (system := system_of(node))}
        gpu_nodes = {node.name for node in nodes if node.has_gpu}
        self._all = {system for name, system in by_name.items() if name in gpu_nodes} or set(by_name.values())
        for pool, names in assign_pools(pools, nodes).by_pool.items():
            self._by_pool[pool] = {by_name[name] for name in names if name in by_name}

    def of_pool(self, pool: PoolPlan) -> set[System]:
        """The systems of a pool's nodes; those of all GPU nodes if none are known yet."""
        return self._given or self._by_pool.get(pool.name) or self._all

    def of_all(self) -> set[System]:
        """The systems of all GPU nodes; those of all nodes while no GPU is known."""
        return self._given or self._all

    def kernels(self, pool: PoolPlan | None) -> set[tuple[System, str]]:
        """The pairs of system and kernel of a pool's nodes, or of all GPU nodes if the pool has none. The tags of precompiled drivers contain both."""
        names = assign_pools(self._pools, self._nodes).by_pool.get(pool.name, ()) if pool else ()
        chosen = [node for node in self._nodes if node.name in set(names)] or [
            node for node in self._nodes if node.has_gpu
        ]
        return {(system, kernel) for node in chosen if (system := system_of(node)) and (kernel := kernel_of(node))}

    @functools.cached_property
    def _nodes(self) -> list[Node]:
        return [parse_node(item) for item in self._read_nodes()]


def parse_systems(texts: t.Sequence[str]) -> set[System]:
    """Parse operating systems, for example rhel9.6 or ubuntu22.04; raises InvalidOptions with all errors."""
    matches = [_SYSTEM.fullmatch(text) for text in texts]
    problems = [
        f"operating_systems[{index}]: {text!r} is not an operating system; specify ID and VERSION_ID from /etc/os-release, such as rhel9.6"
        for index, (text, match) in enumerate(zip(texts, matches, strict=True))
        if match is None
    ]
    if problems:
        raise InvalidOptions(problems)
    return {(match["system"], match["version"]) for match in matches if match}


def system_of(node: Node) -> System | None:
    """The operating system of a node; None if NFD has not labeled it."""
    system, version = (node.labels.get(f"{NFD_PREFIX}{label}", "") for label in OS_LABELS)
    return (system, version) if system and version else None


def kernel_of(node: Node) -> str:
    """The kernel of a node; empty if NFD has not labeled it."""
    return node.labels.get(f"{NFD_PREFIX}{KERNEL_LABEL}", "")
