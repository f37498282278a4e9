# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""OpenShift's boot images on vSphere: whose templates OpenShift replaces, and the change that excludes the MachineSets of this collection (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import NODEGROUP_LABEL
from ..catalog.openshift import (
    BOOT_IMAGES_BY_DEFAULT,
    BOOT_IMAGES_SINCE,
    MACHINE_CLUSTER_LABEL,
    MACHINE_CONFIGURATION_API,
    MACHINE_SETS_MANAGER,
    MANAGED_OS_STREAM,
    OS_STREAM_LABEL,
    OTHER_AUTHORITIES,
)
from ..core.messages import abbreviate, option_of_role
from ..core.values import Document, Object, get_nested
from ..kube.fields import name_of
from ..nodes.node import selects

if t.TYPE_CHECKING:
    from ..catalog.releases import Release

# Determines the selection of MachineSets whose templates OpenShift replaces with its own boot image, which has no GPU.
#
# Sources: openshift/machine-config-operator, pkg/controller/common/featuregates.go (platforms and releases), pkg/operator/sync.go (the status), and
# pkg/controller/bootimage (ms_helpers.go, vsphere_helpers.go). On vSphere, OpenShift replaces a template in the cluster's folder with the release's image,
# which gets the same name. If the template is in a different folder, OpenShift changes the MachineSet so that it uses the release's image.

# The field `selection` of an entry: a mode and, with the mode Partial, a label selector.
Selection = t.Mapping[str, t.Any]

ALL, PARTIAL, NONE = "All", "Partial", "None"
# No template is replaced.
UNMANAGED: Selection = {"mode": NONE}
_MANAGERS = "machineManagers"
FIELD = f"spec.managedBootImages.{_MANAGERS}"
_STATUS = "managedBootImagesStatus"
_OBJECT = "MachineConfiguration cluster"
_ALLOWED = option_of_role("gpu_cluster.cloud.machineset.vsphere.narrow_boot_images", "narrow")
# Every MachineSet of this collection has the label, so this expression selects none of them.
_EXCLUDES_OWN: t.Mapping[str, str] = {"key": NODEGROUP_LABEL, "operator": "DoesNotExist"}
OWN_ENTRY = f"expression {NODEGROUP_LABEL} DoesNotExist in {_OBJECT}, {FIELD}"


def effective_selection(configuration: Document | None, release: Release) -> Selection:
    """The MachineSets whose templates OpenShift replaces: what the operator reports for this generation or, until then, what it will derive from the spec."""
    if release < BOOT_IMAGES_SINCE:
        return UNMANAGED
    reported = _reported_selection(configuration)
    if reported is not None:
        return reported
    declared = declared_selection(configuration)
    return {"mode": _default(release)} if declared is None else declared


def _default(release: Release) -> str:
    return ALL if release >= BOOT_IMAGES_BY_DEFAULT else NONE


def declared_selection(configuration: Document | None) -> Selection | None:
    """The selection in the spec, or None if the release's default applies. An empty list of managers excludes everything."""
    managers = get_nested(configuration, "spec", "managedBootImages", _MANAGERS)
    return UNMANAGED if managers == [] else _selection_in(managers)


def is_observed(configuration: Document | None) -> bool:
    """Whether the Machine Config Operator has processed the current version of the spec."""
    generation = get_nested(configuration, "metadata", "generation")
    return generation is not None and get_nested(configuration, "status", "observedGeneration") == generation


def _reported_selection(configuration: Document | None) -> Selection | None:
    """The selection in the status, or None if the status belongs to an older version of the spec, or contains no boot images."""
    status = get_nested(configuration, "status", _STATUS)
    if status is None or not is_observed(configuration):
        return None
    return _selection_in(status.get(_MANAGERS)) or UNMANAGED


def _selection_in(managers: t.Any) -> Selection | None:
    return next((each.get("selection") or UNMANAGED for each in managers or () if _is_for_machinesets(each)), None)


def _is_for_machinesets(manager: t.Mapping[str, t.Any]) -> bool:
    return all(manager.get(key) == value for key, value in MACHINE_SETS_MANAGER.items())


