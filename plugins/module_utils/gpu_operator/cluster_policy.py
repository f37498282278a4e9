# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to change in the ClusterPolicy, what that shows and what it costs: pure.

Maps and scalars are applied under our field manager. The list daemonsets.tolerations is atomic in the CRD: ours are merged into it, noted in
an annotation, and taken out again by it, so that an equal-looking entry of somebody else's stays.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER, FORMER_ANNOTATION, MIG_CONFIGMAP, OWNED_TOLERATIONS_ANNOTATION
from ..catalog.taints import toleration_identity
from ..cluster_state.cluster_policy import policy_tolerations, recorded_previous_spec
from ..common.nested import get_nested
from ..kube.diff import difference
from ..kube.helm_marks import marks_of
from ..kube.managed_fields import child, owned_by

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

API_VERSION, KIND = "nvidia.com/v1", "ClusterPolicy"
# The name that NVIDIA's chart gives its one object.
CHART_NAME = "cluster-policy"
# Parts of the spec that the operator writes into the driver DaemonSet's template (gpu-operator controllers/object_controls.go,
# applyCommonDaemonsetConfig and TransformDriver).
_DRIVER_PARTS = ("daemonsets", "driver")


@dataclass(frozen=True)
class DesiredPolicy:
    """What the pools ask of the policy; of an `adopted` one is noted what stood where ours has to."""

    spec: Object
    tolerations: tuple[Object, ...]
    mig_by_node: bool = False
    adopted: bool = False

    @classmethod
    def by(cls, plan: Plan, live: Document | None) -> DesiredPolicy:
        """What is derived; a policy of another release than the planned one is adopted."""
        adopted = live is not None and marks_of(live) != (plan.operator.name, plan.operator.namespace)
        return cls(plan.policy.spec, tuple(plan.policy.tolerations), plan.policy.mig_by_node, adopted)


@dataclass(frozen=True)
class PolicyChange:
    """One server-side apply; `body` is None when the policy is as wanted. before and after show the fields that are ours.

    `removal` is a merge patch beside it: a field of somebody else's that stands in the way cannot be applied away.
    """

    body: Object | None
    before: Object
    after: Object
    reaches_driver: bool = False
    removal: Object | None = None

    @property
    def changed(self) -> bool:
        """Whether anything has to be sent."""
        return self.body is not None or self.removal is not None


def created_by_chart(wanted: DesiredPolicy) -> PolicyChange:
    """The change to a policy that does not exist yet: all that is ours, on an object of which nothing is known."""
    name = CHART_NAME
    body = _body(name, wanted.spec, list(wanted.tolerations), wanted.tolerations)
    return PolicyChange(body=body, before={}, after=_shown(body), reaches_driver=False)


def first_contact(live: Document) -> bool:
    """True until this collection has noted its entries in the policy."""
    return _noted(live) is None


def changes(live: Document, wanted: DesiredPolicy, *, seeded: bool, hold_driver: bool = False) -> PolicyChange:
    """Compare the live policy with what is wanted.

    `seeded`: our own first installation gave the chart these tolerations, so entries equal to ours are ours although no annotation says so.
    `hold_driver`: leave out what reaches the driver's DaemonSet.
    """
    held = policy_tolerations(live)
    noted = _noted(live)
    if noted is None:
        noted = [item for item in held if seeded and toleration_identity(item) in _identities(wanted.tolerations)]
    merged, ours = merge(held, noted, wanted.tolerations)
    spec = _kept(live, wanted.spec)
    if hold_driver:
        merged, ours = held, [item for item in noted if toleration_identity(item) in _identities(held)]
        spec = {key: value for key, value in spec.items() if key not in _DRIVER_PARTS}
    # Once the list is in what we have applied, it has to be in every later apply, or the server would take it away.
    carried = merged != held or bool(
        child(_applied_daemonsets(live), "tolerations") or "f:tolerations" in _applied_daemonsets(live)
    )
    name = live["metadata"]["name"]
    former = _former(live, wanted, spec)
    body = _body(name, spec, merged if carried else None, ours, former)
    found = difference(t.cast("Object", live), body, FIELD_MANAGER)
    strategy = get_nested(live, "spec", "mig", "strategy") if wanted.mig_by_node else None
    if not found.changed and not strategy:
        return PolicyChange(None, {}, {})
    view = _body(name, spec, merged, ours, former)
    before = _projected(live, view, owned_by(live, FIELD_MANAGER))
    if strategy:
        before["spec"] = {**before.get("spec", {}), "mig": {"strategy": strategy}}
    version = {"resourceVersion": live["metadata"]["resourceVersion"]}
    return PolicyChange(
        body={**body, "metadata": {**body["metadata"], **version}} if found.changed else None,
        before=before,
        after=_shown(view),
        reaches_driver=merged != held or _differs_in_driver(live, spec),
        removal={"spec": {"mig": {"strategy": None}}} if strategy else None,
    )


