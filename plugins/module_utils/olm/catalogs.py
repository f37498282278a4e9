# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the catalog, channel and version to install. Creates the declared CatalogSource, and waits for catalogs that are starting."""

from __future__ import annotations

import datetime
import time
import typing as t
from dataclasses import dataclass

from ..cluster_state.ownership import is_created_by_collection
from ..common.nested import get_nested
from ..common.wait import StateTimer
from ..kube.metadata import name_of
from . import failures
from .client import AppliedObject, OlmClient
from .installation import desired_version, installed_entry
from .observed import Object, Observed, catalog_state
from .options import OlmOptions
from .package_manifest import CatalogVersion, ChannelEntry, choose_version
from .problem import OlmFailure, Problem
from .subscription import catalog_body

if t.TYPE_CHECKING:
    from ..common.progress import Progress

READY = "READY"
# Seconds between reads of the packages, which cannot be watched.
_PACKAGES_INTERVAL = 1.0
# The seconds to wait for the packages of a catalog to which OLM connected less than _RECENT seconds ago; clocks may differ.
_PACKAGES_START, _RECENT = 20.0, 90.0


@dataclass
class CatalogChoice:
    """Chooses the version to install in one run. `applied` is the change that was made to the CatalogSource."""

    client: OlmClient
    options: OlmOptions
    progress: Progress
    deadline: float
    wait: bool
    check: bool
    applied: AppliedObject | None = None
    # A message that the CatalogSource of the image was removed because it did not start; empty if it was not removed.
    removed: str = ""

    def find_version(self, observed: Observed, live: Object | None) -> CatalogVersion | ChannelEntry | None:
        """The installed version if it is the desired one, otherwise the version that the catalogs offer; None if it is unknown in check mode."""
        installed = installed_entry(observed, self.options, live)
        if installed is not None:
            return installed
        if self.check and not self.client.has_olm():
            return None
        if self.options.catalog_image and not self.removed and self._apply_catalog(observed) and self.check:
            return None
        return self._await_version(live)

    def _apply_catalog(self, observed: Observed) -> bool:
        """Create or update the CatalogSource of the image; returns whether it differed."""
        live = observed.catalog(self.options.source[0])
        if live is not None and not is_created_by_collection(live):
            if (live.get("spec") or {}).get("image") == self.options.catalog_image:
                return False
            raise OlmFailure(failures.foreign_catalog(self.options.source_namespace, live, self.options.catalog_image))
        change = self.client.apply("catalogs", catalog_body(self.options, live), live)
        if change is not None:
            self.applied = change
        return change is not None

    def _await_version(self, live: Object | None) -> CatalogVersion:
        """Return the version that the catalogs offer; waits for catalogs that are starting, and for the packages of catalogs that have just started."""
        timer = StateTimer()
        while True:
            observed = self.client.observed()
            choice = self._choose(observed, live)
            sources = self._sources(live) or tuple(name_of(catalog) for catalog in observed.catalogs)
            starting = [name for name in sources if self._is_starting(timer, observed.catalog(name))]
            is_first_starting = (
                self.applied is not None and not self.removed and catalog_state(observed.catalog(sources[0])) != READY
            )
            is_last = self.check or not self.wait or not starting or time.monotonic() >= self.deadline
            problem = self._catalog_problem(observed, live)
            if is_last and is_first_starting and not self.check:
                self._remove_catalog(observed.catalog(sources[0]))
            if isinstance(choice, CatalogVersion) and (is_last or not is_first_starting):
                return choice
            if is_last:
                raise OlmFailure(problem or t.cast("Problem", choice))
            self.progress.report(f"waiting for CatalogSource {', '.join(sources)}")
            self.client.follow()
            self.client.await_change(_PACKAGES_INTERVAL)

    def _is_starting(self, timer: StateTimer, catalog: Object | None) -> bool:
        """Whether to wait for a catalog because OLM is not connected to it yet, or because the package server has not read it yet."""
        if catalog is None:
            return False
        is_connected = catalog_state(catalog) == READY
        if is_connected:
            limit = _packages_timeout(catalog, time.time())
        else:
            limit = failures.catalog_unreachable(self.options.source_namespace, catalog).minimum_seconds
        return timer.seconds(name_of(catalog), is_connected) < limit

    def _remove_catalog(self, catalog: Object | None) -> None:
        """Delete the collection's CatalogSource, because a CatalogSource that is not connected blocks all Subscriptions that can see it."""
        if catalog is None or not is_created_by_collection(catalog):
            return
        name, namespace = name_of(catalog), self.options.source_namespace
        if self.client.delete("CatalogSource", name, str(catalog["metadata"]["uid"]), namespace):
            state = catalog_state(catalog) or "not connected"
            self.removed = f"CatalogSource {name}: it is {state}, and would block all Subscriptions that can see it"

    def _choose(self, observed: Observed, live: Object | None) -> CatalogVersion | Problem:
        return choose_version(
            self.client.packages(self.options.package),
            package=self.options.package,
            version=desired_version(observed, self.options, live),
            channel=self.options.channel,
            sources=self._sources(live),
            source_namespace=self.options.source_namespace,
            current_channel=str(((live or {}).get("spec") or {}).get("channel") or ""),
        )

    def _sources(self, live: Object | None) -> tuple[str, ...]:
        """The declared sources, starting with the one in use. If no source is declared, only the one in use."""
        current = str(((live or {}).get("spec") or {}).get("source") or "")
        declared = self.options.source[1:] if self.removed else self.options.source
        if not declared:
            return (current,) if current else ()
        return (current, *(name for name in declared if name != current)) if current in declared else declared

    def _catalog_problem(self, observed: Observed, live: Object | None) -> Problem | None:
        """The problem with the first CatalogSource that does not exist or is not connected; None if there is none."""
        for name in self._sources(live):
            catalog = observed.catalog(name)
            if catalog is None:
                return failures.catalog_missing(self.options.source_namespace, name)
            if catalog_state(catalog) != READY:
                return failures.catalog_unreachable(self.options.source_namespace, catalog)
        return None


def _packages_timeout(catalog: Object, now: float) -> float:
    """The seconds to wait until the package server has read a connected catalog; 0 if it was connected long enough ago."""
    connected = get_nested(catalog, "status", "connectionState", "lastConnect")
    try:
        moment = datetime.datetime.fromisoformat(str(connected)).timestamp()
    except ValueError:
        return 0.0
    return _PACKAGES_START if abs(now - moment) < _RECENT else 0.0
