# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves the names in a group's options, in its cluster's VPC and its subnet's zone."""

from __future__ import annotations

import functools
import re
import typing as t

from .catalog import CatalogItem, Flavor, UnresolvedName, flavor_items, resolve
from .clusters import VksCluster
from .vserver import VServer

# Ids are not looked up, so that a run with ids only sends no request for them.
_ID = re.compile(r"(flav|vtype|ssh|secg|sub)-[0-9a-f]{4,}[0-9a-f-]*")
# The options that name something: the subnet first, in whose zone those of ZONAL are looked up.
NAMED = ("subnet", "flavor", "disk_type", "ssh_key", "security_groups")
ZONAL = ("flavor", "disk_type")


class NameResolver:
    """Resolves names for groups of one cluster; each list is read once, and only when a name needs it."""

    def __init__(self, vserver: VServer, read_cluster: t.Callable[[], VksCluster]) -> None:
        """Send nothing yet; `read_cluster` returns the cluster with its details."""
        self._vserver = vserver
        self._read_cluster = read_cluster

    @functools.cached_property
    def cluster(self) -> VksCluster:
        """The cluster with its details."""
        return self._read_cluster()

    @property
    def default_subnet(self) -> str | None:
        """The cluster's subnet, where it has just one."""
        return self.cluster.subnets[0] if len(self.cluster.subnets) == 1 else None

    def resolve(self, option: str, wanted: str, subnet: str | None) -> str:
        """The id of what an option of NAMED names; raises UnresolvedName. subnet: needed for those of ZONAL only."""
        if _ID.fullmatch(wanted):
            return wanted
        if option in ZONAL and all(item.id != subnet for item in self.subnets()):
            # Nothing can be looked up in the zone of a subnet that the VPC does not have.
            resolve("subnet", str(subnet), self.subnets(), self._place("subnet", subnet))
        try:
            return resolve(option, wanted, self.choices(option, subnet), self._place(option, subnet))
        except UnresolvedName as error:
            zones = self._zones_with(wanted) if option == "flavor" else []
            if not zones:
                raise
            raise UnresolvedName(f"{error} Zone {' and '.join(zones)} has it: choose a subnet of that zone.") from None

    def choices(self, option: str, subnet: str | None) -> list[CatalogItem]:
        """What an option of NAMED can name."""
        if option in ZONAL:
            zone = self._zone(str(subnet))[0]
            return flavor_items(self._vserver.flavors(zone)) if option == "flavor" else self._vserver.volume_types(zone)
        if option == "subnet":
            return self.subnets()
        return self._vserver.ssh_keys() if option == "ssh_key" else self._vserver.security_groups()

    def subnets(self) -> list[CatalogItem]:
        """The subnets of the cluster's VPC."""
        return self._vserver.subnets(self.cluster.vpc)

    def flavors(self, subnet: str) -> list[Flavor]:
        """The flavors of the subnet's zone."""
        return self._vserver.flavors(self._zone(subnet)[0])

    def system_groups(self) -> set[str]:
        """Ids of the security groups that the service itself adds to machines."""
        return {item.id for item in self._vserver.security_groups() if item.details.get("system")}

    def zone_text(self, subnet: str) -> str:
        """The subnet's zone, for a message."""
        return f"zone {self._zone(subnet)[1] or '(unknown)'}"

    def _zone(self, subnet: str) -> tuple[str, str]:
        """Id and name of the subnet's zone; empty if it is unknown."""
        details: t.Mapping[str, t.Any] = next((item.details for item in self.subnets() if item.id == subnet), {})
        return str(details.get("zone") or ""), str(details.get("zone_name") or details.get("zone") or "")

    def _place(self, option: str, subnet: str | None) -> str:
        """Where the choices of an option are, for a message."""
        if option in ZONAL:
            return self.zone_text(str(subnet))
        return f"VPC {self.cluster.vpc}" if option == "subnet" else f"project {self._vserver.project}"

    def _zones_with(self, flavor: str) -> list[str]:
        return [
            zone.name
            for zone in self._vserver.zones()
            if zone.usable and any(flavor == other.name for other in self._vserver.flavors(zone.id))
        ]
