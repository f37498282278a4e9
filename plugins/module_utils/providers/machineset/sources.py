# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selects the MachineSet from which a new one is copied, and determines the zone of a MachineSet (pure)."""

from __future__ import annotations

import difflib
import typing as t
from dataclasses import dataclass

from ...catalog.machine_api import (
    MACHINE_ROLE_LABEL,
    OWN_MACHINES_REMEDY,
    PLATFORM_NAMES,
    UNSUPPORTED_PLATFORMS,
    Platform,
    zone_and_region,
)
from ...common.nested import get_nested
from ...kube.metadata import is_deleting, name_of
from ...schema.messages import abbreviate, join_words, quote
from .machineset_object import group_label_of, platform_of_object, provider_spec_of

Object = t.Mapping[str, t.Any]

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

    machineset: Object
    reason: str = ""


def zone_of(machineset: Object, infrastructure: Object | None) -> Zone:
    """The zone of a MachineSet, which has no names and labels if it is unknown. `infrastructure` contains the failure domains of vSphere."""
    spec, platform = provider_spec_of(machineset), platform_of_object(machineset)
    if platform is not None and platform.failure_domains:
        return _zone_of_failure_domain(spec, platform, infrastructure)
    zone, region = zone_and_region(spec)
    if platform is None or not zone:
        return Zone(frozenset(), {})
    return Zone(frozenset({zone, platform.zone_label(zone, region)}), _labels(platform, zone, region))


def _zone_of_failure_domain(spec: Object, platform: Platform, infrastructure: Object | None) -> Zone:
    workspace = spec.get("workspace") or {}
    for domain in get_nested(infrastructure, *platform.failure_domains) or []:
        topology = domain.get("topology") or {}
        if domain.get("server") == workspace.get("server") and all(
            workspace.get(key) == topology[key]
            for key in ("datacenter", "datastore", "resourcePool")
            if topology.get(key)
        ):
            zone, region = str(domain.get("zone") or ""), str(domain.get("region") or "")
            return Zone(frozenset({zone, str(domain.get("name"))} - {""}), _labels(platform, zone, region))
    return Zone(frozenset(), {})


def _labels(platform: Platform, zone: str, region: str) -> dict[str, str]:
    return {**platform.zone_labels(zone, region), **platform.region_labels(region)}


def select_source(
    machinesets: t.Sequence[Object], like: str | None, zone: str | None, infrastructure: Object | None
) -> Source:
    """The MachineSet to copy. This is the MachineSet `like` or, if no name is given, one of the worker MachineSets that this collection does not manage.

    If a zone is given, the MachineSet to copy is in that zone. If `like` is in a different zone, the MachineSet whose name differs from `like` only in
    the zone is selected, or else the only MachineSet in the given zone. Raises NoSource if no MachineSet can be selected.
    """
    named = next((machineset for machineset in machinesets if name_of(machineset) == like), None)
    if like is not None:
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
            raise NoSource(
                f"like: {where}; only {join_words(PLATFORM_NAMES)} are supported. {_own_machines(unsupported)}."
            )
        if zone is None or zone in zone_of(named, infrastructure).names:
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
    if named is not None and zone is not None:
        own_zones = zone_of(named, infrastructure).names
        names_in_zone = {str(like).replace(own, zone) for own in own_zones}
        same = [machineset for machineset in in_zone if name_of(machineset) in names_in_zone] or in_zone
        if len(same) > 1:
            raise NoSource(
                f"like: {like} is not in zone {quote(zone)}, which has the MachineSets {_names(same)}. Declare a pool for each zone, and "
                "set like to the MachineSet to copy."
            )
        return Source(same[0], f"{like} is in a different zone")
    if len(in_zone) == 1:
        where = f" in zone {zone}" if zone else ""
        return Source(in_zone[0], f"it is the only worker MachineSet{where}")
    without_taints = [item for item in in_zone if not get_nested(item, "spec", "template", "spec", "taints")]
    candidates = sorted(without_taints or in_zone, key=name_of)
    kind = "the only one without taints" if len(without_taints) == 1 else f"the first by name of {_names(candidates)}"
    return Source(candidates[0], f"it is {kind}; to copy a different one, set like")


def _is_candidate(machineset: Object) -> bool:
    role = get_nested(machineset, "spec", "template", "metadata", "labels", MACHINE_ROLE_LABEL)
    return (
        group_label_of(machineset) is None
        and platform_of_object(machineset) is not None
        and not is_deleting(machineset)
        and role in (None, "worker")
    )


def unsupported_cluster(machinesets: t.Sequence[Object], infrastructure: Object | None) -> str:
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


def _none_fits(candidates: t.Sequence[Object], zone: str | None, infrastructure: Object | None) -> str:
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


def _names(machinesets: t.Iterable[Object]) -> str:
    return abbreviate(sorted(name_of(machineset) for machineset in machinesets))
