# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Installs and removes an operator with OLM, and waits for it."""

from __future__ import annotations

import time
import typing as t
from dataclasses import dataclass, field, replace

from ..catalog.openshift import V1ALPHA1
from ..core.messages import diff_of
from ..core.values import Object, get_nested
from ..core.waits import StateTimer, WaitTimeout
from ..helm.preparation import diagnose_pods, format_failure
from ..kube.errors import ApiError, retry_conflicts
from ..kube.fields import is_created_by_collection, is_deleting, name_of
from ..kube.objects import ExpectedObjects, InvalidObjects
from .assessment import (
    Assessment,
    DesiredVersion,
    assess,
    deployment_not_ready,
    never_processed,
    not_removed,
    other_package,
    subscription_warnings,
    unpack_timeout,
)
from .installation import (
    CatalogChoice,
    InstallationPlan,
    OlmOptions,
    Repair,
    existing_subscription,
    is_resolution_prevented,
    looks_for_deleted_plan,
    plan_installation,
    previous_csv,
    references_deleted_plan,
)
from .observed import (
    COMPLETE,
    FAILED,
    SHORT,
    Observed,
    OlmFailure,
    Problem,
    csv_phase,
    installed_csv,
    plan_csvs,
    plan_phase,
)

if t.TYPE_CHECKING:
    from ..core.waits import Progress
    from .client import AppliedObject, OlmClient

# Removes an operator that OLM has installed: its Subscription and ClusterServiceVersions. CRDs, custom resources and the OperatorGroup are kept.

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


# Installs an operator through OLM: applies the changes, approves the required InstallPlans, and waits until the ClusterServiceVersion is stable.

# The maximum number of seconds to wait for an event, so that a lost lease is noticed.
# The maximum number of resets. OLM may write the reference to an InstallPlan again from its cache; if this happens repeatedly, it is a problem.
_MAX_RESETS = 3
# The time limit in seconds for deletions by OLM and by the garbage collector.
_DELETION = 60.0


