# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the NodeFeatureDiscovery object of OpenShift's NFD operator: a new object or the changes to an existing one (pure).

The operator gives its workers a toleration for every taint with the effect NoSchedule, and the tolerations in spec.operand.workerTolerations
(openshift/cluster-nfd-operator internal/daemonset/worker.go). Older releases do not have that field.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER, OWNED_TOLERATIONS_ANNOTATION
from ..catalog.olm import NFD, NFD_CR, WORKER_TOLERATIONS
from ..catalog.taints import toleration_of, untolerated_taints
from ..cluster_state.cluster_policy import recorded_tolerations
from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested, part_of
from ..kube.crd_schema import known_fields, spec_schema
from ..kube.diff import difference
from ..kube.managed_fields import child, owned_by
from ..pools.variables import merge
from .cluster_policy import merge_tolerations

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

API_VERSION, KIND = NFD_CR
DEFINITION = "nodefeaturediscoveries.nfd.openshift.io"
_OPERAND, _TOLERATIONS = WORKER_TOLERATIONS[1:]
# The toleration that the operator gives to every worker.
_BUILT_IN: Object = {"operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True)
class DiscoveryChange:
    """The change that one request makes; `body` is None if nothing differs. `before` and `after` contain the fields that the collection sets."""

    body: Object | None
    before: Object
    after: Object
    is_new: bool = False

    @property
    def changed(self) -> bool:
        """Whether there is any change."""
        return self.body is not None


def desired_tolerations(plan: Plan) -> list[Object]:
    """The tolerations for the taints of all pools, without duplicates."""
    taints = (taint for pool in plan.pools for taint in pool.registration.taints)
    unique = {json.dumps(item, sort_keys=True): item for item in map(toleration_of, taints)}
    return [unique[key] for key in sorted(unique)]


def choose_object(objects: t.Sequence[Document], namespace: str) -> Document | None:
    """The object that configures NFD: the oldest object in this namespace or the oldest in any namespace; None if there is none."""
    return min(
        objects,
        key=lambda item: (
            item["metadata"]["namespace"] != namespace,
            item["metadata"].get("creationTimestamp") or "",
            item["metadata"]["name"],
        ),
        default=None,
    )


def new_object(plan: Plan, example: Document | None, definition: Document | None) -> DiscoveryChange:
    """The change that creates the object. If the operator's example is readable, the variables' values are merged into its fields that the CRD has.

    The diff contains only the values of the variables, because the example may not be readable yet in check mode.
    """
    tolerations = desired_tolerations(plan) if has_worker_tolerations(definition) else []
    spec = merge(plan.nfd.values, {_OPERAND: {_TOLERATIONS: tolerations}} if tolerations else {})
    name = get_nested(example, "metadata", "name") or NFD.resource
    metadata: Object = {"name": name, "namespace": plan.nfd.namespace, "annotations": _annotations(tolerations)}
    metadata["annotations"][CREATED_ANNOTATION] = "true"
    after: Object = {"kind": KIND, "metadata": metadata, "spec": spec}
    body = {
        "apiVersion": API_VERSION,
        **after,
        "spec": merge(known_fields((example or {}).get("spec") or {}, spec_schema(definition, API_VERSION)), spec),
    }
    return DiscoveryChange(body, {}, after, is_new=True)


def plan_discovery(live: Document, plan: Plan, *, tolerates: bool = True) -> DiscoveryChange:
    """Compare an existing object with the pools. If another tool has created it, only the collection's own tolerations are changed.

    `tolerates` is true if the CRD has the field for worker tolerations.
    """
    current = list(get_nested(live, *WORKER_TOLERATIONS) or ())
    desired = desired_tolerations(plan) if tolerates else []
    merged, owned = merge_tolerations(current, recorded_tolerations(live) or (), desired)
    spec: Object = dict(plan.nfd.values) if is_created_by_collection(live) else {}
    applied = child(child(owned_by(live, FIELD_MANAGER), "spec"), _OPERAND)
    if merged != current or f"f:{_TOLERATIONS}" in applied:
        spec = merge(spec, {_OPERAND: {_TOLERATIONS: merged}})
    annotations = _annotations(owned) if owned or recorded_tolerations(live) is not None else {}
    if is_created_by_collection(live):
        annotations[CREATED_ANNOTATION] = "true"
    if not spec and not annotations:
        return DiscoveryChange(None, {}, {})
    metadata: Object = {key: live["metadata"][key] for key in ("name", "namespace")}
    if annotations:
        metadata["annotations"] = annotations
    body: Object = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, **({"spec": spec} if spec else {})}
    compared = difference(t.cast("Object", live), body, FIELD_MANAGER)
    if not compared.changed:
        return DiscoveryChange(None, {}, {})
    versioned = {**metadata, "resourceVersion": live["metadata"]["resourceVersion"]}
    shown = {"metadata": metadata, "spec": spec}
    before = {"metadata": {**metadata, "annotations": {}}, "spec": part_of(live.get("spec") or {}, spec)}
    old = live["metadata"].get("annotations") or {}
    before["metadata"]["annotations"] = {key: old[key] for key in annotations if key in old}
    return DiscoveryChange({**body, "metadata": versioned}, before, shown)


def has_worker_tolerations(definition: Document | None) -> bool:
    """Whether a CRD has spec.operand.workerTolerations; True if the CRD is not known."""
    operand = get_nested(spec_schema(definition, API_VERSION), "properties", _OPERAND, "properties")
    return not operand or _TOLERATIONS in operand


def unreached_taints(plan: Plan) -> list[str]:
    """The taints of the pools, as key and effect, that workers without worker tolerations do not tolerate."""
    taints = [taint for pool in plan.pools for taint in pool.registration.taints]
    return sorted({f"{taint['key']}:{taint['effect']}" for taint in untolerated_taints([_BUILT_IN], taints)})


def _annotations(tolerations: t.Sequence[Document]) -> Object:
    return {OWNED_TOLERATIONS_ANNOTATION: json.dumps([dict(item) for item in tolerations], sort_keys=True)}
