# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Queries the clouds of an inventory in parallel, and stores the kubeconfigs of the inventory's hosts in a folder."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import os
import re
import typing as t

from ...module_utils.catalog.names import VERSION
from ...module_utils.clouds import kubeconfig_file
from ...module_utils.clouds.kubeconfig_file import ClusterFilter, ClusterSource, DiscoveredCluster, KubeconfigLifetime
from ...module_utils.core.errors import ConnectionProblem, InvalidOptions, PartialFailure, ServiceError
from ...module_utils.core.files import write_private_file
from ...module_utils.core.messages import printable, quote
from ...module_utils.core.types import ListOf, Section
from ...module_utils.core.waits import Outcome, WaitTimeout, run_bounded
from ...module_utils.schema.providers import PROVIDERS

USER_AGENT = f"accel.gpu/{VERSION} clusters"
# Failures of a cloud, its configuration or the network; any other error is a bug.
FAILURES = (ServiceError, ConnectionProblem, InvalidOptions, WaitTimeout, PartialFailure)
_PARALLEL = 8
# A name becomes the name of a host, which Ansible would evaluate as a template, and of a file.
_SAFE_NAME = re.compile(r"\w[\w. -]*")
_INVENTORIES = {key: provider.inventory for key, provider in PROVIDERS.items() if provider.inventory is not None}
_CLOUDS = ListOf(item=Section(fields=_INVENTORIES))

T = t.TypeVar("T")
Hosts = t.Mapping[str, DiscoveredCluster]


def cloud_entries(clouds: t.Sequence[t.Any]) -> list[tuple[str, dict[str, t.Any]]]:
    """Return the provider and the settings of each entry in the option `clouds`. Raise InvalidOptions with all errors."""
    if not clouds:
        raise InvalidOptions(["clouds: is empty; add an entry for each cloud, such as {magnum: {cloud: NAME}}"])
    # A provider without settings can be specified without a map.
    maps = [
        {key: value or {} for key, value in entry.items()} if isinstance(entry, dict) else entry for entry in clouds
    ]
    entries = _CLOUDS.coerce(maps)
    problems = [*_CLOUDS.problems(entries, "clouds")] or [
        f"clouds[{index}]: needs exactly one of {' or '.join(_INVENTORIES)}, with its settings below it"
        for index, entry in enumerate(entries)
        if len(entry) != 1
    ]
    if problems:
        raise InvalidOptions(problems)
    return [(key, settings) for entry in entries for key, settings in entry.items()]


def sources_of(entries: t.Iterable[tuple[str, t.Any]], environ: t.Mapping[str, str]) -> list[ClusterSource]:
    """Return a source for each cloud and region of these entries. The libraries of a provider are only imported if an entry requires them."""
    sources: list[ClusterSource] = []
    for key, settings in entries:
        inventory = importlib.import_module(f"...module_utils.clouds.{key}_groups", __package__)
        sources += inventory.sources(settings, environ, USER_AGENT)
    return sources


class KubeconfigFolder:
    """The folder of the hosts' kubeconfigs. Only the owner can read these files."""

    def __init__(self, path: str, lifetime: KubeconfigLifetime) -> None:
        """Store the arguments. No file is written yet."""
        kubeconfig_file.require_libraries()
        self._path = path
        self._lifetime = lifetime

    def path(self, host: str) -> str:
        """Return the path of a host's kubeconfig."""
        return os.path.join(self._path, f"{host}.kubeconfig")

    def existing(self, host: str) -> kubeconfig_file.ExistingKubeconfig | None:
        """Return a host's kubeconfig, or None if the file does not exist or is not a kubeconfig."""
        return kubeconfig_file.existing(kubeconfig_file.read(self.path(host)))

    def foreign_server(self, host: str, cluster: DiscoveredCluster) -> str:
        """Return the server in a host's kubeconfig if it differs from the cluster's server; otherwise, an empty string."""
        current = self.existing(host)
        return current.server if current and cluster.server and current.server != cluster.server else ""

    def is_usable(self, host: str, cluster: DiscoveredCluster) -> bool:
        """Return whether a host's kubeconfig belongs to the cluster and does not expire soon."""
        current = self.existing(host)
        if current is None or self.foreign_server(host, cluster):
            return False
        renewal = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=self._lifetime.renew_before)
        return current.expires_at is None or current.expires_at > renewal

    def fetch(self, host: str, cluster: DiscoveredCluster, source: ClusterSource) -> None:
        """Write a new kubeconfig for a host. Raise ConnectionProblem if the cloud does not provide it."""
        text = source.kubeconfig(cluster, self._lifetime)
        os.makedirs(self._path, mode=0o700, exist_ok=True)
        write_private_file(self.path(host), text)

    def restrict_mode(self, host: str) -> None:
        """Make a host's kubeconfig readable only by its owner."""
        path = self.path(host)
        if kubeconfig_file.too_permissive(path):
            os.chmod(path, 0o600)


