# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the workloads that no node can run after a change of sharing: a label that they select, or a resource that they request, no longer exists (pure).

A workload is a controller with all its pods, or a pod without a controller. Only labels and the amounts that an empty node offers are considered; taints and
the free capacity are not, because they depend on other workloads. Sources: kubernetes v1.36 pkg/scheduler (nodeSelector, nodeAffinity); NVIDIA device plugin
(failRequestsGreaterThanOne); gpu-feature-discovery (labels, see expected_state.py).
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import COUNT_LABEL, PRODUCT_LABEL, REPLICAS_LABEL, STRATEGY_LABEL
from . import expected_state
from .gpu_pods import Demands
from .label_selector import rule_matches, term_matches

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .impact import Transition
    from .node import Node

Document = t.Mapping[str, t.Any]

_SELECTOR, _AFFINITY = "spec.nodeSelector", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class NodeAfter:
    """The labels of a node and the amounts that it offers; `single`: the resources of which a pod may request only one."""

    name: str
    labels: t.Mapping[str, str]
    offers: t.Mapping[str, int]
    single: frozenset[str] = frozenset()


@dataclass(frozen=True)
class UnfitWorkload:
    """A workload that no node can run after the change: the field of the pod's specification, its value, and the value with which it would fit again.

    `fitting` is empty if no value is known.
    """

    owner: str
    field: str
    value: str
    fitting: str

    def __str__(self) -> str:
        change = f"change it to {self.fitting}" if self.fitting else "remove it or choose another pool"
        return f"{self.owner}: {self.field}: {self.value} fits no node after the change; {change}"

    def as_dict(self) -> dict[str, str]:
        """The workload, formatted for a module's result."""
        return {"owner": self.owner, "field": self.field, "value": self.value, "fitting": self.fitting}


def node_before(node: Node) -> NodeAfter:
    """A node as it is now."""
    return NodeAfter(node.name, node.labels, node.allocatable)


def node_after(
    node: Node, pool: PoolPlan | None, change: Transition, labels: t.Mapping[str, str | None] | None = None
) -> NodeAfter:
    """A node once NVIDIA's operands have applied the change, and with the changed labels; its GPUs become whole if it has no pool."""
    if pool is not None:
        discovered = expected_state.expected_labels(node, pool) if node.discovered else {}
    else:
        count = {COUNT_LABEL: str(expected_state.physical_gpus(node)), REPLICAS_LABEL: "1", STRATEGY_LABEL: "none"}
        discovered = {PRODUCT_LABEL: node.model, **count} if node.discovered else {}
    merged = {**node.labels, **discovered, **(labels or {})}
    single: frozenset[str] = frozenset()
    if pool is not None and pool.sharing.shared and pool.sharing.fail_requests_greater_than_one:
        single = frozenset(pool.sharing.resources)
    kept = {key: value for key, value in merged.items() if value is not None}
    return NodeAfter(node.name, kept, change.offers, single)


def unfit_workloads(
    on_node: t.Mapping[str, t.Iterable[Demands]],
    before: t.Iterable[NodeAfter],
    after: t.Mapping[str, NodeAfter],
    limit: int,
) -> tuple[UnfitWorkload, ...]:
    """The workloads with a pod on a changed node (`on_node`, by node) that no node can run after the change, each once, sorted by name.

    `before` contains all nodes as they are, `after` the changed nodes.
    """
    nodes = [after.get(node.name, node) for node in before]
    unfit: dict[str, UnfitWorkload] = {}
    for name, demands in on_node.items():
        if name not in after:
            continue
        for demand in demands:
            if len(unfit) == limit:
                break
            if demand.owner in unfit or _fits(demand, after[name]) or any(_fits(demand, node) for node in nodes):
                continue
            if problem := _problem(demand, after[name]):
                unfit[demand.owner] = problem
    return tuple(unfit[owner] for owner in sorted(unfit))


def _fits(demand: Demands, node: NodeAfter) -> bool:
    return _selects(demand, node) and all(
        count <= node.offers.get(name, 0) and (count == 1 or name not in node.single)
        for name, count in demand.resources.items()
        if expected_state.is_gpu_resource(name)
    )


def _selects(demand: Demands, node: NodeAfter) -> bool:
    if any(node.labels.get(key) != value for key, value in demand.selector.items()):
        return False
    return not demand.terms or any(term_matches(term, node.labels, node.name) for term in demand.terms)


def _problem(demand: Demands, home: NodeAfter) -> UnfitWorkload | None:
    """The first field that keeps the workload off the node on which it runs now; None if only taints or other nodes keep it off."""
    for key, value in demand.selector.items():
        if home.labels.get(key) != value:
            return UnfitWorkload(demand.owner, f"{_SELECTOR}[{key}]", value, home.labels.get(key, ""))
    if demand.terms and not any(term_matches(term, home.labels, home.name) for term in demand.terms):
        for term in demand.terms:
            for item in term.get("matchExpressions") or ():
                key = str(item.get("key"))
                if not rule_matches(item, home.labels):
                    members = ", ".join(map(str, item.get("values") or ()))
                    value = f"{item.get('operator')} {members}".strip()
                    fitting = home.labels.get(key, "") if item.get("operator") == "In" else ""
                    return UnfitWorkload(demand.owner, f"{_AFFINITY} ({key})", value, fitting)
    for name, count in demand.resources.items():
        if not expected_state.is_gpu_resource(name):
            continue
        path = f"spec.containers[].resources.limits[{name}]"
        if not home.offers.get(name):
            offered = sorted(other for other, amount in home.offers.items() if amount)
            return UnfitWorkload(demand.owner, path, str(count), " or ".join(f"{other}: 1" for other in offered))
        if count > 1 and name in home.single:
            return UnfitWorkload(
                demand.owner, path, str(count), "1, since the device plugin rejects requests for several shares"
            )
        if count > home.offers[name]:
            return UnfitWorkload(demand.owner, path, str(count), f"at most {home.offers[name]}")
    return None
