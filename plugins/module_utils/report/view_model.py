# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view model of the HTML page, read from what gpu_info returns (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import defaultdict
from dataclasses import dataclass

from . import svg
from .badges import SEVERITIES, Badge
from .formatting import plural
from .node_names import common_domain, common_prefix
from .node_view import GpuNode, natural_order, read_node
from .pool_view import PoolView
from .usage import NamespaceUsage, ResourceUsage, namespace_usage, total_usage

Document = t.Mapping[str, t.Any]

# Up to this number of nodes all tiles are open; more nodes get small tiles that are closed at first.
MAX_EXPANDED = 40
_MAX_EXPANDED_PODS = 10


@dataclass(frozen=True)
class Page:
    """Everything that the page shows; usage_known: whether the pods were read."""

    cluster: str
    reachable: bool
    info: Document
    pools: tuple[PoolView, ...]
    usage_known: bool

    @functools.cached_property
    def nodes(self) -> tuple[GpuNode, ...]:
        """All nodes in the order of the page."""
        return tuple(node for pool in self.pools for node in pool.nodes)

    @functools.cached_property
    def node_keys(self) -> dict[str, str]:
        """The id of each node by its name."""
        return {node.name: node.key for node in self.nodes}

    @functools.cached_property
    def declared_pools(self) -> tuple[PoolView, ...]:
        """The pools that are declared."""
        return tuple(pool for pool in self.pools if pool.declared is not None)

    @property
    def is_dense(self) -> bool:
        """Whether the tiles are small."""
        return len(self.nodes) > MAX_EXPANDED

    def is_expanded(self, node: GpuNode) -> bool:
        """Whether the tile of a node is open at first."""
        return not self.is_dense and len(node.pods or ()) <= _MAX_EXPANDED_PODS

    @property
    def summary(self) -> str:
        """The state of the cluster in a sentence or two."""
        if not self.reachable:
            return f"Cannot reach the cluster: {self.info.get('reason') or 'the reason is not known'}"
        pools = self.declared_pools
        if not pools:
            return "No pools are declared."
        good = sum(pool.as_declared for pool in pools)
        empty = sum(not pool.node_count for pool in pools)
        drifted = len(pools) - good - empty
        if good == len(pools):
            return "The pool is as declared." if good == 1 else f"All {good} pools are as declared."
        parts = [f"{good} of {plural(len(pools), 'pool')} {'is' if good == 1 else 'are'} as declared"]
        parts += [f"{drifted} differ{'s' if drifted == 1 else ''}"] if drifted else []
        parts += [f"{empty} {'has' if empty == 1 else 'have'} no nodes"] if empty else []
        return "; ".join(parts) + "."

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes; if gpu_info returned no nodes, of the whole cluster."""
        if self.nodes:
            return total_usage(self.nodes)
        totals: Document = (self.info.get("totals") or {}).get("allocatable") or {}
        return tuple(ResourceUsage(name, 0, count, 0, 0, False) for name, count in totals.items() if count)

    @property
    def flagged_nodes(self) -> list[tuple[Badge, list[str]]]:
        """The names of the nodes with each badge, the most severe badge first."""
        nodes: dict[tuple[int, str], list[str]] = defaultdict(list)
        for node in self.nodes:
            for badge in node.badges:
                nodes[SEVERITIES.index(badge.severity), badge.text].append(node.name)
        return [(Badge(text, SEVERITIES[rank]), names) for (rank, text), names in sorted(nodes.items())]

    @functools.cached_property
    def namespaces(self) -> tuple[list[str], list[NamespaceUsage]]:
        """All requested resources, and what each namespace requests."""
        return namespace_usage(self.nodes)

    @functools.cached_property
    def drawings(self) -> dict[t.Hashable, tuple[str, svg.Drawing]]:
        """The id and the drawing of each appearance of nodes; equal nodes refer to one drawing."""
        drawings: dict[t.Hashable, tuple[str, svg.Drawing]] = {}
        for node in self.nodes:
            if node.appearance not in drawings:
                drawings[node.appearance] = f"d{len(drawings)}", svg.draw_node(node)
        return drawings


def build_page(info: Document) -> Page:
    """The view model of what gpu_info returned, or of the JSON file that it wrote."""
    declared: Document = info.get("pools") or {}
    rows: t.Sequence[Document] = info.get("nodes") or ()
    nodes: dict[str | None, list[GpuNode]] = defaultdict(list)
    for at, row in enumerate(rows):
        node = read_node(f"n{at}", row, declared, info)
        nodes[node.pool].append(node)
    undeclared = sorted(name for name in nodes if name is not None and name not in declared)
    names: list[str | None] = [*declared, *undeclared, *([None] if None in nodes else [])]
    domain = common_domain([node.name for members in nodes.values() for node in members])
    reachable = bool(info.get("reachable"))
    pools = []
    for at, name in enumerate(names):
        members = sorted(nodes[name], key=lambda node: natural_order(node.name))
        hosts = [node.name.removesuffix(domain) for node in members]
        prefix = common_prefix(hosts) if len(rows) > MAX_EXPANDED else ""
        pool = declared.get(name) if name else None
        pools.append(PoolView(f"g{at}", name, pool, reachable, tuple(members), prefix, domain))
    return Page(
        cluster=str(info.get("cluster") or "(unnamed)"),
        reachable=reachable,
        info=info,
        pools=tuple(pools),
        usage_known=any("workloads" in row for row in rows),
    )
