# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the clusters of an account."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass

from ...common.errors import InvalidOptions
from ...common.parallel import call_all
from .catalog import available
from .transport import VKS, Row, VksTransport

NATIVE_ROUTING = "CILIUM_NATIVE_ROUTING"
# The status of a cluster that is being deleted.
IN_DELETION = "DELETING"
_PATH = "/v1/clusters"
_ID = re.compile(r"k8s-[0-9a-f]{4,}[0-9a-f-]*")


@dataclass(frozen=True)
class VksCluster:
    """The cluster data that node groups and kubeconfigs need; all ids are VNG Cloud's.

    subnets: the cluster's own subnets; if there is only one, it is the default for new groups. server: the address of the API server; None if
    VKS does not return it. private: whether the API server only has a private address. row: the response.
    """

    id: str
    name: str
    status: str
    version: str
    vpc: str
    subnets: tuple[str, ...]
    network: str
    node_count: int | None
    private: bool | None
    server: str | None
    created_at: str | None
    row: Row

    @property
    def path(self) -> str:
        """The cluster's path in the API."""
        return f"{_PATH}/{self.id}"

    def to_result(self) -> dict[str, t.Any]:
        """The cluster as a module returns it."""
        fields = {name: value for name, value in vars(self).items() if name != "row"}
        return {**fields, "subnets": list(self.subnets)}


def cluster_of(row: Row) -> VksCluster:
    """The cluster in a response; fields that are missing in lists are empty."""
    subnets = row.get("listSubnetIds") or ([row["subnetId"]] if row.get("subnetId") else [])
    return VksCluster(
        id=str(row.get("id") or ""),
        name=str(row.get("name") or ""),
        status=str(row.get("status") or ""),
        version=str(row.get("version") or ""),
        vpc=str(row.get("vpcId") or ""),
        subnets=tuple(str(subnet) for subnet in subnets),
        network=str(row.get("networkType") or ""),
        node_count=row.get("numNodes"),
        private=row.get("enablePrivateCluster"),
        server=row.get("serviceEndpoint"),
        created_at=row.get("createdAt"),
        row=row,
    )


def detailed_clusters(transport: VksTransport, selects: t.Callable[[VksCluster], bool]) -> list[VksCluster]:
    """The account's clusters in the region, if `selects` accepts them, with their details, sorted by name and id."""
    rows = [cluster_of(row) for row in transport.items(_PATH)]
    calls = [(cluster.id, functools.partial(_detail, transport, cluster)) for cluster in rows if selects(cluster)]
    return sorted(filter(None, call_all(calls)), key=lambda cluster: (cluster.name, cluster.id))


def find_cluster(transport: VksTransport, name: str) -> VksCluster:
    """The cluster with this id or name; its details are included only if they need no extra request.

    Raises InvalidOptions if there is no such cluster, or if several have the name.
    """
    if _ID.fullmatch(name):
        cluster = _detail(transport, cluster_of({"id": name}))
        if cluster is not None:
            return cluster
    rows = [cluster_of(row) for row in transport.items(_PATH)]
    matches = [row for row in rows if row.id == name] or [row for row in rows if row.name == name]
    if len(matches) > 1:
        ids = ", ".join(f"{row.id} ({row.status})" for row in matches)
        raise InvalidOptions([f"cluster: {len(matches)} clusters are called {name!r}: {ids}. Use the id."])
    if not matches:
        names = available(name, [row.name for row in rows])
        raise InvalidOptions([f"cluster: there is no {name!r} in this account and region. {names}"])
    return matches[0]


def detailed(transport: VksTransport, cluster: VksCluster) -> VksCluster:
    """The cluster with its details; raises InvalidOptions if the cluster has been deleted since it was listed."""
    complete = cluster if cluster.vpc else _detail(transport, cluster)
    if complete is None:
        raise InvalidOptions([f"cluster: {cluster.name} ({cluster.id}) was deleted during this run. Run again."])
    return complete


def _detail(transport: VksTransport, cluster: VksCluster) -> VksCluster | None:
    """The cluster with its details; None if the cluster no longer exists."""
    row = transport.find(VKS, cluster.path)
    return cluster_of({**cluster.row, **row}) if row else None
