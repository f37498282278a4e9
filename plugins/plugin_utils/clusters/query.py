# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries the clouds of an inventory in parallel, and fetches the kubeconfigs of its hosts."""

from __future__ import annotations

import datetime
import functools
import importlib
import typing as t

from ...module_utils.catalog.names import VERSION
from ...module_utils.common.errors import ConnectionProblem, InvalidOptions, PartialFailure, ServiceError
from ...module_utils.common.parallel import Outcome, run_bounded
from ...module_utils.common.wait import WaitTimeout
from ...module_utils.providers.discovery import ClusterSource, DiscoveredCluster, KubeconfigLifetime
from ...module_utils.providers.registry import PROVIDERS
from .kubeconfigs import KubeconfigFolder

USER_AGENT = f"accel.gpu/{VERSION} clusters"
# Failures of a cloud, its configuration or the network; anything else is a bug.
FAILURES = (ServiceError, ConnectionProblem, InvalidOptions, WaitTimeout, PartialFailure)
_PARALLEL = 8

T = t.TypeVar("T")


class CloudFailed(Exception):
    """The query of one cloud failed; the message names the cloud and the reason."""


def sources_of(clouds: t.Sequence[t.Mapping[str, t.Any]], environ: t.Mapping[str, str]) -> list[ClusterSource]:
    """A source for each cloud and region of the entries (entries.py); a provider's libraries are imported only when it is named."""
    found: list[ClusterSource] = []
    for entry in clouds:
        ((key, settings),) = entry.items()
        if key not in PROVIDERS:
            raise InvalidOptions([f"clouds: {key!r} is not a provider; known are {', '.join(PROVIDERS)}"])
        inventory = importlib.import_module(f"...module_utils.providers.{key}.inventory", __package__)
        found += inventory.sources(settings or {}, environ, USER_AGENT)
    return found


class CloudQuery:
    """All clouds of an inventory."""

    def __init__(self, sources: t.Sequence[ClusterSource], warn: t.Callable[[str], None], *, fail: bool) -> None:
        """Send nothing yet. fail: whether a cloud that fails is an error, or left out with a warning."""
        self._sources = sources
        self._warn = warn
        self._fail = fail

    def discover(self, wanted: t.Callable[[str], bool]) -> list[DiscoveredCluster]:
        """All clusters with a wanted name, in the order of the sources; raises CloudFailed."""
        calls = [(source.cloud, functools.partial(source.discover, wanted)) for source in self._sources]
        found: list[DiscoveredCluster] = []
        for source, outcome in zip(self._sources, _run(calls), strict=True):
            if outcome.error is None:
                found += outcome.value or []
            else:
                self._report(source, outcome.error)
        return found

    def write_kubeconfigs(
        self, hosts: t.Mapping[str, DiscoveredCluster], folder: KubeconfigFolder, lifetime: KubeconfigLifetime
    ) -> None:
        """Write those that are missing or expire soon; warn of a cluster that has none yet. Raises CloudFailed."""
        now = datetime.datetime.now(datetime.UTC)
        calls = []
        for host, cluster in hosts.items():
            if not folder.reason_to_replace(host, cluster, now):
                folder.restrict_mode(host)
            elif not cluster.ready:
                self._warn(f"{host} ({cluster.place}) is {cluster.status}: it has no kubeconfig yet")
            else:
                calls.append((host, functools.partial(self._write, host, cluster, folder, lifetime)))
        for outcome in _run(calls):
            if outcome.error is not None:
                cluster = hosts[outcome.name]
                what = f"kubeconfig of {cluster.name} (none is fetched with write_kubeconfigs: false): "
                self._report(self._source_of(cluster), outcome.error, what)

    def without_foreign_kubeconfigs(
        self, hosts: t.Mapping[str, DiscoveredCluster], folder: KubeconfigFolder
    ) -> dict[str, DiscoveredCluster]:
        """The hosts whose kubeconfigs belong to no other cluster; raises CloudFailed for the first other one, or warns."""
        kept = {}
        for host, cluster in hosts.items():
            server = folder.foreign_server(host, cluster)
            if server:
                problem = ConnectionProblem(
                    f"the kubeconfig {folder.path(host)} has the server {server}, and the cluster's is {cluster.server}; delete the file"
                )
                self._report(self._source_of(cluster), problem, f"cluster {cluster.name}: ")
            else:
                kept[host] = cluster
        return kept

    def _write(
        self, host: str, cluster: DiscoveredCluster, folder: KubeconfigFolder, lifetime: KubeconfigLifetime
    ) -> None:
        folder.write(host, self._source_of(cluster).kubeconfig(cluster, lifetime))

    def _source_of(self, cluster: DiscoveredCluster) -> ClusterSource:
        """The source that discovered a cluster, also of one from the cache."""
        return next(
            source
            for source in self._sources
            if (source.provider, source.cloud) == (cluster.provider, cluster.cloud)
            and source.region in ("", cluster.region)
        )

    def _report(self, source: ClusterSource, error: Exception, what: str = "") -> None:
        region = f", region {source.region}" if source.region else ""
        message = f"cloud {source.cloud}{region}: {what}{source.explain(error)}"
        if self._fail:
            raise CloudFailed(message) from None
        self._warn(f"{message} (left out)")


def _run(calls: t.Sequence[tuple[str, t.Callable[[], T]]]) -> list[Outcome[T]]:
    """The outcomes of calls to clouds; raises any other error than FAILURES."""
    outcomes = run_bounded(calls, _PARALLEL, fatal=lambda error: not isinstance(error, FAILURES))
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, FAILURES):
            raise outcome.error
    return outcomes
