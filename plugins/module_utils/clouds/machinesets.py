# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MachineSets as documents: fields, records, members, sources to copy from (pure)."""

from __future__ import annotations

import copy
import datetime
import difflib
import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import (
    CONFIG_LABEL,
    FORMER_TAINTS,
    MIG_CONFIG_LABEL,
    NODEGROUP_LABEL,
    NODEGROUP_MARK,
    OWN_PREFIX,
    POOL_LABEL,
    REGISTRATION_ANNOTATION,
)
from ..catalog.openshift import (
    ACCELERATOR_LABEL,
    CAPACITY_KEYS,
    CAPACITY_LABELS,
    CPU,
    MACHINE_API_VERSION,
    MACHINE_CLUSTER_LABEL,
    MACHINE_ROLE_LABEL,
    MACHINESET_LABEL,
    MEMORY_MB,
    OWN_MACHINES_REMEDY,
    PLATFORM_NAMES,
    UNSUPPORTED_PLATFORMS,
    AutoscalerRules,
    Platform,
    failure_domains,
    platform_of,
    template_content,
    zone_and_region,
)
from ..catalog.taints import STARTUP_TAINT_PREFIX
from ..core.messages import abbreviate, join_words, quote
from ..core.types import Text
from ..core.values import Document, Object, get_nested, parse_json, set_nested
from ..kube.fields import controller_of, is_deleting, name_of
from ..nodegroups.module import NodeGroupField, NodeGroupFields, node_labels_field, node_taints_field
from ..nodegroups.spec import Differences, NodeGroupState, taint_list, taint_map
from ..nodes.node import selects
from ..nodes.ownership import machine_set_mark, machine_set_owner
from ..pools.plan import capacity_annotations, format_labels, parse_labels
from ..schema.providers import MACHINESET, NODE_COUNT, NODE_LABELS, NODE_TAINTS, claimed_owner
from .machines import DELETING, FAILED, RUNNING, Machine, machine_problems, node_of, phase_of

# Defines the settings of a MachineSet that the module machineset changes (pure).

# Every change is one patch of the object.
PATCH = ("PATCH", "")
# The settings of machines, each with the remedy for a platform that does not have the setting. In a remedy, `having` is replaced with the names of the
# platforms that have the setting. Platform.settings (catalog/openshift.py) contains the corresponding fields.
MACHINE_SETTINGS = {
    "flavor": "{platform} machines are clones of a virtual machine; set template instead",
    "template": "{platform} machines have a machine type; set flavor instead",
    "accelerators": "only {having} machines have them; on {platform}, flavor or template determines the GPUs",
}
# A change to these settings affects only Machines that are created afterwards (machine-api-operator pkg/controller/machineset).
MACHINE_FIELDS = frozenset({*MACHINE_SETTINGS, "provider_spec"})
# Two settings have no option. ANNOTATIONS contains the annotations that describe a future node to the autoscaler, and the annotation that records the
# collection's own entries. MANAGED is whether the MachineSet is marked as managed by this collection.
ANNOTATIONS, MANAGED = "annotations", "managed"

FIELDS = NodeGroupFields(
    MACHINESET,
    (
        NodeGroupField("flavor", "", PATCH, type=Text()),
        NodeGroupField("template", "", PATCH),
        NodeGroupField("accelerators", "", PATCH),
        NodeGroupField("provider_spec", "", PATCH),
        node_labels_field("", PATCH),
        node_taints_field("", PATCH),
    ),
    other_options={
        "like": {"type": "str"},
        "zone": {"type": "str"},
        "capacity": {
            "type": "dict",
            "options": {"resources": {"type": "dict"}, "labels": {"type": "dict"}},
        },
        "adopt": {"type": "bool"},
    },
    # The field of a MachineSet has this name.
    aliases={"node_count": "replicas"},
    location_options={},
)


# Creates a MachineSet object as a copy of another one, and reads and writes the settings of a node group in it (pure).

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


# Derives the state of a node group from its MachineSet and Machines (pure).


