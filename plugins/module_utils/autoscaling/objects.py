# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the changes to the ClusterAutoscaler, the MachineAutoscalers and the ConfigMap of the Priority expander (pure)."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ..catalog.cluster_autoscaler import (
    API_VERSION,
    KIND,
    MACHINE_AUTOSCALER_API_VERSION,
    MACHINE_AUTOSCALER_KIND,
    MACHINE_SET_KIND,
    NAME,
    PRIORITY_CONFIGMAP,
    PRIORITY_KEY,
)
from ..catalog.machine_api import MACHINE_API_VERSION
from ..catalog.names import CREATED_ANNOTATION, NODEGROUP_LABEL, PRIORITIES_ANNOTATION
from ..cluster_state import expander_priorities, gpu_limits
from ..cluster_state.record_annotation import set_record
from ..common.nested import get_nested, merge_patch
from ..kube.diff import same_object, shown
from ..pools.variables import merge
from .field_changes import FieldChanges, ForeignField, Path, leaves, other_managers, set_fields

if t.TYPE_CHECKING:
    from .targets import Target

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]
Action = t.Literal["created", "updated", "unchanged", "deleted"]

# The spec of a new ClusterAutoscaler. Booting a node and installing its driver takes up to 20 minutes; during this time, the autoscaler
# must neither replace nor remove the node.
NEW_SPEC: Object = {"maxNodeProvisionTime": "30m", "scaleDown": {"enabled": True, "delayAfterAdd": "20m"}}
SCALE_DOWN_ENABLED: Path = ("spec", "scaleDown", "enabled")
BOUNDS: tuple[Path, Path] = (("spec", "minReplicas"), ("spec", "maxReplicas"))


@dataclass(frozen=True)
class AutoscalerChange:
    """The change to one object. `live` is None if the object is created; `desired` is None if it is deleted. `foreign`: see FieldChanges."""

    kind: str
    name: str
    namespace: str | None
    live: Object | None
    desired: Object | None
    foreign: tuple[ForeignField, ...] = ()

    @property
    def action(self) -> Action:
        """The action on the object; "unchanged" if no request is needed."""
        if self.live is None:
            return "created"
        if self.desired is None:
            return "deleted"
        return "unchanged" if same_object(self.live, self.desired) else "updated"

    @property
    def changed(self) -> bool:
        """Whether a request is needed."""
        return self.action != "unchanged"

    @property
    def label(self) -> str:
        """The kind, namespace and name."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def before(self) -> Object:
        """The object before the change, for a diff."""
        return shown(self.live)

    @property
    def after(self) -> Object:
        """The object after the change, for a diff."""
        return shown(self.desired)

    @property
    def patch(self) -> Object:
        """The merge patch, which applies only to the version of the object that was read."""
        patch: Object = merge_patch(self.live, self.desired)
        version = {"resourceVersion": (self.live or {})["metadata"]["resourceVersion"]}
        return {**patch, "metadata": {**(patch.get("metadata") or {}), **version}}


def cluster_autoscaler_change(
    live: Object | None,
    declared: Document,
    limits: t.Mapping[str, int],
    used_types: t.Collection[str],
    *,
    change_foreign: bool,
) -> AutoscalerChange:
    """Set the declared fields and the limits (by GPU type) of the ClusterAutoscaler; see merge_limits() for `used_types`."""
    if live is None:
        body: Object = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": NAME, "annotations": {CREATED_ANNOTATION: "true"}},
            "spec": merge(NEW_SPEC, copy.deepcopy(dict(declared))),
        }
        changes = gpu_limits.merge_limits((), {}, limits, used_types)
        return AutoscalerChange(KIND, NAME, None, None, gpu_limits.with_limits(body, changes))
    fields = {("spec", *path): value for path, value in leaves(declared).items()}
    if declared.get("scaleDown") and get_nested(live, *SCALE_DOWN_ENABLED) is None:
        # The CRD requires this field. It is set to false, because a scale-down must be enabled explicitly.
        fields.setdefault(SCALE_DOWN_ENABLED, False)
    set_declared = set_fields(live, fields, change_foreign=change_foreign)
    entries, record = gpu_limits.entries_of(live), gpu_limits.record_of(live)
    changes = gpu_limits.merge_limits(entries, record, limits, used_types, change_foreign=change_foreign)
    foreign = list(set_declared.foreign)
    # Foreign entries are also collected if `change_foreign` is set, so that the warning names them.
    for kind, value, high in gpu_limits.merge_limits(entries, record, limits, used_types).foreign:
        managers = other_managers(live, gpu_limits.PATH)
        foreign.append(ForeignField(f"{'.'.join(gpu_limits.PATH)}[{kind}].max", value, high, managers or "hand"))
    return AutoscalerChange(
        KIND, NAME, None, live, gpu_limits.with_limits(set_declared.desired, changes), tuple(foreign)
    )


def machine_autoscaler_change(
    target: Target, live: Object | None, namespace: str, *, change_foreign: bool
) -> AutoscalerChange:
    """Create or change the MachineAutoscaler of a MachineSet; an existing one without the collection's label is adopted."""
    if live is None:
        reference = {"apiVersion": MACHINE_API_VERSION, "kind": MACHINE_SET_KIND, "name": target.name}
        metadata = {
            "name": target.name,
            "namespace": namespace,
            "labels": {NODEGROUP_LABEL: target.group},
            "annotations": {CREATED_ANNOTATION: "true"},
        }
        body: Object = {
            "apiVersion": MACHINE_AUTOSCALER_API_VERSION,
            "kind": MACHINE_AUTOSCALER_KIND,
            "metadata": metadata,
            "spec": {"minReplicas": target.low, "maxReplicas": target.high, "scaleTargetRef": reference},
        }
        return AutoscalerChange(MACHINE_AUTOSCALER_KIND, target.name, namespace, None, body)
    labels = live["metadata"].get("labels") or {}
    fields: dict[Path, t.Any] = dict(zip(BOUNDS, (target.low, target.high), strict=True))
    # When a MachineAutoscaler is adopted, its bounds are always replaced with those of the pool.
    changes: FieldChanges = set_fields(live, fields, change_foreign=change_foreign or NODEGROUP_LABEL not in labels)
    desired = changes.desired
    desired["metadata"]["labels"] = {**labels, NODEGROUP_LABEL: target.group}
    return AutoscalerChange(
        MACHINE_AUTOSCALER_KIND, live["metadata"]["name"], namespace, live, desired, tuple(changes.foreign)
    )


