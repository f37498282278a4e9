# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drivers of pools: NVIDIADriver objects, and charts that contain them."""

from __future__ import annotations

import hashlib
import json
import re
import typing as t
from collections import Counter
from dataclasses import dataclass, field, replace

from ..catalog.names import DRIVER_ANNOTATION, DRIVER_DEPLOY_LABEL, FIELD_MANAGER, LABEL_LENGTH, POOL_LABEL
from ..catalog.taints import Toleration, needed_tolerations, toleration_identity, toleration_of
from ..core.messages import MAX_LISTED, abbreviate, abbreviate_nodes, join_words
from ..core.values import Document, Object, apply_merge_patch, get_nested, parse_json
from ..helm.preparation import upgraded
from ..helm.release import matching_documents
from ..kube.errors import ApiError
from ..kube.fields import as_applied, difference, helm_release_of
from ..kube.objects import read_definition
from ..kube.paths import NVIDIA_DRIVERS
from ..nodes.node import Node, parse_node
from ..nodes.node_metadata import patch_node
from ..nodes.ownership import POOL_OWNER, NodeEdit, assign_pools, metadata_edit, pool_members
from ..pools.operator_values import declared_spec, inherited_driver
from ..pools.plan import NodeMetadata
from .cluster_policy import (
    DRIVER_API_VERSION,
    DRIVER_KIND,
    MANAGED_BY_LABEL,
    SWITCH,
    DriverRollout,
    Path,
    UpgradePolicy,
    differing_fields,
    driver_node_selector,
    driver_of_nodes,
    follows_own_policies,
    format_change,
    is_default,
    is_managed_driver,
    policy_tolerations,
    policy_version,
    recorded_tolerations,
    uses_driver_objects,
)

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan, PoolPlan

# Compares the NVIDIADriver objects in two manifests of a Helm release and finds the nodes on which an upgrade restarts the driver (pure).
#
# Source: gpu-operator v25.10.1 deployments/gpu-operator/templates/nvidiadriver.yaml. The chart creates one object, `default`, if both
# driver.nvidiaDriverCRD.enabled and deployDefaultCR are true.

_DRIVER = re.compile(rf"^kind:\s*[\"']?{DRIVER_KIND}\b", re.MULTILINE)
# The keys of the Helm value `driver` that have the same name in the spec of the chart's object.
_VALUES = ("repository", "image", "version", "kernelModuleType", "imagePullSecrets", "secretEnv", "env", "args")
# Changes to these fields do not affect the pods themselves: the fields only determine how pods are replaced or which nodes are selected.
_NOT_IN_OBJECT_TEMPLATE = frozenset({"upgradePolicy", "default"})


def changed_objects(before: str, after: str, live: t.Iterable[Document]) -> dict[str, list[str]]:
    """The reasons why the driver of each existing object changes when Helm replaces the manifest `before` with `after`, by object name."""
    old, new = _specs(before), _specs(after)
    reasons: dict[str, list[str]] = {}
    for item in live:
        name, spec = item["metadata"]["name"], item.get("spec") or {}
        if name in old and name not in new:
            reasons[name] = [f"NVIDIADriver {name} is deleted"]
        elif name in new:
            reasons[name] = _reasons(name, spec, upgraded(spec, old.get(name, {}), new[name]))
    return {name: texts for name, texts in reasons.items() if texts}


def value_changes(plan: Plan, live: t.Iterable[Document]) -> dict[str, list[str]]:
    """The reasons why the planned Helm values change the driver of each existing object, by object name; the chart's own defaults are not known."""
    release, values = (plan.operator.name, plan.operator.namespace), plan.operator.values.get("driver") or {}
    patch = {key: values[key] for key in _VALUES if key in values}
    own = {item["metadata"]["name"]: item.get("spec") or {} for item in live if helm_release_of(item) == release}
    reasons = {name: _reasons(name, spec, apply_merge_patch(spec, patch)) for name, spec in own.items()}
    return {name: texts for name, texts in reasons.items() if texts}


def _reasons(name: str, spec: Document, outcome: Document) -> list[str]:
    """A description of each spec field whose change alters the object's DaemonSets."""
    return [f"{format_change(spec, outcome, path)} in NVIDIADriver {name}" for path in template_fields(spec, outcome)]


def template_fields(before: Document, after: Document) -> list[Path]:
    """The paths of the spec fields that differ and whose change alters the DaemonSets of an NVIDIADriver."""
    return [path for path in differing_fields(before, after) if path[0] not in _NOT_IN_OBJECT_TEMPLATE]


