# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The view model of the HTML page, read from what gpu_info returns (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import defaultdict
from dataclasses import dataclass

from . import svg
from .badges import IN_NO_POOL, NO_NODES, POOL_DRIFT, SEVERITIES, Badge
from .formatting import plural, short_model
from .node_names import common_domain, common_prefix
from .node_view import GpuNode, natural_order, read_node
from .pool_view import PoolView
from .usage import NamespaceUsage, ResourceUsage, namespace_usage, total_usage

Document = t.Mapping[str, t.Any]

# Up to this number of nodes all tiles are open; more nodes get small tiles that are closed at first.
MAX_EXPANDED = 40
_MAX_EXPANDED_PODS = 10
_LEGEND = {
    svg.USED: "requested by a pod",
    svg.FREE: "free",
    svg.MISSING: "in the capacity, but not allocatable",
    svg.LOST: "requested, but no longer allocatable",
    svg.UNKNOWN: "allocatable; the pods were not read",
}


class ModelRow(t.NamedTuple):
    """One GPU model of the cluster."""

    name: str
    nodes: int
    gpus: int
    drivers: list[str]


class Finding(t.NamedTuple):
    """A line about some nodes, or about a pool."""

    badge: Badge | None = None
    nodes: t.Sequence[str] = ()
    text: str = ""
    pool: str | None = None


class Drift(t.NamedTuple):
    """Nodes whose pool is not clear, and why."""

    title: str
    nodes: t.Sequence[str]
    text: str = ""


@dataclass(frozen=True)
class Page:
    """Everything that the page shows; usage_known tells whether the pods were read."""

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

    @property
    def totals(self) -> str:
        """The GPUs of the cluster."""
        totals: Document = self.info.get("totals") or {}
        nodes = plural(totals.get("nodes") or 0, "node")
        return f"{plural(totals.get('gpus') or 0, 'GPU')} on {totals.get('gpu_nodes') or 0} of {nodes}"

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes; if gpu_info returned no nodes, of the whole cluster."""
        if self.nodes:
            return total_usage(self.nodes)
        totals: Document = (self.info.get("totals") or {}).get("allocatable") or {}
        return tuple(ResourceUsage(name, 0, count, 0, 0, False) for name, count in totals.items() if count)

    @property
    def models(self) -> list[ModelRow]:
        """The GPU models of the cluster."""
        models: Document = self.info.get("models") or {}
        return [
            ModelRow(
                short_model(model or "not discovered"),
                row.get("nodes") or 0,
                row.get("gpus") or 0,
                row.get("drivers") or ["?"],
            )
            for model, row in models.items()
        ]

    @property
    def findings(self) -> list[Finding]:
        """What needs attention: the badges of nodes, the worst first, then what this page does not show."""
        nodes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for node in self.nodes:
            for badge in node.badges:
                nodes[badge.text, badge.severity].append(node.name)
        ordered = sorted(nodes.items(), key=lambda entry: (SEVERITIES.index(entry[0][1]), entry[0][0]))
        findings = [Finding(Badge(text, severity), names) for (text, severity), names in ordered]
        for pool in self.declared_pools:
            if pool.unlisted_drifted_nodes > 0:
                more = f"{plural(pool.unlisted_drifted_nodes, 'more node')} of "
                findings.append(Finding(POOL_DRIFT, text=more, pool=pool.name))
            if not pool.node_count:
                findings.append(Finding(NO_NODES, pool=pool.name))
        if self.info.get("unclaimed"):
            findings.append(Finding(IN_NO_POOL, list(self.info["unclaimed"])))
        hidden = self.info.get("nodes_not_shown") or 0
        if hidden:
            text = f"{plural(hidden, 'more GPU node')} {'is' if hidden == 1 else 'are'} not on this page: increase the option limit of gpu_info."
            findings.append(Finding(text=text))
        return findings

    @functools.cached_property
    def namespaces(self) -> tuple[list[str], list[NamespaceUsage]]:
        """All requested resources, and what each namespace requests."""
        return namespace_usage(self.nodes)

    @property
    def drift(self) -> list[Drift]:
        """The nodes that belong to no pool or to several, and those that a run does not wait for."""
        entries = [
            Drift("Matches several pools", [node], f"{', '.join(map(str, pools))}. The node is not changed.")
            for node, pools in sorted((self.info.get("overlaps") or {}).items())
        ]
        unusual = (self.info.get("unusual_nodes") or [])[:100]
        entries += [Drift("Not waited for", [entry["name"]], str(entry["reason"])) for entry in unusual]
        titles = {
            "undiscovered": "Not labelled by gpu-feature-discovery yet",
            "released": "Released: no longer in a pool, and the labels of the pool are to be removed",
            "unclaimed": "GPU nodes that match no pool",
        }
        return [*entries, *(Drift(title, list(self.info[key])) for key, title in titles.items() if self.info.get(key))]

    @functools.cached_property
    def drawings(self) -> dict[t.Hashable, tuple[str, svg.Drawing]]:
        """The id and the drawing of each appearance of nodes; equal nodes refer to one drawing."""
        drawings: dict[t.Hashable, tuple[str, svg.Drawing]] = {}
        for node in self.nodes:
            if node.appearance not in drawings:
                drawings[node.appearance] = f"d{len(drawings)}", svg.draw_node(node)
        return drawings

    @property
    def legend(self) -> list[tuple[svg.Drawing, str]]:
        """The states that occur, and how GPUs are drawn."""
        states = [svg.USED, svg.FREE] if self.usage_known else [svg.UNKNOWN]
        states += [svg.MISSING] if any(usage.missing for usage in self.usage) else []
        states += [svg.LOST] if any(usage.lost for usage in self.usage) else []
        return [
            *((svg.legend_cell(state), _LEGEND[state]) for state in states),
            (svg.legend_gpu(), "the shares of one GPU"),
            (svg.legend_node(), "GPUs and the shares of their node; which GPU has which share is not known"),
        ]


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
