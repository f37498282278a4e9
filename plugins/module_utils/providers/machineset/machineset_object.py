# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates a MachineSet object as a copy of another one, and reads and writes the settings of a node group in it (pure)."""

from __future__ import annotations

import copy
import json
import typing as t

from ...catalog.machine_api import (
    ACCELERATOR_LABEL,
    CAPACITY_KEYS,
    MACHINE_API_VERSION,
    MACHINE_CLUSTER_LABEL,
    MACHINESET_LABEL,
    Platform,
    platform_of,
)
from ...catalog.names import (
    CONFIG_LABEL,
    MIG_CONFIG_LABEL,
    NODEGROUP_LABEL,
    NODEGROUP_MARK,
    OWN_PREFIX,
    REGISTRATION_ANNOTATION,
)
from ...catalog.taints import STARTUP_TAINT_PREFIX
from ...cluster_state.ownership import machine_set_mark, machine_set_owner
from ...common.nested import get_nested, parse_json, set_nested
from ...kube.metadata import name_of
from ...nodegroups.group_changes import Differences
from ...nodegroups.spec import taint_list, taint_map
from ...pools.nodegroup_names import NODE_COUNT, NODE_LABELS, NODE_TAINTS
from .fields import ANNOTATIONS, MACHINE_SETTINGS, MANAGED

Object = dict[str, t.Any]
Path = tuple[str, ...]

RECORD_ANNOTATION = REGISTRATION_ANNOTATION
_OWN_LABELS = (ACCELERATOR_LABEL, CONFIG_LABEL, MIG_CONFIG_LABEL)
_TEMPLATE: Path = ("spec", "template")
PROVIDER_SPEC: Path = (*_TEMPLATE, "spec", "providerSpec", "value")
LABELS: Path = (*_TEMPLATE, "spec", "metadata", "labels")
TAINTS: Path = (*_TEMPLATE, "spec", "taints")


def provider_spec_of(machineset: t.Mapping[str, t.Any]) -> Object:
    """The providerSpec of a MachineSet's Machines, or an empty map if there is none."""
    return t.cast("Object", get_nested(machineset, *PROVIDER_SPEC) or {})


def platform_of_object(machineset: t.Mapping[str, t.Any]) -> Platform | None:
    """The platform of a MachineSet's Machines, or None if the platform is not supported."""
    return platform_of(provider_spec_of(machineset))


def annotations_of(machineset: t.Mapping[str, t.Any]) -> dict[str, str]:
    """The annotations of an object."""
    return dict(get_nested(machineset, "metadata", "annotations") or {})


def nodegroup_of(machineset: t.Mapping[str, t.Any]) -> str | None:
    """The declared name of the node group that a MachineSet belongs to, or None if the MachineSet is not managed by this collection.

    The mark of a MachineSet counts. If it has no valid mark, it belongs to the group only if both have the same name.
    """
    owner = machine_set_owner(machineset, new=True)
    label = group_label_of(machineset)
    return owner or (str(label) if label == name_of(machineset) else None)


def group_label_of(item: t.Mapping[str, t.Any]) -> str | None:
    """The node group in an object's label, which a copy of the object has, too."""
    return t.cast("str | None", get_nested(item, "metadata", "labels", NODEGROUP_LABEL))


def record_of(machineset: t.Mapping[str, t.Any]) -> dict[str, list[str]]:
    """The entries that this collection has recorded on a MachineSet, grouped by kind."""
    record = parse_json(annotations_of(machineset).get(RECORD_ANNOTATION), dict) or {}
    return {
        str(kind): [str(entry) for entry in entries] for kind, entries in record.items() if isinstance(entries, list)
    }


