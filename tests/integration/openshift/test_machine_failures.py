# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that never become nodes: a run ends at its time limit with the Machine, its phase, the reason and the remedy; the next run continues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import machineset
from lab.api import Api
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, SET_LABEL
from tests.helpers.modules import run_module
from tests.helpers.openshift import OpenShift
from tests.helpers.playbook import run_playbook
from tests.helpers.polling import until
from tests.labs import Lab
from tests.programs import REPO

INVENTORY = REPO / "inventories" / "openshift"
LIKE = "prod-worker-us-east-2a"
MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
# Seconds that a run waits, and may need in addition to read, to send and to fail.
WAIT, MORE = 10, 10

pytestmark = [pytest.mark.usual(20), pytest.mark.sampled(1, group="failures of machines")]

# By fault of the cloud: what the message contains.
MESSAGES = {
    "quota": ("has failed", "vCPU", "raise the quota, or choose a different flavor or zone", "oc delete machine"),
    "no-capacity": ("is Provisioning, created", "the cloud has not created its virtual machine", "oc describe machine"),
    "stuck-provisioning": (
        "is Provisioning, created",
        "the cloud has not created its virtual machine",
        "oc delete machine",
    ),
    "never-joins": ("is Provisioned, created", "its node has not joined", "oc get csr"),
}


class FaultyCloud:
    """A lab whose cloud gets faults, and the node groups of a test in it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.api = Api(LabLayout.named(lab.name))

    def fault(self, name: str) -> None:
        self.lab.command("cloud", "fault", "inject", f"machines.{name}")

    def repair(self) -> None:
        self.lab.command("cloud", "fault", "clear")

    def run(self, name: str, **options: Any) -> dict[str, Any]:
        """The result of the module machineset for a node group with one node."""
        declared = {"name": name, "like": LIKE, "flavor": "g4dn.xlarge", "node_count": 1, **options}
        usual = {"kubeconfig": str(self.lab.kubeconfig), "wait_timeout": WAIT, "wait_sleep": 1}
        return run_module(machineset.main, {**usual, **declared}, env=self.lab.env)

    def machines(self, name: str) -> list[str]:
        actual = self.api.list(MACHINES, labelSelector=f"{SET_LABEL}={name}")
        return [machine["metadata"]["name"] for machine in actual]


@pytest.fixture
def cloud(openshift: OpenShift) -> Iterator[FaultyCloud]:
    openshift.lab.command("cloud", "set", "machines.boot-seconds=20")
    actual = FaultyCloud(openshift.lab)
    yield actual
    actual.repair()
    for fault in MESSAGES:
        if actual.api.get(f"{MACHINE_SETS}/{fault}") is not None:
            actual.api.request("DELETE", f"{MACHINE_SETS}/{fault}")
    until(lambda: not any(actual.machines(fault) for fault in MESSAGES))


@pytest.mark.parametrize("fault", MESSAGES)
def test_a_machine_that_does_not_become_a_node_is_named_with_its_remedy(cloud: FaultyCloud, fault: str) -> None:
    cloud.fault(fault)
    began = time.monotonic()
    result = cloud.run(fault)
    took = time.monotonic() - began
    assert result["failed"], result
    (machine,) = cloud.machines(fault)
    assert f"Machine {machine} {MESSAGES[fault][0]}" in result["msg"]
    assert [text for text in MESSAGES[fault] if text not in result["msg"]] == [], result["msg"]
    assert took < WAIT + MORE

    # The next run continues with the same MachineSet. A failed Machine stays failed until it is deleted.
    cloud.repair()
    if fault == "quota":
        cloud.api.request("DELETE", f"{MACHINES}/{machine}")
    done = cloud.run(fault, wait_timeout=120)
    assert not done.get("failed"), done["msg"]
    assert len(cloud.machines(fault)) == 1
    assert not cloud.run(fault)["changed"]


@pytest.mark.parametrize("fault", ["quota", "stuck-provisioning"])
def test_site_reports_it(cloud: FaultyCloud, fault: str) -> None:
    cloud.fault(fault)
    pool = {"name": fault, "nodes": {"like": LIKE, "flavor": "g4dn.xlarge", "count": 1}}
    variables = {
        "gpu_cluster": {"name": cloud.lab.name, "distribution": "openshift", "cloud": {"machineset": {}}},
        "gpu_pools": [pool],
        "gpu_nodegroups_wait_timeout": WAIT,
    }
    began = time.monotonic()
    played = run_playbook("accel.gpu.site", environ=cloud.lab.env, inventory=INVENTORY, variables=variables)
    took = time.monotonic() - began
    assert played.rc != 0
    message = played.failure("openshift")
    assert [text for text in MESSAGES[fault] if text not in message] == [], message
    # Nothing is installed before the nodes exist.
    assert not played.module_results("accel.gpu.olm_subscription", "openshift")
    assert took < WAIT + 2 * MORE
