# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the change to the ClusterPolicy that the pools require, and determines how this change affects the driver (pure).

Maps and scalars are applied under the collection's field manager. The list daemonsets.tolerations is atomic in the CRD. The collection
therefore merges its entries into the list and records them in an annotation so that it can remove them later; equal foreign entries are kept.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import (
    CREATED_ANNOTATION,
    FIELD_MANAGER,
    FORMER_ANNOTATION,
    MIG_CONFIGMAP,
    OWNED_TOLERATIONS_ANNOTATION,
)
from ..catalog.olm import OPERATOR
from ..catalog.taints import is_covered, toleration_identity
from ..cluster_state.cluster_policy import (
    policy_tolerations,
    recorded_previous_spec,
    recorded_tolerations,
    uses_driver_objects,
)
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import apply_merge_patch, get_nested
from ..helm.release import helm_release_of
from ..kube.diff import difference
from ..kube.managed_fields import child, owned_by
from ..pools.variables import merge
from .driver_rollout import PARTS, SWITCH, Path, driver_fields

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PolicyPlan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

API_VERSION, KIND = "nvidia.com/v1", "ClusterPolicy"
# The name of the ClusterPolicy in NVIDIA's chart.
CHART_NAME = "cluster-policy"
_VERSION_LABEL = "app.kubernetes.io/version"


def policy_version(live: Document) -> str:
    """The operator's version, according to the label that its chart sets on the policy; empty if another tool has created the policy."""
    return str((live["metadata"].get("labels") or {}).get(_VERSION_LABEL) or "")


def with_planned_values(live: Document, plan: Plan) -> Document:
    """The policy with the planned Helm values for the driver; unchanged if the policy belongs to another release.

    The defaults of a new chart are not known.
    """
    operator = plan.operator
    if helm_release_of(live) != (operator.name, operator.namespace):
        return live
    values = {part: operator.values[part] for part in PARTS if part in operator.values}
    return {**live, "spec": apply_merge_patch(live.get("spec") or {}, values)}


def planned_upgrade(live: Document, plan: Plan) -> tuple[str, str] | None:
    """The installed and the planned version of the operator if a run upgrades its release; otherwise None. Other releases are never upgraded."""
    operator, installed = plan.operator, policy_version(live)
    if operator.installed:
        return operator.installed, operator.version
    if not installed or helm_release_of(live) != (operator.name, operator.namespace):
        return None
    same = installed.removeprefix("v") == operator.version.removeprefix("v")
    return None if same else (installed, operator.version)


@dataclass(frozen=True)
class DesiredPolicy:
    """The fields that the pools require. If the policy is `adopted`, the values that these fields replace are recorded."""

    spec: Object
    tolerations: tuple[Object, ...]
    mig_by_node: bool = False
    adopted: bool = False
    name: str = CHART_NAME
    mig_strategies: frozenset[str] = frozenset()

    @classmethod
    def derive(cls, plan: Plan, live: Document | None) -> DesiredPolicy:
        """Derive the fields from the plan; a policy that does not belong to the planned Helm release is adopted.

        If OLM has installed the operator, this collection creates the policy. The policy then also gets the fields of gpu_cluster.operator.
        """
        tolerations = (*plan.policy.tolerations, *plan.policy.kept_tolerations)
        if plan.operator.olm is not None and (live is None or is_created_by_collection(live)):
            values = dict(plan.operator.values)
            daemonsets = dict(values.pop("daemonsets", None) or {})
            tolerations += tuple(daemonsets.pop("tolerations", None) or ())
            values = merge(values, {"daemonsets": daemonsets} if daemonsets else {})
            new_name = plan.operator.olm["resource"] or OPERATOR.resource
            name = str(live["metadata"]["name"]) if live is not None else new_name
            return cls(
                merge(values, plan.policy.spec),
                tolerations,
                plan.policy.mig_by_node,
                name=name,
                mig_strategies=plan.policy.mig_strategies,
            )
        adopted = live is not None and helm_release_of(live) != (plan.operator.name, plan.operator.namespace)
        return cls(
            plan.policy.spec, tolerations, plan.policy.mig_by_node, adopted, mig_strategies=plan.policy.mig_strategies
        )


