# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discovers the clusters of an account in VNG Cloud's VKS, for the inventory plugin."""

from __future__ import annotations

import datetime
import functools
import typing as t

from ...common.parallel import call_all
from ...common.progress import Progress
from ...common.wait import WaitOptions
from ...nodegroups.spec import NodeGroupState
from ...schema.providers import VKS
from ..cluster_inventory import DiscoveredCluster, DiscoveredNodeGroup, KubeconfigLifetime
from . import kubeconfig
from .catalog import Flavor
from .clusters import IN_DELETION, VksCluster, cluster_of, detailed_clusters
from .endpoints import DEFAULT_REGION, ENVIRONMENT
from .errors import VksError
from .provider import VksProvider
from .transport import VksTransport, connect
from .vserver import VServer

# Issuing a kubeconfig takes a few seconds.
_TIMEOUT, _INTERVAL = 120.0, 1.0


class VksSource:
    """One account in one region."""

    provider = VKS.key
    cloud = VKS.key
    status_in_deletion = IN_DELETION

    def __init__(self, settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str], user_agent: str) -> None:
        """Store the arguments; no request is sent yet. environ: the environment variables, which contain the account's secrets."""
        self._settings = settings
        self._user_agent = user_agent
        self._params = _params(settings, environ)
        self.region = str(self._params["region"])

    @functools.cached_property
    def _transport(self) -> VksTransport:
        return connect(self._params, self._user_agent)

    @functools.cached_property
    def _vserver(self) -> VServer:
        return VServer(self._transport, self._params.get("project_id"))

    def discover(self, selects: t.Callable[[str, str], bool]) -> list[DiscoveredCluster]:
        """The clusters whose name and status `selects` accepts; flavors are read once, and only if a cluster has a group."""
        clusters = detailed_clusters(self._transport, lambda cluster: selects(cluster.name, cluster.status))
        names = [cluster.name for cluster in clusters]
        groups = call_all([(cluster.id, functools.partial(self._groups, cluster)) for cluster in clusters])
        return [
            self._discovered(cluster, states, unique=names.count(cluster.name) == 1)
            for cluster, states in zip(clusters, groups, strict=True)
        ]

    def kubeconfig(self, cluster: DiscoveredCluster, lifetime: KubeconfigLifetime) -> str:
        """The service's kubeconfig; a new one is issued if there is none or it expires soon."""
        target = cluster_of({"id": cluster.id, "name": cluster.name})
        current = kubeconfig.read(self._transport, target)
        now = datetime.datetime.now(datetime.UTC)
        if kubeconfig.reason_to_issue(current, lifetime.renew_before, now) or not current.ready:
            wait = WaitOptions(_TIMEOUT, _INTERVAL, Progress(None))
            current = kubeconfig.issue(self._transport, target, current, days=lifetime.days, wait=wait)
        return current.text

    def explain(self, error: Exception) -> str:
        """The message for an error that this source has raised."""
        return str(error)

    def _groups(self, cluster: VksCluster) -> list[NodeGroupState]:
        return VksProvider(self._transport, self._vserver, cluster, patience=0.0).read_all()

    @functools.cached_property
    def _flavors(self) -> dict[str, Flavor]:
        """All flavors of the region by id; empty if the account is not allowed to read them (the GPUs are then unknown)."""
        try:
            zones = [zone.id for zone in self._vserver.zones() if zone.usable]
            return {flavor.id: flavor for zone in zones for flavor in self._vserver.flavors(zone)}
        except VksError as error:
            if not (error.forbidden or error.not_found):
                raise
            return {}

    def _discovered(
        self, cluster: VksCluster, states: t.Sequence[NodeGroupState], *, unique: bool
    ) -> DiscoveredCluster:
        connection = {option: self._settings[option] for option in VKS.connection_options if self._settings.get(option)}
        return DiscoveredCluster(
            provider=self.provider,
            cloud=self.cloud,
            region=self.region,
            id=cluster.id,
            name=cluster.name,
            status=cluster.status,
            version=cluster.version,
            server=cluster.server or "",
            ready=cluster.status == "ACTIVE",
            settings={**connection, "cluster": cluster.name if unique else cluster.id, "region": self.region},
            groups=tuple(self._group(state) for state in states),
        )

    def _group(self, state: NodeGroupState) -> DiscoveredNodeGroup:
        flavor_id = str(state.fields["flavor"])
        flavor = self._flavors.get(flavor_id)
        return DiscoveredNodeGroup(
            name=state.name,
            status=state.status,
            count=state.count,
            flavor=flavor.name if flavor else flavor_id,
            gpus=flavor.gpus if flavor else None,
            models=tuple(model.key for model in flavor.models) if flavor else (),
        )


def sources(settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str], user_agent: str) -> list[VksSource]:
    """The source for the account."""
    return [VksSource(settings, environ, user_agent)]


def _params(settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str]) -> dict[str, t.Any]:
    """The module options, from the entry, or else from the environment; the entry may contain the names of its account's environment variables."""
    params: dict[str, t.Any] = {
        option: next((environ[name] for name in names if environ.get(name)), None)
        for option, names in ENVIRONMENT.items()
    }
    params |= {option: value for option, value in settings.items() if value is not None}
    for option in ("client_id", "client_secret"):
        if name := settings.get(f"{option}_env"):
            params[option] = environ.get(name)
    return {**params, "region": params["region"] or DEFAULT_REGION}
