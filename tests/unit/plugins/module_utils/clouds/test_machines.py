# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The messages about Machines that are not running."""

from __future__ import annotations

import datetime
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import MACHINESET_LABEL
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machineset_groups import machine_warnings
from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import (
    Refusals,
    machine_problems,
    node_of,
    not_started,
    phase_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import PowerOnFailure
from tests.helpers.machine_api import Object, machine, worker_machineset

SET = worker_machineset("train")
NOW = datetime.datetime(2026, 11, 24, 5, 20, tzinfo=datetime.UTC)
QUOTA = {"errorReason": "InsufficientResources", "errorMessage": "VcpuLimitExceeded: limit 0."}
DELETING = machine("train-d", SET)
DELETING["metadata"]["deletionTimestamp"] = "2026-11-24T05:19:00Z"
CONDITION = {
    "type": "MachineCreation",
    "status": "False",
    "reason": "MachineCreationFailed",
    "message": "no capacity in us-east-2a.",
}


@pytest.mark.parametrize(
    ("actual", "texts"),
    [
        (
            machine("train-a", SET, "Failed", **QUOTA),
            [
                "Machine train-a has failed (InsufficientResources: VcpuLimitExceeded: limit 0)",
                "raise the quota, or choose a different flavor or zone, then delete the Machine",
                "oc delete machine -n openshift-machine-api train-a",
            ],
        ),
        (
            machine("train-a", SET, "Failed", errorReason="InvalidConfiguration", errorMessage="no such AMI"),
            ["(InvalidConfiguration: no such AMI). The cloud rejects its providerSpec: correct the flavor"],
        ),
        (
            machine(
                "train-a", SET, "Failed", errorReason="InvalidConfiguration", errorMessage="vCPU limit of 0 exceeded"
            ),
            ["The cloud has no capacity or quota for it"],
        ),
        *(
            (
                machine("vdi-a", SET, "Failed", errorReason="InvalidConfiguration", errorMessage=message),
                [f"(InvalidConfiguration: {message}). {remedy}", "then delete the Machine"],
            )
            for message, remedy in (
                ("template not found, specify valid value", "The template is not in vCenter: run site"),
                ("multiple templates found, specify one in config", "Several virtual machines or templates in vCenter"),
                (
                    "Hardware lower than 15 is not supported, clone stopped",
                    "The template's hardware version is too old",
                ),
            )
        ),
        (machine("train-a", SET, "Failed"), ["has failed (no reason given). Fix the cause, then delete the Machine"]),
        (
            machine("train-a", SET, "Provisioning", providerStatus={"conditions": [CONDITION]}),
            [
                "Machine train-a is Provisioning, created 1200 s ago (MachineCreationFailed: no capacity in us-east-2a): the cloud has not created"
            ],
        ),
        (
            machine("train-a", SET, "Provisioned"),
            [
                "is Provisioned, created 1200 s ago: its virtual machine is running, but its node has not joined",
                "oc get csr",
            ],
        ),
        (machine("train-a", SET, ""), ["Machine train-a is not processed yet, created 1200 s ago"]),
        (DELETING, ["Machine train-d is being deleted, for 60 s so far"]),
    ],
)
def test_the_message_about_a_machine(actual: Object, texts: list[str]) -> None:
    (message,) = machine_problems([actual], NOW)
    assert [text for text in texts if text not in message] == [], message


def test_failed_machines_come_first_and_the_list_is_short() -> None:
    machines = [machine(f"train-{index}", SET, "Provisioning") for index in range(4)]
    problems = machine_problems([*machines, machine("train-x", SET, "Failed", **QUOTA), machine("fine", SET)], NOW)
    assert problems[0].startswith("Machine train-x has failed")
    assert problems[-1] == "Also not running: train-2, train-3"
    assert len(problems) == 4


def test_a_damaged_time_is_left_out() -> None:
    actual = machine("train-a", SET, "Provisioned")
    actual["metadata"]["creationTimestamp"] = None
    (message,) = machine_problems([actual], NOW)
    assert "created:" in message


def test_the_phase_and_the_node() -> None:
    assert (phase_of(DELETING), node_of(DELETING)) == ("Deleting", "train-d")
    assert (phase_of({"metadata": {}}), node_of({"metadata": {}})) == ("", None)


def cloned(phase: str, state: str | None, *, server: str | None = "vc.example.com", deleting: bool = False) -> Object:
    """A Machine on vSphere whose virtual machine has this power state."""
    status: Object = {} if state is None else {"providerStatus": {"instanceState": state}}
    result = machine("vdi-0", SET, phase, **status)
    result["spec"] = {"providerSpec": {"value": {"workspace": {} if server is None else {"server": server}}}}
    if deleting:
        result["metadata"]["deletionTimestamp"] = "2026-11-24T05:19:00Z"
    return result


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (cloned("Provisioning", "poweredOff"), {"vdi-0": "vc.example.com"}),
        # Without its vCenter, it is the one of the options.
        (cloned("Provisioning", "poweredOff", server=None), {"vdi-0": ""}),
        ({**cloned("Provisioning", "poweredOff"), "spec": {}}, {"vdi-0": ""}),
        # It is running, suspended, or not cloned yet.
        (cloned("Provisioning", "poweredOn"), {}),
        (cloned("Provisioning", "suspended"), {}),
        (cloned("Provisioning", ""), {}),
        (cloned("Provisioning", None), {}),
        # It was running before, or goes away.
        (cloned("Provisioned", "poweredOff"), {}),
        (cloned("Running", "poweredOff"), {}),
        (cloned("Failed", "poweredOff"), {}),
        (cloned("Provisioning", "poweredOff", deleting=True), {}),
        # The states of other clouds.
        (cloned("Provisioning", "stopped"), {}),
        ({"metadata": {"name": "vdi-0"}}, {}),
        ({"metadata": {"name": "vdi-0"}, "status": {"phase": "Provisioning", "providerStatus": "text"}}, {}),
    ],
)
def test_machines_that_vcenter_does_not_start(actual: Object, expected: dict[str, str]) -> None:
    assert not_started([actual, machine("other", SET)]) == expected