@dataclass(frozen=True)
class PolicyChange:
    """The change that a server-side apply makes; `body` is None if no apply is needed. `before` and `after` contain the fields that the collection owns.

    `driver_paths` contains the changed paths below spec that affect the driver's DaemonSet. `removal` is an additional merge patch, because an
    apply cannot remove a field that another manager owns.
    """

    body: Object | None
    before: Object
    after: Object
    driver_paths: tuple[Path, ...] = ()
    removal: Object | None = None

    @property
    def changed(self) -> bool:
        """Whether there is any change."""
        return self.body is not None or self.removal is not None


def initial_change(desired: DesiredPolicy) -> PolicyChange:
    """The change to a policy that does not exist yet: all desired fields."""
    body = _body(desired.name, desired.spec, list(desired.tolerations), desired.tolerations)
    return PolicyChange(body=body, before={}, after=_without_version(body))


def new_policy(example: Document, desired: DesiredPolicy) -> Object:
    """A new policy: the operator's example with all desired fields and with the annotation that marks objects created by this collection.

    If pools partition GPUs, the policy has no MIG strategy, because a strategy would override the configuration of each node.
    """
    name = str(get_nested(example, "metadata", "name") or desired.name)
    tolerations = list(get_nested(example, "spec", "daemonsets", "tolerations") or ())
    merged, owned = merge_tolerations(tolerations, (), desired.tolerations)
    body = _body(name, desired.spec, merged, owned)
    spec = merge(example.get("spec") or {}, body["spec"])
    if desired.mig_by_node:
        spec["mig"] = {key: value for key, value in (spec.get("mig") or {}).items() if key != "strategy"}
    annotations = {**body["metadata"]["annotations"], CREATED_ANNOTATION: "true"}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}, "spec": spec}


def plan_change(live: Document, desired: DesiredPolicy, *, seeded: bool, hold_driver: bool = False) -> PolicyChange:
    """Compare the live policy with the desired one.

    `seeded` is true if the collection passed these tolerations to the chart when it installed the chart; equal entries then count as the
    collection's own, even without an annotation.
    `hold_driver` omits the changes that affect the driver's DaemonSet.
    """
    current = policy_tolerations(live)
    recorded = recorded_tolerations(live)
    if recorded is None:
        recorded = [
            item for item in current if seeded and toleration_identity(item) in _identities(desired.tolerations)
        ]
    merged, owned = merge_tolerations(current, recorded, desired.tolerations)
    spec = _with_driver_objects(live, _with_mig_configmap(live, desired.spec))
    if hold_driver:
        merged, owned = current, [item for item in recorded if toleration_identity(item) in _identities(current)]
        # Fields that an earlier apply contained must also be in this apply; otherwise, the server would remove them.
        parts = child(owned_by(live, FIELD_MANAGER), "spec")
        kept = {part: _owned_part(value, {}, child(parts, part)) for part, value in (live.get("spec") or {}).items()}
        kept = {part: value for part, value in kept.items() if part in PARTS and value and child(parts, part)}
        spec = {**{key: value for key, value in spec.items() if key not in PARTS}, **kept}
    # Once the collection has applied the list, every later apply must contain it; otherwise, the server would remove it.
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), "daemonsets")
    include_list = merged != current or "f:tolerations" in applied
    name = live["metadata"]["name"]
    strategy = _mig_strategy(live) if needs_own_strategies(live, desired) else None
    previous = _previous_spec(live, desired, spec)
    body = _body(name, spec, merged if include_list else None, owned, previous)
    differs = difference(t.cast("Object", live), body, FIELD_MANAGER).changed
    if not differs and not strategy:
        return PolicyChange(None, {}, {})
    view = _body(name, spec, merged, owned, previous)
    before = _without_version(_owned_part(dict(live), view, owned_by(live, FIELD_MANAGER)))
    if strategy:
        before["spec"] = {**before.get("spec", {}), "mig": {"strategy": strategy}}
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    actual = live.get("spec") or {}
    return PolicyChange(
        body={**body, "metadata": {**body["metadata"], **version}} if differs else None,
        before=before,
        after=_without_version(view),
        driver_paths=tuple(driver_fields(actual, t.cast("Document", apply_merge_patch(actual, view["spec"])))),
        removal={"spec": {"mig": {"strategy": None}}} if strategy else None,
    )


