# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements a run: compares the autoscaler's objects with the pools, writes the changes, and waits for the operator."""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t

from ..common.errors import InvalidOptions
from ..common.results import diff_of
from ..common.wait import WaitOptions, WaitTimeout
from ..kube.conflict_retry import retry_conflicts
from ..kube.errors import ApiError
from .client import AutoscalingClient
from .objects import AutoscalerChange, bounds_of
from .scaling_changes import ClusterObjects, ScalingChanges, ScalingOptions, plan_scaling_changes

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import Plan

Object = dict[str, t.Any]
_TITLE = "The pools cannot be scaled:"


class AutoscalingRun:
    """The state of one run; `client` is None if the cluster has no node groups that this autoscaler scales."""

    def __init__(
        self, client: Client | None, plan: Plan, options: ScalingOptions, predicted: t.Mapping[str, t.Any]
    ) -> None:
        """Store the arguments; no request is sent yet."""
        self._cluster = AutoscalingClient(client, plan) if client is not None else None
        self._plan, self._options, self._predicted = plan, options, predicted
        self._found = ClusterObjects()
        self._written: dict[str, AutoscalerChange] = {}
        self._unchecked: str | None = None
        self.planned = ScalingChanges()

    def compare(self) -> None:
        """Read the objects and plan the changes; raises InvalidOptions with all problems."""
        self._check_names()
        if self._cluster is None:
            return
        self._found = self._cluster.read()
        self.planned = plan_scaling_changes(self._plan, self._found, self._options, self._predicted)
        if self.planned.problems:
            raise InvalidOptions(self.planned.problems, _TITLE)

    def deleted(self) -> list[str]:
        """The objects that the planned changes delete."""
        return [change.label for change in self._changes() if change.action == "deleted"]

    def _check_names(self) -> None:
        known = [pool.name for pool in self._plan.pools if pool.nodegroup]
        unknown = sorted(self._options.pool_names - {*known})
        if unknown:
            listed, verb = ", ".join(known) or "none", "is not the name" if len(unknown) == 1 else "are not names"
            raise InvalidOptions(
                [f"pool_names: {', '.join(unknown)} {verb} of a declared pool with nodes. Pools with nodes: {listed}"]
            )

    def preview(self) -> None:
        """Let the server check the changes with dry runs."""
        changes = self._changes()
        self._written.update({change.label: change for change in changes})
        with self._result_in_errors():
            for change in changes:
                self._unchecked = self._send(change, check=True) or self._unchecked

    def apply(self, lease: Lease) -> None:
        """Plan the changes again from the current state of the cluster, and write them; after a conflict, both steps are repeated."""

        def send_all(changes: list[AutoscalerChange]) -> None:
            # The server checks all changes, for example with an admission policy, before the first change is written.
            if len(changes) > 1:
                for change in changes:
                    self._send(change, check=True)
            for change in changes:
                lease.check()
                self._send(change, check=False)
                first = self._written.get(change.label, change)
                self._written[change.label] = dataclasses.replace(change, live=first.live)

        with self._result_in_errors():
            retry_conflicts(send_all, self._compared(), self._compared)

    @contextlib.contextmanager
    def _result_in_errors(self) -> t.Iterator[None]:
        """Add the result so far to errors of the API server."""
        try:
            yield
        except ApiError as error:
            error.partial = {**error.partial, **self.result()}
            raise

    def _compared(self) -> list[AutoscalerChange]:
        self.compare()
        return self._changes()

    def await_bounds(self, waiting: WaitOptions) -> None:
        """Wait until the operator has written the bounds; if nothing was changed, the MachineSets that were already read are checked first."""
        if self._cluster is None:
            return
        try:
            self._cluster.await_bounds(self.planned, waiting, None if self._written else self._found.machine_sets)
        except WaitTimeout as error:
            error.partial = {**error.partial, **self.result()}
            raise

    def _changes(self) -> list[AutoscalerChange]:
        return [change for change in self.planned.changes if change.changed]

    def _send(self, change: AutoscalerChange, *, check: bool) -> str | None:
        return self._cluster.send(change, check=check) if self._cluster is not None else None

    def result(self) -> dict[str, t.Any]:
        """The module's result."""
        written = list(self._written.values())
        actions = {change.label: change.action for change in self.planned.changes}
        actions |= {change.label: change.action for change in written}
        pools = {target.name: target.pool.name for target in self.planned.targets}
        return {
            "changed": bool(written),
            "autoscaling": {
                "objects": actions,
                "machine_sets": {
                    name: {
                        "pool": pools.get(name, ""),
                        "min": bounds_of(scaler)[0],
                        "max": bounds_of(scaler)[1],
                        "machine_autoscaler": scaler["metadata"]["name"],
                    }
                    for name, scaler in sorted(self.planned.scaled.items())
                },
                "limits": self.planned.limits,
                "undeclared": self.planned.undeclared,
                "unmanaged": self.planned.unmanaged,
                **({"unchecked": self._unchecked} if self._unchecked else {}),
            },
            "diff": diff_of(
                {change.label: change.before for change in written if change.before},
                {change.label: change.after for change in written if change.after},
                "autoscaling",
            ),
        }