def takes(selection: Selection, machineset: Document) -> bool:
    """Whether OpenShift replaces the template of this MachineSet."""
    labels = get_nested(machineset, "metadata", "labels") or {}
    if (
        get_nested(machineset, "metadata", "ownerReferences")
        or labels.get(OS_STREAM_LABEL, MANAGED_OS_STREAM) != MANAGED_OS_STREAM
        or get_nested(machineset, "status", "authoritativeAPI") in OTHER_AUTHORITIES
    ):
        return False
    if selection.get("mode") != PARTIAL:
        return selection.get("mode") == ALL
    selector = _selector(selection)
    # Unlike in selects(), an empty selector selects everything.
    return not any(selector.values()) or selects(selector, labels)


def _selector(selection: Selection) -> Object:
    return get_nested(selection, "partial", "machineResourceSelector") or {}


def warning(name: str, template: str) -> str:
    """The warning that OpenShift would replace the template of this node group's MachineSet."""
    return (
        f"Node group {name}: OpenShift manages the boot images of its MachineSet and would replace template {template} with its own image, which has no GPU. "
        f"Exclude the MachineSets of this collection with the module accel.gpu.boot_images, or set this entry in {_OBJECT}, {FIELD}: {guard_text()}"
    )


# Computes the change that excludes the MachineSets of this collection.


@dataclass(frozen=True)
class Guard:
    """What is needed to exclude the MachineSets.

    selection: the selection after the change. changed: whether it differs from that in the spec. narrowed: the selection of others that the change would
    restrict. by_default: whether the MachineSets are excluded only because the release leaves the templates unchanged.
    """

    selection: Selection
    changed: bool = False
    narrowed: Selection | None = None
    by_default: bool = False

    def managers(self, configuration: Document | None) -> list[Object]:
        """All entries after the change."""
        entries = [dict(each) for each in get_nested(configuration, "spec", "managedBootImages", _MANAGERS) or ()]
        changed = [_entry(self.selection) if _is_for_machinesets(each) else each for each in entries]
        return changed if any(map(_is_for_machinesets, entries)) else [*entries, _entry(self.selection)]

    def body(self, configuration: Document | None) -> Object:
        """The object for a server-side apply, with only this entry. Of an existing object, the apply changes only the version that was read."""
        metadata: Object = {"name": "cluster"}
        if version := get_nested(configuration, "metadata", "resourceVersion"):
            metadata["resourceVersion"] = version
        return {
            "apiVersion": MACHINE_CONFIGURATION_API,
            "kind": "MachineConfiguration",
            "metadata": metadata,
            "spec": {"managedBootImages": {_MANAGERS: [_entry(self.selection)]}},
        }


def guard_of(configuration: Document | None, release: Release, machinesets: t.Sequence[Document]) -> Guard:
    """The guard for these MachineSets of the collection, in a release that manages boot images of vSphere. Entries for other resources are kept."""
    declared = declared_selection(configuration)
    if declared is None:
        # The operator may report a default for a release that is not known here.
        if ALL in (effective_selection(configuration, release).get("mode"), _default(release)):
            return Guard(_guarded({}), changed=True)
        return Guard(UNMANAGED, by_default=True)
    if excludes(declared, machinesets):
        return Guard(declared)
    return Guard(_guarded(_selector(declared)), changed=True, narrowed=declared)


def _guarded(selector: t.Mapping[str, t.Any]) -> Selection:
    """The mode Partial with this selector, restricted to MachineSets that do not belong to this collection."""
    expressions = [*(selector.get("matchExpressions") or ()), dict(_EXCLUDES_OWN)]
    return {"mode": PARTIAL, "partial": {"machineResourceSelector": {**selector, "matchExpressions": expressions}}}


def _entry(selection: Selection) -> Object:
    return {**MACHINE_SETS_MANAGER, "selection": selection}


def excludes(selection: Selection, machinesets: t.Sequence[Document]) -> bool:
    """Whether OpenShift does not replace the template of any of these MachineSets; without MachineSets, whether this holds for all of this collection."""
    if machinesets:
        return not any(takes(selection, each) for each in machinesets)
    return selection.get("mode") not in (ALL, PARTIAL) or any(
        dict(_EXCLUDES_OWN) == {key: value for key, value in each.items() if value}
        for each in _selector(selection).get("matchExpressions") or ()
    )


def has_own_entry(configuration: Document | None) -> bool:
    """Whether the spec contains the expression that excludes the MachineSets of this collection."""
    declared = declared_selection(configuration) or UNMANAGED
    return declared.get("mode") == PARTIAL and excludes(declared, ())


