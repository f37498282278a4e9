# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the view model of the HTML page from the result of gpu_info (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import Counter, defaultdict
from dataclasses import dataclass

from ..schema.messages import abbreviate
from .drawing import NodeDrawing, node_drawing
from .facts import is_idle, page_facts, totals_title
from .formatting import DOT, has_failed_validation, pending_changes, plural
from .node_view import BAD, DRIFT, NOTE, OK, SEVERITIES, WARN, Badge, GpuNode, natural_order, read_node
from .scaling_text import ScalingSummary, scaling_summaries
from .usage import NamespaceUsage, ResourceUsage, namespace_usage, total_usage

Document = t.Mapping[str, t.Any]

# Up to this number of nodes, the tiles are large and initially open; with more nodes, the tiles are small and initially closed.
MAX_EXPANDED = 40
_MAX_EXPANDED_PODS = 10
# The maximum number of namespaces or drivers on a tile, and the maximum number of rows in the table of namespaces.
MAX_IN_TILE, MAX_ROWS = 3, 200
# Names of nodes up to this length are shown unchanged.
MAX_NAME_LENGTH = 18
_ELLIPSIS = "\u2026"


@dataclass(frozen=True)
class PoolView:
    """The nodes of one pool, or the nodes without a pool (name is None).

    `declared` is the pool in the result of gpu_info; None for an undeclared pool. `prefix` and `domain` are common to the
    names of all nodes. `scaling` explains whether OpenShift's autoscaler scales the pool.
    """

    key: str
    name: str | None
    declared: Document | None
    reachable: bool
    nodes: tuple[GpuNode, ...]
    prefix: str = ""
    domain: str = ""
    scaling: tuple[ScalingSummary, ...] = ()

    @property
    def info(self) -> Document:
        """The pool in the result of gpu_info."""
        return self.declared or {}

    @property
    def is_idle(self) -> bool:
        """Whether the pool has no nodes at the moment, which its node group allows; this needs no attention."""
        return not self.nodes and is_idle(self.info) and not self.cannot_scale

    @property
    def cannot_scale(self) -> list[str]:
        """The reasons why the autoscaler adds no node to the pool, although the pool declares autoscaling; empty if it does, or if this is unknown."""
        return [summary.text for summary in self.scaling if summary.scales is False and not summary.at_maximum]

    @property
    def as_declared(self) -> bool:
        """Whether all nodes match the pool's declaration."""
        return bool(self.info.get("as_declared"))

    @property
    def node_count(self) -> int:
        """The pool's number of nodes in the cluster, even if the page does not show all of them."""
        return self.info.get("nodes") or 0

    @property
    def drifted_nodes(self) -> int:
        """The number of nodes that are not as declared, even if the page does not show all of them."""
        return self.info.get("drifted_nodes") or 0

    @property
    def unlisted_drifted_nodes(self) -> int:
        """The number of nodes that are not as declared and whose tiles do not show this."""
        return self.drifted_nodes - sum(badge.text == DRIFT for node in self.nodes for badge in node.badges)

    @property
    def badge(self) -> Badge:
        """The state of the pool."""
        if self.declared is None:
            return Badge("not declared", NOTE)
        if not self.reachable:
            return Badge("not reachable", NOTE)
        if self.cannot_scale:
            return Badge("cannot scale", BAD if not self.node_count else WARN)
        if self.is_idle:
            return Badge("idle", NOTE)
        if not self.node_count:
            return Badge("no nodes", WARN)
        if has_failed_validation(self.info):
            return Badge("validation failed", BAD)
        return Badge("as declared", OK) if self.as_declared else Badge(DRIFT, WARN)

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes of the pool."""
        return total_usage(self.nodes)

    @property
    def declared_facts(self) -> str:
        """The facts that the pool declares, such as its sharing mode."""
        return DOT.join(page_facts(self.info, observed=False))

    @property
    def observed_facts(self) -> str:
        """The facts that are known from the nodes of the pool, such as their number."""
        return DOT.join(page_facts(self.info, observed=True))

    def expected_units(self, resource: str) -> int | None:
        """The number of units of a resource that the pool declares; None for a resource that it does not declare."""
        resources: Document = self.info.get("resources") or {self.info.get("resource"): self.info}
        return (resources.get(resource) or {}).get("expected")

    @property
    def drift(self) -> list[str]:
        """The differences between the pool and its declaration, and the changes that a run would make."""
        reported = self.info.get("drift") or ()
        lines = [*map(str, reported), *pending_changes(self.info)]
        if self.reachable and not self.node_count and not self.is_idle:
            lines.append("no node of the cluster belongs to the pool")
        if reported and self.drifted_nodes > len(reported):
            lines.append(f"and {plural(self.drifted_nodes - len(reported), 'more node')}")
        return lines

    @functools.cached_property
    def common_facts(self) -> dict[str, str]:
        """The facts that more than half of the nodes have in common."""
        counts = Counter(entry for node in self.nodes for entry in node.facts.items())
        return {kind: text for (kind, text), count in counts.items() if count * 2 > len(self.nodes)}

    @property
    def common_text(self) -> str:
        """The common facts of the nodes, as text."""
        parts = list(self.common_facts.values())
        parts += [f"names begin with {self.prefix}"] if self.prefix else []
        parts += [f"names end with {self.domain}"] if self.domain else []
        uniform = all(node.facts == self.common_facts for node in self.nodes)
        return DOT.join(parts) + ("" if uniform or not parts else ". Nodes that differ show their own values.")

    def label(self, node: GpuNode) -> str:
        """The name of a node on its tile, without the domain; an ellipsis replaces the prefix."""
        host = node.name.removesuffix(self.domain)
        return f"{_ELLIPSIS}{host.removeprefix(self.prefix)}" if self.prefix else host

    def is_cut_off(self, node: GpuNode) -> bool:
        """Whether the tile may show only a part of the name."""
        label = self.label(node)
        return label != node.name or len(label) > MAX_NAME_LENGTH


@dataclass(frozen=True)
class Page:
    """The content of the page. `usage_known` shows whether the pods were read."""

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
        """Whether the tile of a node is initially open."""
        return not self.is_dense and len(node.pods or ()) <= _MAX_EXPANDED_PODS

    @property
    def summary(self) -> str:
        """The state of the cluster as one sentence."""
        if not self.reachable:
            return f"Cannot reach the cluster: {self.info.get('reason') or 'the reason is not known'}"
        pools = self.declared_pools
        if not pools:
            return "No pools are declared."
        good = sum(pool.as_declared and bool(pool.node_count) for pool in pools)
        idle = sum(pool.is_idle for pool in pools)
        empty = sum(not pool.node_count for pool in pools) - idle
        drifted = len(pools) - good - empty - idle
        failed = sum(has_failed_validation(pool.info) for pool in pools)
        failure = [f"the validation of {plural(failed, 'pool')} failed"] if failed else []
        stuck = sum(bool(pool.cannot_scale) for pool in pools)
        failure += [f"{plural(stuck, 'pool')} cannot scale"] if stuck else []
        if good == len(pools):
            text = "The pool is as declared" if good == 1 else f"All {good} pools are as declared"
            return "; ".join([text, *failure]) + "."
        parts = [f"{good} of {plural(len(pools), 'pool')} {'is' if good == 1 else 'are'} as declared"]
        parts += [f"{drifted} differ{'s' if drifted == 1 else ''}"] if drifted else []
        parts += [f"{empty} {'has' if empty == 1 else 'have'} no nodes"] if empty else []
        parts += [f"{idle} {'is' if idle == 1 else 'are'} idle"] if idle else []
        parts += failure
        return "; ".join(parts) + "."

    @property
    def origin(self) -> str:
        """When the data was read, the versions of the cluster's components and the licenses of vGPU nodes, as far as they are known."""
        info = self.info
        installed: Document = info.get("installed") or {}
        drivers = sorted(
            {str(item) for row in (info.get("models") or {}).values() for item in row.get("driver_versions") or ()}
        )
        versions = (
            ("Kubernetes", [str(item) for item in info.get("kubelet_versions") or ()]),
            ("OpenShift", [str((info.get("autoscaling") or {}).get("version") or "")]),
            ("GPU operator", [str((installed.get("operator") or {}).get("version") or "")]),
            ("NFD", [str((installed.get("nfd") or {}).get("version") or "")]),
            ("driver", drivers),
        )
        shown = [
            f"{name} {abbreviate(known)}" for name, all_known in versions if (known := list(filter(None, all_known)))
        ]
        licenses = str((info.get("licenses") or {}).get("summary") or "")
        return DOT.join([*([f"Read {info['time']}"] if info.get("time") else []), *shown, *filter(None, [licenses])])

    @property
    def warnings(self) -> list[str]:
        """The warnings about the variables and the cluster."""
        return [str(text) for text in self.info.get("warnings") or ()]

    @property
    def totals_title(self) -> str:
        """The number of GPUs and nodes of the cluster."""
        return totals_title(self.info.get("totals") or {})

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all nodes, or of the whole cluster if gpu_info returned no nodes."""
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
        """All requested resources, and the requests of each namespace."""
        return namespace_usage(self.nodes)

    @functools.cached_property
    def drawings(self) -> dict[t.Hashable, tuple[str, NodeDrawing]]:
        """The id and the drawing for each appearance. Nodes with the same appearance refer to the same drawing."""
        drawings: dict[t.Hashable, tuple[str, NodeDrawing]] = {}
        for node in self.nodes:
            if node.appearance not in drawings:
                drawings[node.appearance] = f"d{len(drawings)}", node_drawing(node)
        return drawings


def build_page(info: Document) -> Page:
    """Build the view model from the result of gpu_info, or from a JSON file that contains this result."""
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
    scaling = scaling_summaries(info, "report")
    pools = []
    for at, name in enumerate(names):
        members = sorted(nodes[name], key=lambda node: natural_order(node.name))
        hosts = [node.name.removesuffix(domain) for node in members]
        prefix = common_prefix(hosts) if len(rows) > MAX_EXPANDED else ""
        pool = declared.get(name) if name else None
        explained = tuple(summary for summary in scaling if summary.pool == name)
        pools.append(PoolView(f"g{at}", name, pool, reachable, tuple(members), prefix, domain, explained))
    return Page(
        cluster=str(info.get("cluster") or "(unnamed)"),
        reachable=reachable,
        info=info,
        pools=tuple(pools),
        usage_known=any("workloads" in row for row in rows),
    )


def common_domain(names: t.Sequence[str]) -> str:
    """The end of the names, starting at the first dot, if it is the same for all names and not part of an IP address; otherwise empty."""
    domains = {name.partition(".")[2] for name in names}
    (domain,) = domains if len(domains) == 1 else ("",)
    return f".{domain}" if len(names) > 1 and any(char.isalpha() for char in domain) else ""


def common_prefix(names: t.Sequence[str]) -> str:
    """The common beginning of all names, up to a hyphen, if at least one name is too long for a small tile; otherwise empty."""
    if len(names) < 2 or max(map(len, names)) <= MAX_NAME_LENGTH:
        return ""
    first, last = min(names), max(names)  # the prefix of these two is the prefix of all
    differ = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    prefix = first[: first.rfind("-", 0, differ) + 1]
    return prefix if len(prefix) > len(_ELLIPSIS) + 1 else ""