def copy_of(source: t.Mapping[str, t.Any], name: str, group: str) -> Object:
    """A new MachineSet with 0 replicas that creates the same Machines as the source, and contains nothing that identifies the source or its owner.

    It carries the mark of a new MachineSet, so that a later run recognizes it even if this run is killed before it writes the UID into the mark.
    Of the source's labels and annotations, only the label with the cluster's name is copied. The others belong to tools that manage the source, such
    as Hive or GitOps, or to the autoscaler, or they describe the size of the Machines. The collection's own labels and taints are not copied either.
    """
    source_name, template = name_of(source), copy.deepcopy(dict(source["spec"].get("template") or {}))
    kept = {MACHINE_CLUSTER_LABEL: get_nested(source, "metadata", "labels", MACHINE_CLUSTER_LABEL)}
    spec = {
        key: copy.deepcopy(value)
        for key, value in source["spec"].items()
        if key not in ("replicas", "selector", "template", "authoritativeAPI")
    }
    metadata = dict(template.get("metadata") or {})
    labels = _renamed(metadata.get("labels") or {}, source_name, name)
    matched = _renamed(get_nested(source, "spec", "selector", "matchLabels") or {}, source_name, name)
    node = dict(template.get("spec") or {})
    node_labels = {
        key: value for key, value in (get_nested(node, "metadata", "labels") or {}).items() if not _is_own(key)
    }
    taints = [
        taint
        for taint in node.get("taints") or []
        if not str(taint.get("key")).startswith((STARTUP_TAINT_PREFIX, OWN_PREFIX))
    ]
    for key in ("metadata", "taints", "providerID", "name", "generateName"):
        node.pop(key, None)
    if node_labels:
        node["metadata"] = {"labels": node_labels}
    if taints:
        node["taints"] = taints
    return {
        "apiVersion": MACHINE_API_VERSION,
        "kind": "MachineSet",
        "metadata": {
            "name": name,
            "namespace": source["metadata"].get("namespace"),
            "labels": {**{key: value for key, value in kept.items() if value}, NODEGROUP_LABEL: group},
            "annotations": {
                NODEGROUP_MARK: machine_set_mark(
                    {"metadata": {"name": name, "namespace": source["metadata"].get("namespace")}}, group
                )
            },
        },
        "spec": {
            **spec,
            "replicas": 0,
            "selector": {"matchLabels": {**matched, MACHINESET_LABEL: name}},
            "template": {
                "metadata": {"labels": {**labels, MACHINESET_LABEL: name}},
                "spec": node,
            },
        },
    }


def finished_mark(group: str, machineset: t.Mapping[str, t.Any]) -> Object:
    """The patch that writes the UID of a new MachineSet into its mark; empty if the mark is not that of a new MachineSet of the group."""
    if machine_set_owner(machineset, new=True) != group or machine_set_owner(machineset) == group:
        return {}
    return {"metadata": {"annotations": {NODEGROUP_MARK: machine_set_mark(machineset, group)}}}


def _renamed(labels: t.Mapping[str, str], source: str, name: str) -> dict[str, str]:
    return {key: name if value == source else value for key, value in labels.items()}


def _is_own(label: str) -> bool:
    return label.startswith(OWN_PREFIX) or label in _OWN_LABELS


def paths_in(declared: t.Mapping[str, t.Any], prefix: Path = ()) -> dict[str, Path]:
    """The paths of all values in a declared part of a providerSpec. Each key is the path as a string. A list counts as one value."""
    paths: dict[str, Path] = {}
    for key, value in declared.items():
        path = (*prefix, str(key))
        if isinstance(value, t.Mapping) and value:
            paths.update(paths_in(value, path))
        else:
            paths[".".join(path)] = path
    return paths