def is_guarded(configuration: Document | None, machinesets: t.Sequence[Document] = ()) -> bool:
    """Whether the spec excludes these MachineSets, and the operator has adopted this. Without MachineSets, whether this holds for all of this collection."""
    declared, reported = declared_selection(configuration), _reported_selection(configuration)
    return (
        declared is not None
        and is_observed(configuration)
        and all(excludes(each, machinesets) for each in (declared, reported) if each is not None)
    )


def guarded_machinesets(names: t.Sequence[str], machinesets: t.Sequence[Document]) -> list[Document]:
    """The collection's MachineSets, with the labels that they have or will have: the existing ones, and those of these node groups."""
    own = [each for each in machinesets if get_nested(each, "metadata", "labels", NODEGROUP_LABEL)]
    known = {get_nested(each, "metadata", "labels", NODEGROUP_LABEL) for each in own}
    # A new MachineSet gets the label with the cluster's name from the MachineSet that it is copied from (copy_of()).
    clusters = {get_nested(each, "metadata", "labels", MACHINE_CLUSTER_LABEL) for each in machinesets}
    # Without any, the labels of a future one count.
    for name in names or ([] if own else [""]):
        if name in known:
            continue
        adopted = next((each for each in machinesets if name_of(each) == name), None)
        if adopted is not None:
            labels = {**(get_nested(adopted, "metadata", "labels") or {}), NODEGROUP_LABEL: name}
            own.append({**adopted, "metadata": {**adopted["metadata"], "labels": labels}})
            continue
        for cluster in sorted(filter(None, clusters)) or [""]:
            labels = {NODEGROUP_LABEL: name, **({MACHINE_CLUSTER_LABEL: cluster} if cluster else {})}
            own.append({"metadata": {"name": name, "labels": labels}})
    return own


# Describes guards to users.


def guard_text() -> str:
    """The entry that excludes the MachineSets of this collection, as YAML in one line."""
    return _text(_entry(_guarded({})))


def refusal(guard: Guard, machinesets: t.Sequence[Document]) -> str:
    """Why a selection of others is not changed, and the remedies."""
    selection = guard.narrowed or {}
    taken = sorted({name_of(each) for each in machinesets if takes(selection, each)} - {""})
    which = f"MachineSets of this collection ({abbreviate(taken)})" if taken else "MachineSets of this collection"
    return (
        f"{_OBJECT}: in {FIELD}, the selection for machinesets is {_text(selection)}, which includes {which}. OpenShift would replace their templates with "
        f"its own image, which has no GPU. They are excluded from a selection of others only if {_ALLOWED} is true; OpenShift then continues "
        f"to update the other MachineSets. Or set this entry yourself: {_text(_entry(guard.selection))}"
    )


def upgrade_warning(release: Release) -> str:
    """The warning about MachineSets that are excluded only because of the cluster's release."""
    own, later = (f"{major}.{minor}" for major, minor in (release, BOOT_IMAGES_BY_DEFAULT))
    return (
        f"{_OBJECT}: {FIELD} has no entry for machinesets. OpenShift {own} therefore leaves the templates of MachineSets unchanged, but {later} and "
        "later replace them with an image that has no GPU. Nothing was changed, because in this release an entry would switch on the updates of other "
        f"MachineSets. Run this again as soon as an upgrade to {later} or later has started (the ClusterVersion names the new release), before the Machine "
        f"Config Operator is upgraded. Or exclude all MachineSets now, with this entry: {_text(_entry(UNMANAGED))}"
    )


def state_text(configuration: Document | None) -> str:
    """What the status still shows, for the message of a wait that was not successful."""
    if configuration is None:
        return f"{_OBJECT} was deleted."
    observed = get_nested(configuration, "status", "observedGeneration")
    reported = _selection_in(get_nested(configuration, "status", _STATUS, _MANAGERS))
    shown = "contains no selection for machinesets" if reported is None else f"shows the selection {_text(reported)}"
    return (
        f"{_OBJECT}: its status does not show that the MachineSets are excluded: status.observedGeneration is {observed or 'not set'}, metadata.generation is "
        f"{get_nested(configuration, 'metadata', 'generation')}, and status.{_STATUS} {shown}. Until then, OpenShift may replace their templates. The Machine "
        "Config Operator, which writes the status, must be running and not be degraded; check it with: oc get co machine-config"
    )


def _text(value: t.Any) -> str:
    """A value as JSON, which is also YAML in one line."""
    return json.dumps(value)
