# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node is seen to be what its pool declares, and if not, what is seen instead (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import GPU_RESOURCE, INVALID_SUFFIX, PRODUCT_LABEL, SHARED_GPU_RESOURCE
from .node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan


@dataclass(frozen=True)
class Finding:
    """What of a node is not as its pool declares; final when waiting cannot change it."""

    node: str
    pool: str
    seen: tuple[str, ...]
    final: bool = False

    def __str__(self) -> str:
        return f"{self.node} (pool {self.pool}): {'; '.join(self.seen)}"


def prove(node: Node, pool: PoolPlan) -> Finding | None:
    """None when GFD's labels and the allocatable resources are what the pool declares."""
    if not node.discovered:
        return Finding(node.name, pool.name, ("has an NVIDIA GPU that gpu-feature-discovery has not labelled yet",))
    if node.product.endswith(INVALID_SUFFIX):
        return Finding(node.name, pool.name, (f"{PRODUCT_LABEL} is {node.product}: its MIG layout cannot be used",))
    seen = [*_labels(node, pool), *_resources(node, pool)]
    hardware = _hardware(node, pool)
    if hardware:
        # Labels and resources that agree are settled: a missing card does not come back by waiting.
        return Finding(node.name, pool.name, (hardware, *seen), final=not seen)
    return Finding(node.name, pool.name, tuple(seen)) if seen else None


def settled(findings: t.Mapping[str, Finding]) -> bool:
    """Whether waiting can change nothing any more."""
    return all(finding.final for finding in findings.values())


def pending_words(findings: t.Mapping[str, Finding], undiscovered: t.Collection[str]) -> str:
    """What a wait still waits for, in a few words."""
    waiting = [f"{len(findings)} nodes not as declared yet"] if findings else []
    if undiscovered:
        waiting.append(f"{len(undiscovered)} GPU nodes not discovered yet")
    return ", ".join(waiting) or "all nodes as declared"


def wanted_shares(node: Node, pool: PoolPlan) -> int:
    """How many of the pool's resource the node must offer."""
    return node.gpus * pool.shares_per_gpu


def _labels(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    for key, wanted in sorted(pool.gfd.items()):
        live = node.labels.get(key)
        if key != PRODUCT_LABEL and live != wanted:
            yield f"label {key} is {live or 'absent'}, {wanted} is expected"
    product = node.model + pool.product_suffix
    if node.product != product:
        yield f"label {PRODUCT_LABEL} is {node.product}, {product} is expected"


def _resources(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    wanted = wanted_shares(node, pool)
    live = node.allocatable.get(pool.resource, 0)
    if live != wanted:
        capacity = node.capacity.get(pool.resource, 0)
        # The kubelet keeps the capacity and drops the allocatable while no plugin is registered for the resource.
        why = "no plugin is registered" if live == 0 else "GPUs are unhealthy"
        lost = f" of a capacity of {capacity}: {why}" if live < capacity == wanted else ""
        yield f"allocatable {pool.resource} is {live}{lost}, {wanted} is expected"
    for other in (GPU_RESOURCE, SHARED_GPU_RESOURCE):
        if other != pool.resource and node.allocatable.get(other, 0):
            yield f"allocatable {other} is still {node.allocatable[other]}"


def _hardware(node: Node, pool: PoolPlan) -> str | None:
    if pool.gpus_per_node in (None, node.gpus):
        return None
    return f"has {node.gpus} GPU(s), gpus_per_node says {pool.gpus_per_node}"
