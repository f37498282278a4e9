# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of OpenShift: MachineSets."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import time
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER, POOL_LABEL
from ..catalog.openshift import (
    ASSUMED_RELEASE,
    CLUSTER_VERSION_PATH,
    DELETE_MACHINE_ANNOTATIONS,
    INFRASTRUCTURE_PATH,
    MACHINE_API_VERSION,
    MACHINE_CONFIGURATION_PATH,
    MACHINESET_LABEL,
    OWN_MACHINES_REMEDY,
    PLATFORMS,
    ZONE_LABEL,
    AutoscalerRules,
    Platform,
    autoscaler_rules,
    machine_autoscalers_path,
    machine_sets_path,
    machines_path,
    openshift_release,
)
from ..core.errors import InvalidOptions, ServiceError
from ..core.messages import MAX_NAMED, abbreviate, join_words
from ..core.values import Object, get_nested, merge_patch
from ..kube.errors import ApiError, patch_object
from ..kube.fields import is_deleting, name_of, writers
from ..nodegroups.module import require_valid
from ..nodegroups.reconciler import INVALID_GROUPS, CloudRequest, ListedGroup
from ..nodegroups.scaling_state import scaled_machine_set
from ..nodegroups.spec import Differences, NodeGroupSpec, NodeGroupState, field_differences, label_map
from ..nodes.ownership import machine_set_owner
from ..pools.plan import machine_namespace
from ..schema.providers import MACHINESET, NODE_COUNT, NODE_LABELS, provider_spec_problems, replacement_name
from ..schema.providers import MACHINESET as DEFINITION
from . import boot_images
from .machines import DELETING, FAILED, Refusals, machine_problems, node_of, not_started, phase_of
from .machinesets import (
    FIELDS,
    LABELS,
    MACHINE_FIELDS,
    MACHINE_SETTINGS,
    MANAGED,
    FutureNodeOption,
    NoSource,
    Path,
    complete_registration,
    configured,
    controller_size,
    copy_of,
    decode,
    finished_mark,
    group_label_of,
    machines_of,
    nodegroup_of,
    outdated_machines,
    paths_in,
    platform_of_object,
    select_source,
    state_of,
    undeclared_problems,
    zone_of,
)

if t.TYPE_CHECKING:
    from ..catalog.releases import Release
    from ..kube.client import Client
    from ..nodes.node import Node
    from ..pools.plan import Plan
    from ..vsphere.client import PowerOnFailure

# Sends requests to the Machine API of one cluster.

# The controller of MachineSets reads Machines from a cache, which lags behind the API server, and nothing shows how far. If a MachineSet is scaled down before
# the cache contains the mark of a Machine, the controller removes another one (seen after 0.2 s on a busy machine).
_MARK_SETTLES = 3.0


@dataclass(frozen=True)
class MachineObjects:
    """All MachineSets and Machines of the namespace at one point in time."""

    machinesets: tuple[Object, ...]
    machines: tuple[Object, ...]

    def machineset(self, name: str) -> Object | None:
        """The MachineSet with this name, or None if it does not exist."""
        return next((machineset for machineset in self.machinesets if name_of(machineset) == name), None)


@dataclass(frozen=True)
class GroupMachines:
    """The MachineSet of a group, its number of Machines, the nodes that it has, and the Machines that are not like new ones."""

    machineset: str
    count: int
    nodes: tuple[str, ...]
    outdated: tuple[t.Mapping[str, t.Any], ...]


# Returns why virtual machines (name -> vCenter) do not start, which the machine controller does not report.
StartFailures = t.Callable[[t.Mapping[str, str]], "list[PowerOnFailure]"]


def ask_vcenter(module: t.Any, machines: t.Mapping[str, str]) -> list[PowerOnFailure]:
    """StartFailures for vSphere, with the option `vcenter` of a module. Most runs do not need it, and pyvmomi takes time to import."""
    from ..vsphere.client import start_failures

    return start_failures(module, machines)


