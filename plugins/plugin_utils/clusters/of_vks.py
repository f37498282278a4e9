# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clusters of an account at VNG Cloud's VKS, in one region."""

from __future__ import annotations

import datetime
import functools
import typing as t

from ...module_utils.common.parallel import run_bounded
from ...module_utils.common.progress import Progress
from ...module_utils.providers.vks import kubeconfig
from ...module_utils.providers.vks.clusters import VksCluster, all_clusters, cluster_of
from ...module_utils.providers.vks.connection import ENVIRONMENT, connect
from ...module_utils.providers.vks.decode import live_of
from ...module_utils.providers.vks.endpoints import DEFAULT_REGION
from ...module_utils.providers.vks.errors import VksError
from ...module_utils.providers.vks.flavors import Flavor
from ...module_utils.providers.vks.transport import VKS as SERVICE
from ...module_utils.providers.vks.transport import VksTransport
from ...module_utils.providers.vks.vserver import VServer
from .found import VKS, Found, Group, Life

# What of an entry is said to every module that works on the cluster, too.
_SETTINGS = ("project_id", "iam_url", "vks_url", "vserver_url")
_ACTIVE = "ACTIVE"
# Minting a kubeconfig is said to take seconds.
_TIMEOUT, _INTERVAL = 120.0, 1.0


class VksSource:
    """One account in one region."""

    provider = VKS
    cloud = VKS

    def __init__(self, settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str], user_agent: str) -> None:
        """Ask nothing yet. environ: where the account's secrets are."""
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

    def discover(self, wanted: t.Callable[[str], bool]) -> list[Found]:
        """The clusters whose names are wanted; flavors are looked up once, and only when a cluster has a group."""
        clusters = [
            cluster
            for cluster in all_clusters(self._transport)
            if wanted(cluster.name) and cluster.status != "DELETING"
        ]
        names = [cluster.name for cluster in clusters]
        calls = [(cluster.id, functools.partial(self._groups, cluster)) for cluster in clusters]
        found = []
        for cluster, outcome in zip(clusters, run_bounded(calls, fatal=lambda error: True), strict=True):
            if outcome.error is not None:
                raise outcome.error
            found.append(self._found(cluster, outcome.value or [], twin=names.count(cluster.name) > 1))
        return found

    def kubeconfig(self, of: Found, life: Life) -> str:
        """The service's, or a new one where there is none or it ends soon."""
        cluster = cluster_of({"id": of.id, "name": of.name})
        held = kubeconfig.read(self._transport, cluster)
        now = datetime.datetime.now(datetime.UTC)
        if kubeconfig.needs_minting(held, life.renew_before, now) or not held.ready:
            held = kubeconfig.mint(
                self._transport,
                cluster,
                held,
                days=life.days,
                timeout=_TIMEOUT,
                interval=_INTERVAL,
                progress=Progress(None),
            )
        return held.text

    def told(self, error: Exception) -> str:
        """An error of this source in words."""
        return str(error)

    def _groups(self, cluster: VksCluster) -> list[t.Any]:
        path = f"{cluster.path}/node-groups"
        rows = self._transport.items(SERVICE, path)
        calls = [(str(row.get("id")), functools.partial(self._detail, f"{path}/{row.get('id')}")) for row in rows]
        outcomes = run_bounded(calls, fatal=lambda error: True)
        for outcome in outcomes:
            if outcome.error is not None:
                raise outcome.error
        return [live_of(outcome.value) for outcome in outcomes if outcome.value]

    def _detail(self, path: str) -> dict[str, t.Any] | None:
        """None when it was deleted meanwhile."""
        try:
            row: dict[str, t.Any] | None = self._transport.json(SERVICE, "GET", path)
        except VksError as error:
            if error.not_found:
                return None
            raise
        return row

    @functools.cached_property
    def _flavors(self) -> dict[str, Flavor]:
        """All of the region by id; none where the account may not look, so that the GPUs stay unknown."""
        try:
            zones = [zone.id for zone in self._vserver.zones() if zone.usable]
            return {flavor.id: flavor for zone in zones for flavor in self._vserver.flavors(zone)}
        except VksError as error:
            if not (error.forbidden or error.not_found):
                raise
            return {}

    def _found(self, cluster: VksCluster, lives: t.Sequence[t.Any], *, twin: bool) -> Found:
        groups = []
        for live in lives:
            flavor = self._flavors.get(str(live.fields["flavor"]))
            groups.append(
                Group(
                    name=live.name,
                    status=live.status,
                    count=live.count,
                    flavor=flavor.name if flavor else str(live.fields["flavor"]),
                    gpus=flavor.gpus if flavor else None,
                    models=tuple(model.key for model in flavor.models) if flavor else (),
                )
            )
        said = {key: self._settings[key] for key in _SETTINGS if self._settings.get(key)}
        return Found(
            provider=VKS,
            cloud=self.cloud,
            region=self.region,
            id=cluster.id,
            name=cluster.name,
            status=cluster.status,
            version=cluster.version,
            server=str(cluster.facts.get("serviceEndpoint") or ""),
            ready=cluster.status == _ACTIVE,
            settings={"cluster": cluster.id if twin else cluster.name, "region": self.region, **said},
            groups=tuple(groups),
        )


def _params(settings: t.Mapping[str, t.Any], environ: t.Mapping[str, str]) -> dict[str, t.Any]:
    """As a module has them: of the entry, else of the environment, where the entry may name the variables of its account."""
    params = {
        **{option: _first(environ, names) for option, names in ENVIRONMENT.items()},
        **{option: value for option, value in settings.items() if value is not None},
    }
    for option in ("client_id", "client_secret"):
        if name := settings.get(f"{option}_env"):
            params[option] = environ.get(name)
    return {**params, "region": params["region"] or DEFAULT_REGION}


def _first(environ: t.Mapping[str, str], names: t.Iterable[str]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
