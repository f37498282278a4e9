# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the removal of this collection's objects for OpenShift's cluster autoscaler: MachineAutoscalers, limits, priorities, and the ClusterAutoscaler."""

from __future__ import annotations

import copy
import functools
import typing as t

from ..catalog.cluster_autoscaler import (
    CLUSTER_AUTOSCALER_PATH,
    KIND,
    MACHINE_AUTOSCALER_KIND,
    MACHINE_AUTOSCALERS_PATH,
    NAME,
    PRIORITY_CONFIGMAP,
    PRIORITY_KEY,
    machine_autoscalers_path,
)
from ..catalog.machine_api import machine_sets_path
from ..catalog.names import CREATED_ANNOTATION, NODEGROUP_LABEL, PRIORITIES_ANNOTATION
from ..cluster_state import expander_priorities, gpu_limits
from ..cluster_state.autoscaling import scaled_machine_set
from ..cluster_state.ownership import is_created_by_collection, machine_set_owner
from ..cluster_state.record_annotation import set_record
from ..common.nested import merge_patch
from ..kube.client import Client
from ..kube.conflict_retry import patch_object
from ..kube.errors import ApiError
from ..kube.metadata import name_of
from .ownership_marks import is_created
from .result import EXISTS
from .stage import Removal, deletion

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_FOREIGN = "this collection did not create it"


def autoscaling_removals(client: Client) -> list[Removal]:
    """The removals, starting with MachineAutoscalers; empty if the cluster does not have this API or the user is not allowed to read it."""
    try:
        scalers = list(client.list_known(MACHINE_AUTOSCALERS_PATH))
        cluster = client.get(CLUSTER_AUTOSCALER_PATH)
    except ApiError as error:
        if not error.lacks_right:
            raise
        return []
    labeled = [item for item in scalers if _group_of(item)]
    machine_sets = _machine_sets(client, {str(item["metadata"]["namespace"]) for item in labeled if is_created(item)})
    reasons = {id(item): kept_reason(item, machine_sets) for item in labeled}
    foreign = [item for item in scalers if reasons.get(id(item), _FOREIGN)]
    removals = [_scaler_removal(client, item, reasons[id(item)]) for item in labeled]
    removals += _priority_removals(client, {str(item["metadata"]["namespace"]) for item in scalers} or {""})
    if cluster is not None:
        removals += _cluster_removals(client, cluster, foreign)
    return removals


def kept_reason(scaler: Document, machine_sets: t.Iterable[Document]) -> str:
    """The reason why a MachineAutoscaler with the collection's label is not deleted; empty if it is deleted.

    A copy carries the label and the annotation of the original. It was written by another field manager, or it scales a MachineSet of another owner.
    """
    if not is_created(scaler):
        return _FOREIGN
    group, target, namespace = _group_of(scaler), scaled_machine_set(scaler), scaler["metadata"]["namespace"]
    scaled = [item for item in machine_sets if (item["metadata"]["namespace"], name_of(item)) == (namespace, target)]
    if scaled and group not in (target, machine_set_owner(scaled[0], new=True)):
        return f"it scales MachineSet {target}, which does not belong to node group {group}"
    return ""


def without_marks(live: Document) -> Object:
    """An adopted MachineAutoscaler without this collection's label."""
    desired = copy.deepcopy(dict(live))
    desired["metadata"]["labels"] = {
        key: value for key, value in (live["metadata"].get("labels") or {}).items() if key != NODEGROUP_LABEL
    }
    return desired


def without_own_limits(live: Document) -> Object:
    """A ClusterAutoscaler without the collection's entries and annotations."""
    record = gpu_limits.record_of(live)
    return _unmarked(
        gpu_limits.with_limits(live, gpu_limits.without_limits(gpu_limits.entries_of(live), record, record))
    )


def without_priorities(live: Document) -> Object:
    """The ConfigMap of the Priority expander without the collection's expressions and annotations."""
    merged = expander_priorities.merge_priorities(
        expander_priorities.text_of(live), expander_priorities.record_of(live), {}
    )
    desired = copy.deepcopy(dict(live))
    if merged.text != expander_priorities.text_of(live):
        desired["data"] = {**(desired.get("data") or {}), PRIORITY_KEY: merged.text}
    set_record(desired, PRIORITIES_ANNOTATION, {})
    return _unmarked(desired)


def _unmarked(desired: Object) -> Object:
    (desired["metadata"].get("annotations") or {}).pop(CREATED_ANNOTATION, None)
    return desired


def _group_of(scaler: Document) -> str:
    return str((scaler["metadata"].get("labels") or {}).get(NODEGROUP_LABEL) or "")


def _machine_sets(client: Client, namespaces: t.Collection[str]) -> list[Document]:
    """The MachineSets of the namespaces; empty if the user is not allowed to read them, so that only the field manager shows what is a copy."""
    try:
        return [item for namespace in sorted(namespaces) for item in client.list_known(machine_sets_path(namespace))]
    except ApiError as error:
        if not error.lacks_right:
            raise
        return []


def _scaler_removal(client: Client, live: Object, reason: str) -> Removal:
    metadata = live["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    label = f"{MACHINE_AUTOSCALER_KIND} {namespace}/{name}"
    path = f"{machine_autoscalers_path(namespace)}/{name}"
    if not reason:
        return deletion(client, path, live, label)
    if is_created_by_collection(live):
        # A copy is not changed either.
        return Removal(label, action="", kept=reason)
    return _edit(client, path, live, label, without_marks, "managed label removed")


def _cluster_removals(client: Client, live: Object, foreign: t.Sequence[Document]) -> list[Removal]:
    label = f"{KIND} {NAME}"
    if is_created(live) and not foreign:
        return [deletion(client, CLUSTER_AUTOSCALER_PATH, live, label)]
    if not is_created(live) and not gpu_limits.record_of(live):
        return []
    names = ", ".join(sorted(f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in foreign))
    reason = f"foreign {MACHINE_AUTOSCALER_KIND} {names} needs it" if is_created(live) else _FOREIGN
    return [_edit(client, CLUSTER_AUTOSCALER_PATH, live, label, without_own_limits, "managed limits removed", reason)]


def _priority_removals(client: Client, namespaces: t.Iterable[str]) -> t.Iterator[Removal]:
    for namespace in sorted(filter(None, namespaces)):
        path = f"/api/v1/namespaces/{namespace}/configmaps/{PRIORITY_CONFIGMAP}"
        live = client.get(path)
        if live is None or PRIORITIES_ANNOTATION not in (live["metadata"].get("annotations") or {}):
            continue
        label = f"ConfigMap {namespace}/{PRIORITY_CONFIGMAP}"
        rest = without_priorities(live).get("data") or {}
        if is_created(live) and not any(rest.values()):
            yield deletion(client, path, live, label)
        else:
            yield _edit(
                client, path, live, label, without_priorities, "managed priorities removed", "it has foreign entries"
            )


def _edit(
    client: Client,
    path: str,
    live: Object,
    label: str,
    make: t.Callable[[Document], Object],
    action: str,
    reason: str = _FOREIGN,
) -> Removal:
    edit = functools.partial(
        patch_object, client, path, live, lambda current: merge_patch(current, make(current)) or None
    )
    return Removal(
        label,
        action=action,
        kept=reason,
        after=EXISTS,
        before=f"{EXISTS}, with managed entries",
        send=edit,
        check=functools.partial(edit, dry_run=True),
    )
