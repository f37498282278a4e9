# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sends requests to the Machine API of one cluster."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...catalog.cluster_autoscaler import machine_autoscalers_path
from ...catalog.machine_api import (
    ASSUMED_RELEASE,
    CLUSTER_VERSION_PATH,
    DELETE_MACHINE_ANNOTATIONS,
    INFRASTRUCTURE_PATH,
    MACHINE_API_VERSION,
    MACHINE_CONFIGURATION_PATH,
    OWN_MACHINES_REMEDY,
    machine_sets_path,
    machines_path,
    openshift_release,
)
from ...catalog.releases import Release
from ...cluster_state.autoscaling import scaled_machine_set
from ...common.errors import InvalidOptions
from ...common.nested import get_nested
from ...kube.conflict_retry import patch_object
from ...kube.errors import ApiError
from ...kube.metadata import name_of

if t.TYPE_CHECKING:
    from ...kube.client import Client

Object = dict[str, t.Any]


@dataclass(frozen=True)
class MachineObjects:
    """All MachineSets and Machines of the namespace at one point in time."""

    machinesets: tuple[Object, ...]
    machines: tuple[Object, ...]

    def machineset(self, name: str) -> Object | None:
        """The MachineSet with this name, or None if it does not exist."""
        return next((machineset for machineset in self.machinesets if name_of(machineset) == name), None)


class MachineApi:
    """A client for the MachineSets of one namespace, and for the objects that affect these MachineSets."""

    def __init__(self, client: Client, namespace: str) -> None:
        """Store the arguments without sending a request."""
        self.client, self.namespace = client, namespace
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
        """Mark these Machines so that they are removed first when their MachineSet is scaled down."""
        patch = {"metadata": {"annotations": dict.fromkeys(DELETE_MACHINE_ANNOTATIONS, value)}}
        for name in machines:
            try:
                self.client.patch(f"{self._machines}/{name}", patch)
            except ApiError as error:
                if not error.not_found:
                    raise

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