def deletion(live: Object) -> AutoscalerChange:
    """The deletion of a MachineAutoscaler."""
    metadata = live["metadata"]
    return AutoscalerChange(MACHINE_AUTOSCALER_KIND, metadata["name"], metadata.get("namespace"), live, None)


def priorities_change(
    live: Object | None, desired: t.Mapping[str, int], kept: t.Collection[str], namespace: str
) -> tuple[AutoscalerChange | None, str]:
    """The change to the Priority expander's ConfigMap (None if no change is needed), and the reason if the ConfigMap's text cannot be merged."""
    text = expander_priorities.text_of(live)
    merged = expander_priorities.merge_priorities(text, expander_priorities.record_of(live), desired, kept)
    if merged.problem:
        return None, merged.problem
    if live is None:
        if not merged.text:
            return None, ""
        metadata: Object = {
            "name": PRIORITY_CONFIGMAP,
            "namespace": namespace,
            "annotations": {CREATED_ANNOTATION: "true"},
        }
        live_or_new: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    else:
        live_or_new = copy.deepcopy(live)
    if merged.text != text:
        live_or_new["data"] = {**(live_or_new.get("data") or {}), PRIORITY_KEY: merged.text}
    set_record(live_or_new, PRIORITIES_ANNOTATION, merged.record)
    return AutoscalerChange("ConfigMap", PRIORITY_CONFIGMAP, namespace, live, live_or_new), ""


def bounds_of(machine_autoscaler: Document) -> tuple[int, int]:
    """The minimum and maximum number of replicas in a MachineAutoscaler."""
    low, high = (int(get_nested(dict(machine_autoscaler), *path) or 0) for path in BOUNDS)
    return low, high