GRAPHICS = "The amount of graphics resource available in the parent resource pool is insufficient for the operation."


@pytest.mark.parametrize(
    ("answers", "lasting"),
    [
        # vCenter's answers about a machine: when it was refused, and whether something is in progress that may end that.
        ([("1", False)] * 2, False),
        ([("1", False)] * 3, True),
        ([("1", False), ("2", False), ("3", False)], True),
        ([("1", False), ("1", True), ("1", False), ("1", False)], False),
        ([("1", True)] * 5, False),
        ([("1", True), *[("1", False)] * 3], True),
    ],
)
def test_a_refused_start_lasts_if_vcenter_says_so_repeatedly(answers: list[tuple[str, bool]], lasting: bool) -> None:
    refusals = Refusals()
    for at, may_end in answers:
        refusals.keep({"vdi-0"})
        refusals.add(PowerOnFailure("vdi-0", GRAPHICS, at), may_end=may_end)
        refusals.add(PowerOnFailure("vdi-1", "The host is busy.", at), may_end=may_end)
    assert refusals.lasting() == ({"vdi-0"} if lasting else set())
    refusals.keep({})
    assert refusals.lasting() == set()


def test_each_reason_is_reported_once() -> None:
    refusals = Refusals()
    failures = [PowerOnFailure("vdi-0", GRAPHICS, "1"), PowerOnFailure("", "vCenter cannot be asked")] * 2
    failures.append(PowerOnFailure("vdi-0", GRAPHICS, "2"))
    assert [refusals.add(each, may_end=False) for each in failures] == [True, True, False, False, True]


# Warnings about machines that vCenter does not start.


FORBIDDEN = 'machines.machine.openshift.io is forbidden: User "u" cannot list resource "machines" in API group "machine.openshift.io"'


class Machines:
    """A client that knows the Machines of one namespace."""

    def __init__(self, items: list[dict[str, t.Any]] | ApiError) -> None:
        self.items, self.paths = items, list[str]()

    def list_known(self, path: str) -> list[dict[str, t.Any]]:
        self.paths.append(path)
        if isinstance(self.items, ApiError):
            raise self.items
        return self.items


def vsphere_machine(
    name: str, machineset: str, state: str = "poweredOff", phase: str = "Provisioning"
) -> dict[str, t.Any]:
    return {
        "metadata": {"name": name, "namespace": "machines", "labels": {MACHINESET_LABEL: machineset}},
        "spec": {"providerSpec": {"value": {"workspace": {"server": "vc"}}}},
        "status": {"phase": phase, "providerStatus": {"instanceState": state}},
    }


def planned(**cloud: t.Any) -> t.Any:
    pool = {"name": "vdi", "nodes": {"count": 2}, "vgpu": {"profile": "grid_a100-10c"}}
    return derive({"name": "prod", "cloud": {"machineset": {"namespace": "machines", **cloud}}}, None, [pool])


@pytest.mark.parametrize(
    ("items", "asked"),
    [
        ([vsphere_machine("vdi-1", "vdi")], {"vdi-1": "vc"}),
        # Running machines, and those of others.
        ([vsphere_machine("vdi-1", "vdi", "poweredOn", "Running"), vsphere_machine("other-1", "other")], None),
        ([], None),
        # A user who may not list Machines still gets a report.
        (ApiError(FORBIDDEN, status=403, reason="Forbidden"), None),
    ],
)
def test_a_report_says_why_machines_of_pools_do_not_start(
    items: list[dict[str, t.Any]] | ApiError, asked: dict[str, str] | None
) -> None:
    client, questions = Machines(items), list[t.Any]()

    def start_failures(machines: t.Mapping[str, str]) -> list[PowerOnFailure]:
        questions.append(dict(machines))
        return [PowerOnFailure("", "No GPU is left.")]

    texts = machine_warnings(t.cast("t.Any", client), planned(), start_failures)
    assert questions == ([asked] if asked else [])
    assert bool(texts) == bool(asked)
    if asked:
        assert "Machine vdi-1 is Provisioning" in texts[0]
        assert texts[-1] == "No GPU is left."
    assert client.paths == ["/apis/machine.openshift.io/v1beta1/namespaces/machines/machines"]


def test_a_report_without_vcenter_reads_no_machines() -> None:
    client = Machines([])
    plan = derive(
        {"name": "prod", "cloud": {"machineset": {}}}, None, [{"name": "t4", "nodes": {"flavor": "x", "count": 1}}]
    )
    assert machine_warnings(t.cast("t.Any", client), plan, lambda machines: []) == []
    assert client.paths == []