def machine_warnings(client: Client, plan: Plan, start_failures: StartFailures) -> list[str]:
    """Warnings about Machines of the pools that have failed, or that vCenter does not start; reads the Machines only if the plan contains vCenter."""
    if plan.vsphere is None or plan.cluster.cloud is None:
        return []
    groups = {member.name for pool in plan.pools if pool.nodegroup for member in pool.nodegroup.members}
    try:
        machines = client.list_known(machines_path(machine_namespace(plan.cluster.cloud)))
    except ApiError as error:
        if not error.lacks_right:
            raise
        return []
    own = [machine for machine in machines if get_nested(machine, "metadata", "labels", MACHINESET_LABEL) in groups]
    stopped = not_started(own)
    stuck = [machine for machine in own if name_of(machine) in stopped or phase_of(machine) == FAILED]
    return [
        *(f"{text}." for text in machine_problems(stuck, _now())),
        *(map(str, start_failures(stopped)) if stopped else ()),
    ]


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class MachineApi:
    """A client for the MachineSets of one namespace, and for the objects that affect these MachineSets."""

    def __init__(self, client: Client, namespace: str, *, sleep: t.Callable[[float], None] = time.sleep) -> None:
        """Store the arguments without sending a request."""
        self.client, self.namespace, self._sleep = client, namespace, sleep
        self._machinesets = machine_sets_path(namespace)
        self._machines = machines_path(namespace)
        self._autoscalers = machine_autoscalers_path(namespace)

    def read(self) -> MachineObjects:
        """All MachineSets and Machines. Raises InvalidOptions if the cluster has no Machine API."""
        try:
            machinesets = tuple(self.client.list(self._machinesets))
        except ApiError as error:
            if not error.not_found:
                raise
            raise InvalidOptions(
                [
                    f"The cluster has no MachineSet API ({MACHINE_API_VERSION}), and this run does not create it. Only OpenShift "
                    "clusters have this API, and not those with a hosted control plane (HyperShift). "
                    f"{OWN_MACHINES_REMEDY % 'on a hosted control plane, with a NodePool'}."
                ]
            ) from error
        return MachineObjects(machinesets, tuple(self.client.list(self._machines)))

    def autoscalers(self) -> dict[str, list[Object]]:
        """The MachineAutoscalers, grouped by the name of the MachineSet that they scale."""
        by_machine_set: dict[str, list[Object]] = {}
        for autoscaler in self.client.list_known(self._autoscalers):
            if name := scaled_machine_set(autoscaler):
                by_machine_set.setdefault(name, []).append(autoscaler)
        return by_machine_set

    def delete_autoscaler(self, autoscaler: Object) -> None:
        """Delete this MachineAutoscaler, but not a newer one with the same name."""
        metadata = autoscaler["metadata"]
        self.client.delete(f"{self._autoscalers}/{metadata['name']}", body={"preconditions": {"uid": metadata["uid"]}})

    def release(self) -> Release:
        """The cluster's OpenShift release, or ASSUMED_RELEASE if the cluster does not report a release."""
        version = get_nested(self.client.get_once(CLUSTER_VERSION_PATH), "status", "desired", "version")
        return openshift_release(version) if version else ASSUMED_RELEASE

    def machine_configuration(self) -> Object | None:
        """The object that configures which boot images OpenShift manages, or None if it does not exist or the user is not allowed to read it."""
        try:
            return self.client.get(MACHINE_CONFIGURATION_PATH)
        except ApiError as error:
            if not error.lacks_right:
                raise
            return None

    def infrastructure(self) -> Object | None:
        """The cluster's Infrastructure object."""
        return self.client.get(INFRASTRUCTURE_PATH)

    def get(self, name: str) -> Object | None:
        """The current MachineSet with this name, or None if it does not exist."""
        return self.client.get(f"{self._machinesets}/{name}")

    def create(self, machineset: Object, *, dry_run: bool = False) -> Object:
        """Create a MachineSet, and return it."""
        return self.client.create(self._machinesets, machineset, dry_run=dry_run, field_validation="Strict")

    def patch(
        self,
        name: str,
        make_patch: t.Callable[[Object], Object],
        *,
        dry_run: bool = False,
        live: Object | None = None,
    ) -> None:
        """Patch a MachineSet only if it has not changed since the patch was made. Otherwise, make a new patch for the changed MachineSet.

        live: the MachineSet, if it has just been read.
        """
        path = f"{self._machinesets}/{name}"
        live = self.get(name) if live is None else live
        patched = patch_object(self.client, path, live, lambda item: make_patch(item) or None, dry_run=dry_run)
        if patched is None:
            raise ApiError(f"MachineSet {name} was deleted", status=404, reason="NotFound", method="PATCH", path=name)

    def mark_for_deletion(self, machines: t.Iterable[str], value: str) -> None:
        """Mark these Machines so that they are removed first when their MachineSet is scaled down, and let the controller notice it."""
        patch = {"metadata": {"annotations": dict.fromkeys(DELETE_MACHINE_ANNOTATIONS, value)}}
        marked = False
        for name in machines:
            try:
                self.client.patch(f"{self._machines}/{name}", patch)
                marked = True
            except ApiError as error:
                if not error.not_found:
                    raise
        if marked:
            self._sleep(_MARK_SETTLES)

    def delete(self, name: str, uid: str | None = None) -> None:
        """Request the deletion of a MachineSet, which continues to exist until its Machines and their nodes are removed.

        uid: the MachineSet that may be deleted; a newer one with the same name is not deleted.
        """
        body: Object = {"propagationPolicy": "Foreground", **({"preconditions": {"uid": uid}} if uid else {})}
        self.client.delete(f"{self._machinesets}/{name}", body=body)

    def warnings_about(self, names: t.Collection[str]) -> list[str]:
        """The warnings in the events about these objects, without duplicates and with the newest last."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        events = [
            event
            for event in self.client.list(path, field_selector="type=Warning")
            if get_nested(event, "involvedObject", "name") in names
        ]
        events.sort(key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return list(dict.fromkeys(f"{event.get('reason')}: {event.get('message')}" for event in events))


# Creates specs from the options of the module machineset, and checks them against the platform of the MachineSets (pure).

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
        can_replace_machines=True,
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


# Predicts which MachineSets will exist after a run of the module machineset (pure).
#
# Previews of changes that depend on MachineSets need this prediction.


def machine_sets_after(
    groups: t.Iterable[Options], machinesets: t.Sequence[Object], rules: AutoscalerRules
) -> list[Object]:
    """The MachineSets that will exist after a run with these node groups. A MachineSet that the run would refuse to change is unchanged.

    The Infrastructure object is not read. If the platform's failure domains are in this object, the declared zone is assumed to be correct.
    """
    cluster = Cluster(machinesets, rules, None)
    after = {name_of(item): item for item in machinesets}
    for group in groups:
        options: Object = {"state": "present", "recreate": False, **group}
        live, problems = find_machineset(options, machinesets, "")
        if problems:
            continue
        spec = _spec(options, live, cluster)
        if spec is None:
            continue
        if live is None:
            after[spec.name] = spec.created(spec.name, spec.desired_count(None) or 0, rules)
        else:
            after[name_of(live)] = configured(live, spec.differences(live, rules), spec.paths, spec.name)
    return list(after.values())


def _spec(options: Options, live: Object | None, cluster: Cluster) -> MachineSetSpec | None:
    """The spec of a group, or None if the run would reject the group."""
    zone = options.get("zone")
    has_domains = any(
        (platform := platform_of_object(item)) and platform.failure_domains for item in cluster.machinesets
    )
    if not has_domains:
        spec, problems, dummy = spec_of(options, live, cluster)
        return None if problems else spec
    spec, problems, dummy = spec_of({**options, "zone": None}, live, cluster)
    if problems:
        return None
    if live is None:
        return dataclasses.replace(spec, zone_labels={ZONE_LABEL: zone} if zone else {})
    # The zone is not known here, and spec_of() would remove recorded zone labels. Existing zone labels are therefore kept.
    platform = platform_of_object(live)
    keys = {*platform.zone_label_keys, *platform.region_label_keys} if platform else set()
    zone_labels = {key: value for key, value in (get_nested(live, *LABELS) or {}).items() if key in keys}
    labels = spec.fields.get(NODE_LABELS)
    fields = {**spec.fields, **({NODE_LABELS: {**labels, **zone_labels}} if labels is not None else {})}
    return dataclasses.replace(spec, fields=fields, zone_labels=zone_labels)


# Reads the MachineSets of a cluster, with their Machines, for the module machineset_info.


def machinesets_info(api: MachineApi, start_failures: StartFailures) -> dict[str, dict[str, t.Any]]:
    """All MachineSets of the namespace, by name, in the format of the module's result; `start_failures` as in MachineSetProvider."""
    objects, autoscalers, infrastructure = api.read(), api.autoscalers(), api.infrastructure()
    now = datetime.datetime.now(datetime.UTC)
    by_name: dict[str, dict[str, t.Any]] = {}
    for machineset in objects.machinesets:
        name, platform = name_of(machineset), platform_of_object(machineset)
        machines = machines_of(machineset, objects.machines)
        state = state_of(machineset, machines, now, paths={})
        stopped = not_started(machines)
        failures = map(str, start_failures(stopped)) if stopped else ()
        by_name[name] = {
            "id": name,
            "status": state.status,
            "group": machine_set_owner(machineset, new=True),
            "pool": get_nested(machineset, *LABELS, POOL_LABEL),
            "platform": platform.name if platform else None,
            "zone": zone_of(machineset, infrastructure).labels.get(ZONE_LABEL),
            "autoscaler": next(map(name_of, autoscalers.get(name, ())), None),
            **state.to_result(),
            "machines": [
                {"name": name_of(machine), "phase": phase_of(machine), "node": node_of(machine)} for machine in machines
            ],
            "problems": [*(f"{text}." for text in machine_problems(machines, now)), *failures],
        }
    return by_name