@dataclass
class OlmRun:
    """Installs one operator. The attributes after `check` contain the result so far."""

    client: OlmClient
    options: OlmOptions
    timeout: float
    wait: bool
    progress: Progress
    expected: ExpectedObjects
    check: bool = False
    applied: dict[str, AppliedObject] = field(default_factory=dict)
    repaired: list[str] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)
    plan: InstallationPlan | None = None
    done: Assessment | None = None
    problem: Problem | None = None
    # Whether, in check mode, a run would approve an InstallPlan that OLM has not created yet.
    predicted: bool = False
    _before: str = ""
    _resolved_again: bool = False
    _resets: int = 0

    def __post_init__(self) -> None:
        """Start the time limit; no request is sent yet."""
        self._deadline = time.monotonic() + self.timeout
        self._catalogs = CatalogChoice(
            self.client, self.options, self.progress, deadline=self._deadline, wait=self.wait, check=self.check
        )

    def run(self) -> Object:
        """Install the operator and return the result; failures contain the result so far."""
        try:
            observed = self.client.read()
            self._require_cluster()
            live = existing_subscription(observed, self.options)
            self._before = _installed_name(observed, live)
            self.plan = self._planned(observed)
            if not self.check and self._differs(self.plan):
                # Another run may have changed objects before this run acquired the lease.
                self.client.take_lease()
                observed = self.client.read()
                self.plan = self._planned(observed)
            self._send()
            if self.plan.desired is not None:
                self._await(self.plan.desired)
        except (OlmFailure, WaitTimeout, ApiError) as error:
            if isinstance(error, OlmFailure):
                self.problem = error.problem
            error.partial = self.result()
            raise
        finally:
            self.client.close()
        return self.result()

    def _require_cluster(self) -> None:
        """Raise InvalidObjects if OLM or the namespace is missing and this run does not create it."""
        problems = []
        if not self.client.has_olm() and (V1ALPHA1, "Subscription") not in self.expected.kinds:
            problems.append(
                f"The cluster has no API {V1ALPHA1}, so the Operator Lifecycle Manager is not installed. Use OpenShift, or install "
                "the operator with Helm."
            )
        namespace = self.options.namespace
        if not self.client.has_namespace() and namespace not in self.expected.namespaces:
            problems.append(
                f"Namespace {namespace!r} does not exist, and no step of this run creates it. Create it, or list it in the option expected."
            )
        if problems:
            raise InvalidObjects(problems)

    def _planned(self, observed: Observed) -> InstallationPlan:
        live = existing_subscription(observed, self.options)
        try:
            available = self._catalogs.find_version(observed, live)
        finally:
            if self._catalogs.removed:
                self._note_repair(self._catalogs.removed)
        if self._catalogs.applied is not None and not self._catalogs.removed:
            self.applied["catalog"] = self._catalogs.applied
        return plan_installation(observed, self.options, live, available)

    def _differs(self, plan: InstallationPlan) -> bool:
        return bool(plan.group or plan.repairs or self.client.differs(plan.subscription, plan.live))

    def _send(self) -> None:
        """Send the changes. After a conflict with OLM's own changes, read the objects and plan the changes again."""

        def plan_again() -> InstallationPlan:
            self.plan = self._planned(self.client.read())
            return self.plan

        retry_conflicts(
            self._send_once,
            t.cast("InstallationPlan", self.plan),
            plan_again,
            # "Apply failed" means that another manager owns a field; trying again does not help.
            lambda error: error.conflict and "Apply failed" not in error.message,
        )

    def _send_once(self, plan: InstallationPlan) -> None:
        if plan.group is not None:
            self._keep("group", self.client.apply("groups", plan.group, None))
        for repair in (item for item in plan.repairs if item.kind == "ClusterServiceVersion"):
            self._delete(repair.kind, repair.item, str(repair))
        self._await_deletions(plan)
        self._keep("subscription", self.client.apply("subscriptions", plan.subscription, plan.live))
        for repair in (item for item in plan.repairs if item.kind == "Subscription"):
            self.progress.report(f"repairing: {repair}")
            if self.client.reset(repair.item, repair.previous):
                self._note_repair(str(repair))

    def _await_deletions(self, plan: InstallationPlan) -> None:
        """Wait until the deleted ClusterServiceVersions and the InstallPlans of a deleted Subscription are gone.

        Otherwise, OLM mistakes a ClusterServiceVersion that is being deleted for the one that it must create, and an old InstallPlan for the new one.
        """
        limit = min(self._deadline, time.monotonic() + _DELETION)
        deleted = {(item.name, item.item["metadata"].get("uid")) for item in plan.repairs}
        while not self.check:
            observed = self.client.observed()
            remaining = [csv for csv in observed.csvs if (name_of(csv), csv["metadata"].get("uid")) in deleted]
            orphans = observed.orphaned_plans() if plan.live is None else ()
            seconds = limit - time.monotonic()
            if not remaining and (not orphans or seconds <= 0):
                return
            if seconds <= 0:
                raise OlmFailure(not_removed(self.options.namespace, remaining[0], _DELETION))
            self.progress.report(f"waiting for the deletion of {', '.join(map(name_of, [*remaining, *orphans]))}")
            self.client.follow()
            self.client.await_change(min(_TICK, seconds))

    def _keep(self, key: str, change: AppliedObject | None) -> None:
        if change is not None:
            self.applied[key] = change

    def _delete(self, kind: str, item: Object, text: str) -> None:
        self.progress.report(f"repairing: {text}")
        if self.client.delete(kind, name_of(item), str(item["metadata"]["uid"])):
            self._note_repair(text)

    def _note_repair(self, text: str) -> None:
        if text not in self.repaired:
            self.repaired.append(text)

    def _await(self, desired: DesiredVersion) -> None:
        """Approve the required InstallPlans, and wait until the ClusterServiceVersion is stable."""
        timer = StateTimer()
        while True:
            observed = self.client.observed()
            step = assess(observed, desired)
            if step.done:
                self.done = step
                return
            if step.approve or step.discard:
                desired, sent = self._decide(observed, desired, step)
                if sent and not self.check:
                    continue
            if self.check:
                self._resolve_again(observed, desired)
                self._require_no_final(step)
                self.predicted = not desired.automatic and not _is_approved(observed, desired.csv)
                return
            self._continue_resolution(timer, observed, desired)
            left_of_problem = self._seconds_left(timer, observed, step)
            seconds_left = self._deadline - time.monotonic()
            # The approval is part of the change, not of the wait, because nothing would be installed without it.
            if not self.wait and (desired.automatic or _is_approved(observed, desired.csv)):
                return
            if seconds_left <= 0:
                raise self._timeout(observed, desired, step)
            self.progress.report(step.text)
            # The watches start from the last lists, and only if these did not already show a stable version.
            self.client.follow()
            self.client.await_change(min(seconds_left, left_of_problem, _TICK))

    def _decide(self, observed: Observed, desired: DesiredVersion, step: Assessment) -> tuple[DesiredVersion, bool]:
        plan = next(item for item in observed.plans if name_of(item) in (step.approve, step.discard))
        if step.discard:
            self._delete("InstallPlan", plan, f"InstallPlan {name_of(plan)}: it is for {', '.join(plan_csvs(plan))}")
            return replace(desired, discarded=True), False
        sent = self.client.approve(plan)
        if sent:
            self.approved += [name for name in plan_csvs(plan) if name not in self.approved]
            self.progress.report(f"approved InstallPlan {name_of(plan)} for {', '.join(plan_csvs(plan))}")
        return desired, sent

    def _continue_resolution(self, timer: StateTimer, observed: Observed, desired: DesiredVersion) -> None:
        """Make OLM repeat a resolution that it does not retry because a catalog could not be read, or because an InstallPlan was deleted or had failed.

        Even after this run has removed the reference to a deleted or failed plan, OLM may write the reference again from its cache.
        """
        self._resolve_again(observed, desired)
        live = observed.subscription(desired.package, desired.subscription)
        if live is None or not _needs_reset(observed, desired, live):
            timer.forget("stale plan")
        elif self._resets < _MAX_RESETS and timer.seconds("stale plan", True) >= SHORT:
            timer.forget("stale plan")
            self._resets += 1
            plan = observed.plan_of(live)
            previous = previous_csv(observed, desired.package, plan_csvs(plan)) if plan is not None else ""
            if self.client.reset(live, previous):
                reason = (
                    f"InstallPlan {name_of(plan)} has failed" if plan else "OLM needs an InstallPlan that was deleted"
                )
                planned = [item for item in (self.plan.repairs if self.plan else ()) if item.kind == "Subscription"]
                # A repeated reset is reported as the planned repair.
                self._note_repair(str(next(iter(planned), Repair("Subscription", live, reason))))

    def _resolve_again(self, observed: Observed, desired: DesiredVersion) -> None:
        """Make OLM resolve the Subscription again after OLM could not read a catalog. This is done only once, so that a catalog that still cannot be read is
        reported.
        """
        live = observed.subscription(desired.package, desired.subscription)
        if live is None or self._resolved_again or not is_resolution_prevented(live):
            return
        self._resolved_again = self.client.resolve_again(live)
        if self._resolved_again:
            reason = "OLM could not read a catalog, and does not try again"
            self._note_repair(str(Repair("Subscription", live, reason)))

    @staticmethod
    def _require_no_final(step: Assessment) -> None:
        """In check mode, raise OlmFailure for a problem that a run would report immediately."""
        if step.problem is not None and step.problem.minimum_seconds == 0:
            raise OlmFailure(step.problem)

    @staticmethod
    def _seconds_left(timer: StateTimer, observed: Observed, step: Assessment) -> float:
        """The seconds until a problem is reported; raises OlmFailure if the problem has lasted long enough. Any progress restarts this time."""
        if step.problem is None:
            timer.forget("problem")
            return _TICK
        lasting = timer.seconds("problem", (step.problem.code, step.problem.subject, _progress_key(observed)))
        seconds = step.problem.minimum_seconds - lasting
        if seconds <= 0:
            raise OlmFailure(step.problem)
        return seconds

    def _timeout(self, observed: Observed, desired: DesiredVersion, step: Assessment) -> OlmFailure | WaitTimeout:
        if step.problem is not None:
            return OlmFailure(step.problem)
        subscription = f"Subscription {self.options.namespace}/{desired.subscription}"
        if step.unpacking:
            return OlmFailure(unpack_timeout(subscription, self.timeout))
        waiting = [item for name in step.unready if (item := observed.deployment(name)) is not None]
        if waiting:
            selectors = [_selector(item) for item in waiting]
            pods = diagnose_pods(self.client.client, self.options.namespace, selectors)
            return OlmFailure(deployment_not_ready(waiting[0], [format_failure(item) for item in pods], self.timeout))
        return WaitTimeout(
            f"Not done within {self.timeout:.0f} s (wait_timeout). {step.text}. {never_processed(subscription)}"
        )

    @property
    def changed(self) -> bool:
        """Whether the run has sent a change, or would send one."""
        return bool(self.applied or self.repaired or self.approved or self.predicted)

    def result(self) -> Object:
        """The result of the module."""
        observed = self.client.observed()
        desired = self.plan.desired if self.plan else None
        csv_name = (self.done.csv if self.done else "") or (desired.csv if desired else "")
        csv = observed.csv(csv_name) if csv_name else None
        live = observed.subscription(self.options.package, desired.subscription if desired else self.options.name)
        shown = live or (self.plan.subscription if self.plan else {})
        spec = shown.get("spec") or {}
        content: Object = {
            "name": shown.get("metadata", {}).get("name") or self.options.name or self.options.package,
            "namespace": self.options.namespace,
            "package": self.options.package,
            "channel": (self.plan.channel if self.plan else "") or spec.get("channel") or "",
            "source": (self.plan.source if self.plan else "") or spec.get("source") or "",
            "csv": csv_name,
            "version": str(desired.version) if desired and desired.version else "",
            "phase": csv_phase(csv)[0],
            "installed": self.done is not None,
            "created": live is not None and is_created_by_collection(live),
            "approved": sorted(self.approved),
            "repaired": list(self.repaired),
            # OLM updates these conditions a few seconds after a change; until then, they describe the previous version.
            "warnings": [] if self.changed else subscription_warnings(live),
            "after_discovery": list(self.plan.after_discovery) if self.plan else [],
        }
        if self.problem is not None:
            content["problem"] = self.problem.as_dict()
        return {"changed": self.changed, "olm_subscription": content, "diff": self._diff(csv_name)}

    def _diff(self, csv_name: str) -> list[Object]:
        diffs = [
            diff_of(change.before, change.after, change.label, change.unchecked) for change in self.applied.values()
        ]
        diffs += [diff_of({"exists": text}, {}, "repaired", self.client.unchecked) for text in self.repaired]
        if self.changed:
            diffs.append(
                diff_of(
                    {"csv": self._before} if self._before else {},
                    {"csv": csv_name} if csv_name else {},
                    "ClusterServiceVersion",
                    self.client.unchecked,
                )
            )
        return diffs


