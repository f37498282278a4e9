# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters of a project on a cloud with Magnum, region by region."""

from __future__ import annotations

import functools
import typing as t

from ...module_utils.common.errors import ConnectionProblem
from ...module_utils.common.parallel import run_bounded
from ...module_utils.providers.magnum import kubeconfig
from ...module_utils.providers.magnum.client import Magnum
from ...module_utils.providers.magnum.errors import OpenStackError, explain
from ...module_utils.providers.magnum.flavors import gpus_of
from ...module_utils.providers.magnum.nova_glance import Nova
from ...module_utils.providers.magnum.sdk import IMPORT_ERROR
from ...module_utils.providers.magnum.session import CloudOptions, Session, regions_of
from .found import MAGNUM, Found, Group, Life

Object = dict[str, t.Any]


class MagnumSource:
    """One cloud of clouds.yaml in one region; None as the region is the cloud's only one."""

    provider = MAGNUM

    def __init__(self, cloud: str, region: str | None, aliases: t.Mapping[str, str], user_agent: str) -> None:
        """Ask nothing yet. aliases: what the operator's names of cards mean, as models of the catalog."""
        self.cloud, self.region = cloud, region or ""
        self._aliases = aliases
        self._user_agent = user_agent

    @functools.cached_property
    def _session(self) -> Session:
        given = {"cloud": self.cloud, **({"region_name": self.region} if self.region else {})}
        return Session(CloudOptions.from_params(given), self._user_agent)

    @functools.cached_property
    def _magnum(self) -> Magnum:
        return Magnum(self._session)

    def discover(self, wanted: t.Callable[[str], bool]) -> list[Found]:
        """The clusters whose names are wanted: one list, and two requests for each of them, side by side."""
        listed = [
            cluster
            for cluster in self._magnum.clusters()
            if wanted(str(cluster["name"])) and not str(cluster.get("status")).startswith("DELETE_IN")
        ]
        names = [str(cluster["name"]) for cluster in listed]
        nova = Nova(self._session)
        calls = [(str(of["uuid"]), functools.partial(self._whole, str(of["uuid"]))) for of in listed]
        found = []
        for outcome in run_bounded(calls, fatal=lambda error: True):
            if outcome.error is not None:
                raise outcome.error
            if outcome.value is not None:
                cluster, groups = outcome.value
                found.append(self._found(cluster, groups, nova, twin=names.count(str(cluster["name"])) > 1))
        return found

    def kubeconfig(self, of: Found, dummy: Life) -> str:
        """A new one, signed by the cluster's CA; Magnum decides how long it lasts."""
        place = kubeconfig.ClusterEndpoint(of.name, of.server, self._magnum.ca(of.id))
        asked = kubeconfig.request()
        return kubeconfig.document(place, asked.key, self._magnum.sign(of.id, asked.csr))

    def told(self, error: Exception) -> str:
        """An error of this source in words, with the cloud in them."""
        return explain(error, self._session) if isinstance(error, OpenStackError) else str(error)

    def _whole(self, cluster_id: str) -> tuple[Object, list[Object]] | None:
        cluster = self._magnum.find_cluster(cluster_id)
        return (cluster, self._magnum.nodegroups(cluster_id)) if cluster is not None else None

    def _found(self, cluster: Object, groups: t.Sequence[Object], nova: Nova, *, twin: bool) -> Found:
        address = str(cluster.get("api_address") or "")
        name, cluster_id = str(cluster["name"]), str(cluster["uuid"])
        region = self.region or self._session.region
        settings: Object = {"cloud": self.cloud, "cluster": cluster_id if twin else name}
        if region:
            settings["region_name"] = region
        return Found(
            provider=MAGNUM,
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

    def _group(self, group: Object, nova: Nova) -> Group:
        flavor = nova.flavor(str(group.get("flavor_id") or ""))
        gpus = gpus_of(flavor.get("extra_specs"), self._aliases) if flavor else None
        return Group(
            name=str(group["name"]),
            status=str(group.get("status") or ""),
            count=int(group.get("node_count") or 0),
            flavor=str(flavor["name"] if flavor else group.get("flavor_id") or ""),
            gpus=gpus.count if gpus else 0 if flavor and flavor.get("extra_specs") is not None else None,
            models=gpus.models if gpus else (),
        )


def sources(settings: t.Mapping[str, t.Any], user_agent: str) -> list[MagnumSource]:
    """One for each region of a cloud, of those that are named, or of all that clouds.yaml has."""
    if IMPORT_ERROR is not None:
        raise ConnectionProblem(
            "Clouds with Magnum are asked through openstacksdk, which this Python does not have: pip install openstacksdk."
        )
    cloud = str(settings["cloud"])
    regions: t.Sequence[str | None] = settings.get("region_names") or regions_of(cloud) or [None]
    return [MagnumSource(cloud, region, settings.get("gpu_aliases") or {}, user_agent) for region in regions]