def _kept(live: Document, spec: Object) -> Object:
    """Our MIG configuration stays named when the last pool with MIG goes: its nodes' labels name entries until they change."""
    if "migManager" in spec or get_nested(live, "spec", "migManager", "config", "name") != MIG_CONFIGMAP:
        return spec
    return {**spec, "migManager": {"config": {"name": MIG_CONFIGMAP}}}


def _former(live: Document, wanted: DesiredPolicy, spec: Object) -> Object:
    """The part of the spec that stood there before ours, as far as it was noted or is about to be overwritten."""
    former = recorded_previous_spec(live)
    if not wanted.adopted:
        return former
    strategy = get_nested(live, "spec", "mig", "strategy") if wanted.mig_by_node else None
    if strategy:
        former = {**former, "mig": {"strategy": strategy}}
    held = get_nested(live, "spec", "migManager", "config", "name")
    if held and held != (get_nested(spec, "migManager", "config", "name") or held):
        former = {**former, "migManager": {"config": {"name": held}}}
    return former


def merge(
    held: t.Sequence[Object], noted: t.Sequence[Object], wanted: t.Sequence[Object]
) -> tuple[list[Object], list[Object]]:
    """The list to write and which of its entries are ours: others keep their entries and their order."""
    ours_before = _identities(noted)
    asked = _identities(wanted)
    foreign = {toleration_identity(item) for item in held} - ours_before
    merged = [item for item in held if toleration_identity(item) in foreign or toleration_identity(item) in asked]
    there = _identities(merged)
    merged += [dict(item) for item in wanted if toleration_identity(item) not in there]
    return merged, [dict(item) for item in wanted if toleration_identity(item) not in foreign]


def driver_nodes(daemonsets: t.Iterable[Document]) -> int:
    """On how many nodes a driver pod runs that a new template replaces."""
    return sum(
        int((found.get("status") or {}).get("currentNumberScheduled") or 0) for found in daemonsets if is_driver(found)
    )


def is_driver(daemonset: Document) -> bool:
    """Whether this is a driver DaemonSet that follows the ClusterPolicy (one a node group on OpenShift)."""
    labels = daemonset["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/component") == "nvidia-driver" and owned(daemonset)


def owned(daemonset: Document) -> bool:
    """Whether a ClusterPolicy owns the DaemonSet."""
    return any(owner.get("kind") == KIND for owner in daemonset["metadata"].get("ownerReferences") or [])


def _body(
    name: str,
    spec: Object,
    tolerations: list[Object] | None,
    ours: t.Sequence[Object],
    former: Object | None = None,
) -> Object:
    notes = {OWNED_TOLERATIONS_ANNOTATION: json.dumps([dict(item) for item in ours], sort_keys=True)}
    if former:
        notes[FORMER_ANNOTATION] = json.dumps(former, sort_keys=True)
    parts = dict(spec)
    if tolerations is not None:
        parts["daemonsets"] = {**parts.get("daemonsets", {}), "tolerations": tolerations}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "annotations": notes,
        },
        "spec": parts,
    }


def _shown(body: Object) -> Object:
    return {key: value for key, value in body.items() if key != "apiVersion"}


def _projected(live: Document, view: Object, applied: Object) -> Object:
    """The live object's share of what is ours: fields that we want, and fields that we have applied before."""
    shown = t.cast("Object", _share(dict(live), view, applied))
    return _shown(shown)


def _share(live: t.Any, view: t.Any, applied: Object) -> t.Any:
    if not isinstance(live, dict):
        return live
    keys = [*(view if isinstance(view, dict) else {}), *(entry[2:] for entry in applied if entry.startswith("f:"))]
    below = view if isinstance(view, dict) else {}
    shares = {key: _share(live[key], below.get(key), child(applied, key)) for key in dict.fromkeys(keys) if key in live}
    # A map of which nothing is ours says nothing.
    return {key: share for key, share in shares.items() if share != {}}


def _differs_in_driver(live: Document, spec: Object) -> bool:
    parts = {key: value for key, value in spec.items() if key in _DRIVER_PARTS}
    return bool(parts) and not _contains(live.get("spec") or {}, parts)


def _contains(live: t.Any, wanted: t.Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(_contains(live.get(key), value) for key, value in wanted.items())
    return bool(live == wanted)


def _applied_daemonsets(live: Document) -> Object:
    return child(child(owned_by(live, FIELD_MANAGER), "spec"), "daemonsets")


def _noted(live: Document) -> list[Object] | None:
    text = (live["metadata"].get("annotations") or {}).get(OWNED_TOLERATIONS_ANNOTATION)
    if text is None:
        return None
    try:
        noted = json.loads(text)
    except ValueError:
        return []
    return [item for item in noted if isinstance(item, dict)] if isinstance(noted, list) else []


def _identities(tolerations: t.Iterable[Document]) -> set[tuple[t.Any, ...]]:
    return {toleration_identity(item) for item in tolerations}
