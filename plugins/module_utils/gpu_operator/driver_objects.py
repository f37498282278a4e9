# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the NVIDIADriver objects of the pools: one for each pool, so that a change restarts the driver only on the nodes of that pool (pure).

In v26.3 and earlier, the operator rejects objects that select the same node, and a selector only compares labels. Therefore, a pool's object selects
the label accel.gpu/pool, and pools without `driver` also get an object. Since v26.7, one more object is the default for all other nodes.
Removing a declaration does not remove an object: a pool keeps its driver when `driver` is removed, and an object stays when its pool is removed.
"""

from __future__ import annotations

import hashlib
import json
import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog.names import DRIVER_ANNOTATION, FIELD_MANAGER, LABEL_LENGTH, POOL_LABEL
from ..catalog.taints import needed_tolerations, toleration_identity, toleration_of
from ..cluster_state.cluster_policy import policy_tolerations, recorded_tolerations, uses_driver_objects
from ..cluster_state.node import Node
from ..cluster_state.nvidia_driver import (
    API_VERSION,
    KIND,
    MANAGED_BY_LABEL,
    driver_of_nodes,
    follows_own_policies,
    is_default,
    is_managed,
    node_selector,
)
from ..cluster_state.ownership import POOL_OWNER, NodeEdit, metadata_edit
from ..cluster_state.pool_assignment import assign_pools, pool_members
from ..common.nested import get_nested, parse_json
from ..common.results import MAX_LISTED
from ..kube.diff import difference
from ..kube.managed_fields import as_applied
from ..pools.driver_spec import declared_spec, inherited_driver
from ..pools.metadata import NodeMetadata
from ..schema.messages import abbreviate
from .chart_drivers import template_fields
from .cluster_policy import policy_version
from .driver_checks import name_problem, object_problems, overlap_problems, uncovered_problems
from .driver_rollout import DriverRollout, UpgradePolicy, format_change

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PoolPlan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
_Keep = t.Callable[[t.Sequence[Object]], list[Object]]

# The default object has a name that no pool's object can have.
PREFIX, DEFAULT_NAME = "accel-gpu-", "accel-gpu"


@dataclass(frozen=True)
class DriverObjectChange:
    """The creation or server-side apply of an object.

    `members` contains the nodes of the object's pool, `nodes` contains the nodes whose driver restarts, and `reasons` explains the restart.
    `correction` is a merge patch that is sent before the apply; it is usually empty.
    """

    name: str
    pool: str
    body: Object
    before: Object
    after: Object
    reasons: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    is_new: bool = False
    correction: Object = field(default_factory=dict)


@dataclass(frozen=True)
class DriverObjects:
    """The changes to the NVIDIADriver objects that the pools require; empty if no pool has declared a driver.

    `label_edits` contains the edits that add the pool label to nodes. The `problems` prevent a run; the `notes` describe objects that stay unchanged.
    `required_names` contains the names of the pools' objects, `live` contains all existing objects, and `owners` maps each node's name to its object.
    `own_policies` is true if the operator follows the upgrade policy of each object.
    """

    changes: tuple[DriverObjectChange, ...] = ()
    label_edits: tuple[NodeEdit, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    required_names: tuple[str, ...] = ()
    live: tuple[Document, ...] = ()
    owners: t.Mapping[str, str] = field(default_factory=dict)
    own_policies: bool = False

    @property
    def rolled_nodes(self) -> frozenset[str]:
        """The nodes whose driver restarts."""
        return frozenset(name for change in self.changes for name in change.nodes)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons why drivers restart."""
        return tuple(reason for change in self.changes if change.nodes for reason in change.reasons)

    def nodes_by_owner(self) -> dict[str, int]:
        """The number of nodes whose driver restarts, by the object that manages their driver now."""
        return dict(Counter(self.owners.get(name, "") for name in self.rolled_nodes))

    def results(self) -> list[Object]:
        """The changes, formatted for a module's result."""
        return [
            {"name": change.name, "pool": change.pool, "nodes": len(change.nodes), "created": change.is_new}
            for change in self.changes
        ]

    def diff(self) -> tuple[Object, Object]:
        """The objects and the nodes' labels before and after the changes, for a diff."""
        before: Object = {}
        after: Object = {}
        if self.changes:
            before["drivers"] = {change.name: change.before.get("spec") for change in self.changes if not change.is_new}
            after["drivers"] = {change.name: change.after.get("spec") for change in self.changes}
        if self.label_edits:
            after["nodes"] = {edit.name: edit.after["labels"] for edit in self.label_edits[:MAX_LISTED]}
        return before, after

    def switch(self, spec: Document, nodes: int, reasons: t.Sequence[str]) -> DriverRollout:
        """The driver rollout that happens when these objects replace the driver DaemonSet of a ClusterPolicy with this spec.

        Before v26.7, the operator deletes all pods of the DaemonSet at the same time (controllers/object_controls.go, cleanupAllDriverDaemonSets).
        Since v26.7, it keeps the pods, and replaces those on each object's nodes according to that object's upgrade policy.
        """
        if not self.own_policies:
            at_once = replace(UpgradePolicy.from_spec(spec), automatic=True, at_once=True)
            return DriverRollout(nodes, at_once, tuple(reasons))
        specs = {item["metadata"]["name"]: item.get("spec") or {} for item in self.live}
        specs |= {change.name: change.body["spec"] for change in self.changes}
        owners = {**self.owners, **{name: change.name for change in self.changes for name in change.members}}
        parts = tuple(
            (count, UpgradePolicy.from_driver(name, specs[name]))
            for name, count in sorted(Counter(owners.values()).items())
        )
        return DriverRollout(nodes, UpgradePolicy.from_driver(DEFAULT_NAME, {}), tuple(reasons), parts=parts)

    @property
    def held_tolerations(self) -> list[Object]:
        """The tolerations that objects do not get if the changes that restart the driver are held back."""
        return [
            item
            for change in self.changes
            if change.nodes
            for item in change.body["spec"].get("tolerations") or ()
            if item not in (get_nested(change.before, "spec", "tolerations") or ())
        ]

    def without_rolled(self) -> DriverObjects:
        """A copy without the changes that restart the driver."""
        return replace(self, changes=tuple(change for change in self.changes if not change.nodes))


