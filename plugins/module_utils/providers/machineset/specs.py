# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates specs from the options of the module machineset, and checks them against the platform of the MachineSets (pure)."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from ...catalog.machine_api import PLATFORMS, AutoscalerRules, Platform
from ...cluster_state.ownership import machine_set_owner
from ...common.nested import get_nested
from ...kube.metadata import name_of
from ...nodegroups.group_changes import Differences, field_differences
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState, label_map
from ...pools.nodegroup_names import NODE_COUNT
from ...schema.messages import join_words
from ...schema.provider_spec import provider_spec_problems
from ...schema.providers import MACHINESET
from .fields import FIELDS, MACHINE_SETTINGS, MANAGED
from .machineset_object import Path, configured, copy_of, decode, nodegroup_of, paths_in, platform_of_object
from .registration import FutureNodeOption, complete_registration
from .sources import NoSource, select_source, zone_of

Object = dict[str, t.Any]
Options = t.Mapping[str, t.Any]

# The field for the MachineSet from which a group is copied. Only the spec of a group that does not exist yet has this field.
LIKE = "like"


@dataclass(frozen=True, kw_only=True)
class MachineSetSpec(NodeGroupSpec):
    """A spec with the data that is needed to create its MachineSet.

    source: the MachineSet to copy. paths: the paths of the declared values in the providerSpec. zone_labels, capacity: the labels of the zone, and the
    description of the future node, which determine the labels and annotations.
    """

    source: t.Mapping[str, t.Any] | None = None
    paths: t.Mapping[str, Path] = dataclasses.field(default_factory=dict)
    zone_labels: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    capacity: FutureNodeOption | None = None

    def completed(self, machineset: t.Mapping[str, t.Any], rules: AutoscalerRules) -> MachineSetSpec:
        """The spec, completed with the labels, taints and annotations that depend on this MachineSet."""
        fields = {name: value for name, value in self.fields.items() if name != LIKE}
        completed = complete_registration(fields, self.zone_labels, self.capacity, machineset, rules)
        return dataclasses.replace(self, fields={**fields, **completed})

    def differences(self, machineset: t.Mapping[str, t.Any], rules: AutoscalerRules) -> Differences:
        """The differences between a MachineSet and this spec."""
        return field_differences(self.completed(machineset, rules), _plain_state(machineset, self.paths))

    def created(self, name: str, count: int, rules: AutoscalerRules) -> Object:
        """A new MachineSet with this name, copied from the source. Raises ValueError if the spec has no source."""
        if self.source is None:
            raise ValueError(f"the spec of node group {self.name} has no MachineSet to copy")
        new = copy_of(self.source, name, self.name)
        differences = {key: value for key, value in self.differences(new, rules).items() if key != NODE_COUNT}
        created = configured(new, differences, self.paths, self.name)
        created["spec"]["replicas"] = count
        return created


def _plain_state(machineset: t.Mapping[str, t.Any], paths: t.Mapping[str, Path]) -> NodeGroupState:
    """The part of the state that is compared with a spec."""
    count = int(get_nested(machineset, "spec", "replicas") or 0)
    name = name_of(machineset)
    return NodeGroupState(name, name, "", settled=True, failed=False, count=count, fields=decode(machineset, paths))


def option_problems(options: Options) -> t.Iterator[str]:
    """Yields the problems in a group's options that can be detected without the cluster."""
    if problem := MACHINESET.name_rule(options["name"]):
        yield f"name {problem}"
    if options["state"] == "absent":
        return
    yield from FIELDS.problems(options)
    if options.get("flavor") and options.get("template"):
        cloned = join_words([platform.name for platform in PLATFORMS if "template" in platform.settings])
        yield f"flavor and template are mutually exclusive; {cloned} machines have a template, all others have a flavor"
    yield from provider_spec_problems(options.get("provider_spec"), "provider_spec")
    for resource, amount in ((options.get("capacity") or {}).get("resources") or {}).items():
        if not str(amount).isdecimal():
            yield f"capacity.resources.{resource}: {amount!r} is not an amount of a resource; use 0 or more"