def rolled_nodes(
    nodes: t.Mapping[str, int], paths: t.Sequence[Path], changed: t.Collection[str], *, replaced: bool
) -> dict[str, int]:
    """The number of nodes on which the driver restarts, by the NVIDIADriver that manages the driver now; the key for the ClusterPolicy is empty.

    `paths` contains the changed fields of the ClusterPolicy that affect a driver DaemonSet, and `changed` contains the names of the changed objects.
    `replaced` is true if the chart changes; the new operator then writes every template again.
    """
    reached = {owner: not owner or SWITCH in paths or ("hostPaths", "rootFS") in paths for owner in nodes}
    return {
        owner: count
        for owner, count in nodes.items()
        if count and (replaced or owner in changed or (bool(paths) and reached[owner]))
    }


def _specs(manifest: str) -> dict[str, Document]:
    return {
        item["metadata"]["name"]: item.get("spec") or {}
        for item in matching_documents(manifest, _DRIVER)
        if item.get("kind") == DRIVER_KIND
    }


# Finds the reasons why the pools' NVIDIADriver objects cannot be applied: invalid values, foreign objects, and nodes without an object (pure).
#
# Source: gpu-operator v25.10.1 controllers/nvidiadriver_controller.go, internal/validator/validator.go and the CRD's validation rules.

_IMMUTABLE = ("driverType", "usePrecompiled")


def object_problems(pool: PoolPlan, live: Document | None, body: Document) -> t.Iterator[str]:
    """Messages about values that the operator or the API server would reject."""
    spec, name = body["spec"], body["metadata"]["name"]
    if not spec.get("version"):
        yield f"Pool {pool.name}: neither its driver nor the ClusterPolicy has a version; set driver.version in the pool."
    if spec.get("usePrecompiled") is True and ("gds" in spec or "gdrcopy" in spec):
        yield (
            f"Pool {pool.name}: the operator refuses GPUDirect Storage and GDRCopy with a precompiled driver; remove driver.precompiled, "
            "or disable gds and gdrcopy in the ClusterPolicy."
        )
    for key in _IMMUTABLE if live is not None else ():
        before, after = get_nested(live, "spec", key), spec.get(key)
        if before is not None and after is not None and before != after:
            yield (
                f"Pool {pool.name}: {key} of NVIDIADriver {name} cannot change from {json.dumps(before)} to {json.dumps(after)}. Restore the old "
                f"value. Alternatively, if all nodes of the pool may lose the driver at the same time, run kubectl delete nvidiadriver {name}, "
                "and run the playbook again."
            )


def name_problem(name: str, user: str) -> str:
    """The message about a foreign NVIDIADriver that has the name of a required object; an apply would merge both objects."""
    return (
        f"NVIDIADriver {name} was not created by this collection, but {user} needs its name. Delete this object, and create it again under another "
        f"name if other nodes need it; or hand it over to this collection: kubectl label --overwrite nvidiadriver {name} {MANAGED_BY_LABEL}={FIELD_MANAGER}"
    )


def overlap_problems(
    plan: Plan, drivers: t.Iterable[Document], nodes: t.Iterable[Node], pool_of: t.Mapping[str, str]
) -> t.Iterator[str]:
    """Messages about foreign NVIDIADriver objects that select nodes of the pools; the operator rejects this overlap."""
    for item in drivers:
        if is_managed_driver(item) or is_default(item):
            continue
        selector = driver_node_selector(item)
        pools = {
            pool_of[node.name]
            for node in nodes
            if node.name in pool_of
            and all(
                {**node.labels, POOL_LABEL: pool_of[node.name]}.get(key) == value for key, value in selector.items()
            )
        }
        if not get_nested(item, "spec", "nodeSelector"):
            pools = {pool.name for pool in plan.pools}
        if pools:
            release = helm_release_of(item)
            remedy = (
                "set driver.nvidiaDriverCRD.deployDefaultCR: false in its values"
                if release
                else f"set a different nodeSelector in it, or run kubectl delete nvidiadriver {item['metadata']['name']}"
            )
            of_release = f" of Helm release {release[1]}/{release[0]}" if release else ""
            yield (
                f"NVIDIADriver {item['metadata']['name']}{of_release} selects nodes of pool {join_words(sorted(pools))}, and the operator "
                f"refuses several NVIDIADriver objects for one node: {remedy}; or remove `driver` from the pools."
            )