def machines_of(machineset: t.Mapping[str, t.Any], machines: t.Iterable[Machine]) -> list[Machine]:
    """The Machines of a MachineSet: those whose controller it is and, like its own controller, those without a controller that its selector selects."""
    uid, selector = machineset["metadata"].get("uid"), get_nested(machineset, "spec", "selector") or {}
    return [
        machine
        for machine in machines
        if ((owner := controller_of(machine)) is not None and owner.get("uid") == uid)
        or (owner is None and selects(selector, machine["metadata"].get("labels") or {}))
    ]


def state_of(
    machineset: t.Mapping[str, t.Any],
    machines: t.Sequence[Machine],
    now: datetime.datetime,
    *,
    paths: t.Mapping[str, Path],
    declared: t.Collection[str] = (),
    autoscaled: bool = False,
    awaits_capacity: bool = False,
    ignored: t.Collection[str] = (),
    refused: t.Collection[str] = (),
    replaced: bool = False,
    pooled: bool = False,
) -> NodeGroupState:
    """The state of the node group.

    machines: the Machines of the MachineSet. paths: the paths of the declared values in the providerSpec. declared: the names of the declared fields.
    autoscaled: whether an autoscaler chooses the number of Machines. It can create Machines at any time, so their number and phases are ignored.
    awaits_capacity: whether the platform's controller is still expected to set the annotations that contain the size of the Machines. ignored: the
    names of the Machines that had failed before the run. refused: the names of the Machines whose start is refused until somebody changes something.
    replaced: whether the run replaces outdated Machines, so that it does not matter whether these are running. pooled: whether the nodes belong to a pool.
    """
    live = [machine for machine in machines if phase_of(machine) != DELETING]
    count = int(get_nested(machineset, "spec", "replicas") or 0)
    nodes = tuple(sorted(node for machine in live if (node := node_of(machine))))
    deleting = is_deleting(machineset)
    outdated = outdated_machines(machineset, live, paths, declared)
    leaving = {name_of(machine) for machine in outdated} if replaced else set()
    phases = {name: phase_of(machine) for machine in machines if (name := name_of(machine)) not in leaving}
    stopped = {name for name, phase in phases.items() if phase == FAILED or name in refused}
    failed = not deleting and not autoscaled and bool(stopped - {*ignored})
    running = all(phase == RUNNING or name in stopped for name, phase in phases.items())
    complete = autoscaled or (len(machines) == count and running)
    settled = not deleting and complete and _is_observed(machineset) and not awaits_capacity
    return NodeGroupState(
        id=name_of(machineset),
        name=name_of(machineset),
        status=_status(deleting, failed, settled, len(live), count),
        settled=settled,
        failed=failed,
        count=count,
        reason=" ".join(f"{text}." for text in machine_problems(machines, now)),
        fields=decode(machineset, paths),
        machines=nodes,
        without_node=max(0, len(live) - len(nodes)),
        outdated=tuple(sorted(node_of(machine) or name_of(machine) for machine in outdated)),
        owner=nodegroup_of(machineset) or "",
        marked=machine_set_owner(machineset, new=True) is not None,
        claims={
            f"label {NODEGROUP_LABEL}": group_label_of(machineset) or "",
            f"annotation {NODEGROUP_MARK}": claimed_owner(annotations_of(machineset).get(NODEGROUP_MARK)),
        },
        adopted=_without_pool_label(live) if pooled else (),
    )


def _status(deleting: bool, failed: bool, settled: bool, machines: int, count: int) -> str:
    if deleting:
        return "DELETING"
    if failed:
        return "FAILED"
    if settled:
        return "READY"
    return "SCALING" if machines != count else "PROVISIONING"


def _is_observed(machineset: t.Mapping[str, t.Any]) -> bool:
    """Whether the MachineSet's controller has observed the latest change."""
    generation = machineset["metadata"].get("generation") or 0
    return int(get_nested(machineset, "status", "observedGeneration") or 0) >= int(generation)


