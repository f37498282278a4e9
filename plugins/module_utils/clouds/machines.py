# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of a MachineSet: their phases and nodes, and why one of them has failed or does not start, with the remedy (pure)."""

from __future__ import annotations

import datetime
import re
import typing as t

from ..core.messages import abbreviate
from ..core.values import get_nested
from ..kube.fields import is_deleting, name_of

if t.TYPE_CHECKING:
    from ..vsphere.client import PowerOnFailure

Machine = t.Mapping[str, t.Any]

# Phases of a Machine (openshift/api machine/v1beta1/types_machine.go). A failed Machine stays failed until it is deleted.
RUNNING, FAILED, PROVISIONED, DELETING = "Running", "Failed", "Provisioned", "Deleting"
_CAPACITY_REMEDY = "The cloud has no capacity or quota for it: raise the quota, or choose a different flavor or zone"
# AWS reports an exceeded quota as an invalid configuration (machine-api-provider-aws pkg/actuators/machine/instances.go).
_CAPACITY = re.compile(r"quota|limit|capacity", re.IGNORECASE)
# The remedies, by the reason why a Machine has failed (MachineStatusError in the same package).
_REMEDIES = {
    "InsufficientResources": _CAPACITY_REMEDY,
    "InvalidConfiguration": "The cloud rejects its providerSpec: correct the flavor, the template or provider_spec",
}
# The remedies for messages of the controller for vSphere (machine-api-operator, pkg/controller/vsphere: reconciler.go, session/session.go).
_VSPHERE_REMEDIES = (
    (
        "template not found",
        "The template is not in vCenter: run site, which builds the templates of pools with vgpu, or correct the template",
    ),
    (
        "multiple templates found",
        "Several virtual machines or templates in vCenter have this name: set the whole inventory path of the template (run site for pools with vgpu)",
    ),
    (
        "hardware lower than",
        "The template's hardware version is too old: run site for pools with vgpu; otherwise set a template of a newer RHCOS release, or upgrade it in vCenter",
    ),
)
_OTHER_REMEDY = "Fix the cause"
_SHOWN = 3


def phase_of(machine: Machine) -> str:
    """The phase of a Machine, which is empty until the controller has processed the Machine."""
    if is_deleting(machine):
        return DELETING
    return str(get_nested(machine, "status", "phase") or "")


def node_of(machine: Machine) -> str | None:
    """The name of the Machine's node, or None if the Machine has no node yet."""
    return t.cast("str | None", get_nested(machine, "status", "nodeRef", "name"))


def not_started(machines: t.Iterable[Machine]) -> dict[str, str]:
    """The Machines whose virtual machines exist on vSphere but are not running, and their vCenters.

    OpenShift's controller tries once to start a virtual machine, and then reports success (machine-api-operator, pkg/controller/vsphere/reconciler.go, create:
    once the power-on is the latest task, nothing sends another one).
    """
    return {
        name_of(machine): str(get_nested(machine, "spec", "providerSpec", "value", "workspace", "server") or "")
        for machine in machines
        if phase_of(machine) == "Provisioning"
        and get_nested(machine, "status", "providerStatus", "instanceState") == "poweredOff"
    }


# A Machine counts as failed after vCenter was asked this number of times, and has each time named a refusal that does not end by itself. In between, the
# machine controller examines the Machine every 30 seconds.
_MAX_REFUSALS = 3


class Refusals:
    """Counts, for each Machine that is not started, how often in succession vCenter has answered that it refuses the start."""

    def __init__(self) -> None:
        """Start without any refusals."""
        self._newest: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def keep(self, machines: t.Collection[str]) -> None:
        """Forget all other Machines, because they have started or are gone."""
        for name in self._newest.keys() - {*machines, ""}:
            del self._newest[name], self._counts[name]

    def add(self, failure: PowerOnFailure, *, may_end: bool) -> bool:
        """Count an answer, and return whether it is new. may_end: whether something is in progress that may end the refusal."""
        name, newest = failure.name, f"{failure.at} {failure.reason}"
        is_new = self._newest.get(name) != newest
        self._newest[name] = newest
        self._counts[name] = self._counts.get(name, 0) + 1 if failure.lasts and not may_end else 0
        return is_new

    def lasting(self) -> set[str]:
        """The Machines that will not start by themselves."""
        return {name for name, count in self._counts.items() if count >= _MAX_REFUSALS}


