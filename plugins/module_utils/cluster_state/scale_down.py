# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the nodes that a scale-down removes first (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from .cordon import is_cordoned_for_removal
from .eviction_rules import Keep, blocking_pods, eviction_of

if t.TYPE_CHECKING:
    from ..pools.drain_options import DrainOptions
    from .gpu_pods import PodOnNode
    from .node import Node


def scale_down_candidates(
    nodes: t.Iterable[Node], pods_by_node: t.Mapping[str, t.Sequence[PodOnNode]], count: int, options: DrainOptions
) -> list[Node]:
    """Select up to `count` nodes whose removal has the smallest impact, the best candidate first. `pods_by_node` contains all pods (gpu_pods.parse_pods).

    Nodes with a pod that may not be evicted come last. The other nodes are preferred in this order: nodes that an earlier run has begun to drain, nodes
    without GPU pods, nodes whose GPU pods have a lower maximum priority, nodes with fewer GPU pods, nodes with fewer pods, and newer nodes.
    """

    # If evictions are disabled, no pod blocks a drain. Even then, nodes without pods that would otherwise block it are preferred.
    evicting = replace(options, evict=True)

    def impact(node: Node) -> tuple[t.Any, ...]:
        pods = [pod for pod in pods_by_node.get(node.name, ()) if not isinstance(eviction_of(pod, evicting), Keep)]
        gpu_pods = [pod for pod in pods if pod.access]
        return (
            bool(blocking_pods(pods, evicting)),
            not is_cordoned_for_removal(node),
            bool(gpu_pods),
            max((pod.priority for pod in gpu_pods), default=0),
            len(gpu_pods),
            len(pods),
        )

    youngest_first = sorted(nodes, key=lambda node: (node.created, node.name), reverse=True)
    return sorted(youngest_first, key=impact)[: max(0, count)]
