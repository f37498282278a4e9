# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a node group from its MachineSet and Machines."""

from __future__ import annotations

import copy
import datetime
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import controller_size, machines_of, state_of
from tests.helpers.machine_api import Object, machine, worker_machineset

NOW = datetime.datetime(2026, 11, 24, 5, 20, tzinfo=datetime.UTC)


def group(replicas: int = 2, **metadata: t.Any) -> Object:
    machineset = worker_machineset("train")
    machineset["spec"]["replicas"] = replicas
    machineset["metadata"].update(metadata)
    return machineset


SET = group()
RUNNING = [machine("train-a", SET), machine("train-b", SET)]
LEAVING = copy.deepcopy(RUNNING[1])
LEAVING["metadata"]["deletionTimestamp"] = "2026-11-24T05:19:00Z"
FAILED = machine("train-c", SET, "Failed", errorReason="InsufficientResources")
STARTING = machine("train-c", SET, "Provisioning")
OTHER_TYPE = copy.deepcopy(STARTING)
OTHER_TYPE["spec"]["providerSpec"]["value"]["instanceType"] = "g4dn.xlarge"
REPLACED: dict[str, t.Any] = {"replaced": True, "declared": {"flavor"}}


@pytest.mark.parametrize(
    ("machineset", "machines", "options", "status", "settled", "failed"),
    [
        (SET, RUNNING, {}, "READY", True, False),
        (SET, RUNNING[:1], {}, "SCALING", False, False),
        (SET, [RUNNING[0], machine("train-c", SET, "Provisioning")], {}, "PROVISIONING", False, False),
        (SET, [RUNNING[0], machine("train-c", SET, "Provisioned")], {"autoscaled": True}, "READY", True, False),
        (SET, [*RUNNING, LEAVING], {}, "PROVISIONING", False, False),
        (SET, [RUNNING[0], FAILED], {}, "FAILED", True, True),
        (SET, [RUNNING[0], FAILED], {"autoscaled": True}, "READY", True, False),
        (SET, [RUNNING[0], FAILED], {"ignored": {"train-c"}}, "READY", True, False),
        # Its start is refused, so nothing is left to wait for.
        (SET, [RUNNING[0], STARTING], {"refused": {"train-c"}}, "FAILED", True, True),
        (SET, [RUNNING[0], STARTING], {"refused": {"train-c"}, "autoscaled": True}, "READY", True, False),
        # An outdated Machine is replaced, whatever its state is. A Machine that leaves still counts.
        (SET, [RUNNING[0], OTHER_TYPE], {"declared": {"flavor"}}, "PROVISIONING", False, False),
        (SET, [RUNNING[0], OTHER_TYPE], REPLACED, "READY", True, False),
        (SET, [RUNNING[0], OTHER_TYPE], {**REPLACED, "refused": {"train-c"}}, "READY", True, False),
        (SET, [RUNNING[0], STARTING], REPLACED, "PROVISIONING", False, False),
        (SET, [RUNNING[0], OTHER_TYPE, LEAVING], REPLACED, "PROVISIONING", False, False),
        (group(generation=8), RUNNING, {}, "PROVISIONING", False, False),
        (group(deletionTimestamp="2026-11-24T05:19:00Z"), RUNNING, {}, "DELETING", False, False),
        (group(0), [], {}, "READY", True, False),
    ],
)
def test_the_status(
    machineset: Object, machines: list[Object], options: t.Any, status: str, settled: bool, failed: bool
) -> None:
    state = state_of(machineset, machines, NOW, paths={}, **options)
    assert (state.status, state.settled, state.failed) == (status, settled, failed)
    assert state.deleting == (status == "DELETING")


def test_a_machineset_is_complete_once_the_platform_has_measured_it() -> None:
    assert not state_of(group(0), [], NOW, paths={}, awaits_capacity=True).settled
    assert state_of(group(0), [], NOW, paths={}).settled


@pytest.mark.parametrize(("platform", "size"), [("AWS", ("4", "16384")), ("vSphere", ("4", "16384")), ("other", ())])
def test_the_size_that_the_platform_has_measured(platform: str, size: tuple[str, ...]) -> None:
    machineset = worker_machineset() if platform == "other" else worker_machineset(platform=platform)
    if platform == "other":
        machineset["spec"]["template"]["spec"]["providerSpec"]["value"]["kind"] = "BareMetalMachineProviderSpec"
    assert controller_size(machineset) == size
    del machineset["metadata"]["annotations"]
    assert controller_size(machineset) == tuple(None for dummy in size)


def test_nodes_and_machines_without_a_node() -> None:
    state = state_of(SET, [*RUNNING, machine("train-c", SET, "Provisioning"), LEAVING], NOW, paths={})
    assert (state.count, state.machines, state.without_node) == (2, ("train-a", "train-b"), 1)


def test_the_reason_names_the_machines_that_do_not_run() -> None:
    state = state_of(SET, [RUNNING[0], FAILED], NOW, paths={})
    assert state.reason.startswith("Machine train-c has failed (InsufficientResources). ")
    assert state.reason.endswith(".")


def test_machines_with_other_values_of_declared_fields_are_outdated() -> None:
    machineset = group()
    machineset["spec"]["template"]["spec"]["providerSpec"]["value"]["instanceType"] = "g4dn.xlarge"
    assert state_of(machineset, RUNNING, NOW, paths={}).outdated == ()
    assert state_of(machineset, RUNNING, NOW, paths={}, declared=("template",)).outdated == ()
    assert state_of(machineset, [*RUNNING, LEAVING], NOW, paths={}, declared=("flavor",)).outdated == (
        "train-a",
        "train-b",
    )
    paths = {"ami.id": ("ami", "id")}
    machineset = group()
    machineset["spec"]["template"]["spec"]["providerSpec"]["value"]["ami"] = {"id": "ami-9"}
    assert state_of(machineset, RUNNING, NOW, paths=paths, declared=("provider_spec",)).outdated == (
        "train-a",
        "train-b",
    )


def owned_by(one: Object, uid: str) -> Object:
    """The Machine with its controller, as every MachineSet sets it."""
    controller = {"kind": "MachineSet", "name": "train", "uid": uid, "controller": True}
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [controller]}}


def test_the_machines_of_a_machineset_are_those_that_it_controls() -> None:
    """The label with the name is only a convention: a guide's MachineSet may use another value, and a copy has the same selector."""
    uid = SET["metadata"]["uid"]
    by_another_name = machine("train-a", worker_machineset("from-a-guide"))
    of_a_copy = machine("copy-a", SET)
    machines = [owned_by(by_another_name, uid), owned_by(of_a_copy, "other"), machine("x", worker_machineset("other"))]
    assert machines_of(SET, machines) == machines[:1]


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({}, False),
    ],
)
def test_a_machine_without_a_controller_belongs_to_the_machineset_that_selects_it(
    selector: t.Any, selected: bool
) -> None:
    orphan = machine("train-z", SET)
    orphan["metadata"]["labels"] = {"a": "1"}
    machineset = group()
    machineset["spec"]["selector"] = selector
    assert machines_of(machineset, [orphan]) == ([orphan] if selected else [])


def test_the_nodes_that_do_not_register_with_the_label_of_their_pool() -> None:
    new = machine("train-n", SET)
    new["spec"]["metadata"] = {"labels": {"accel.gpu/pool": "train"}}
    machines = [*RUNNING, new, machine("train-c", SET, "Provisioning")]
    assert state_of(SET, machines, NOW, paths={}).adopted == ()
    assert state_of(SET, machines, NOW, paths={}, pooled=True).adopted == ("train-a", "train-b")