def plan_driver_objects(
    plan: Plan, policy: Document, drivers: t.Sequence[Document], nodes: t.Sequence[Node]
) -> DriverObjects:
    """Compare the objects with the pools. Driver settings that a pool does not declare are inherited from `policy`, the ClusterPolicy."""
    own = {item["metadata"]["name"]: item for item in drivers if is_managed(item)}
    foreign = {item["metadata"]["name"] for item in drivers} - set(own)
    own_policies = follows_own_policies(drivers, policy_version(policy) or plan.operator.version)
    owners = {name: selecting[0] for name, selecting in driver_of_nodes(drivers, _labels(nodes)).items() if selecting}
    if not plan.declares_drivers and not own:
        return DriverObjects(live=tuple(drivers), owners=owners, own_policies=own_policies)
    membership = assign_pools(plan.pools, nodes)
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    base, others = inherited_driver(policy), _other_tolerations(plan, policy)
    switched = uses_driver_objects(policy.get("spec") or {})
    changes: list[DriverObjectChange] = []
    problems: list[str] = []
    notes: list[str] = []
    for pool in plan.pools:
        name = object_name(pool.name)
        if name in foreign:
            problems.append(name_problem(name, f"pool {pool.name}"))
            continue
        live = own.get(name)
        body, note = _desired(pool, live, base, others, _keep(plan, live, nodes))
        notes += [note] if note else []
        problems += object_problems(pool, live, body)
        members = [node for node in nodes if pool_of.get(node.name) == pool.name]
        change = _change(live, body, pool.name)
        if change is None:
            continue
        rolled = [node.name for node in members if _rolls(node, change, owners)] if switched else []
        changes.append(replace(change, nodes=tuple(rolled), members=tuple(node.name for node in members)))
    default = None
    if own_policies and not any(is_default(item) and item is not own.get(DEFAULT_NAME) for item in drivers):
        if DEFAULT_NAME in foreign:
            problems.append(name_problem(DEFAULT_NAME, "the default for nodes without a pool"))
        else:
            default = _default_change(
                plan, own.get(DEFAULT_NAME), base, others, _keep(plan, own.get(DEFAULT_NAME), nodes)
            )
    if default is not None:
        rolled = [node.name for node in nodes if owners.get(node.name) == DEFAULT_NAME] if not default.is_new else []
        changes.append(replace(default, nodes=tuple(rolled if default.reasons else ())))
    names = {object_name(pool.name) for pool in plan.pools}
    problems += overlap_problems(
        plan, [item for item in drivers if item["metadata"]["name"] not in names], nodes, pool_of
    )
    if (not switched or not own) and not own_policies:
        problems += uncovered_problems(drivers, nodes, pool_members(membership))
    notes += [_orphan_note(item, owners) for name, item in sorted(own.items()) if name not in {*names, DEFAULT_NAME}]
    return DriverObjects(
        changes=tuple(changes),
        label_edits=tuple(_label_edits(nodes, pool_of)),
        problems=tuple(problems),
        notes=tuple(notes),
        required_names=tuple(object_name(pool.name) for pool in plan.pools),
        live=tuple(drivers),
        owners=owners,
        own_policies=own_policies,
    )


