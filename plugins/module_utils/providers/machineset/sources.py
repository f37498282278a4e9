# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MachineSet that a new one is copied from, and the zone of a MachineSet (pure)."""

from __future__ import annotations

import difflib
import typing as t
from dataclasses import dataclass

from ...catalog.machine_api import MACHINE_ROLE_LABEL
from ...common.nested import get_nested
from ...schema.messages import abbreviate, join_words, quote
from .machineset_object import name_of, owner_of, platform_of_object, provider_spec_of

Object = t.Mapping[str, t.Any]

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
# The labels of vSphere's CSI driver on OpenShift (openshift/vmware-vsphere-csi-driver-operator, topologyCategories).
_VSPHERE_ZONE, _VSPHERE_REGION = (f"topology.csi.vmware.com/openshift-{name}" for name in ("zone", "region"))


class NoSource(Exception):
    """There is no MachineSet to copy, or it is not clear which one; the message has a remedy."""


@dataclass(frozen=True)
class Zone:
    """The zone of a MachineSet: its names (as users may write it), and the labels of its nodes."""

    names: frozenset[str]
    labels: t.Mapping[str, str]


@dataclass(frozen=True)
class Source:
    """The MachineSet to copy, and why it was chosen if no option names it; empty otherwise."""

    machineset: Object
    reason: str = ""


def zone_of(machineset: Object, infrastructure: Object | None) -> Zone:
    """The zone; without names and labels if the MachineSet has none. `infrastructure` has the failure domains of vSphere."""
    spec, platform = provider_spec_of(machineset), platform_of_object(machineset)
    if platform is None:
        return Zone(frozenset(), {})
    if platform.name == "vSphere":
        return _vsphere_zone(spec, infrastructure)
    zone, region = (str(get_nested(spec, *path) or "") for path in (platform.zone, platform.region))
    if not zone:
        return Zone(frozenset(), {})
    # The name of a zone of Azure is a number, and its label begins with the region.
    label = f"{region}-{zone}".lower() if platform.name == "Azure" else zone
    labels = {_ZONE: label, **({_REGION: region} if region else {}), **dict.fromkeys(platform.zone_labels, label)}
    return Zone(frozenset({zone, label}), labels)


def _vsphere_zone(spec: Object, infrastructure: Object | None) -> Zone:
    workspace = spec.get("workspace") or {}
    for domain in get_nested(infrastructure, "spec", "platformSpec", "vsphere", "failureDomains") or []:
        topology = domain.get("topology") or {}
        if domain.get("server") == workspace.get("server") and all(
            workspace.get(key) == topology[key]
            for key in ("datacenter", "datastore", "resourcePool")
            if topology.get(key)
        ):
            zone, region = str(domain.get("zone") or ""), str(domain.get("region") or "")
            labels = {_ZONE: zone, _REGION: region, _VSPHERE_ZONE: zone, _VSPHERE_REGION: region}
            return Zone(frozenset({zone, str(domain.get("name"))} - {""}), labels)
    return Zone(frozenset(), {})


def select_source(
    machinesets: t.Sequence[Object], like: str | None, zone: str | None, infrastructure: Object | None
) -> Source:
    """The MachineSet to copy: the one with the name `like`, else one of the worker MachineSets that this collection does not manage.

    With a zone, it is in this zone: if `like` is in another zone, the MachineSet with the same name but this zone, else the only one there.
    Raises NoSource.
    """
    named = next((each for each in machinesets if name_of(each) == like), None)
    if like is not None:
        if named is None:
            raise NoSource(
                f"like: MachineSet {like} does not exist. {_available(like, [name_of(each) for each in machinesets])}"
            )
        if platform_of_object(named) is None:
            kind = provider_spec_of(named).get("kind") or "unknown"
            raise NoSource(
                f"like: the machines of MachineSet {like} have the kind {kind}; only AWS, Azure, GCP and vSphere are supported."
            )
        if zone is None or zone in zone_of(named, infrastructure).names:
            return Source(named)
    candidates = [each for each in machinesets if _is_candidate(each)]
    if named is not None:
        candidates = [each for each in candidates if platform_of_object(each) == platform_of_object(named)]
    in_zone = [each for each in candidates if zone is None or zone in zone_of(each, infrastructure).names]
    if not in_zone:
        raise NoSource(_none_fits(candidates, zone, infrastructure))
    platforms = sorted({platform.name for each in in_zone if (platform := platform_of_object(each))})
    if len(platforms) > 1:
        raise NoSource(
            f"like: there are MachineSets for {join_words(platforms)}; set the MachineSet to copy: {_names(in_zone)}."
        )
    if named is not None and zone is not None:
        own_zones = zone_of(named, infrastructure).names
        wanted = {str(like).replace(own, zone) for own in own_zones}
        same = [each for each in in_zone if name_of(each) in wanted] or in_zone
        if len(same) > 1:
            raise NoSource(
                f"like: {like} is not in zone {quote(zone)}, which has the MachineSets {_names(same)}. Declare a pool for each zone, with the "
                "MachineSet to copy."
            )
        return Source(same[0], f"{like} is in a different zone")
    chosen = min(
        in_zone, key=lambda each: (bool(get_nested(each, "spec", "template", "spec", "taints")), name_of(each))
    )
    if len(in_zone) == 1:
        where = f" in zone {zone}" if zone else ""
        return Source(chosen, f"it is the only worker MachineSet{where}")
    return Source(chosen, f"it is the first by name of {_names(in_zone)}; to copy a different one, set like")


def _is_candidate(machineset: Object) -> bool:
    role = get_nested(machineset, "spec", "template", "metadata", "labels", MACHINE_ROLE_LABEL)
    return (
        owner_of(machineset) is None
        and platform_of_object(machineset) is not None
        and not machineset["metadata"].get("deletionTimestamp")
        and role in (None, "worker")
    )


def _none_fits(candidates: t.Sequence[Object], zone: str | None, infrastructure: Object | None) -> str:
    if zone is None or not candidates:
        return (
            "like: there is no worker MachineSet for AWS, Azure, GCP or vSphere to copy. First create one for ordinary workers, as the installer does, or "
            "set like to any other MachineSet."
        )
    zones = sorted({name for each in candidates for name in zone_of(each, infrastructure).names})
    return f"zone: no worker MachineSet is in {quote(zone)}; zones with worker MachineSets: {join_words(zones) if zones else 'none'}. Choose one of them."


def _available(wanted: str, names: t.Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5) or sorted(names)
    return f"Existing MachineSets: {abbreviate(near)}." if near else "There are no MachineSets."


def _names(machinesets: t.Iterable[Object]) -> str:
    return abbreviate(sorted(name_of(each) for each in machinesets))
