# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks declared groups against the account, the cluster and its zones before the first request."""

from __future__ import annotations

import typing as t

from ...catalog.names import MIG_CONFIG_LABEL
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...nvidia_config import mig_parted
from ...pools.nodegroup_names import NODE_LABELS
from .catalog import CatalogItem, Flavor, available
from .clusters import IN_DELETION, NATIVE_ROUTING, VksCluster
from .name_resolver import NameResolver

Specs = t.Sequence["tuple[NodeGroupSpec, NodeGroupState | None]"]
Quota = t.Mapping[str, t.Any]


def problems(specs: Specs, cluster: VksCluster, groups: int, quota: Quota, resolver: NameResolver) -> list[str]:
    """An error message with a remedy for each problem of these specs; `groups` is the cluster's number of groups, and the state is None for a new group."""
    messages = list(_group_quota(specs, groups, quota))
    if cluster.status in ("ERROR", "FAILED", IN_DELETION):
        messages.append(
            f"Cluster {cluster.name} is {cluster.status}; its node groups cannot be changed until it is ACTIVE."
        )
    for spec, state in specs:
        messages += [
            f"Node group {spec.name}: {problem}"
            for problem in (
                *(_creation_problems(spec, cluster, resolver) if state is None else ()),
                *_version_problems(spec, state, cluster),
                *_node_quota(spec, quota),
                *_flavor_problems(spec, state, resolver),
            )
        ]
    return messages


def _group_quota(specs: Specs, groups: int, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodeGroupsPerCluster")
    new = sum(state is None for dummy, state in specs)
    if isinstance(most, int) and new and groups + new > most:
        yield (
            f"The quota does not allow {new} more node groups: the cluster has {groups} of at most {most} (maxNodeGroupsPerCluster). "
            "Delete some, or ask VNG Cloud for a larger quota."
        )


def _node_quota(spec: NodeGroupSpec, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodesPerNodeGroup")
    for option, value in (("node_count", spec.count), ("max_node_count", spec.max_count)):
        if isinstance(most, int) and value is not None and value > most:
            yield (
                f"{option} is {value}, and the quota is {most} nodes for a group (maxNodesPerNodeGroup). Declare several groups, or ask VNG "
                "Cloud for a larger quota."
            )


def _creation_problems(spec: NodeGroupSpec, cluster: VksCluster, resolver: NameResolver) -> t.Iterator[str]:
    subnet = spec.fields.get("subnet") or resolver.default_subnet
    names = [item.name for item in resolver.subnets()]
    if not subnet:
        yield f"subnet: required, because the cluster has several subnets or none. {available('', names)}"
        return
    subnets = [item for item in resolver.subnets() if item.id == subnet and item.usable]
    if not subnets:
        yield f"subnet: {subnet} is not an active subnet of VPC {cluster.vpc}. {available('', names)}"
        return
    for option in ("flavor", "disk_type", "ssh_key"):
        if not spec.fields.get(option):
            choices = [item.name for item in resolver.choices(option, subnet) if item.usable]
            if option == "flavor":
                choices = _available_flavors(resolver.flavors(subnet))
            yield f"{option}: required for a new group. {available('', choices)}"
    disk_types = [item for item in resolver.choices("disk_type", subnet) if item.id == spec.fields.get("disk_type")]
    yield from _disk_problems(spec, disk_types)
    native, secondary = cluster.network == NATIVE_ROUTING, spec.fields.get("secondary_subnets")
    if native and not secondary:
        cidrs = ", ".join(subnets[0].details["secondary_cidrs"]) or "none yet"
        yield f"secondary_subnets: required by the cluster's network, {NATIVE_ROUTING}. Subnet {subnets[0].name} has {cidrs}."
    elif secondary and not native:
        yield f"secondary_subnets: only for clusters with network {NATIVE_ROUTING}, but the network of this cluster is {cluster.network}; omit them."


def _version_problems(spec: NodeGroupSpec, state: NodeGroupState | None, cluster: VksCluster) -> t.Iterator[str]:
    version = spec.fields.get("kubernetes_version")
    current = state.fields.get("kubernetes_version") if state else None
    if version and version not in (current, cluster.version):
        yield (
            f"kubernetes_version: {version} is not the cluster's version, {cluster.version}, the only version to which nodes can be upgraded. Declare "
            "that version, or upgrade the cluster first."
        )


def _disk_problems(spec: NodeGroupSpec, disk_types: t.Sequence[CatalogItem]) -> t.Iterator[str]:
    size = spec.fields.get("disk_size")
    if size is None or not disk_types:
        return
    low, high = disk_types[0].details.get("min_gib"), disk_types[0].details.get("max_gib")
    if isinstance(low, int) and size < low:
        yield f"disk_size: {size} GiB is less than the minimum of {disk_types[0].name}, {low} GiB."
    if isinstance(high, int) and size > high:
        yield f"disk_size: {size} GiB is more than the maximum of {disk_types[0].name}, {high} GiB."


def _flavor_problems(spec: NodeGroupSpec, state: NodeGroupState | None, resolver: NameResolver) -> t.Iterator[str]:
    """Problems with a flavor: too few available machines, or GPUs without MIG although the labels request it."""
    subnet = spec.fields.get("subnet") or (state.fields["subnet"] if state else resolver.default_subnet)
    flavor_id = spec.fields.get("flavor") or (state.fields["flavor"] if state else None)
    current, default = (state.count, state.count) if state else (0, 1)
    count = spec.desired_count(state.count if state else None)
    added = max(0, (default if count is None else count) - current)
    profile = (spec.fields.get(NODE_LABELS) or {}).get(MIG_CONFIG_LABEL)
    needs_mig = profile is not None and not str(profile).startswith(mig_parted.DISABLED)
    if not flavor_id or not subnet or not (added or needs_mig or state is None):
        return
    flavors, zone = resolver.flavors(subnet), resolver.zone_text(subnet)
    flavor = next((each for each in flavors if each.id == flavor_id), None)
    if flavor is None:
        if state is None:
            yield f"flavor: {flavor_id} is not in {zone}. {available('', _available_flavors(flavors))}"
        return
    alternatives = available(flavor.name, _available_flavors(flavors))
    if added and not flavor.available:
        yield f"flavor: {flavor.name} is sold out in {zone}. {alternatives}"
    elif flavor.remaining is not None and added > flavor.remaining:
        yield f"flavor: {zone} has {flavor.remaining} of {flavor.name} left, and {added} are needed. {alternatives}"
    if needs_mig and flavor.gpus and flavor.models and not any(model.mig_capable for model in flavor.models):
        yield (
            f"node_labels: {MIG_CONFIG_LABEL}={profile} needs MIG, which the {flavor.models[0].key} of {flavor.name} does not support. "
            "Remove the label, or choose a flavor whose GPU supports it (H100)."
        )


def _available_flavors(flavors: t.Iterable[Flavor]) -> list[str]:
    return [flavor.name for flavor in flavors if flavor.available]