def decode(machineset: t.Mapping[str, t.Any], paths: t.Mapping[str, Path]) -> Object:
    """The settings of a MachineSet for comparison, including the values at these paths of its providerSpec."""
    provider_spec = provider_spec_of(machineset)
    return {
        **machine_settings(provider_spec, paths),
        NODE_LABELS: {str(key): str(value) for key, value in (get_nested(machineset, *LABELS) or {}).items()},
        NODE_TAINTS: taint_map(get_nested(machineset, *TAINTS)),
        ANNOTATIONS: {
            key: value
            for key, value in annotations_of(machineset).items()
            if key in (*CAPACITY_KEYS, RECORD_ANNOTATION)
        },
        MANAGED: machine_set_owner(machineset) is not None,
    }


def machine_settings(provider_spec: t.Mapping[str, t.Any], paths: t.Mapping[str, Path]) -> Object:
    """The settings in a providerSpec. A Machine keeps these settings until it is deleted."""
    platform = platform_of(provider_spec)
    settings = platform.settings if platform else {}
    return {
        **dict.fromkeys(MACHINE_SETTINGS),
        **{name: setting.decode(get_nested(provider_spec, *setting.path)) for name, setting in settings.items()},
        "provider_spec": {
            name: value for name, path in paths.items() if (value := get_nested(provider_spec, *path)) is not None
        },
    }


def configured(
    machineset: t.Mapping[str, t.Any], differences: Differences, paths: t.Mapping[str, Path], group: str
) -> Object:
    """A copy of the MachineSet in which the differing fields have their desired values. Everything else is unchanged."""
    desired = copy.deepcopy(dict(machineset))
    provider_spec = provider_spec_of(desired)
    platform = platform_of(provider_spec)
    for field, (before, after) in differences.items():
        if field == NODE_COUNT:
            desired["spec"]["replicas"] = after
        elif field in MACHINE_SETTINGS:
            # On a platform without the setting, there is nothing to change.
            if platform is not None and (setting := platform.settings.get(field)):
                _set_or_remove(provider_spec, setting.path, None if after is None else setting.encode(after))
        elif field == "provider_spec":
            for name in {*(before or {}), *after}:
                _set_or_remove(provider_spec, paths[name], after.get(name))
        elif field == NODE_LABELS:
            set_nested(desired, LABELS, dict(after))
        elif field == NODE_TAINTS:
            set_nested(desired, TAINTS, _taints(get_nested(desired, *TAINTS) or [], after))
        elif field == ANNOTATIONS:
            others = {key: value for key, value in annotations_of(desired).items() if key not in (before or {})}
            desired["metadata"]["annotations"] = {**others, **after}
        elif field == MANAGED:
            desired["metadata"]["labels"] = {**(desired["metadata"].get("labels") or {}), NODEGROUP_LABEL: group}
            mark = {NODEGROUP_MARK: machine_set_mark(machineset, group)}
            desired["metadata"]["annotations"] = {**annotations_of(desired), **mark}
        else:
            raise NotImplementedError(f"No request changes {field} of a MachineSet")
    return desired


def _set_or_remove(document: Object, path: Path, value: t.Any) -> None:
    if value is not None:
        set_nested(document, path, value)
    elif (parent := get_nested(document, *path[:-1]) if path[:-1] else document) is not None:
        parent.pop(path[-1], None)


def _taints(live: t.Sequence[t.Mapping[str, t.Any]], desired: t.Mapping[str, t.Any]) -> list[Object]:
    """The list with the desired taints. Existing taints keep their position and their other fields."""
    missing = {f"{taint['key']}:{taint['effect']}": taint for taint in taint_list(desired)}
    kept: list[Object] = []
    for taint in live:
        declared = missing.pop(f"{taint.get('key')}:{taint.get('effect')}", None)
        if declared is not None:
            kept.append(dict(taint) if (taint.get("value") or "") == declared.get("value", "") else dict(declared))
    return [*kept, *(dict(taint) for taint in missing.values())]


def format_record(record: t.Mapping[str, t.Iterable[str]]) -> str:
    """The recorded entries in the format of the annotation."""
    return json.dumps({kind: sorted(entries) for kind, entries in sorted(record.items())}, separators=(",", ":"))
