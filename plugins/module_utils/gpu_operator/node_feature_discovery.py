# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NodeFeatureDiscovery object of NFD's operator."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import CREATED_ANNOTATION, FIELD_MANAGER, OWNED_TOLERATIONS_ANNOTATION
from ..catalog.openshift import NFD, NFD_CR, WORKER_TOLERATIONS
from ..catalog.taints import toleration_of, untolerated_taints
from ..core.values import Document, Object, get_nested, part_of
from ..helm.preparation import await_rollout
from ..kube.errors import ApiError
from ..kube.fields import child, difference, is_created_by_collection, owned_by
from ..kube.objects import NOT_CHECKED, known_fields, read_definition, spec_schema
from ..kube.paths import NODE_FEATURE_DISCOVERY
from ..schema.variables import merge
from .cluster_policy import merge_tolerations, recorded_tolerations
from .installation import read_example

if t.TYPE_CHECKING:
    from ..core.waits import WaitOptions
    from ..kube.client import Client
    from ..pools.plan import Plan

# Plans the NodeFeatureDiscovery object of OpenShift's NFD operator: a new object or the changes to an existing one (pure).
#
# The operator gives its workers a toleration for every taint with the effect NoSchedule, and the tolerations in spec.operand.workerTolerations
# (openshift/cluster-nfd-operator internal/daemonset/worker.go). Older releases do not have that field.

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
    """The change that creates the object. If the operator's example is readable, the variables' values are merged into those of its fields that the CRD has.

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


# Reads and writes the NodeFeatureDiscovery object, and waits until NFD's workers have labeled all their nodes.

_WORKER, _MASTER = ("DaemonSet", "nfd-worker"), ("Deployment", "nfd-master")


class DiscoveryClient:
    """Accesses the NodeFeatureDiscovery object of a cluster."""

    def __init__(self, client: Client, plan: Plan) -> None:
        """Store the arguments; no request is sent yet."""
        self._client = client
        self._plan = plan
        self._live: Object | None = None
        self._tolerates = True
        self.has_kind = True
        self.name, self.namespace = NFD.resource, plan.nfd.namespace

    def compare(self) -> DiscoveryChange:
        """Read the object and plan its change; the CRD and the operator's example are read only if something changes."""
        try:
            existing = list(self._client.list(NODE_FEATURE_DISCOVERY.collection()))
        except ApiError as error:
            if not error.not_found:
                raise
            existing, self.has_kind = [], False
        self._live = t.cast("Object | None", choose_object(existing, self._plan.nfd.namespace))
        if self._live is None:
            return self._new()
        metadata = self._live["metadata"]
        self.name, self.namespace = metadata["name"], metadata["namespace"]
        change = plan_discovery(self._live, self._plan)
        if change.changed:
            self._definition()
            change = change if self._tolerates else plan_discovery(self._live, self._plan, tolerates=False)
        return change

    def _new(self) -> DiscoveryChange:
        example = definition = None
        if self.has_kind:
            example = read_example(self._client, self._plan.nfd.namespace, KIND)
            definition = self._definition()
        change = new_object(self._plan, example, definition)
        self.name = change.after["metadata"]["name"]
        return change

    def _definition(self) -> Object | None:
        """The CRD; None if the user is not allowed to read it."""
        definition = read_definition(self._client, DEFINITION)
        self._tolerates = has_worker_tolerations(definition)
        return definition

    def send(self, change: DiscoveryChange, *, check: bool) -> str | None:
        """Create the object or apply the change; in check mode, as a dry run if the kind exists. Returns the reason if nothing was checked."""
        if change.body is None or (check and not self.has_kind):
            return None
        try:
            if change.is_new:
                collection = NODE_FEATURE_DISCOVERY.collection(self.namespace)
                self._client.create(collection, change.body, dry_run=check, field_validation="Strict")
            else:
                path = NODE_FEATURE_DISCOVERY.path(self.name, self.namespace)
                self._client.apply(path, change.body, dry_run=check, field_validation="Strict")
        except ApiError as error:
            if check and change.is_new and error.not_found:
                return f"not checked by the server: namespace {self.namespace} does not exist yet"
            if not (check and error.lacks_right):
                raise
            return NOT_CHECKED
        return None

    def tolerations(self, change: DiscoveryChange) -> list[Object]:
        """The workers' tolerations in the object after the change."""
        changed = get_nested(change.after, *WORKER_TOLERATIONS)
        return list((get_nested(self._live, *WORKER_TOLERATIONS) if changed is None else changed) or ())

    def warnings(self) -> t.Iterator[str]:
        """A warning about taints that no worker tolerates, because this release of the operator does not support worker tolerations."""
        if not self._tolerates and (taints := unreached_taints(self._plan)):
            yield (
                f"NFD's workers do not tolerate {', '.join(taints)}, and the installed NFD operator has no spec.operand.workerTolerations: new "
                "nodes with these taints get no labels. Upgrade the operator (OpenShift), or use the effect NoSchedule, which its workers "
                "always tolerate."
            )

    def await_workers(self, waiting: WaitOptions) -> dict[str, str]:
        """Wait for the master, the workers and the labels on the workers' nodes. Returns the pod counts of both workloads as "ready/required"."""
        if self._tolerates:
            self._await_tolerations(waiting)
        instance = str(get_nested(self._live, "spec", "instance") or "")
        annotation = f"{instance}{'.' if instance else ''}nfd.node.kubernetes.io/feature-labels"
        names = (f"{KIND} {self.namespace}/{self.name}", "NFD", "node_feature_discovery")
        return await_rollout(self._client, names, self.namespace, (_MASTER, _WORKER), annotation, waiting)

    def _await_tolerations(self, waiting: WaitOptions) -> None:
        """Wait until the operator has written the tolerations into the workers' DaemonSet."""
        taints = [taint for pool in self._plan.pools for taint in pool.registration.taints]
        if not taints:
            return
        path = f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{_WORKER[1]}"

        def missing() -> list[str]:
            live = self._client.get(path)
            tolerations = get_nested(live, "spec", "template", "spec", "tolerations") or ()
            return [f"{each['key']}:{each['effect']}" for each in untolerated_taints(tolerations, taints)]

        waiting.until(
            missing,
            lambda names: not names,
            describe=lambda names: (
                f"DaemonSet {self.namespace}/{_WORKER[1]} does not tolerate {', '.join(names)}: the NFD operator has not written the tolerations of "
                f"{KIND} {self.name} into it. To read its log, run kubectl -n {self.namespace} logs deployment/nfd-controller-manager."
            ),
            progress_text=lambda names: f"NFD: waiting for the tolerations of {', '.join(names)}",
        )