def _installed_name(observed: Observed, live: Object | None) -> str:
    name = installed_csv(live)
    return name if observed.csv(name) is not None else ""


def _is_approved(observed: Observed, csv: str) -> bool:
    # OLM does not execute failed plans again, nor complete plans whose ClusterServiceVersion was deleted.
    ended = {FAILED} if observed.csv(csv) is not None else {FAILED, COMPLETE}
    plans = [plan for plan in observed.plans if plan_phase(plan) not in ended]
    return any(csv in plan_csvs(plan) and plan["spec"].get("approved") is True for plan in plans)


def _needs_reset(observed: Observed, desired: DesiredVersion, live: Object) -> bool:
    """Whether the Subscription must be reset because OLM waits for an InstallPlan that was deleted, or that had failed before the run."""
    plan = observed.plan_of(live)
    if plan is not None:
        return desired.failed_before(plan)
    return looks_for_deleted_plan(live) or references_deleted_plan(observed, live)


def _selector(deployment: Object) -> str:
    labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _progress_key(observed: Observed) -> tuple[tuple[str, str], ...]:
    """A value that changes whenever OLM makes progress: the phases of all ClusterServiceVersions and InstallPlans."""
    return (
        *((name_of(csv), csv_phase(csv)[0]) for csv in observed.csvs),
        *((name_of(plan), plan_phase(plan)) for plan in observed.plans),
    )
