# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovers the clusters of a project in a cloud with Magnum, for the inventory plugin."""

from __future__ import annotations

import functools
import typing as t

from ...common.parallel import call_all
from ...schema.providers import MAGNUM
from ..cluster_inventory import DiscoveredCluster, DiscoveredNodeGroup, KubeconfigLifetime
from . import kubeconfig
from .client import IN_DELETION, Magnum
from .errors import OpenStackError, explain
from .flavors import gpus_of
from .nova_glance import Nova
from .session import CloudOptions, Session, regions_of

Object = dict[str, t.Any]


class MagnumSource:
    """One cloud from clouds.yaml in one region (None: its only region)."""

    provider = MAGNUM.key
    status_in_deletion = IN_DELETION

    def __init__(self, cloud: str, region: str | None, aliases: t.Mapping[str, str], user_agent: str) -> None:
        """Store the arguments; no request is sent yet. aliases: maps the cloud operator's names for GPUs to models of the catalog."""
        self.cloud, self.region = cloud, region or ""
        self._aliases = aliases
        self._user_agent = user_agent

    @functools.cached_property
    def _session(self) -> Session:
        options = {"cloud": self.cloud, **({"region_name": self.region} if self.region else {})}
        return Session(CloudOptions.from_params(options), self._user_agent)

    @functools.cached_property
    def _magnum(self) -> Magnum:
        return Magnum(self._session)

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts, from one list request and two requests per cluster; clusters are queried in parallel."""
        rows = [
            cluster
            for cluster in self._magnum.clusters()
            if selects(str(cluster["name"]), str(cluster.get("status") or ""))
        ]
        names = [str(cluster["name"]) for cluster in rows]
        nova = Nova(self._session)
        details = call_all([(str(row["uuid"]), functools.partial(self._details, str(row["uuid"]))) for row in rows])
        return [
            self._discovered(cluster, groups, nova, unique=names.count(str(cluster["name"])) == 1)
            for cluster, groups in filter(None, details)
        ]

    def kubeconfig(self, cluster: DiscoveredCluster, dummy: KubeconfigLifetime) -> str:
        """A new kubeconfig with a certificate signed by the cluster's CA; Magnum decides how long the certificate is valid."""
        endpoint = kubeconfig.ClusterEndpoint(cluster.name, cluster.server, self._magnum.ca(cluster.id))
        request = kubeconfig.new_request()
        return kubeconfig.document(endpoint, request.key, self._magnum.sign(cluster.id, request.csr))

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised, with the name of the cloud."""
        return explain(error, self._session.origin) if isinstance(error, OpenStackError) else str(error)

    def _details(self, cluster_id: str) -> tuple[Object, list[Object]] | None:
        cluster = self._magnum.find_cluster(cluster_id)
        return (cluster, self._magnum.nodegroups(cluster_id)) if cluster is not None else None

    def _discovered(
        self, cluster: Object, groups: t.Sequence[Object], nova: Nova, *, unique: bool
    ) -> DiscoveredCluster:
        address = str(cluster.get("api_address") or "")
        name, cluster_id = str(cluster["name"]), str(cluster["uuid"])
        region = self.region or self._session.region
        settings: Object = {"cloud": self.cloud, "cluster": name if unique else cluster_id}
        if region:
            settings["region_name"] = region
        return DiscoveredCluster(
            provider=self.provider,
            cloud=self.cloud,
            region=region,
            id=cluster_id,
            name=name,
            status=str(cluster.get("status") or ""),
            version=str(cluster.get("coe_version") or ""),
            server=address,
            ready=bool(address),
            settings=settings,
            groups=tuple(self._group(group, nova) for group in groups),
        )

    def _group(self, group: Object, nova: Nova) -> DiscoveredNodeGroup:
        flavor = nova.flavor(str(group.get("flavor_id") or ""))
        gpus = gpus_of(flavor.get("extra_specs"), self._aliases) if flavor else None
        return DiscoveredNodeGroup(
            name=str(group["name"]),
            status=str(group.get("status") or ""),
            count=int(group.get("node_count") or 0),
            flavor=str(flavor["name"] if flavor else group.get("flavor_id") or ""),
            gpus=gpus.count if gpus else 0 if flavor and flavor.get("extra_specs") is not None else None,
            models=gpus.models if gpus else (),
        )


def sources(settings: t.Mapping[str, t.Any], dummy_environ: t.Mapping[str, str], user_agent: str) -> list[MagnumSource]:
    """A source for each region in `region_names`; by default, for each of the cloud's regions in clouds.yaml."""
    cloud = str(settings["cloud"])
    regions: t.Sequence[str | None] = settings.get("region_names") or regions_of(cloud) or [None]
    return [MagnumSource(cloud, region, settings.get("gpu_aliases") or {}, user_agent) for region in regions]
