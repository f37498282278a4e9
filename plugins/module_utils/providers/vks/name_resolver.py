# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolves the names in a group's options, in its cluster's VPC and its subnet's zone."""

from __future__ import annotations

import functools
import re
import typing as t

from .catalog import CatalogItem, ResolvedName, flavor_items, resolve
from .clusters import VksCluster
from .flavors import Flavor
from .vserver import VServer

# Ids are not looked up, so that a run with ids only sends no request for them.
_ID = re.compile(r"(flav|vtype|ssh|secg|sub)-[0-9a-f]{4,}[0-9a-f-]*")


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

    def subnet(self, wanted: str) -> ResolvedName:
        """A subnet of the cluster's VPC."""
        return _as_id(wanted) or self._resolve_subnet(wanted)

    def flavor(self, wanted: str, subnet: str) -> ResolvedName:
        """A flavor of the subnet's zone; the problem names the other zones that have it."""
        if found := _as_id(wanted) or self._subnet_problem(subnet):
            return found
        flavor = resolve("flavor", wanted, flavor_items(self.flavors(subnet)), self.zone_text(subnet))
        elsewhere = [] if flavor.id else self._zones_with(wanted)
        if not elsewhere:
            return flavor
        zones = " and ".join(elsewhere)
        return ResolvedName(problem=f"{flavor.problem} Zone {zones} has it: choose a subnet of that zone.")

    def disk_type(self, wanted: str, subnet: str) -> ResolvedName:
        """A volume type of the subnet's zone."""
        found = _as_id(wanted) or self._subnet_problem(subnet)
        return found or resolve("disk_type", wanted, self.volume_types(subnet), self.zone_text(subnet))

    def ssh_key(self, wanted: str) -> ResolvedName:
        """An SSH key of the project."""
        return _as_id(wanted) or resolve("ssh_key", wanted, self.ssh_keys(), self._project)

    def security_group(self, wanted: str) -> ResolvedName:
        """A security group of the project."""
        return _as_id(wanted) or resolve("security_groups", wanted, self._vserver.security_groups(), self._project)

    def subnets(self) -> list[CatalogItem]:
        """The subnets of the cluster's VPC."""
        return self._vserver.subnets(self.cluster.vpc)

    def flavors(self, subnet: str) -> list[Flavor]:
        """The flavors of the subnet's zone."""
        return self._vserver.flavors(self._zone(subnet)[0])

    def volume_types(self, subnet: str) -> list[CatalogItem]:
        """The volume types of the subnet's zone."""
        return self._vserver.volume_types(self._zone(subnet)[0])

    def ssh_keys(self) -> list[CatalogItem]:
        """The SSH keys of the project."""
        return self._vserver.ssh_keys()

    def system_groups(self) -> set[str]:
        """Ids of the security groups that the service itself adds to machines."""
        return {item.id for item in self._vserver.security_groups() if item.details.get("system")}

    def zone_text(self, subnet: str) -> str:
        """The subnet's zone, for a message."""
        return f"zone {self._zone(subnet)[1] or '(unknown)'}"

    def _zone(self, subnet: str) -> tuple[str, str]:
        """Id and name of the subnet's zone; empty where it is unknown."""
        details: t.Mapping[str, t.Any] = next((item.details for item in self.subnets() if item.id == subnet), {})
        return str(details.get("zone") or ""), str(details.get("zone_name") or details.get("zone") or "")

    def _subnet_problem(self, subnet: str) -> ResolvedName | None:
        """The problem of a subnet that the VPC does not have, in whose zone nothing can be looked up."""
        if any(item.id == subnet for item in self.subnets()):
            return None
        return ResolvedName(problem=self._resolve_subnet(subnet).problem)

    def _resolve_subnet(self, wanted: str) -> ResolvedName:
        return resolve("subnet", wanted, self.subnets(), f"VPC {self.cluster.vpc}")

    @property
    def _project(self) -> str:
        return f"project {self._vserver.project}"

    def _zones_with(self, flavor: str) -> list[str]:
        return [
            zone.name
            for zone in self._vserver.zones()
            if zone.usable and any(flavor == other.name for other in self._vserver.flavors(zone.id))
        ]


def _as_id(wanted: str) -> ResolvedName | None:
    return ResolvedName(id=wanted) if _ID.fullmatch(wanted) else None
