# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the clouds that an inventory names, side by side, and gives its hosts their kubeconfigs."""

from __future__ import annotations

import datetime
import functools
import typing as t

from ...module_utils.catalog.names import VERSION
from ...module_utils.common.errors import ConnectionProblem, InvalidOptions, PartialFailure, ServiceError
from ...module_utils.common.parallel import run_bounded
from ...module_utils.common.wait import WaitTimeout
from .found import MAGNUM, Found, Life, Source
from .kubeconfigs import Folder

USER_AGENT = f"accel.gpu/{VERSION} clusters"
# What a cloud, its configuration or the network can do to a look at it; anything else is a mistake of ours.
FAILURES = (ServiceError, ConnectionProblem, InvalidOptions, WaitTimeout, PartialFailure)
_PARALLEL = 8


class CloudFailed(Exception):
    """One cloud could not be asked; says which, and why."""


def sources_of(clouds: t.Sequence[t.Mapping[str, t.Any]], environ: t.Mapping[str, str]) -> list[Source]:
    """A source for each cloud and region that the entries (entries.py) name; a library is read only where it is needed."""
    found: list[Source] = []
    for entry in clouds:
        (kind, settings), *dummy = entry.items()
        if kind == MAGNUM:
            from . import of_magnum

            found += of_magnum.sources(settings or {}, USER_AGENT)
        else:
            from . import of_vks

            found.append(of_vks.VksSource(settings or {}, environ, USER_AGENT))
    return found


class Asking:
    """All clouds of an inventory. `warn` is told what does not stop it."""

    def __init__(self, sources: t.Sequence[Source], warn: t.Callable[[str], None], *, fail: bool) -> None:
        """Ask nothing yet. fail: whether one cloud that does not answer fails all, or is left out."""
        self._sources = sources
        self._warn = warn
        self._fail = fail

    def discover(self, wanted: t.Callable[[str], bool]) -> list[Found]:
        """All clusters whose names are wanted, in the order of the sources; raises CloudFailed."""
        calls = [(source.cloud, functools.partial(source.discover, wanted)) for source in self._sources]
        outcomes = run_bounded(calls, _PARALLEL, fatal=lambda error: not isinstance(error, FAILURES))
        found: list[Found] = []
        for source, outcome in zip(self._sources, outcomes, strict=True):
            if outcome.error is None:
                found += outcome.value or []
            elif isinstance(outcome.error, FAILURES):
                self._failed(source, outcome.error)
            else:
                raise outcome.error
        return found

    def give_kubeconfigs(self, hosts: t.Mapping[str, Found], folder: Folder, life: Life) -> None:
        """Write those that are missing or end soon; a cluster that has none yet is told. Raises CloudFailed."""
        now = datetime.datetime.now(datetime.UTC)
        calls = []
        for host, found in hosts.items():
            why = folder.stale(host, found, now)
            if not why:
                folder.tighten(host)
            elif not found.ready:
                self._warn(f"{host} ({found.place}) is {found.status}: it has no kubeconfig yet")
            else:
                calls.append((host, functools.partial(self._give, host, found, folder, life)))
        for outcome in run_bounded(calls, _PARALLEL, fatal=lambda error: not isinstance(error, FAILURES)):
            if isinstance(outcome.error, FAILURES):
                found = hosts[outcome.name]
                self._failed(
                    self._of(found),
                    outcome.error,
                    f"kubeconfig of {found.name} (none is fetched with write_kubeconfigs: false): ",
                )
            elif outcome.error is not None:
                raise outcome.error

    def without_foreign_kubeconfigs(self, hosts: t.Mapping[str, Found], folder: Folder) -> dict[str, Found]:
        """The hosts whose kubeconfigs do not lead to another cluster; raises CloudFailed for the first other one, or warns."""
        kept = {}
        for host, found in hosts.items():
            server = folder.leads_elsewhere(host, found)
            if server:
                told = f"the cluster is at {found.server}, and the kubeconfig {folder.path(host)} leads to {server}; delete the file"
                self._failed(self._of(found), ConnectionProblem(told), f"cluster {found.name}: ")
            else:
                kept[host] = found
        return kept

    def _give(self, host: str, found: Found, folder: Folder, life: Life) -> None:
        folder.write(host, self._of(found).kubeconfig(found, life))

    def _of(self, found: Found) -> Source:
        """Where a cluster was found; also of one that a cache has kept."""
        return next(
            source
            for source in self._sources
            if (source.provider, source.cloud) == (found.provider, found.cloud) and source.region in ("", found.region)
        )

    def _failed(self, source: Source, error: Exception, what: str = "") -> None:
        region = f", region {source.region}" if source.region else ""
        words = f"cloud {source.cloud}{region}: {what}{source.told(error)}"
        if self._fail:
            raise CloudFailed(words) from None
        self._warn(f"{words} (left out)")
