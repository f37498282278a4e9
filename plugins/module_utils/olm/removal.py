# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes an operator that OLM has installed: its Subscription and ClusterServiceVersions. CRDs, custom resources and the OperatorGroup are kept."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field

from ..common.nested import get_nested
from ..common.results import diff_of
from ..kube.metadata import is_deleting, name_of
from .client import OlmClient
from .failures import not_removed, other_package
from .observed import Object, Observed, csv_phase
from .options import OlmOptions
from .problem import OlmFailure, Problem

if t.TYPE_CHECKING:
    from ..common.progress import Progress

_TICK = 5.0


@dataclass
class OlmRemoval:
    """Removes one operator. `deleted` contains the objects that were deleted or, in check mode, would be deleted.

    confirm: called with the labels of the objects before they are deleted; raises an error if they must not be deleted.
    """

    client: OlmClient
    options: OlmOptions
    timeout: float
    wait: bool
    progress: Progress
    check: bool = False
    deleted: list[tuple[str, Object]] = field(default_factory=list)
    problem: Problem | None = None
    confirm: t.Callable[[t.Sequence[str]], None] = lambda labels: None

    def run(self) -> Object:
        """Delete the objects and return the result; failures contain the result so far."""
        deadline = time.monotonic() + self.timeout
        try:
            observed = self.client.read()
            removed = objects_to_remove(observed, self.options)
            labels = [
                f"{kind} {self.options.namespace}/{name_of(item)}" for kind, item in removed if not is_deleting(item)
            ]
            if labels:
                self.confirm(labels)
            for kind, item in removed:
                # The Subscription is deleted first, so that OLM does not replace its ClusterServiceVersion.
                if not is_deleting(item) and self.client.delete(kind, name_of(item), str(item["metadata"]["uid"])):
                    self.deleted.append((kind, item))
            if self.wait and not self.check:
                self._await(deadline)
        except OlmFailure as error:
            self.problem = error.problem
            error.partial = self.result()
            raise
        finally:
            self.client.close()
        return self.result()

    def _await(self, deadline: float) -> None:
        while True:
            remaining = [
                item for kind, item in objects_to_remove(self.client.observed(), self.options) if kind != "Subscription"
            ]
            if not remaining:
                return
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise OlmFailure(not_removed(self.options.namespace, remaining[0], self.timeout))
            self.client.follow()
            self.progress.report(
                f"OLM removes ClusterServiceVersion {name_of(remaining[0])} ({csv_phase(remaining[0])[0]})"
            )
            self.client.await_change(min(seconds, _TICK))

    def result(self) -> Object:
        """The result of the module."""
        content: Object = {
            "name": self.options.name or self.options.package,
            "namespace": self.options.namespace,
            "package": self.options.package,
            "csv": "",
            "phase": "",
            "installed": False,
            "removed": [f"{kind} {name_of(item)}" for kind, item in self.deleted],
        }
        if self.problem is not None:
            content["problem"] = self.problem.as_dict()
        diffs = [
            diff_of(
                {"name": name_of(item)}, {}, f"{kind} {self.options.namespace}/{name_of(item)}", self.client.unchecked
            )
            for kind, item in self.deleted
        ]
        return {"changed": bool(self.deleted), "olm_subscription": content, "diff": diffs}


def objects_to_remove(observed: Observed, options: OlmOptions) -> list[tuple[str, Object]]:
    """The Subscription of the package and all ClusterServiceVersions of the package, in the order of their removal."""
    live = observed.subscription(options.package, options.name)
    if live is not None and get_nested(live, "spec", "name") != options.package:
        raise OlmFailure(other_package(observed.namespace, live, options.package))
    removed = [("Subscription", live)] if live is not None else []
    return [*removed, *(("ClusterServiceVersion", csv) for csv in observed.package_csvs(options.package))]
