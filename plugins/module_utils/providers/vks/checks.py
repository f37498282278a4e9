# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an account and its cluster have no room for, found before anything is sent."""

from __future__ import annotations

import typing as t

from ...catalog.names import MIG_CONFIG_LABEL
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from .catalog import Offer, listed
from .clusters import NATIVE_ROUTING, VksCluster
from .flavors import Flavor
from .name_resolver import Resolver

_DISABLED = "all-disabled"
_NEEDED = ("flavor", "disk_type", "ssh_key")

Asked = t.Sequence["tuple[NodeGroupSpec, NodeGroupState | None]"]
Quota = t.Mapping[str, t.Any]


def problems(asked: Asked, cluster: VksCluster, groups: int, quota: Quota, resolver: Resolver) -> list[str]:
    """A line for each thing that cannot be, with its remedy. `groups` is how many the cluster has; None beside a wish: to be created."""
    found = list(_room(asked, groups, quota))
    if cluster.status in ("ERROR", "FAILED", "DELETING"):
        found.append(f"Cluster {cluster.name} is {cluster.status}; no node group can be changed before it is ACTIVE.")
    for wish, live in asked:
        told = _created(wish, cluster, resolver) if live is None else _changed(wish, live, cluster)
        found += [
            f"Node group {wish.name}: {problem}"
            for problem in (*told, *_sized(wish, quota), *_flavored(wish, live, resolver))
        ]
    return found


def _room(asked: Asked, groups: int, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodeGroupsPerCluster")
    new = sum(live is None for dummy, live in asked)
    if isinstance(most, int) and new and groups + new > most:
        yield (
            f"There is no quota for {new} more node groups: the cluster has {groups} of at most {most}. "
            "Delete some, or ask VNG Cloud for more (maxNodeGroupsPerCluster)."
        )


def _sized(wish: NodeGroupSpec, quota: Quota) -> t.Iterator[str]:
    most = quota.get("maxNodesPerNodeGroup")
    for field, value in (("num_nodes", wish.count), ("max_size", wish.high)):
        if isinstance(most, int) and value is not None and value > most:
            yield f"{field}: is {value}, and the quota is {most} nodes a group (maxNodesPerNodeGroup). Make several groups, or ask for more."


def _created(wish: NodeGroupSpec, cluster: VksCluster, resolver: Resolver) -> t.Iterator[str]:
    subnet = wish.fields.get("subnet") or resolver.default_subnet
    if not subnet:
        yield f"subnet: the cluster has several or none; say which. {listed('', [offer.name for offer in resolver.subnets()])}"
        return
    subnets = [offer for offer in resolver.subnets() if offer.id == subnet and offer.usable]
    if not subnets:
        yield f"subnet: {subnet} is no active subnet of VPC {cluster.vpc}. {listed('', [offer.name for offer in resolver.subnets()])}"
        return
    there: dict[str, t.Callable[[], list[str]]] = {
        "flavor": lambda: [flavor.name for flavor in resolver.flavors(subnet) if flavor.available],
        "disk_type": lambda: [offer.name for offer in resolver.volume_types(subnet)],
        "ssh_key": lambda: [offer.name for offer in resolver.ssh_keys()],
    }
    for field in _NEEDED:
        if not wish.fields.get(field):
            yield f"{field}: a new group needs one. {listed('', there[field]())}"
    yield from _disk(
        wish, [offer for offer in resolver.volume_types(subnet) if offer.id == wish.fields.get("disk_type")]
    )
    native, secondary = cluster.network == NATIVE_ROUTING, wish.fields.get("secondary_subnets")
    if native and not secondary:
        told = ", ".join(subnets[0].facts["secondary_cidrs"]) or "none yet"
        yield f"secondary_subnets: the cluster's network is {NATIVE_ROUTING}, which needs them. Subnet {subnets[0].name} has {told}."
    elif secondary and not native:
        yield f"secondary_subnets: only a cluster of network {NATIVE_ROUTING} takes them, and this one's is {cluster.network}; leave them out."
    yield from _version(wish, None, cluster)


def _changed(wish: NodeGroupSpec, live: NodeGroupState, cluster: VksCluster) -> t.Iterator[str]:
    yield from _version(wish, live.fields.get("kubernetes_version"), cluster)


def _version(wish: NodeGroupSpec, now: str | None, cluster: VksCluster) -> t.Iterator[str]:
    wanted = wish.fields.get("kubernetes_version")
    if wanted and wanted not in (now, cluster.version):
        yield (
            f"kubernetes_version: is {wanted}, and nodes go to no other version than the cluster's, which is {cluster.version}. "
            "Declare that, or upgrade the cluster first."
        )


def _disk(wish: NodeGroupSpec, types: t.Sequence[Offer]) -> t.Iterator[str]:
    size = wish.fields.get("disk_size")
    low, high = (types[0].facts.get("min_gib"), types[0].facts.get("max_gib")) if types else (None, None)
    if size is not None and isinstance(low, int) and size < low:
        yield f"disk_size: is {size} GiB, and {types[0].name} has at least {low}."
    if size is not None and isinstance(high, int) and size > high:
        yield f"disk_size: is {size} GiB, and {types[0].name} has at most {high}."


def _flavored(wish: NodeGroupSpec, live: NodeGroupState | None, resolver: Resolver) -> t.Iterator[str]:
    """Whether the flavor has as many machines left as are asked for, and GPUs that can be cut where the labels ask for it."""
    wanted = wish.fields.get("flavor")
    subnet = wish.fields.get("subnet") or (live.fields["subnet"] if live else resolver.default_subnet)
    count = wish.count_of(live.count if live else None)
    more = (
        (1 if count is None else count)
        if live is None
        else max(0, (live.count if count is None else count) - live.count)
    )
    profile = (wish.fields.get("labels") or {}).get(MIG_CONFIG_LABEL)
    cut = profile is not None and not str(profile).startswith(_DISABLED)
    used = wanted or (live.fields["flavor"] if live else None)
    if not used or not subnet or not (more or cut or live is None):
        return
    flavors = resolver.flavors(subnet)
    flavor = next((each for each in flavors if each.id == used), None)
    if flavor is None:
        if live is None:
            yield f"flavor: {used} is not in {resolver.place(subnet)}. {listed('', _left(flavors))}"
        return
    if more and not flavor.available:
        yield f"flavor: {flavor.name} is sold out in {resolver.place(subnet)}. {listed(flavor.name, _left(flavors))}"
    elif flavor.remaining is not None and more > flavor.remaining:
        lack = f"of {flavor.name} {flavor.remaining} are left in {resolver.place(subnet)}, and {more} are asked for"
        yield f"flavor: {lack}. {listed(flavor.name, _left(flavors))}"
    if cut and flavor.gpus and flavor.models and not any(model.mig_capable for model in flavor.models):
        yield (
            f"labels: {MIG_CONFIG_LABEL}={profile} cuts GPUs, and the {flavor.models[0].key} of {flavor.name} knows no MIG. "
            "Leave the label out, or take a flavor whose GPU has it (H100)."
        )


def _left(flavors: t.Iterable[Flavor]) -> list[str]:
    return [flavor.name for flavor in flavors if flavor.available]