def machine_problems(machines: t.Iterable[Machine], now: datetime.datetime) -> list[str]:
    """Messages about the Machines that are not running.

    Each of the first messages contains the phase, the age, the reason and the remedy for one Machine. If there are more Machines, the last message
    lists their names.
    """
    stuck = [machine for machine in machines if phase_of(machine) != RUNNING]
    stuck.sort(key=lambda machine: (phase_of(machine) != FAILED, name_of(machine)))
    texts = [_problem(machine, now) for machine in stuck[:_SHOWN]]
    more = [name_of(machine) for machine in stuck[_SHOWN:]]
    return [*texts, *([f"Also not running: {abbreviate(more)}"] if more else [])]


def _problem(machine: Machine, now: datetime.datetime) -> str:
    phase, name = phase_of(machine), name_of(machine)
    namespace = machine["metadata"].get("namespace")
    age = _age(machine["metadata"].get("deletionTimestamp") or machine["metadata"].get("creationTimestamp"), now)
    since = f", for {age:.0f} s so far" if age is not None else ""
    delete = f"oc delete machine -n {namespace} {name}"
    if phase == FAILED:
        reason, message = (str(get_nested(machine, "status", f"error{part}") or "") for part in ("Reason", "Message"))
        remedy = _CAPACITY_REMEDY if _CAPACITY.search(message) else _REMEDIES.get(reason, _OTHER_REMEDY)
        remedy = next((text for words, text in _VSPHERE_REMEDIES if words in message.lower()), remedy)
        cause = ": ".join(text for text in (reason, message.rstrip(".")) if text) or "no reason given"
        return f"Machine {name} has failed ({cause}). {remedy}, then delete the Machine, so that its MachineSet creates a new one: {delete}"
    conditions = [*_conditions(machine, "status"), *_conditions(machine, "status", "providerStatus")]
    details = "; ".join(dict.fromkeys(conditions))
    shown = f" ({details})" if details else ""
    if phase == DELETING:
        hooks = "its node must be drained and its virtual machine deleted first"
        return f"Machine {name} is being deleted{since}{shown}: {hooks}. See oc describe machine -n {namespace} {name}"
    if phase == PROVISIONED:
        return (
            f"Machine {name} is Provisioned, created{since and f' {age:.0f} s ago'}{shown}: its virtual machine is running, but its node has "
            "not joined. Check its console and the pending certificate requests: oc get csr"
        )
    if not_started([machine]):
        return (
            f"Machine {name} is {phase}, created{since and f' {age:.0f} s ago'}{shown}: its virtual machine exists but is not started, and its controller "
            f"does not report why. vCenter shows the reason in the events of virtual machine {name}. The controller does not try again; after fixing the "
            f"cause, {delete}"
        )
    return (
        f"Machine {name} is {phase or 'not processed yet'}, created{since and f' {age:.0f} s ago'}{shown}: the cloud has not created its "
        f"virtual machine. See oc describe machine -n {namespace} {name}; after fixing the cause, {delete}"
    )


def _conditions(machine: Machine, *path: str) -> t.Iterator[str]:
    """Yields the reason and the message of each condition that is not met."""
    for condition in get_nested(machine, *path, "conditions") or []:
        if condition.get("status") == "False" and (condition.get("message") or condition.get("reason")):
            texts = (str(condition.get(key) or "").rstrip(".") for key in ("reason", "message"))
            yield ": ".join(text for text in texts if text)


def _age(timestamp: t.Any, now: datetime.datetime) -> float | None:
    try:
        return max(0.0, (now - datetime.datetime.fromisoformat(str(timestamp))).total_seconds())
    except (ValueError, TypeError):
        return None
