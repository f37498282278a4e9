# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves the names in a group's options by looking them up in the project, the cluster's VPC and the subnet's zone."""

from __future__ import annotations

import functools
import re
import typing as t

from .catalog import CatalogItem, Flavor, UnresolvedName, flavor_items, resolve
from .clusters import VksCluster
from .vserver import VServer

# Ids are not looked up, so a run that uses only ids sends no request for them.
_ID = re.compile(r"(flav|vtype|ssh|secg|sub)-[0-9a-f]{4,}[0-9a-f-]*")
# The options that refer to resources. The subnet is first, because the options in ZONAL are looked up in its zone.
NAMED = ("subnet", "flavor", "disk_type", "ssh_key", "security_groups")
ZONAL = ("flavor", "disk_type")


class NameResolver:
    """Resolves names for groups of one cluster; each list is read at most once, and only if a name must be looked up in it."""

    def __init__(self, vserver: VServer, read_cluster: t.Callable[[], VksCluster]) -> None:
        """Store the arguments; no request is sent yet. `read_cluster` returns the cluster with its details."""
        self._vserver = vserver
        self._read_cluster = read_cluster

    @functools.cached_property
    def cluster(self) -> VksCluster:
        """The cluster with its details."""
        return self._read_cluster()

    @property
    def default_subnet(self) -> str | None:
        """The cluster's subnet, if it has exactly one."""
        return self.cluster.subnets[0] if len(self.cluster.subnets) == 1 else None

    def resolve(self, option: str, name: str, subnet: str | None) -> str:
        """The id of the resource that an option in NAMED refers to; raises UnresolvedName. subnet: only needed for options in ZONAL."""
        if _ID.fullmatch(name):
            return name
        if option in ZONAL and all(item.id != subnet for item in self.subnets()):
            # If the VPC does not have the subnet, nothing can be looked up in the subnet's zone.
            resolve("subnet", str(subnet), self.subnets(), self._place("subnet", subnet))
        try:
            return resolve(option, name, self.choices(option, subnet), self._place(option, subnet))
        except UnresolvedName as error:
            zones = self._zones_with(name) if option == "flavor" else []
            if not zones:
                raise
            raise UnresolvedName(f"{error} Zone {' and '.join(zones)} has it: choose a subnet of that zone.") from None

    def choices(self, option: str, subnet: str | None) -> list[CatalogItem]:
        """The resources that an option in NAMED can refer to."""
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
        """The ids of the security groups that the service itself adds to machines."""
        return {item.id for item in self._vserver.security_groups() if item.details.get("system")}

    def zone_text(self, subnet: str) -> str:
        """The subnet's zone as text, for messages."""
        return f"zone {self._zone(subnet)[1] or '(unknown)'}"

    def _zone(self, subnet: str) -> tuple[str, str]:
        """The id and the name of the subnet's zone; empty if unknown."""
        details: t.Mapping[str, t.Any] = next((item.details for item in self.subnets() if item.id == subnet), {})
        return str(details.get("zone") or ""), str(details.get("zone_name") or details.get("zone") or "")

    def _place(self, option: str, subnet: str | None) -> str:
        """The place where the choices of an option are looked up, for messages."""
        if option in ZONAL:
            return self.zone_text(str(subnet))
        return f"VPC {self.cluster.vpc}" if option == "subnet" else f"project {self._vserver.project}"

    def _zones_with(self, flavor: str) -> list[str]:
        return [
            zone.name
            for zone in self._vserver.zones()
            if zone.usable and any(flavor == other.name for other in self._vserver.flavors(zone.id))
        ]