@dataclass(frozen=True)
class Cluster:
    """The state on which the specs of all groups depend: the MachineSets, the release's autoscaler rules, and the object with the failure domains."""

    machinesets: t.Sequence[Object]
    rules: AutoscalerRules
    infrastructure: Object | None


def find_machineset(
    options: Options, machinesets: t.Sequence[Object], namespace: str
) -> tuple[Object | None, list[str]]:
    """The MachineSet of a group, or None if the group has no MachineSet, and the reasons why the MachineSet must not be changed."""
    name = options["name"]
    exact = next((item for item in machinesets if name_of(item) == name), None)
    owner = nodegroup_of(exact) if exact else None
    if exact is not None and owner != name and not (owner is None and options.get("adopt")):
        which = f"belongs to node group {owner}" if owner else "was not created by this collection"
        remedy = "choose another name" + ("" if owner else ", or set adopt: true to have the collection manage it")
        return exact, [f"Node group {name}: MachineSet {name} in namespace {namespace} {which}; {remedy}."]
    if exact is not None:
        return exact, []
    return next(iter(_groups_of(name, machinesets)), None), []


def _groups_of(name: str, machinesets: t.Iterable[Object]) -> list[Object]:
    return sorted((item for item in machinesets if nodegroup_of(item) == name), key=name_of)


def spec_of(options: Options, live: Object | None, cluster: Cluster) -> tuple[MachineSetSpec, list[str], str]:
    """The spec, the problems, and the reason why the MachineSet to copy was chosen, if no option specifies it.

    live: the MachineSet of an existing group, or None for a new group.
    """
    name = options["name"]
    if options["state"] == "absent":
        return MachineSetSpec(name=name, present=False), [], ""
    common = FIELDS.spec_arguments(options)
    fields: Object = common["fields"]
    source, reason = live, ""
    if source is None:
        try:
            selected = select_source(
                cluster.machinesets, options.get("like"), options.get("zone"), cluster.infrastructure
            )
        except NoSource as error:
            return MachineSetSpec(name=name), [f"Node group {name}: {error}"], ""
        source, reason = t.cast("Object", selected.machineset), selected.reason
    platform = platform_of_object(source)
    declared = {**(platform.defaults if platform else {}), **(fields.pop("provider_spec", None) or {})}
    paths = paths_in(declared)
    if declared:
        fields["provider_spec"] = {path: get_nested(declared, *keys) for path, keys in paths.items()}
    if live is None:
        fields[LIKE] = name_of(source)
    elif any(machine_set_owner(item) is None for item in (live, *_groups_of(name, cluster.machinesets))):
        # The MachineSet is adopted, or a killed run has not finished its mark or that of its replacement.
        fields[MANAGED] = True
    ranged = common["max_count"] is not None
    spec = MachineSetSpec(
        **common,
        autoscaled=ranged,
        external_range=True,
        source=source,
        paths=paths,
        zone_labels=zone_of(source, cluster.infrastructure).labels,
        capacity=_capacity(options.get("capacity")),
    )
    if live is None:
        shown = spec.completed(copy_of(source, name, name), cluster.rules)
        spec = dataclasses.replace(shown, fields={**shown.fields, LIKE: name_of(source)})
    else:
        spec = spec.completed(live, cluster.rules)
    return spec, [f"Node group {name}: {text}." for text in _platform_problems(fields, platform)], reason


def _capacity(option: Options | None) -> FutureNodeOption | None:
    if option is None:
        return None
    resources = option.get("resources")
    labels = {key: value for key, value in label_map(option.get("labels") or {}).items() if value is not None}
    amounts = None if resources is None else {str(name): int(amount) for name, amount in resources.items()}
    return FutureNodeOption(amounts, labels)


def _platform_problems(fields: Options, platform: Platform | None) -> t.Iterator[str]:
    """Yields a message for each declared setting that the platform does not have."""
    if platform is None:
        return
    for name, remedy in MACHINE_SETTINGS.items():
        if fields.get(name) and name not in platform.settings:
            having = join_words([other.name for other in PLATFORMS if name in other.settings])
            yield f"{name}: {remedy.format(platform=platform.name, having=having)}"
