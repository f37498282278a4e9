# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node belongs to which pool, and what is odd about it."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ..catalog import models, names
from ..nodegroups.names import is_of
from .plan import PoolPlan


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """What membership needs to know of a Node object."""

    name: str
    labels: t.Mapping[str, str]
    annotations: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def product(self) -> str:
        """GFD's product name as published; empty before discovery."""
        return self.labels.get(names.PRODUCT_LABEL, "")

    @property
    def has_gpu(self) -> bool:
        """True once NFD or the operator has seen a GPU in it."""
        if self.product or self.labels.get(names.GPU_PRESENT_LABEL) == "true":
            return True
        return any(self.labels.get(label) == "true" for label in names.PCI_PRESENT_LABELS)

    @property
    def pin(self) -> str:
        """The pool that the node's own label names; empty when it names none."""
        return self.labels.get(names.POOL_LABEL, "")


@dataclasses.dataclass(frozen=True)
class Membership:
    """All lists hold node names, sorted."""

    by_pool: dict[str, list[str]]
    overlaps: dict[str, list[str]]
    """Nodes that more than one pool matches, with those pools; such a node is in none of them."""
    empty: list[str]
    """Pools without a node."""
    undiscovered: list[str]
    """Nodes with a GPU whose model is not known yet; pinned ones are in their pool as well."""
    left: dict[str, list[str]]
    """Nodes pinned to a pool that is not declared, by the name of that pool."""
    mismatched: dict[str, list[str]]
    """Nodes pinned to a pool whose match does not fit them, by pool; the pin counts."""
    unclaimed: list[str]
    """Discovered GPU nodes that no pool wants."""
    unlike: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes of another model than the one that their pool says it makes, by pool; they are in it nevertheless."""


def fits(pool: PoolPlan, node: NodeFacts) -> bool:
    """True when the node is what the pool's match asks for; a pool without match asks for nothing and gets nothing."""
    match = pool.match
    if match.pins_only or not node.has_gpu:
        return False
    if any(node.labels.get(key) != value for key, value in match.labels.items()):
        return False
    return not match.products or _product(node) in {models.normal(product) for product in match.products}


def is_from_group(pool: PoolPlan, node: NodeFacts) -> bool:
    """True when the cloud says that the node is of the group that makes the pool's nodes."""
    group = pool.group
    return group is not None and bool(group.label) and is_of(node.labels.get(group.label, ""), group.name)


def _is_unlike(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether a node, known by its pin or group and not by its model, has another one than is declared."""
    model = models.find(pool.model) if pool.model and node.product and not pool.match.products else None
    return model is not None and _product(node) not in {models.normal(product) for product in model.products}


def _product(node: NodeFacts) -> str:
    return models.normal(models.bare_product(node.product))


class _Index:
    """Finds the few pools that can match a node at all, so that hundreds of pools cost no more than a few."""

    def __init__(self, pools: t.Sequence[PoolPlan]) -> None:
        self._by_product: dict[str, list[PoolPlan]] = collections.defaultdict(list)
        self._by_label: dict[tuple[str, str], list[PoolPlan]] = collections.defaultdict(list)
        for pool in pools:
            if pool.match.labels:
                self._by_label[min(pool.match.labels.items())].append(pool)
            else:
                for product in pool.match.products:
                    self._by_product[models.normal(product)].append(pool)
        self._making = [pool for pool in pools if pool.group and pool.group.label]

    def making(self, node: NodeFacts) -> str | None:
        """The pool of whose group the node is; where two have such names, the one whose name it is to the letter."""
        named = [pool for pool in self._making if is_from_group(pool, node)]
        exact = [pool for pool in named if pool.group and node.labels[pool.group.label] == pool.group.name]
        return next((pool.name for pool in (*exact, *named)), None)

    def matching(self, node: NodeFacts) -> list[str]:
        candidates = [*self._by_product.get(_product(node), ())]
        if self._by_label:
            for label in node.labels.items():
                candidates += self._by_label.get(label, ())
        return sorted({pool.name for pool in candidates if fits(pool, node)})


def members(pools: t.Sequence[PoolPlan], nodes: t.Iterable[NodeFacts]) -> Membership:
    """Sort every node into its pool: the one that its label accel.gpu/pool names, else the one whose group it is of, else the only one
    that matches it.
    """
    declared = {pool.name: pool for pool in pools}
    index = _Index(pools)
    by_pool: dict[str, list[str]] = {name: [] for name in declared}
    overlaps: dict[str, list[str]] = {}
    undiscovered: list[str] = []
    unclaimed: list[str] = []
    left: dict[str, list[str]] = collections.defaultdict(list)
    mismatched: dict[str, list[str]] = collections.defaultdict(list)
    unlike: dict[str, list[str]] = collections.defaultdict(list)
    for node in sorted(nodes, key=lambda node: node.name):
        known = bool(node.product)
        if node.has_gpu and not known:
            undiscovered.append(node.name)
        if node.pin in declared:
            by_pool[node.pin].append(node.name)
            pool = declared[node.pin]
            if known and not pool.match.pins_only and not fits(pool, node):
                mismatched[node.pin].append(node.name)
            if _is_unlike(pool, node):
                unlike[node.pin].append(node.name)
            continue
        if node.pin:
            left[node.pin].append(node.name)
        making = index.making(node)
        if making is not None:
            by_pool[making].append(node.name)
            if _is_unlike(declared[making], node):
                unlike[making].append(node.name)
            continue
        matching = index.matching(node) if node.has_gpu else []
        if len(matching) == 1:
            by_pool[matching[0]].append(node.name)
        elif matching:
            overlaps[node.name] = matching
        elif known and not node.pin:
            unclaimed.append(node.name)
    return Membership(
        by_pool=by_pool,
        overlaps=overlaps,
        empty=[name for name, found in by_pool.items() if not found],
        undiscovered=undiscovered,
        left=dict(left),
        mismatched=dict(mismatched),
        unclaimed=unclaimed,
        unlike=dict(unlike),
    )
