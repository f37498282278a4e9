# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clusters of an account: found by name or id, and read in whichever of the API's generations they are told."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

from ...common.errors import InvalidOptions
from ...common.parallel import run_bounded
from .catalog import listed
from .errors import VksError
from .paging import Row
from .transport import VKS, VksTransport

NATIVE_ROUTING = "CILIUM_NATIVE_ROUTING"
_PATH = "/v1/clusters"
_ID = re.compile(r"k8s-[0-9a-f]{4,}[0-9a-f-]*")


@dataclass(frozen=True)
class VksCluster:
    """A cluster as far as node groups and kubeconfigs need it; ids are VNG Cloud's."""

    id: str
    name: str
    status: str
    version: str
    vpc: str
    subnets: tuple[str, ...]
    """Those of the cluster itself; the first is the default of a group where there is but one."""
    network: str
    nodes: int | None
    facts: Row

    @property
    def path(self) -> str:
        """Where it is in the API."""
        return f"{_PATH}/{self.id}"

    def told(self) -> dict[str, t.Any]:
        """As modules return it."""
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "version": self.version,
            "vpc": self.vpc,
            "subnets": list(self.subnets),
            "network": self.network,
            "node_count": self.nodes,
            "private": self.facts.get("enablePrivateCluster"),
            "endpoint": self.facts.get("serviceEndpoint"),
            "created_at": self.facts.get("createdAt"),
        }


def cluster_of(row: Row) -> VksCluster:
    """A cluster as the API tells it; what a list leaves out is empty."""
    subnets = row.get("listSubnetIds") or ([row["subnetId"]] if row.get("subnetId") else [])
    nodes = row.get("numNodes")
    return VksCluster(
        id=str(row.get("id") or row.get("uid") or ""),
        name=str(row.get("name") or ""),
        status=str(row.get("status") or ""),
        version=str(row.get("version") or ""),
        vpc=str(row.get("vpcId") or ""),
        subnets=tuple(str(subnet) for subnet in subnets),
        network=str(row.get("networkType") or ""),
        nodes=nodes if isinstance(nodes, int) else None,
        facts=row,
    )


def all_clusters(transport: VksTransport) -> list[VksCluster]:
    """All clusters of the account in the region, with their details."""
    listed_ones = [cluster_of(row) for row in transport.items(VKS, _PATH)]
    calls = [(cluster.name, functools.partial(_detail, transport, cluster)) for cluster in listed_ones]
    found = []
    for outcome in run_bounded(calls):
        if outcome.error is not None:
            raise outcome.error
        if outcome.value is not None:
            found.append(outcome.value)
    return sorted(found, key=lambda cluster: (cluster.name, cluster.id))


def named_cluster(transport: VksTransport, wanted: str) -> VksCluster:
    """The one cluster of that id or name, as a list tells it, or with its details where that took no request more.

    Raises InvalidOptions where there is none, or where a name means several.
    """
    if _ID.fullmatch(wanted):
        found = _detail(transport, cluster_of({"id": wanted}))
        if found is not None:
            return found
    rows = [cluster_of(row) for row in transport.items(VKS, _PATH)]
    meant = [row for row in rows if row.id == wanted] or [row for row in rows if row.name == wanted]
    if len(meant) > 1:
        told = ", ".join(f"{row.id} ({row.status})" for row in meant)
        raise InvalidOptions([f"cluster: {len(meant)} clusters are called {wanted!r}: {told}. Give the id."])
    if not meant:
        raise InvalidOptions(
            [
                f"cluster: there is no {wanted!r} in this account and region. {listed(wanted, [row.name for row in rows])}"
            ]
        )
    return meant[0]


def detailed(transport: VksTransport, cluster: VksCluster) -> VksCluster:
    """The same with its details; raises InvalidOptions when it was deleted meanwhile."""
    found = cluster if cluster.vpc else _detail(transport, cluster)
    if found is None:
        raise InvalidOptions([f"cluster: {cluster.name} ({cluster.id}) has been deleted meanwhile. Run again."])
    return found


def _detail(transport: VksTransport, cluster: VksCluster) -> VksCluster | None:
    """None when it was deleted meanwhile."""
    try:
        row = transport.json(VKS, "GET", cluster.path)
    except VksError as error:
        if error.not_found:
            return None
        raise
    return cluster_of({**cluster.facts, **(row or {})})
