# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements nodegroups.provider.NodeGroupProvider for the MachineSets of one OpenShift cluster."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import typing as t

from ...catalog.machine_api import autoscaler_rules
from ...catalog.names import FIELD_MANAGER, POOL_LABEL
from ...catalog.releases import Release
from ...cluster_state.node import Node
from ...common.errors import InvalidOptions, ServiceError
from ...common.nested import get_nested, merge_patch
from ...kube import managed_fields
from ...kube.errors import ApiError
from ...kube.metadata import name_of
from ...nodegroups.provider import CloudRequest, ListedGroup
from ...nodegroups.reconciler import INVALID_GROUPS
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...pools.nodegroup_names import NODE_COUNT, NODE_LABELS, replacement_name
from ...schema.messages import MAX_NAMED, abbreviate, join_words
from ...schema.providers import MACHINESET as DEFINITION
from ..nodegroup_module import require_valid
from .boot_images import replaces_templates, warning
from .client import MachineApi, MachineObjects
from .encoding import controller_size, machines_of, state_of
from .fields import FIELDS, MACHINE_FIELDS, MANAGED
from .machines import FAILED, node_of, phase_of
from .machineset_object import Object, configured, finished_mark, group_label_of, nodegroup_of
from .specs import Cluster, MachineSetSpec, Options, find_machineset, option_problems, spec_of
from .undeclared import undeclared_problems

# The time limit for the platform's controller to update its annotations after a change. If the new machine type is unknown or has the same size, the
# controller does not change the annotations.
_CAPACITY_TIMEOUT = datetime.timedelta(seconds=20)
_DEFAULT_COUNT = 1


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
        self, api: MachineApi, *, change_foreign: bool = True, now: t.Callable[[], datetime.datetime] | None = None
    ) -> None:
        """Store the arguments without sending a request. change_foreign: whether fields that another manager has set may be changed."""
        self._api = api
        self._change_foreign = change_foreign
        self._now = now or (lambda: datetime.datetime.now(datetime.UTC))
        self._specs: dict[str, MachineSetSpec] = {}
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

    def specs_of(self, groups: t.Sequence[Options], declared: t.Collection[str] | None = None) -> list[MachineSetSpec]:
        """The specs that the options declare. Raises InvalidOptions with all problems.

        declared: the names of all node groups that the pools of these groups declare, or None if the names are unknown.
        """
        require_valid(groups, option_problems)
        specs: list[MachineSetSpec] = []
        problems = [] if declared is None else undeclared_problems(self._first.machinesets, groups, declared)
        for options in groups:
            live, new_problems = find_machineset(options, self._first.machinesets, self._api.namespace)
            spec, others, reason = spec_of(options, live, self._cluster)
            problems += [*new_problems, *others]
            specs.append(self._without_count(spec, live))
            self._warn_of_boot_images(spec, live)
            if live is None and reason:
                self.warnings.append(
                    f"Node group {spec.name}: it is created as a copy of MachineSet {spec.fields['like']}, because {reason}."
                )
        if problems:
            raise InvalidOptions(problems, INVALID_GROUPS)
        self._specs = {spec.name: spec for spec in specs}
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

    def list_groups(self) -> list[ListedGroup]:
        """All groups that belong to the specs."""
        objects = self._objects = self._api.read()
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
        differences = spec.differences(live, self._cluster.rules) if live else {}
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
            return changed is not None and not spec.differences(changed, self._cluster.rules)

        return [CloudRequest(f"change {', '.join(differences)}", send, took_effect)]

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
        return self._api.warnings_about({state.name, *map(name_of, machines)})[-MAX_NAMED:]

    def _warn_of_boot_images(self, spec: MachineSetSpec, live: Object | None) -> None:
        """Warn if OpenShift would replace the declared template. A new MachineSet does not have any labels from the user yet."""
        template = spec.fields.get("template")
        labels = get_nested(live, "metadata", "labels") or {}
        if template and replaces_templates(self._machine_configuration, self._release, labels):
            self.warnings.append(warning(spec.name, template))

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
            managers = [name for name in managed_fields.writers(live, path) if name != FIELD_MANAGER]
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
