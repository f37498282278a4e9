# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of the MachineConfiguration `cluster`: which MachineSets the Machine Config Operator gives new boot images.

Source: openshift/machine-config-operator, pkg/operator/sync.go (syncManagedBootImagesStatus). The controller of boot images reads only the status, and waits
until it is that of the current generation.
"""

from __future__ import annotations

import time

from ..api import Api, ApiError, Object
from .releases import Release

PATH = "/apis/operator.openshift.io/v1/machineconfigurations/cluster"
_PERIOD = 1.0
# On vSphere: the first release that can update boot images, and the first one that does so unless the cluster opts out.
_VSPHERE_SINCE, _VSPHERE_BY_DEFAULT = (4, 20), (4, 22)
_ALL = {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}}


def manifest() -> Object:
    """Return the object of a new cluster."""
    return {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"logLevel": "Normal", "managementState": "Managed", "operatorLogLevel": "Normal"},
    }


def machine_managers(spec: Object, release: Release, platform: str) -> list[Object]:
    """Return the effective entries: those of the spec; without an entry for MachineSets, the default of the release. An empty list is no entry either, but
    opts out of everything.
    """
    number = tuple(int(part) for part in release.minor.split("."))
    if platform == "VSphere" and number < _VSPHERE_SINCE:
        return []
    entries: list[Object] | None = spec.get("managedBootImages", {}).get("machineManagers")
    if entries == []:
        return []
    effective = list(entries or ())
    if (
        platform == "VSphere"
        and number >= _VSPHERE_BY_DEFAULT
        and not any(is_of_machine_sets(one) for one in effective)
    ):
        effective.append(_ALL)
    return effective


def is_of_machine_sets(entry: Object) -> bool:
    """Return whether an entry selects MachineSets of the Machine API."""
    return (entry["resource"], entry["apiGroup"]) == ("machinesets", "machine.openshift.io")


def publish(api: Api, release: Release, platform: str) -> None:
    """Write the status, if it is not that of the current generation."""
    live = api.get(PATH)
    if live is None:
        return
    generation, status = live["metadata"]["generation"], live.get("status") or {}
    desired = {"machineManagers": machine_managers(live.get("spec") or {}, release, platform)}
    actual = {"machineManagers": status.get("managedBootImagesStatus", {}).get("machineManagers") or []}
    if (status.get("observedGeneration"), actual) == (generation, desired):
        return
    api.merge(f"{PATH}/status", {"status": {"observedGeneration": generation, "managedBootImagesStatus": desired}})


def follow(api: Api, release: Release, platform: str) -> None:
    """Publish the status after each change, until killed."""
    while True:
        try:
            publish(api, release, platform)
        except ApiError as error:
            print(f"openshift: {error}", flush=True)
        time.sleep(_PERIOD)