def object_name(pool: str) -> str:
    """The name of a pool's object, which is also the value of a label (nvidia.com/gpu-operator.driver.owner)."""
    name = f"{PREFIX}{pool}"
    if len(name) <= LABEL_LENGTH:
        return name
    digest = hashlib.sha256(pool.encode()).hexdigest()[:8]
    return f"{name[: LABEL_LENGTH - len(digest) - 1].rstrip('-')}-{digest}"


def recorded_driver(live: Document) -> Object | None:
    """The `driver` that the pool declared when the object was written, read from the object's annotation; None if the pool declared no driver."""
    annotations = live["metadata"].get("annotations") or {}
    return parse_json(annotations.get(DRIVER_ANNOTATION), dict)


def _desired(
    pool: PoolPlan, live: Document | None, base: Document, others: t.Sequence[Object], keep: _Keep
) -> tuple[Object, str]:
    """The object and a note if the pool no longer declares its driver."""
    driver, note = pool.driver, ""
    if driver is None and live is not None:
        driver = recorded_driver(live)
        if driver is not None:
            note = (
                f"Pool {pool.name} no longer declares its driver; its nodes keep the driver of NVIDIADriver {live['metadata']['name']} "
                f"({_short(driver)}). To switch them to the driver of the ClusterPolicy, declare driver: {{}}."
            )
    own = [toleration_of(taint) for taint in pool.registration.taints]
    spec = {
        **(declared_spec(driver, base) if driver else dict(base)),
        "nodeSelector": {POOL_LABEL: pool.name},
        "tolerations": keep([*others, *own]),
    }
    return _body(object_name(pool.name), spec, driver), note


def _short(driver: Document) -> str:
    return (
        ", ".join(f"{key} {value}" for key, value in driver.items() if isinstance(value, (str, bool))) or "as inherited"
    )


def _body(name: str, spec: Object, driver: Document | None) -> Object:
    annotations = {DRIVER_ANNOTATION: json.dumps(dict(driver), sort_keys=True)} if driver is not None else {}
    metadata: Object = {"name": name, "labels": {MANAGED_BY_LABEL: FIELD_MANAGER}}
    if annotations:
        metadata["annotations"] = annotations
    if not spec["tolerations"]:
        spec = {key: value for key, value in spec.items() if key != "tolerations"}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _change(live: Document | None, body: Object, pool: str) -> DriverObjectChange | None:
    compared = difference(_as_applied(live), body, FIELD_MANAGER)
    selector = body["spec"].get("nodeSelector") or {}
    removed = sorted({*(get_nested(live, "spec", "nodeSelector") or {})} - set(selector))
    if not compared.changed and not removed:
        return None
    name = body["metadata"]["name"]
    before, after = compared.before.get("spec") or {}, dict(compared.after.get("spec") or {})
    if removed:
        after["nodeSelector"] = selector
    paths = template_fields(before, after)
    reasons = [f"{format_change(before, after, path)} in NVIDIADriver {name}" for path in paths]
    if live is None:
        reasons = [
            f"NVIDIADriver {name} takes over the nodes of pool {pool}" if pool else f"NVIDIADriver {name} is new"
        ]
    return DriverObjectChange(
        name=name,
        pool=pool,
        body=body,
        before=compared.before,
        after={**compared.after, "spec": after},
        reasons=tuple(reasons),
        is_new=live is None,
        correction=_correction(live, removed) if live is not None else {},
    )


def _as_applied(live: Document | None) -> Object | None:
    """The object, with managedFields that record all fields written by this collection as applied.

    This is needed because the collection creates objects without an apply.
    """
    if live is None:
        return None
    return {**live, "metadata": {**live["metadata"], "managedFields": as_applied(live, FIELD_MANAGER)}}


