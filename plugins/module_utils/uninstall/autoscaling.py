# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of this collection's objects for OpenShift's cluster autoscaler: MachineAutoscalers, limits, priorities, and the ClusterAutoscaler."""

from __future__ import annotations

import copy
import functools
import typing as t

from ..catalog.names import CREATED_ANNOTATION, NODEGROUP_LABEL, PRIORITIES_ANNOTATION
from ..catalog.openshift import (
    AUTOSCALER_KIND,
    AUTOSCALER_NAME,
    CLUSTER_AUTOSCALER_PATH,
    MACHINE_AUTOSCALER_KIND,
    MACHINE_AUTOSCALERS_PATH,
    PRIORITY_CONFIGMAP,
    PRIORITY_KEY,
    machine_autoscalers_path,
    machine_sets_path,
)
from ..core.values import Document, Object, merge_patch
from ..kube.errors import ApiError, patch_object
from ..kube.fields import is_created_by_collection, name_of
from ..nodegroups.autoscaling_objects import merge_priorities, priorities_text, recorded_priorities
from ..nodegroups.scaling_state import limit_entries, recorded_limits, scaled_machine_set, with_limits, without_limits
from ..nodes.ownership import machine_set_owner, set_record
from .removal import EXISTS, Removal, deletion, is_created

if t.TYPE_CHECKING:
    from ..kube.client import Client

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
    record = recorded_limits(live)
    return _unmarked(with_limits(live, without_limits(limit_entries(live), record, record)))


def without_priorities(live: Document) -> Object:
    """The ConfigMap of the Priority expander without the collection's expressions and annotations."""
    merged = merge_priorities(priorities_text(live), recorded_priorities(live), {})
    desired = copy.deepcopy(dict(live))
    if merged.text != priorities_text(live):
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
    label = f"{AUTOSCALER_KIND} {AUTOSCALER_NAME}"
    if is_created(live) and not foreign:
        return [deletion(client, CLUSTER_AUTOSCALER_PATH, live, label)]
    if not is_created(live) and not recorded_limits(live):
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
