# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pools of the page: what their cards show, and what their nodes have in common (pure)."""

from __future__ import annotations

import functools
import typing as t
from collections import Counter
from dataclasses import dataclass

from ..schema.messages import abbreviate
from .badges import DRIFT, Badge, pool_badge
from .formatting import (
    DOT,
    memory,
    mig_layout,
    pending_changes,
    plural,
    sharing_mode,
    short_model,
)
from .node_names import MAX_LENGTH, short_name
from .node_view import GpuNode
from .usage import ResourceUsage, total_usage

Document = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class PoolView:
    """The nodes of one pool, or those without a pool (name is None).

    declared is what gpu_info returns for the pool, None for a pool that is not declared. The prefix and the domain are common
    to the names of the nodes.
    """

    key: str
    name: str | None
    declared: Document | None
    reachable: bool
    nodes: tuple[GpuNode, ...]
    prefix: str = ""
    domain: str = ""

    @property
    def info(self) -> Document:
        """What gpu_info returns for the pool."""
        return self.declared or {}

    @property
    def as_declared(self) -> bool:
        """Whether all nodes are as the pool declares."""
        return bool(self.info.get("as_declared"))

    @property
    def node_count(self) -> int:
        """The nodes in the cluster, on this page or not."""
        return self.info.get("nodes") or 0

    @property
    def drifted_nodes(self) -> int:
        """The nodes that are not as declared, on this page or not."""
        return self.info.get("drifted_nodes") or 0

    @property
    def unlisted_drifted_nodes(self) -> int:
        """The nodes that are not as declared, without those whose tiles show that."""
        return self.drifted_nodes - sum(badge.text == DRIFT for node in self.nodes for badge in node.badges)

    @property
    def badge(self) -> Badge:
        """The state of the pool."""
        return pool_badge(self.declared, self.reachable)

    @functools.cached_property
    def usage(self) -> tuple[ResourceUsage, ...]:
        """The resources of all its nodes."""
        return total_usage(self.nodes)

    @property
    def description(self) -> str:
        """What the pool is: the models, the sharing mode and the memory of a share."""
        share, shares = self.info.get("memory_mib_per_share"), self.info.get("shares_per_gpu")
        models = [short_model(model) for model in self.info.get("models") or [self.info.get("model") or "any GPU"]]
        mode = sharing_mode(self.info.get("mode"), self.info.get("replicas"))
        parts = [abbreviate(models, 3), ": ".join(filter(None, [mode, mig_layout(self.info)]))]
        if share:
            parts.append(f"{memory(share)} per GPU" if shares == 1 else f"{memory(share)} per share")
        return DOT.join(parts)

    def wanted(self, resource: str) -> int | None:
        """The units of a resource that the pool declares; None for other resources."""
        resources: Document = self.info.get("resources") or {self.info.get("resource"): self.info}
        return (resources.get(resource) or {}).get("expected")

    @property
    def drift(self) -> list[str]:
        """How the pool differs from its declaration, and what a run would change."""
        reported = self.info.get("drift") or ()
        lines = [*map(str, reported), *pending_changes(self.info)]
        if self.reachable and not self.node_count:
            lines.append("no node of the cluster belongs to the pool")
        if reported and self.drifted_nodes > len(reported):
            lines.append(f"and {plural(self.drifted_nodes - len(reported), 'more node')}")
        return lines

    @functools.cached_property
    def common_properties(self) -> dict[str, str]:
        """The properties of more than half of the nodes."""
        counts = Counter(entry for node in self.nodes for entry in node.properties.items())
        return {kind: text for (kind, text), count in counts.items() if count * 2 > len(self.nodes)}

    @property
    def common_text(self) -> str:
        """What the nodes have in common."""
        parts = list(self.common_properties.values())
        parts += [f"names begin with {self.prefix}"] if self.prefix else []
        parts += [f"names end with {self.domain}"] if self.domain else []
        uniform = all(node.properties == self.common_properties for node in self.nodes)
        return DOT.join(parts) + ("" if uniform or not parts else ". Nodes that differ show their own values.")

    def label(self, node: GpuNode) -> str:
        """The name of a node on its tile."""
        return short_name(node.name, self.prefix, self.domain)

    def is_cut_off(self, node: GpuNode) -> bool:
        """Whether the tile may not show the full name."""
        label = self.label(node)
        return label != node.name or len(label) > MAX_LENGTH