def controller_size(machineset: t.Mapping[str, t.Any]) -> tuple[str | None, ...]:
    """The size of the Machines, read from the annotations that the platform's controller sets. It is empty if the controller sets none."""
    platform = platform_of_object(machineset)
    keys = [key for key in (CPU, MEMORY_MB) if platform and key in platform.controller_annotations]
    return tuple(annotations_of(machineset).get(key) for key in keys)


def _without_pool_label(machines: t.Iterable[Machine]) -> tuple[str, ...]:
    """The names of the nodes whose Machines were created before the MachineSet got the label of its pool."""
    return tuple(
        sorted(
            node
            for machine in machines
            if (node := node_of(machine)) and get_nested(machine, "spec", "metadata", "labels", POOL_LABEL) is None
        )
    )


def outdated_machines(
    machineset: t.Mapping[str, t.Any],
    machines: t.Iterable[Machine],
    paths: t.Mapping[str, Path],
    declared: t.Collection[str],
) -> list[Machine]:
    """The Machines that differ from new Machines of the MachineSet in the declared fields. Templates with equal content do not differ."""

    def settings(provider_spec: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
        fields = machine_settings(provider_spec, paths)
        fields["template"] = template_content(fields["template"])
        return {field: value for field, value in fields.items() if field in declared}

    current = settings(provider_spec_of(machineset))
    return [
        machine
        for machine in machines
        if settings(get_nested(machine, "spec", "providerSpec", "value") or {}) != current
    ]


# Finds managed MachineSets of a pool that the pool no longer declares, for example those of a removed zone (pure).
#
# The machines of these MachineSets cost money, and the run would create other machines in their place. An empty variable is enough to cause this.


def undeclared_problems(
    machinesets: t.Iterable[Object], groups: t.Iterable[t.Mapping[str, t.Any]], declared: t.Collection[str]
) -> list[str]:
    """An error message for each pool of these groups that has managed MachineSets of undeclared node groups. Absent groups are ignored."""
    present = [group for group in groups if group.get("state") != "absent"]
    pools = dict.fromkeys((group.get(NODE_LABELS) or {}).get(POOL_LABEL) for group in present)
    by_pool: dict[str, list[str]] = {}
    for machineset in sorted(machinesets, key=name_of):
        pool, group = get_nested(machineset, *LABELS, POOL_LABEL), machine_set_owner(machineset, new=True)
        leaving = is_deleting(machineset)
        if group is not None and group not in declared and pool in pools and pool is not None and not leaving:
            count = get_nested(machineset, "spec", "replicas") or 0
            by_pool.setdefault(pool, []).append(f"{name_of(machineset)} ({count} node(s))")
    return [_message(pool, undeclared, declared) for pool, undeclared in by_pool.items()]


def _message(pool: str, undeclared: t.Sequence[str], declared: t.Collection[str]) -> str:
    one = len(undeclared) == 1
    return (
        f"Pool {pool}: {'MachineSet' if one else 'MachineSets'} {join_words(undeclared)} {'belongs' if one else 'belong'} to it, but the pool no longer "
        f"declares {'it' if one else 'them'} (declared: {join_words(sorted(declared)) or 'none'}). Declare nodes.zones and nodes.name as before, check for an "
        "empty variable, or delete what you no longer need: accel.gpu.machineset with state: absent deletes one MachineSet, and "
        "accel.gpu.delete_nodegroups deletes all MachineSets of the pool."
    )


# Selects the MachineSet from which a new one is copied, and determines the zone of a MachineSet (pure).

# The platforms in the cluster's Infrastructure (status.platformStatus.type) that have no supported MachineSets.
_PLATFORM_TYPES = {
    "OpenStack": "OpenStack",
    "Nutanix": "Nutanix",
    "BareMetal": "bare metal",
    "IBMCloud": "IBM Cloud",
    "PowerVS": "IBM Power Virtual Server",
    "None": "no cloud (platform None)",
}


class NoSource(Exception):
    """Raised if there is no MachineSet to copy, or if it is not clear which one to copy. The message contains a remedy."""


@dataclass(frozen=True)
class Zone:
    """The zone of a MachineSet. names: the names that users can use for the zone. labels: the zone and region labels of the MachineSet's nodes."""

    names: frozenset[str]
    labels: t.Mapping[str, str]


@dataclass(frozen=True)
class Source:
    """The MachineSet to copy. reason: the reason for the choice, which is empty if the option `like` specifies the MachineSet."""

    machineset: Document
    reason: str = ""


def zone_of(machineset: Document, infrastructure: Document | None) -> Zone:
    """The zone of a MachineSet, which has no names and labels if it is unknown. `infrastructure` contains the failure domains of vSphere."""
    spec, platform = provider_spec_of(machineset), platform_of_object(machineset)
    if platform is not None and platform.failure_domains:
        return _zone_of_failure_domain(spec, platform, infrastructure)
    zone, region = zone_and_region(spec)
    if platform is None or not zone:
        return Zone(frozenset(), {})
    return Zone(frozenset({zone, platform.zone_label(zone, region)}), _labels(platform, zone, region))


def _zone_of_failure_domain(spec: Document, platform: Platform, infrastructure: Document | None) -> Zone:
    workspace = spec.get("workspace") or {}
    for domain in failure_domains(infrastructure):
        places = {
            "datacenter": domain.datacenter,
            "datastore": domain.datastore,
            "resourcePool": domain.resource_pool,
        }
        if domain.server == workspace.get("server") and all(
            workspace.get(key) == place for key, place in places.items() if place
        ):
            names = frozenset({domain.zone, domain.name} - {""})
            return Zone(names, _labels(platform, domain.zone, domain.region))
    return Zone(frozenset(), {})


def _labels(platform: Platform, zone: str, region: str) -> dict[str, str]:
    return {**platform.zone_labels(zone, region), **platform.region_labels(region)}


def select_source(
    machinesets: t.Sequence[Document], like: str | None, zone: str | None, infrastructure: Document | None
) -> Source:
    """The MachineSet to copy. This is the MachineSet `like` or, if no name is given, one of the worker MachineSets that this collection does not manage.

    If a zone is given, the MachineSet to copy is in that zone. If `like` is in a different zone, the MachineSet whose name differs from `like` only in
    the zone is selected, or else the only MachineSet in the given zone. Raises NoSource if no MachineSet can be selected.
    """
    named = None if like is None else _named_source(machinesets, like)
    if named is not None and (zone is None or zone in zone_of(named, infrastructure).names):
        return Source(named)
    candidates = [machineset for machineset in machinesets if _is_candidate(machineset)]
    if named is not None:
        candidates = [
            machineset for machineset in candidates if platform_of_object(machineset) == platform_of_object(named)
        ]
    in_zone = [
        machineset for machineset in candidates if zone is None or zone in zone_of(machineset, infrastructure).names
    ]
    if not in_zone:
        raise NoSource(
            (None if candidates else unsupported_cluster(machinesets, infrastructure))
            or _none_fits(candidates, zone, infrastructure)
        )
    platforms = sorted({platform.name for machineset in in_zone if (platform := platform_of_object(machineset))})
    if len(platforms) > 1:
        raise NoSource(
            f"like: there are MachineSets for {join_words(platforms)}; set the MachineSet to copy: {_names(in_zone)}."
        )
    if named is not None:
        return _same_in_zone(named, in_zone, zone, infrastructure)
    if len(in_zone) == 1:
        where = f" in zone {zone}" if zone else ""
        return Source(in_zone[0], f"it is the only worker MachineSet{where}")
    without_taints = [item for item in in_zone if not get_nested(item, "spec", "template", "spec", "taints")]
    candidates = sorted(without_taints or in_zone, key=name_of)
    kind = "the only one without taints" if len(without_taints) == 1 else f"the first by name of {_names(candidates)}"
    return Source(candidates[0], f"it is {kind}; to copy a different one, set like")


def _named_source(machinesets: t.Sequence[Document], like: str) -> Document:
    named = next((machineset for machineset in machinesets if name_of(machineset) == like), None)
    if named is None:
        raise NoSource(
            f"like: MachineSet {like} does not exist. {_available(like, [name_of(machineset) for machineset in machinesets])}"
        )
    if platform_of_object(named) is None:
        kind = str(provider_spec_of(named).get("kind") or "unknown")
        unsupported = UNSUPPORTED_PLATFORMS.get(kind)
        where = (
            f"MachineSet {like} creates {unsupported} machines ({kind})"
            if unsupported
            else f"the machines of MachineSet {like} have the kind {kind}"
        )
        raise NoSource(f"like: {where}; only {join_words(PLATFORM_NAMES)} are supported. {_own_machines(unsupported)}.")
    return named


def _same_in_zone(
    named: Document, in_zone: t.Sequence[Document], zone: str | None, infrastructure: Document | None
) -> Source:
    """The MachineSet whose name differs only in the zone, or else the only one in the zone."""
    stems = _names_without_zone(named, infrastructure)
    same = [machineset for machineset in in_zone if stems & _names_without_zone(machineset, infrastructure)] or in_zone
    if len(same) > 1:
        raise NoSource(
            f"like: {name_of(named)} is not in zone {quote(zone)}, which has the MachineSets {_names(same)}. Declare a pool for each zone, and "
            "set like to the MachineSet to copy."
        )
    return Source(same[0], f"{name_of(named)} is in a different zone")


def _names_without_zone(machineset: Document, infrastructure: Document | None) -> set[str]:
    """The name of a MachineSet without the end that it shares with its zone. The installer appends the whole zone (`us-east-2a`), or only its last part:
    `a` for `us-central1-a` on Google Cloud, `eastus2` with `1` on Azure.
    """
    name = name_of(machineset)
    stems = set()
    for zone in zone_of(machineset, infrastructure).names:
        shared = next((zone[start:] for start in range(len(zone)) if name.endswith(zone[start:])), "")
        if shared:
            stems.add(name.removesuffix(shared))
    return stems


def _is_candidate(machineset: Document) -> bool:
    role = get_nested(machineset, "spec", "template", "metadata", "labels", MACHINE_ROLE_LABEL)
    return (
        group_label_of(machineset) is None
        and platform_of_object(machineset) is not None
        and not is_deleting(machineset)
        and role in (None, "worker")
    )


def unsupported_cluster(machinesets: t.Sequence[Document], infrastructure: Document | None) -> str:
    """The reason why no MachineSet of the cluster can be copied, if it is the platform; otherwise empty."""
    topology = get_nested(infrastructure, "status", "controlPlaneTopology")
    if topology == "External" and not machinesets:
        return (
            "like: this cluster has a hosted control plane (HyperShift), so its nodes come from NodePools of the management cluster, and there are no "
            f"MachineSets. {OWN_MACHINES_REMEDY % 'with a NodePool'}."
        )
    kinds = {str(provider_spec_of(machineset).get("kind")) for machineset in machinesets}
    platforms = sorted({UNSUPPORTED_PLATFORMS[kind] for kind in kinds if kind in UNSUPPORTED_PLATFORMS})
    supported = any(platform_of_object(machineset) is not None for machineset in machinesets)
    of_cluster = str(get_nested(infrastructure, "status", "platformStatus", "type") or "")
    if not platforms and not machinesets and of_cluster in _PLATFORM_TYPES:
        platforms = [_PLATFORM_TYPES[of_cluster]]
    if not platforms or supported:
        return ""
    return (
        f"like: the MachineSets of this cluster create {join_words(platforms)} machines; only {join_words(PLATFORM_NAMES)} are supported. "
        f"{_own_machines(platforms[0])}."
    )


def _own_machines(platform: str | None) -> str:
    how = "by registering hosts" if platform == "bare metal" else "for example with a MachineSet that you maintain"
    return OWN_MACHINES_REMEDY % how


def _none_fits(candidates: t.Sequence[Document], zone: str | None, infrastructure: Document | None) -> str:
    if zone is None or not candidates:
        return (
            f"like: there is no worker MachineSet for {join_words(PLATFORM_NAMES, 'or')} to copy. First create one for ordinary workers "
            "in the same way as the installer, or set like to any other MachineSet."
        )
    zones = sorted({name for machineset in candidates for name in zone_of(machineset, infrastructure).names})
    return f"zone: no worker MachineSet is in {quote(zone)}; zones with worker MachineSets: {join_words(zones) if zones else 'none'}. Choose one of them."


def _available(requested: str, names: t.Sequence[str]) -> str:
    near = difflib.get_close_matches(requested, names, n=3, cutoff=0.5) or sorted(names)
    return f"Existing MachineSets: {abbreviate(near)}." if near else "There are no MachineSets."


def _names(machinesets: t.Iterable[Document]) -> str:
    return abbreviate(sorted(name_of(machineset) for machineset in machinesets))


# Computes the labels, taints and annotations that a MachineSet gets from its node group (pure).


@dataclass(frozen=True)
class FutureNodeOption:
    """The option `capacity`, which describes a future node of the group.

    resources: the resources that the node will provide, or None if they are not known. labels: the labels that the node will get.
    """

    resources: t.Mapping[str, int] | None
    labels: t.Mapping[str, str]


def complete_registration(
    fields: t.Mapping[str, t.Any],
    zone_labels: t.Mapping[str, str],
    capacity: FutureNodeOption | None,
    machineset: t.Mapping[str, t.Any],
    rules: AutoscalerRules,
) -> Object:
    """The declared labels and taints, completed for this MachineSet, and the MachineSet's annotations.

    The zone's labels are added. An entry that is recorded on the MachineSet but no longer declared gets the value None, which removes it. All other
    entries are kept.
    """
    record = record_of(machineset)
    completed: Object = {}
    own: dict[str, set[str]] = {}
    labels: dict[str, t.Any] = {}
    if NODE_LABELS in fields:
        labels = {**zone_labels, **fields[NODE_LABELS]}
        completed[NODE_LABELS] = {**_dropped(record, "labels", labels), **labels}
        own["labels"] = {key for key, value in labels.items() if value is not None}
    if NODE_TAINTS in fields:
        taints = fields[NODE_TAINTS]
        completed[NODE_TAINTS] = {**_dropped(record, "taints", taints), **taints}
        own["taints"] = {key for key, value in taints.items() if value is not None}
        former_taints = {*record.pop("taints", ()), *record.pop(FORMER_TAINTS, ())} - own["taints"]
        if former_taints:
            own[FORMER_TAINTS] = former_taints
    annotations: dict[str, str | None] = {}
    if capacity is not None:
        existing = annotations_of(machineset)
        former = set(record.get("node_labels", ()))
        if former and CAPACITY_LABELS in existing:
            others = {key: value for key, value in parse_labels(existing[CAPACITY_LABELS]).items() if key not in former}
            existing[CAPACITY_LABELS] = format_labels(others)
        # Since OpenShift 5.0, the autoscaler does not read the labels of the template, so the annotation also contains all of these labels.
        node_labels = {**{key: str(value) for key, value in labels.items() if value is not None}, **capacity.labels}
        computed = capacity_annotations(capacity.resources, node_labels, rules, existing)
        platform = platform_of_object(machineset)
        # Existing values that the platform's controller sets repeatedly are not overwritten.
        from_controller = {key for key in computed if platform and key in platform.controller_annotations}
        computed = {key: value for key, value in computed.items() if key not in from_controller or key not in existing}
        annotations = {**_dropped(record, "annotations", computed), **computed}
        own["annotations"] = {key for key in computed if key not in from_controller}
        own["node_labels"] = set(node_labels)
    if own:
        kept = {kind: set(entries) for kind, entries in record.items() if kind not in own}
        completed[ANNOTATIONS] = {**annotations, RECORD_ANNOTATION: format_record({**kept, **own})}
    return completed


def _dropped(record: t.Mapping[str, t.Iterable[str]], kind: str, declared: t.Collection[str]) -> dict[str, str | None]:
    return dict.fromkeys(sorted(set(record.get(kind, ())) - set(declared)))