def _correction(live: Document, removed: t.Sequence[str]) -> Object:
    """The merge patch for parts that an apply does not remove: foreign keys of nodeSelector and fields that were written by the creation."""
    metadata: Object = {}
    fields = as_applied(live, FIELD_MANAGER)
    if fields != (live["metadata"].get("managedFields") or []):
        metadata["managedFields"] = fields
    if not removed and not metadata:
        return {}
    spec = {"spec": {"nodeSelector": dict.fromkeys(removed)}} if removed else {}
    return {"metadata": {**metadata, "resourceVersion": live["metadata"].get("resourceVersion")}, **spec}


def _rolls(node: Node, change: DriverObjectChange, owners: t.Mapping[str, str]) -> bool:
    """Whether the change restarts the driver of this node in the object's pool; on a node without a driver, nothing is restarted."""
    owner = owners.get(node.name)
    return owner is not None and bool(change.reasons)


def _default_change(
    plan: Plan, live: Document | None, base: Object, others: t.Sequence[Object], keep: _Keep
) -> DriverObjectChange | None:
    """The change to the default object, which operators support since v26.7; None if nothing changes."""
    tolerations = [*others, *plan.policy.tolerations]
    spec = {**base, "default": True, "tolerations": keep(tolerations)}
    return _change(live, _body(DEFAULT_NAME, spec, None), "")


def _orphan_note(item: Document, owners: t.Mapping[str, str]) -> str:
    name = item["metadata"]["name"]
    nodes = [node for node, owner in owners.items() if owner == name]
    where = f"its nodes keep their driver ({abbreviate(nodes)})" if nodes else "it selects no node"
    return (
        f"NVIDIADriver {name} belongs to no declared pool; {where}. Nodes that lose the label {POOL_LABEL} also lose that driver. If the object "
        f"is no longer needed, run kubectl delete nvidiadriver {name}."
    )


def _other_tolerations(plan: Plan, policy: Document) -> list[Object]:
    """The ClusterPolicy's tolerations without those that the pools add."""
    own = {toleration_identity(item) for item in (*(recorded_tolerations(policy) or ()), *plan.policy.tolerations)}
    return [item for item in policy_tolerations(policy) if toleration_identity(item) not in own]


def _keep(plan: Plan, live: Document | None, nodes: t.Sequence[Node]) -> _Keep:
    """A function that extends an object's desired tolerations with its current tolerations that the taints of its nodes still require.

    A new object gets the tolerations that the ClusterPolicy keeps, because the object's nodes had the driver of the ClusterPolicy.
    """
    selector = node_selector(live) if live is not None else {}
    taints = [taint for node in nodes if selector.items() <= node.labels.items() for taint in node.taints]
    held = plan.policy.kept_tolerations if live is None else get_nested(live, "spec", "tolerations") or ()
    return lambda tolerations: _sorted([*tolerations, *needed_tolerations(held, tolerations, taints)])


def _sorted(tolerations: t.Iterable[Document]) -> list[Object]:
    """The tolerations in a fixed order, without duplicates and without the toleration that every driver DaemonSet has."""
    by_identity = {toleration_identity(item): dict(item) for item in tolerations}
    by_identity.pop(("nvidia.com/gpu", "Exists", "", "NoSchedule", None), None)
    return [by_identity[key] for key in sorted(by_identity, key=str)]


def pool_label_edits(pools: t.Sequence[PoolPlan], nodes: t.Sequence[Node]) -> list[NodeEdit]:
    """The edits that set the pool label on each node that lacks it; NVIDIADriver objects select this label."""
    membership = assign_pools(pools, nodes)
    return _label_edits(nodes, {name: pool for pool, names in membership.by_pool.items() for name in names})


def pool_label_edit(node: Node, pool: str | None) -> NodeEdit | None:
    """The edit that sets the pool label on one node; None if the node already has a pool label or belongs to no pool."""
    if pool is None or POOL_LABEL in node.labels:
        return None
    return metadata_edit(node, POOL_OWNER, NodeMetadata(labels={POOL_LABEL: pool}))


def _label_edits(nodes: t.Iterable[Node], pool_of: t.Mapping[str, str]) -> list[NodeEdit]:
    return [edit for node in nodes if (edit := pool_label_edit(node, pool_of.get(node.name)))]


def _labels(nodes: t.Iterable[Node]) -> list[tuple[str, t.Mapping[str, str]]]:
    return [(node.name, node.labels) for node in nodes]
