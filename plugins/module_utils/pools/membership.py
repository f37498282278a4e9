# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Assigns nodes to pools by their labels alone, and finds nodes whose pool is ambiguous or unexpected (pure).

Runs use cluster_state.pool_assignment, which ignores outdated labels of earlier runs.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ..catalog import models, names
from .nodegroup_names import is_group_or_replacement
from .plan import PoolPlan

# Discovery sets the labels with these prefixes; all other labels exist from the start or are set by other tools.
DISCOVERED_PREFIXES = ("nvidia.com/", names.NFD_PREFIX)


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """The fields of a Node object that determine its pool."""

    name: str
    labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def product(self) -> str:
        """GFD's product name with the suffixes of sharing and MIG; empty before discovery."""
        return self.labels.get(names.PRODUCT_LABEL, "")

    @property
    def has_gpu(self) -> bool:
        """Whether labels of NFD, the GPU operator or GFD show an NVIDIA GPU."""
        if self.labels.get(names.GPU_PRESENT_LABEL) == "false":
            return False
        return bool(self.product) or any(
            self.labels.get(label) == "true" for label in (names.GPU_PRESENT_LABEL, *names.PCI_PRESENT_LABELS)
        )

    @property
    def pin(self) -> str:
        """The pool in the node's label accel.gpu/pool; empty without the label."""
        return self.labels.get(names.POOL_LABEL, "")


@dataclasses.dataclass(frozen=True)
class Membership:
    """The membership of nodes in pools; the lists in its fields are sorted."""

    by_pool: dict[str, list[str]]
    overlaps: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes that several pools match, with the names of these pools; the nodes belong to none of them."""
    undiscovered: list[str] = dataclasses.field(default_factory=list)
    """GPU nodes whose model is not known yet; those that are pinned also belong to their pool."""
    undeclared_pins: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes pinned to an undeclared pool, by the name of the pool."""
    mismatched: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes pinned to a pool that does not match them, by pool; the pin takes precedence."""
    unclaimed: list[str] = dataclasses.field(default_factory=list)
    """Discovered GPU nodes that belong to no pool."""
    wrong_model: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    """Nodes whose model differs from the model that their pool declares for its node group, by pool; they still belong to the pool."""
    may_be_empty: frozenset[str] = frozenset()
    """Pools whose node group may have no node."""

    @property
    def missing(self) -> list[str]:
        """Pools that should have a node, but have none."""
        return [pool for pool in self.empty if pool not in self.may_be_empty]

    @property
    def empty(self) -> list[str]:
        """Pools without a node."""
        return [pool for pool, members in self.by_pool.items() if not members]


def matches(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the node meets the pool's `match`; False for a pool without `match`."""
    match = pool.match
    if match.pins_only or not node.has_gpu:
        return False
    if any(node.labels.get(key) != value for key, value in match.labels.items()):
        return False
    return not match.products or _product(node) in {models.normalized(product) for product in match.products}


def contradicts(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the labels of a node that shows a GPU differ from the pool's `match`. A missing label that discovery sets is no evidence."""
    match = pool.match
    if match.pins_only or not node.has_gpu:
        return False
    if any(
        node.labels[key] != value if key in node.labels else not key.startswith(DISCOVERED_PREFIXES)
        for key, value in match.labels.items()
    ):
        return True
    products = {models.normalized(product) for product in match.products}
    return bool(products and node.product) and _product(node) not in products


def is_from_group(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether the node's label contains the name of the pool's node group, or of a group that replaces it."""
    group = pool.nodegroup
    return (
        group is not None
        and bool(group.group_label)
        and is_group_or_replacement(node.labels.get(group.group_label, ""), group.name)
    )


def _has_wrong_model(pool: PoolPlan, node: NodeFacts) -> bool:
    """Whether a node that belongs to the pool by its pin or node group has a model other than the declared one."""
    model = models.find(pool.model) if pool.model and node.product and not pool.match.products else None
    return model is not None and _product(node) not in {models.normalized(product) for product in model.products}


def _product(node: NodeFacts) -> str:
    return models.normalized(models.bare_product(node.product))


class _Index:
    """Finds the few candidate pools of a node, so that a search in hundreds of pools is as fast as in a few."""

    def __init__(self, pools: t.Sequence[PoolPlan]) -> None:
        self._by_product: dict[str, list[PoolPlan]] = collections.defaultdict(list)
        self._by_label: dict[tuple[str, str], list[PoolPlan]] = collections.defaultdict(list)
        for pool in pools:
            if pool.match.labels:
                self._by_label[min(pool.match.labels.items())].append(pool)
            else:
                for product in pool.match.products:
                    self._by_product[models.normalized(product)].append(pool)
        self._with_group = [pool for pool in pools if pool.nodegroup and pool.nodegroup.group_label]

    def by_nodegroup(self, node: NodeFacts) -> PoolPlan | None:
        """The pool of the node's node group; an exact name takes precedence over a name with a suffix."""
        candidates = [pool for pool in self._with_group if is_from_group(pool, node)]
        exact = [
            pool
            for pool in candidates
            if pool.nodegroup and node.labels[pool.nodegroup.group_label] == pool.nodegroup.name
        ]
        return next(iter((*exact, *candidates)), None)

    def matching(self, node: NodeFacts) -> list[str]:
        """The pools whose `match` the node meets, sorted."""
        candidates = [*self._by_product.get(_product(node), ())]
        if self._by_label:
            for label in node.labels.items():
                candidates += self._by_label.get(label, ())
        return sorted({pool.name for pool in candidates if matches(pool, node)})


def membership_by_labels(pools: t.Sequence[PoolPlan], nodes: t.Iterable[NodeFacts]) -> Membership:
    """Assign each node to the pool in its label accel.gpu/pool, otherwise to the pool of its node group, otherwise to the only pool that matches it."""
    declared = {pool.name: pool for pool in pools}
    index = _Index(pools)
    membership = Membership(
        by_pool={name: [] for name in declared},
        may_be_empty=frozenset(pool.name for pool in pools if pool.nodegroup and pool.nodegroup.may_be_empty),
    )
    for node in sorted(nodes, key=lambda node: node.name):
        known = bool(node.product)
        if node.has_gpu and not known:
            membership.undiscovered.append(node.name)
        if node.pin and node.pin not in declared:
            membership.undeclared_pins.setdefault(node.pin, []).append(node.name)
        owner = declared.get(node.pin) or index.by_nodegroup(node)
        if owner is not None:
            membership.by_pool[owner.name].append(node.name)
            if node.pin in declared and known and contradicts(owner, node):
                membership.mismatched.setdefault(owner.name, []).append(node.name)
            if _has_wrong_model(owner, node):
                membership.wrong_model.setdefault(owner.name, []).append(node.name)
            continue
        matching = index.matching(node) if node.has_gpu else []
        if len(matching) == 1:
            membership.by_pool[matching[0]].append(node.name)
        elif matching:
            membership.overlaps[node.name] = matching
        elif known and not node.pin:
            membership.unclaimed.append(node.name)
    return membership