def uncovered_problems(
    drivers: t.Sequence[Document], nodes: t.Sequence[Node], members: t.Collection[str]
) -> t.Iterator[str]:
    """The message about nodes that would have no driver once NVIDIADriver objects install the drivers."""
    selected = driver_of_nodes(
        [item for item in drivers if not is_managed_driver(item)], [(node.name, node.labels) for node in nodes]
    )
    without = [
        node.name
        for node in nodes
        if node.has_gpu
        and node.labels.get(DRIVER_DEPLOY_LABEL, "true") == "true"
        and node.name not in members
        and not selected.get(node.name)
    ]
    if without:
        yield (
            f"{abbreviate_nodes(without)}: no NVIDIADriver would select a node that belongs to no pool, so it would have no driver (operators "
            "before v26.7 have no default NVIDIADriver). Declare a pool for them. If only their GPU model assigns them to a pool, note that "
            f"the model is not known before a driver runs: select them by match.labels, or label them ({POOL_LABEL}=<pool>)."
        )


# Plans the NVIDIADriver objects of the pools: one for each pool, so that a change restarts the driver only on the nodes of that pool (pure).
#
# In v26.3 and earlier, the operator rejects objects that select the same node, and a selector only compares labels. Therefore, a pool's object selects
# the label accel.gpu/pool, and pools without `driver` also get an object. Since v26.7, one more object is the default for all other nodes.
# Removing a declaration does not remove an object: a pool keeps its driver when `driver` is removed, and an object stays when its pool is removed.

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
        Since v26.7, it keeps the pods and replaces those on each object's nodes according to that object's upgrade policy.
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
    own = {item["metadata"]["name"]: item for item in drivers if is_managed_driver(item)}
    foreign = {item["metadata"]["name"] for item in drivers} - set(own)
    own_policies = follows_own_policies(drivers, policy_version(policy) or plan.operator.version)
    owners = {name: selecting[0] for name, selecting in driver_of_nodes(drivers, _labels(nodes)).items() if selecting}
    if not plan.declares_drivers and not own:
        return DriverObjects(live=tuple(drivers), owners=owners, own_policies=own_policies)
    membership = assign_pools(plan.pools, nodes)
    pool_of = {name: pool for pool, names in membership.by_pool.items() for name in names}
    inherited = _Inherited(plan, inherited_driver(policy), _other_tolerations(plan, policy), nodes)
    switched = uses_driver_objects(policy.get("spec") or {})
    changes: list[DriverObjectChange] = []
    problems: list[str] = []
    notes: list[str] = []
    for pool in plan.pools:
        name = object_name(pool.name)
        if name in foreign:
            problems.append(name_problem(name, f"pool {pool.name}"))
            continue
        body, note = inherited.desired(pool, own.get(name))
        notes += [note] if note else []
        problems += object_problems(pool, own.get(name), body)
        change = _change(own.get(name), body, pool.name)
        if change is not None:
            members = [node for node in nodes if pool_of.get(node.name) == pool.name]
            rolled = [node.name for node in members if _rolls(node, change, owners)] if switched else []
            changes.append(replace(change, nodes=tuple(rolled), members=tuple(node.name for node in members)))
    if own_policies and not any(is_default(item) and item is not own.get(DEFAULT_NAME) for item in drivers):
        if DEFAULT_NAME in foreign:
            problems.append(name_problem(DEFAULT_NAME, "the default for nodes without a pool"))
        elif (default := inherited.default_change(own.get(DEFAULT_NAME))) is not None:
            restarts = bool(default.reasons) and not default.is_new
            rolled = [node.name for node in nodes if owners.get(node.name) == DEFAULT_NAME] if restarts else []
            changes.append(replace(default, nodes=tuple(rolled)))
    names = {object_name(pool.name) for pool in plan.pools}
    others = [item for item in drivers if item["metadata"]["name"] not in names]
    problems += overlap_problems(plan, others, nodes, pool_of)
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


@dataclass(frozen=True)
class _Inherited:
    """What the objects take from the ClusterPolicy: the driver settings `base`, and the tolerations of other components."""

    plan: Plan
    base: Object
    tolerations: t.Sequence[Object]
    nodes: t.Sequence[Node]

    def desired(self, pool: PoolPlan, live: Document | None) -> tuple[Object, str]:
        """The object of a pool, and a note if the pool no longer declares its driver."""
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
            **(declared_spec(driver, self.base) if driver else dict(self.base)),
            "nodeSelector": {POOL_LABEL: pool.name},
            "tolerations": self._with_needed([*self.tolerations, *own], live),
        }
        return _body(object_name(pool.name), spec, driver), note

    def default_change(self, live: Document | None) -> DriverObjectChange | None:
        """The change to the default object, which operators support since v26.7; None if nothing changes."""
        tolerations = [*self.tolerations, *self.plan.policy.tolerations]
        spec = {**self.base, "default": True, "tolerations": self._with_needed(tolerations, live)}
        return _change(live, _body(DEFAULT_NAME, spec, None), "")

    def _with_needed(self, tolerations: t.Sequence[Toleration], live: Document | None) -> list[Object]:
        """The desired tolerations, and the current ones of an object that the taints of its nodes still require.

        A new object gets the tolerations that the ClusterPolicy keeps, because the object's nodes had the driver of the ClusterPolicy.
        """
        selector = driver_node_selector(live) if live is not None else {}
        taints = [taint for node in self.nodes if selector.items() <= node.labels.items() for taint in node.taints]
        held = self.plan.policy.kept_tolerations if live is None else get_nested(live, "spec", "tolerations") or ()
        return _sorted([*tolerations, *needed_tolerations(held, tolerations, taints)])


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
    return {"apiVersion": DRIVER_API_VERSION, "kind": DRIVER_KIND, "metadata": metadata, "spec": spec}


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