def merge_tolerations(
    current: t.Sequence[Object], recorded: t.Sequence[Object], desired: t.Sequence[Object]
) -> tuple[list[Object], list[Object]]:
    """The list to write and the collection's entries in that list.

    Foreign entries keep their order, and an entry that a foreign entry covers is not added.
    """
    own, needed = _identities(recorded), _identities(desired)
    foreign = [item for item in current if toleration_identity(item) not in own]
    merged = [item for item in current if toleration_identity(item) in _identities(foreign) | needed]
    present = _identities(merged)
    merged += [
        dict(item) for item in desired if toleration_identity(item) not in present and not is_covered(item, foreign)
    ]
    owned = _identities(merged) - _identities(foreign)
    return merged, [dict(item) for item in desired if toleration_identity(item) in owned]


def _with_mig_configmap(live: Document, spec: Object) -> Object:
    """Keep the collection's MIG ConfigMap in the policy even if no pool uses MIG any longer, because node labels may still refer to its entries."""
    if "migManager" in spec or _mig_configmap(live.get("spec")) != MIG_CONFIGMAP:
        return spec
    return {**spec, "migManager": {"config": {"name": MIG_CONFIGMAP}}}


def _with_driver_objects(live: Document, spec: Object) -> Object:
    """Keep NVIDIADriver objects enabled even if no pool declares `driver` any longer, because disabling them would restart the driver on every node."""
    key, *below = SWITCH
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), key)
    if key in spec or f"f:{below[0]}" not in applied or not uses_driver_objects(live.get("spec") or {}):
        return spec
    return {**spec, key: {below[0]: True}}


def _previous_spec(live: Document, desired: DesiredPolicy, spec: Object) -> Object:
    """The previous values to record: those already recorded and those that the change overwrites."""
    previous = recorded_previous_spec(live)
    if not desired.adopted:
        return previous
    strategy = _mig_strategy(live) if needs_own_strategies(live, desired) else None
    if strategy:
        previous = {**previous, "mig": {"strategy": strategy}}
    current = _mig_configmap(live.get("spec"))
    if current and current != (_mig_configmap(spec) or current):
        previous = {**previous, "migManager": {"config": {"name": current}}}
    return previous


def needs_own_strategies(live: Document, desired: DesiredPolicy | PolicyPlan) -> bool:
    """Whether the policy must have no MIG strategy, because it would override the strategy of a pool.

    A strategy that equals those of the pools stays: nodes outside the pools may depend on it, and without it, nodes of the pools would not offer their
    MIG devices until they have their own configuration.
    """
    return desired.mig_by_node and desired.mig_strategies != {_mig_strategy(live)}


def _mig_strategy(live: Document) -> t.Any:
    return get_nested(live, "spec", "mig", "strategy")


def _mig_configmap(spec: t.Any) -> t.Any:
    return get_nested(spec, "migManager", "config", "name")


def _body(
    name: str, spec: Object, tolerations: list[Object] | None, owned: t.Sequence[Object], previous: Object | None = None
) -> Object:
    annotations = {OWNED_TOLERATIONS_ANNOTATION: json.dumps([dict(item) for item in owned], sort_keys=True)}
    if previous:
        annotations[FORMER_ANNOTATION] = json.dumps(previous, sort_keys=True)
    if tolerations is not None:
        spec = {**spec, "daemonsets": {**spec.get("daemonsets", {}), "tolerations": tolerations}}
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": dict(spec)}


def _without_version(body: Object) -> Object:
    return {key: value for key, value in body.items() if key != "apiVersion"}


def _owned_part(live: t.Any, desired: t.Any, applied: Object) -> t.Any:
    """The part of the live object that contains the desired fields and the fields that the collection has applied before."""
    if not isinstance(live, dict):
        return live
    below = desired if isinstance(desired, dict) else {}
    keys = dict.fromkeys([*below, *(entry[2:] for entry in applied if entry.startswith("f:"))])
    parts = {key: _owned_part(live[key], below.get(key), child(applied, key)) for key in keys if key in live}
    return {key: part for key, part in parts.items() if part != {}}


def _identities(tolerations: t.Iterable[Document]) -> set[tuple[t.Any, ...]]:
    return {toleration_identity(item) for item in tolerations}
