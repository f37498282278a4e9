# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the names in a group's options mean in its cluster's VPC and its subnet's zone."""

from __future__ import annotations

import functools
import re
import typing as t

from .catalog import Offer, ResolvedName, choose, flavor_offers
from .clusters import VksCluster
from .flavors import Flavor
from .vserver import VServer

# An id is taken as it is: a second run that is told ids looks nothing up.
_ID = re.compile(r"(flav|vtype|ssh|secg|sub)-[0-9a-f]{4,}[0-9a-f-]*")


class Resolver:
    """Looks up names for groups of one cluster; each thing is asked for once, and only when a name has to be found."""

    def __init__(self, vserver: VServer, cluster: t.Callable[[], VksCluster]) -> None:
        """Look nothing up yet; `cluster` reads it with its details."""
        self._vserver = vserver
        self._read = cluster

    @functools.cached_property
    def cluster(self) -> VksCluster:
        """The cluster with its details."""
        return self._read()

    @property
    def default_subnet(self) -> str | None:
        """The cluster's subnet, where it has just one."""
        return self.cluster.subnets[0] if len(self.cluster.subnets) == 1 else None

    def subnet(self, wanted: str) -> ResolvedName:
        """The subnet of the cluster's VPC."""
        return _as_id(wanted) or choose("subnet", wanted, self.subnets(), f"VPC {self.cluster.vpc}")

    def flavor(self, wanted: str, subnet: str) -> ResolvedName:
        """The flavor in the subnet's zone; of one that is only in other zones, which."""
        if found := _as_id(wanted) or self._lost(subnet):
            return found
        choice = choose("flavor", wanted, flavor_offers(self.flavors(subnet)), self.place(subnet))
        elsewhere = [] if choice.id else self._zones_with(wanted)
        if not elsewhere:
            return choice
        return ResolvedName(
            problem=f"{choice.problem} It is in {' and '.join(elsewhere)}: give a subnet of that zone as subnet."
        )

    def disk_type(self, wanted: str, subnet: str) -> ResolvedName:
        """The volume type in the subnet's zone."""
        there = _as_id(wanted) or self._lost(subnet)
        return there or choose("disk_type", wanted, self.volume_types(subnet), self.place(subnet))

    def ssh_key(self, wanted: str) -> ResolvedName:
        """The SSH key of the project."""
        return _as_id(wanted) or choose("ssh_key", wanted, self._vserver.ssh_keys(), self._project)

    def security_group(self, wanted: str) -> ResolvedName:
        """The security group of the project."""
        return _as_id(wanted) or choose("security_groups", wanted, self._vserver.security_groups(), self._project)

    def subnets(self) -> list[Offer]:
        """Those of the cluster's VPC."""
        return self._vserver.subnets(self.cluster.vpc)

    def flavors(self, subnet: str) -> list[Flavor]:
        """Those of the subnet's zone."""
        return self._vserver.flavors(self.zone(subnet)[0])

    def volume_types(self, subnet: str) -> list[Offer]:
        """Those of the subnet's zone."""
        return self._vserver.volume_types(self.zone(subnet)[0])

    def ssh_keys(self) -> list[Offer]:
        """Those of the project."""
        return self._vserver.ssh_keys()

    def system_groups(self) -> set[str]:
        """Ids of the security groups that the service itself puts on machines."""
        return {offer.id for offer in self._vserver.security_groups() if offer.facts.get("system")}

    def zone(self, subnet: str) -> tuple[str, str]:
        """Id and name of the zone that a subnet lies in; empty where that is not known."""
        facts: t.Mapping[str, t.Any] = next((offer.facts for offer in self.subnets() if offer.id == subnet), {})
        return str(facts.get("zone") or ""), str(facts.get("zone_name") or facts.get("zone") or "")

    def place(self, subnet: str) -> str:
        """The zone, for a message."""
        return f"zone {self.zone(subnet)[1] or '(unknown)'}"

    def _lost(self, subnet: str) -> ResolvedName | None:
        """Why nothing can be looked up in the zone of a subnet that the VPC does not have."""
        if any(offer.id == subnet for offer in self.subnets()):
            return None
        return ResolvedName(problem=choose("subnet", subnet, self.subnets(), f"VPC {self.cluster.vpc}").problem)

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