# Writes the NVIDIADriver objects of the pools; the API server checks all of them before the first one is written.
#
# Writing only some of the objects would be worse than writing none: while a node is not covered by any object, the operator does not complete its switch
# to NVIDIADriver objects.

CRD_NAME = "nvidiadrivers.nvidia.com"
# The error messages if the schema lacks a field of an applied (status 500) or created (status 400) object.
_UNKNOWN_FIELD = re.compile(r"field not declared in schema|unknown field")
# The error message if a webhook has side effects; the object itself may be valid.
_NO_DRY_RUN = "does not support dry run"


def refused_objects(client: Client, objects: DriverObjects, version: str, *, check: bool) -> list[str]:
    """The reasons why the API server would reject the changes to the objects; sends dry runs if there are any changes.

    `version` is the operator's release. With `check`, objects for which the user lacks write permission are not checked.
    """
    if not objects.changes:
        return []
    fields = undeclared_fields(read_definition(client, CRD_NAME), [change.body for change in objects.changes])
    if fields:
        return [_old_definition(version, f"it has no {join_words(fields)}")]
    problems: list[str] = []
    for change in objects.changes:
        try:
            _send(client, change, dry_run=True)
        except ApiError as error:
            if error.conflict or (check and error.lacks_right) or _NO_DRY_RUN in error.message:
                continue
            if error.not_found or _UNKNOWN_FIELD.search(error.message):
                problems.append(_old_definition(version, error.message))
            elif error.rejects_object:
                problems.append(f"The API server rejects NVIDIADriver {change.name}: {error.message}")
            else:
                raise
    return list(dict.fromkeys(problems))


def undeclared_fields(definition: Document | None, bodies: t.Iterable[Document]) -> list[str]:
    """The fields of these specs that no version of the CRD declares; empty if the schema is not known."""
    declared: set[str] = set()
    for version in ((definition or {}).get("spec") or {}).get("versions") or ():
        schema = ((version.get("schema") or {}).get("openAPIV3Schema") or {}).get("properties") or {}
        declared |= set((schema.get("spec") or {}).get("properties") or ())
    if not declared:
        return []
    return sorted({f"spec.{key}" for body in bodies for key in body["spec"] if key not in declared})


def apply_driver_objects(client: Client, objects: DriverObjects, lease: t.Callable[[], None], *, check: bool) -> None:
    """Label the nodes of the pools, then write the objects that select them. In check mode, the objects have already been checked."""
    label_nodes(client, objects.label_edits, lease, dry_run=check)
    for change in () if check else objects.changes:
        lease()
        _send(client, change)


def label_nodes(
    client: Client, edits: t.Iterable[NodeEdit], lease: t.Callable[[], None], *, dry_run: bool = False
) -> None:
    """Set the pool label on each of these nodes."""
    for edit in edits:
        patch_node(client, edit, _pool_label_edit(edit), lease, dry_run=dry_run)


def _old_definition(version: str, details: str) -> str:
    release = f"operator {version}" if version else "the operator"
    return f"The CRD {CRD_NAME} is older than {release}: {details}. Apply the CRDs of its chart, and run the playbook again."


def _send(client: Client, change: DriverObjectChange, *, dry_run: bool = False) -> None:
    """Create a new object or apply a change. Creating an object causes a conflict if an object of this name now exists."""
    if change.is_new:
        client.create(NVIDIA_DRIVERS, change.body, dry_run=dry_run, field_validation="Strict")
        return
    path = f"{NVIDIA_DRIVERS}/{change.name}"
    if change.correction and not dry_run:
        client.patch(path, change.correction)
    client.apply(path, change.body, dry_run=dry_run, field_validation="Strict")


def _pool_label_edit(edit: NodeEdit) -> t.Callable[[Object], NodeEdit | None]:
    """A function that computes the same edit for the version of the node that is read after a conflict."""
    pool = edit.labels[POOL_LABEL]
    return lambda raw: pool_label_edit(parse_node(raw), pool)