class CloudQuery:
    """All clouds of an inventory."""

    def __init__(self, sources: t.Sequence[ClusterSource], warn: t.Callable[[str], None], *, fail: bool) -> None:
        """Store the arguments. No request is sent yet. fail: raise an error if a query fails, instead of omitting the cloud and showing a warning."""
        self._sources = sources
        self._show_warning = warn
        self._fail = fail

    @property
    def places(self) -> list[tuple[str, str, str]]:
        """Return the provider, the cloud and the region of each source. Clusters in a cache refer to sources by their position in this list."""
        return [(source.provider, source.cloud, source.region) for source in self._sources]

    def discover(self, selection: ClusterFilter) -> list[DiscoveredCluster]:
        """Return all clusters that become hosts, without duplicates, in the order of the sources. Raise ConnectionProblem."""
        calls = []
        for source in self._sources:
            includes = functools.partial(selection.includes, status_in_deletion=source.status_in_deletion)
            calls.append((source.cloud, functools.partial(source.discover, includes)))
        # Two entries may name the same cloud.
        clusters: dict[tuple[str, str, str], DiscoveredCluster] = {}
        for index, outcome in enumerate(_run(calls)):
            if outcome.error is not None:
                self._report(self._sources[index], outcome.error)
            for cluster in outcome.value or ():
                if not (_SAFE_NAME.fullmatch(cluster.name) and _SAFE_NAME.fullmatch(cluster.id)):
                    self._warn(
                        f"{cluster.place}: the cluster {quote(cluster.name)} is omitted, because its name or id cannot be part of a file's name"
                    )
                    continue
                key = (cluster.provider, cluster.region, cluster.id)
                clusters.setdefault(key, dataclasses.replace(cluster, source=index))
        return list(clusters.values())

    def write_kubeconfigs(self, hosts: Hosts, folder: KubeconfigFolder) -> None:
        """Write kubeconfigs that are missing or expire soon, and warn about clusters that have no kubeconfig yet. Raise ConnectionProblem."""
        calls = []
        for host, cluster in hosts.items():
            if folder.is_usable(host, cluster):
                folder.restrict_mode(host)
            elif not cluster.ready:
                self._warn(f"{host} ({cluster.place}) is {cluster.status}: it has no kubeconfig yet")
            else:
                calls.append((host, functools.partial(folder.fetch, host, cluster, self._sources[cluster.source])))
        for outcome in _run(calls):
            if outcome.error is not None:
                cluster = hosts[outcome.name]
                what = f"kubeconfig of {cluster.name} (not fetched if write_kubeconfigs is false): "
                self._report(self._sources[cluster.source], outcome.error, what)

    def without_foreign_kubeconfigs(self, hosts: Hosts, folder: KubeconfigFolder) -> dict[str, DiscoveredCluster]:
        """Return the hosts whose kubeconfigs do not belong to other clusters. Raise ConnectionProblem for the other hosts, or show a warning."""
        kept = {}
        for host, cluster in hosts.items():
            server = folder.foreign_server(host, cluster)
            if server:
                problem = ConnectionProblem(
                    f"the kubeconfig {folder.path(host)} has the server {server}, but the server of the cluster is {cluster.server}; delete the file"
                )
                self._report(self._sources[cluster.source], problem, f"cluster {cluster.name}: ")
            else:
                kept[host] = cluster
        return kept

    def _warn(self, text: str) -> None:
        self._show_warning(printable(text))

    def _report(self, source: ClusterSource, error: Exception, what: str = "") -> None:
        region = f", region {source.region}" if source.region else ""
        message = f"cloud {source.cloud}{region}: {what}{source.explain(error)}"
        if self._fail:
            raise ConnectionProblem(message) from None
        self._warn(f"{message} (omitted)")


def _run(calls: t.Sequence[tuple[str, t.Callable[[], T]]]) -> list[Outcome[T]]:
    """Return the outcomes of calls to clouds. Raise all errors except FAILURES."""
    outcomes = run_bounded(calls, _PARALLEL, fatal=lambda error: not isinstance(error, FAILURES))
    for outcome in outcomes:
        if outcome.error is not None and not isinstance(outcome.error, FAILURES):
            raise outcome.error
    return outcomes