# Implements NodeGroupProvider (nodegroups/reconciler.py) for the MachineSets of one OpenShift cluster.

# The time limit for the platform's controller to update its annotations after a change. If the new machine type is unknown or has the same size, the
# controller does not change the annotations.
_CAPACITY_TIMEOUT = datetime.timedelta(seconds=20)
_DEFAULT_COUNT = 1
# vCenter is asked about a machine that does not start at these intervals.
_ASK_INTERVAL = datetime.timedelta(seconds=15)


class MachineSetProvider:
    """The node group provider for the MachineSets of one namespace. It is thread-safe, and collects the warnings about the groups in `warnings`."""

    immutable_fields = FIELDS.immutable_fields
    machine_fields = MACHINE_FIELDS
    max_name_length = DEFINITION.max_name_length
    # The MachineSet's controller removes marked Machines first.
    can_choose_nodes = True
    # A request has been carried out once the API server has responded to it.
    patience = 30.0
    takes_requests_anytime = True
    in_cluster = True

    def __init__(
        self,
        api: MachineApi,
        *,
        change_foreign: bool = True,
        now: t.Callable[[], datetime.datetime] | None = None,
        start_failures: StartFailures | None = None,
        report: t.Callable[[str], None] = lambda dummy: None,
        waits: bool = True,
    ) -> None:
        """Store the arguments without sending a request.

        change_foreign: whether fields that another manager has set may be changed. start_failures: see StartFailures. report: shows the progress. waits:
        whether the run waits for the effect of its requests.
        """
        self._api = api
        self._change_foreign = change_foreign
        self._now = now or (lambda: datetime.datetime.now(datetime.UTC))
        self._start_failures = start_failures
        self._report, self._waits = report, waits
        self._refusals = Refusals()
        self._ask_at = self._now()
        self._specs: dict[str, MachineSetSpec] = {}
        self._live: dict[str, Object] = {}
        # For each MachineSet: the size of its Machines before this run changed the MachineSet, and the time until which a new size is expected.
        self._sizes_before: dict[str, tuple[tuple[str | None, ...], datetime.datetime]] = {}
        self._changed: set[str] = set()
        self.warnings: list[str] = []
        self._objects = MachineObjects((), ())

    @functools.cached_property
    def _first(self) -> MachineObjects:
        self._objects = self._api.read()
        return self._objects

    @functools.cached_property
    def _autoscalers(self) -> dict[str, list[Object]]:
        return self._api.autoscalers()

    @functools.cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self._first.machinesets, autoscaler_rules(self._release), self._api.infrastructure())

    @functools.cached_property
    def _release(self) -> Release:
        return self._api.release()

    @functools.cached_property
    def _machine_configuration(self) -> Object | None:
        return self._api.machine_configuration()

    @functools.cached_property
    def _failed_before(self) -> frozenset[str]:
        return frozenset(name_of(machine) for machine in self._first.machines if phase_of(machine) == FAILED)

    def specs_of(
        self,
        groups: t.Sequence[Options],
        declared: t.Collection[str] | None = None,
        *,
        replaces_outdated: bool = False,
    ) -> list[MachineSetSpec]:
        """The specs that the options declare. Raises InvalidOptions with all problems.

        declared: the names of all node groups that the pools of these groups declare, or None if the names are unknown. replaces_outdated: whether the
        run replaces outdated Machines in their MachineSets, instead of whole MachineSets.
        """
        require_valid(groups, option_problems)
        specs: list[MachineSetSpec] = []
        live_by_name: dict[str, Object] = {}
        problems = [] if declared is None else undeclared_problems(self._first.machinesets, groups, declared)
        for options in groups:
            live, new_problems = find_machineset(options, self._first.machinesets, self._api.namespace)
            spec, others, reason = spec_of(options, live, self._cluster)
            problems += [*new_problems, *others]
            if live is not None:
                live_by_name[options["name"]] = live
            if replaces_outdated:
                spec = dataclasses.replace(spec, recreate=False, replaces_outdated=True)
            specs.append(self._without_count(spec, live))
            self._warn_of_boot_images(spec, live)
            if live is None and reason:
                self.warnings.append(
                    f"Node group {spec.name}: it is created as a copy of MachineSet {spec.fields['like']}, because {reason}."
                )
        if problems:
            raise InvalidOptions(problems, INVALID_GROUPS)
        self._specs = {spec.name: spec for spec in specs}
        self._live = live_by_name
        return specs

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """The MachineSets whose name `selects` accepts. Those of others have no owner: specs_of() has refused each that has the name of a group."""
        return [self._state(each, self._first) for each in self._first.machinesets if selects(name_of(each))]

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """Messages about changes that the API server rejects in a dry run, and about fields that other managers have set and that must not be changed."""
        problems: list[str] = []
        for spec, state in specs:
            spec = t.cast("MachineSetSpec", spec)
            try:
                if state is None:
                    new = spec.created(self._free_name(spec.name), 0, self._cluster.rules)
                    self._api.create(new, dry_run=True)
                else:
                    problems += self._conflicts(spec, state)
                    self._api.patch(state.name, functools.partial(self._patch_of, spec), dry_run=True)
            except ApiError as error:
                if error.lacks_right:
                    continue
                if not error.rejects_object:
                    raise
                problems.append(f"Node group {spec.name}: the API server rejects its MachineSet: {error.message}")
        return problems

    def spec(self, name: str) -> MachineSetSpec:
        """The spec with this name."""
        return self._specs[name]

    def is_autoscaled(self, name: str) -> bool:
        """Whether an autoscaler chooses the number of Machines of a spec's group."""
        live = self._live.get(name)
        return self._specs[name].autoscaled or (live is not None and name_of(live) in self._autoscalers)

    def outdated_machines(self) -> dict[str, GroupMachines]:
        """The groups that exist, by the name of their spec, with the Machines that differ from new ones once the MachineSet matches its spec."""
        groups: dict[str, GroupMachines] = {}
        for name, live in self._live.items():
            spec = self._specs[name]
            if not spec.present or is_deleting(live):
                continue
            machines = [each for each in machines_of(live, self._first.machines) if phase_of(each) != DELETING]
            desired = configured(live, spec.differences(live, self._cluster.rules), spec.paths, name)
            outdated = outdated_machines(desired, machines, spec.paths, spec.fields)
            nodes = [node for machine in machines if (node := node_of(machine))]
            count = int(get_nested(desired, "spec", "replicas") or 0)
            groups[name] = GroupMachines(name_of(live), count, tuple(nodes), tuple(outdated))
        return groups

    def list_groups(self) -> list[ListedGroup]:
        """All groups that belong to the specs."""
        objects = self._objects = self._api.read()
        self._watch_starts(objects)
        states = [self._state(each, objects) for each in objects.machinesets if self._is_group(each)]
        return [ListedGroup(state.id, state.name, state.status, state.settled) for state in states]

    def get(self, group: str) -> NodeGroupState | None:
        """The group's state in the latest list. A group that is not in the list is read from the cluster."""
        objects = self._objects
        machine_set = objects.machineset(group)
        if machine_set is None:
            machine_set = self._api.get(group)
        return self._state(machine_set, objects) if machine_set else None

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Create a MachineSet with this name."""
        new = t.cast("MachineSetSpec", spec).created(
            name, _DEFAULT_COUNT if count is None else count, self._cluster.rules
        )
        self._sizes_before[name] = controller_size(new), self._now() + _CAPACITY_TIMEOUT
        self._changed.add(name)
        created = self._api.create(new)
        # No copy has the UID. If the run is killed before this patch, the next run sends it.
        self._api.patch(name, functools.partial(finished_mark, spec.name), live=created)

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """A list with one patch that contains all differences, or an empty list if there are none."""
        spec = t.cast("MachineSetSpec", spec)
        live = self._objects.machineset(state.name)
        differences = dict(spec.differences(live, self._cluster.rules)) if live else {}
        if live and differences.get(NODE_COUNT, (0, 0))[1] > state.count and self._waits_for_gpus(spec, live):
            # The count follows once they are gone.
            del differences[NODE_COUNT]
        if not differences:
            return []
        count = differences[NODE_COUNT][1] if NODE_COUNT in differences else None

        def send() -> None:
            self._changed.add(state.name)
            if live and differences.keys() & MACHINE_FIELDS:
                self._sizes_before[state.name] = controller_size(live), self._now() + _CAPACITY_TIMEOUT
            if count is not None and count < state.count:
                self._api.mark_for_deletion(self._leaving_machines(state, leaving), self._now().isoformat())
            self._api.patch(state.name, functools.partial(self._patch_of, spec))

        def took_effect(now: NodeGroupState) -> bool:
            changed = self._objects.machineset(now.name)
            return (
                changed is not None and not spec.differences(changed, self._cluster.rules).keys() & differences.keys()
            )

        return [CloudRequest(f"change {', '.join(differences)}", send, took_effect)]

    def resize(self, machineset: str, add: int, *, at_least: int = 0, leaving: t.Iterable[str] = ()) -> None:
        """Add Machines to a MachineSet; a negative number removes Machines, beginning with `leaving`. at_least: the minimum number of Machines."""

        def patch_of(live: Object) -> Object:
            return {"spec": {"replicas": max(at_least, (get_nested(live, "spec", "replicas") or 0) + add)}}

        self._changed.add(machineset)
        self._api.mark_for_deletion(leaving, self._now().isoformat())
        self._api.patch(machineset, patch_of)

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Delete the group's managed MachineAutoscalers, because otherwise the autoscaler would add nodes for evicted pods."""
        for scaler in self._autoscalers.get(state.name, ()):
            name = name_of(scaler)
            if group_label_of(scaler) is not None:
                self._api.delete_autoscaler(scaler)
            else:
                self.warnings.append(
                    f"Node group {state.name}: it is scaled by MachineAutoscaler {name}, which is not deleted."
                )

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of the MachineSet, which continues to exist until its Machines and their nodes are removed."""
        self._changed.add(state.name)
        live = self._objects.machineset(state.name)
        self._api.delete(state.name, uid=live["metadata"].get("uid") if live else None)

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The nodes that the group's Machines refer to."""
        return [node for node in nodes if node.name in state.machines]

    def is_busy(self, error: ServiceError) -> bool:
        """False, because the API server is never busy with another operation."""
        return False

    def events(self, state: NodeGroupState) -> list[str]:
        """The latest warnings about the MachineSet and its Machines."""
        live = self._objects.machineset(state.name)
        machines = machines_of(live, self._objects.machines) if live else []
        texts = self._api.warnings_about({state.name, *map(name_of, machines)})[-MAX_NAMED:]
        if self._start_failures and (stopped := not_started(machines)):
            texts += map(str, self._start_failures(stopped))
        return texts

    def _waits_for_gpus(self, spec: MachineSetSpec, live: Object) -> bool:
        """Whether a new Machine might not start, because virtual machines that are being deleted still hold their GPUs (not_started())."""
        platform = platform_of_object(live)
        if not self._waits or platform is None or "template" not in platform.settings or self.is_autoscaled(spec.name):
            return False
        return any(phase_of(machine) == DELETING for machine in machines_of(live, self._objects.machines))

    def _watch_starts(self, objects: MachineObjects) -> None:
        """Ask vCenter about the Machines that are not started, and report each new reason."""
        machines = [
            each for item in objects.machinesets if self._is_group(item) for each in machines_of(item, objects.machines)
        ]
        stopped = not_started(machines)
        self._refusals.keep(stopped)
        if not stopped or self._start_failures is None or self._now() < self._ask_at:
            return
        self._ask_at = self._now() + _ASK_INTERVAL
        # A virtual machine that is being deleted may hold the GPU.
        leaving = any(phase_of(machine) == DELETING for machine in objects.machines)
        for failure in self._start_failures(stopped):
            if self._refusals.add(failure, may_end=leaving):
                self._report(str(failure))

    def _warn_of_boot_images(self, spec: MachineSetSpec, live: Object | None) -> None:
        """Warn if OpenShift would replace the declared template."""
        template = spec.fields.get("template")
        if not template or spec.source is None:
            return
        machinesets = boot_images.guarded_machinesets([spec.name], [live or copy_of(spec.source, spec.name, spec.name)])
        selection = boot_images.effective_selection(self._machine_configuration, self._release)
        if not boot_images.excludes(selection, machinesets):
            self.warnings.append(boot_images.warning(spec.name, template))

    def _without_count(self, spec: MachineSetSpec, live: Object | None) -> MachineSetSpec:
        """The spec, without the number of nodes if a MachineAutoscaler chooses this number even though the group declares no range."""
        autoscaler = next((name_of(each) for each in self._autoscalers.get(name_of(live), ())), None) if live else None
        if live is None or autoscaler is None or spec.autoscaled or spec.count is None:
            return spec
        replicas = get_nested(live, "spec", "replicas") or 0
        if spec.count != replicas:
            self.warnings.append(
                f"Node group {spec.name}: MachineAutoscaler {autoscaler} controls its number of nodes ({replicas}). To set {spec.count} nodes, "
                "delete the MachineAutoscaler."
            )
        return dataclasses.replace(spec, count=None)

    def _is_group(self, machineset: Object) -> bool:
        """Whether a MachineSet belongs to one of the specs. A copy of a group's MachineSet does not."""
        name, owner = name_of(machineset), nodegroup_of(machineset)
        return owner in self._specs or (owner is None and name in self._specs and MANAGED in self._specs[name].fields)

    def _state(self, machineset: Object, objects: MachineObjects) -> NodeGroupState:
        name = name_of(machineset)
        spec = self._specs.get(nodegroup_of(machineset) or name)
        autoscaled = name in self._autoscalers or (spec is not None and spec.autoscaled)
        return state_of(
            machineset,
            machines_of(machineset, objects.machines),
            self._now(),
            paths=spec.paths if spec else {},
            declared=spec.fields if spec else (),
            autoscaled=autoscaled and name not in self._changed,
            awaits_capacity=self._awaits_capacity(machineset),
            ignored=self._failed_before if autoscaled else (),
            refused=self._refusals.lasting(),
            replaced=spec is not None and spec.replaces_outdated,
            pooled=spec is not None and bool((spec.fields.get(NODE_LABELS) or {}).get(POOL_LABEL)),
        )

    def _awaits_capacity(self, machineset: Object) -> bool:
        size, until = self._sizes_before.get(name_of(machineset), ((), self._now()))
        return bool(size) and controller_size(machineset) == size and self._now() < until

    def _patch_of(self, spec: MachineSetSpec, live: Object) -> Object:
        desired = configured(live, spec.differences(live, self._cluster.rules), spec.paths, spec.name)
        return t.cast("Object", merge_patch(live, desired))

    def _free_name(self, name: str) -> str:
        """The name for a dry run: the given name, or the name of a replacement if a MachineSet with the given name exists."""
        return name if self._first.machineset(name) is None else replacement_name(name, {}, self.max_name_length)

    def _leaving_machines(self, state: NodeGroupState, leaving: t.Sequence[Node]) -> list[str]:
        """The names of the Machines that a scale-down removes: those without a node, and those of the drained nodes."""
        names = {node.name for node in leaving}
        live = self._objects.machineset(state.name)
        machines = machines_of(live, self._objects.machines) if live else []
        return [name_of(machine) for machine in machines if node_of(machine) is None or node_of(machine) in names]

    def _conflicts(self, spec: MachineSetSpec, state: NodeGroupState) -> list[str]:
        """Error messages about the fields that this run would change even though other managers have set them.

        If the run is allowed to change these fields, a warning is added instead.
        """
        live = self._first.machineset(state.name)
        if live is None:
            return []
        conflicts: dict[str, list[str]] = {}
        for path in _leaves(self._patch_of(spec, live)):
            managers = [name for name in writers(live, path) if name != FIELD_MANAGER]
            if managers and get_nested(live, *path) is not None:
                conflicts.setdefault(join_words(managers), []).append(".".join(path))
        texts = [f"{abbreviate(paths)} (set by {managers})" for managers, paths in conflicts.items()]
        if not texts:
            return []
        if self._change_foreign:
            self.warnings.append(
                f"Node group {spec.name}: this run changes fields that another manager has set: {'; '.join(texts)}."
            )
            return []
        return [
            f"Node group {spec.name}: another manager has set fields that differ from the declaration: {'; '.join(texts)}. Declare their values, or set "
            "force: true to change them."
        ]


def _leaves(patch: Object, prefix: tuple[str, ...] = ()) -> t.Iterator[tuple[str, ...]]:
    for key, value in patch.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*prefix, key))
        else:
            yield (*prefix, key)
