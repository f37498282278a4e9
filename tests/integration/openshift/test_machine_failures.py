# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that never become nodes: a run ends at its time limit with the Machine, its phase, the reason and the remedy; the next run continues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.modules import machineset, nodegroup_nodes
from lab import audit
from lab.api import Api
from lab.layout import Lab as LabLayout
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, SET_LABEL, machine_set, provider_spec
from tests.helpers.modules import run_module
from tests.helpers.openshift import OpenShift
from tests.helpers.playbook import run_playbook
from tests.helpers.polling import BUSY, until
from tests.labs import Lab
from tests.programs import REPO

INVENTORY = REPO / "inventories" / "openshift"
LIKE = "prod-worker-us-east-2a"
PODS = "/api/v1/namespaces/default/pods"
MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
# Seconds that a run waits, and may need in addition to read, to send and to fail.
WAIT, MORE = 10, 10
SURGED = "surged"

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

    def node_of(self, machine: str) -> str:
        """The name of the node of a running Machine."""
        return str((self.api.get(f"{MACHINES}/{machine}") or {})["status"]["nodeRef"]["name"])


@pytest.fixture
def cloud(openshift: OpenShift) -> Iterator[FaultyCloud]:
    openshift.lab.command("cloud", "set", "machines.boot-seconds=20")
    actual = FaultyCloud(openshift.lab)
    yield actual
    actual.repair()
    created = (*MESSAGES, SURGED)
    for name in created:
        if actual.api.get(f"{MACHINE_SETS}/{name}") is not None:
            actual.api.request("DELETE", f"{MACHINE_SETS}/{name}")
    until(lambda: not any(map(actual.machines, created)))


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
    assert took < BUSY * (WAIT + MORE)

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
    assert took < BUSY * (WAIT + 2 * MORE)


def test_an_additional_machine_whose_node_offers_no_gpu_is_the_one_that_is_removed(cloud: FaultyCloud) -> None:
    """The MachineSet's own policy would choose an old Machine, whose node was not drained."""
    options = {"gpu_cluster": {"name": cloud.lab.name}, "confirm": [cloud.lab.name], "node_count": 2}
    assert not cloud.run(SURGED, **options, wait_timeout=120).get("failed")
    client = OpenShift(cloud.lab).client
    client.patch(f"{MACHINE_SETS}/{SURGED}", {"spec": {"deletePolicy": "Oldest"}})
    before = cloud.machines(SURGED)
    nodes = {cloud.node_of(name) for name in before}
    for node in nodes:
        client.patch(f"/api/v1/nodes/{node}/status", {"status": {"allocatable": {"nvidia.com/gpu": "1"}}})
    layout = LabLayout.named(cloud.lab.name)
    since = audit.mark(layout)
    replaced = {**options, "flavor": "g4dn.2xlarge", "replace_outdated": True}
    result = cloud.run(SURGED, **replaced, surge=True, wait_timeout=30)
    assert result["failed"], result
    assert "these new nodes are not ready or offer no GPU" in result["msg"]
    assert "This was the additional machine of surge. It is removed again" in result["msg"]
    until(lambda: len(cloud.machines(SURGED)) == 2)
    assert sorted(cloud.machines(SURGED)) == sorted(before)
    # Its node was drained, and no other.
    sent = [request.uri for request in audit.requests(layout, since, "accel.gpu/") if request.mutating]
    drained = {uri.partition("?")[0].rpartition("/")[2] for uri in sent if uri.startswith("/api/v1/nodes/")}
    assert len(drained) == 1, sent
    assert not drained & nodes
    assert not any((cloud.api.get(f"/api/v1/nodes/{node}") or {})["spec"].get("unschedulable") for node in nodes)


@pytest.fixture
def guide(cloud: FaultyCloud) -> Iterator[str]:
    """A MachineSet from a guide, whose label of the machines' set is not its name, with two running nodes."""
    name = "gpus-from-a-guide"
    body = machine_set(name, {**provider_spec("AWS", "us-east-2a"), "instanceType": "g4dn.xlarge"}, replicas=2)
    for labels in (body["spec"]["selector"]["matchLabels"], body["spec"]["template"]["metadata"]["labels"]):
        labels[SET_LABEL] = "guide"
    cloud.api.apply(f"{MACHINE_SETS}/{name}", body)
    until(lambda: len(nodes_of(cloud)) == 2, limit=120)
    yield name
    for pod in ("bare-0", "bare-1"):
        if cloud.api.get(f"{PODS}/{pod}") is not None:
            cloud.api.request("DELETE", f"{PODS}/{pod}")
    if cloud.api.get(f"{MACHINE_SETS}/{name}") is not None:
        cloud.api.request("DELETE", f"{MACHINE_SETS}/{name}")
    until(lambda: not cloud.machines("guide"), limit=120)


def nodes_of(cloud: FaultyCloud) -> list[str]:
    """The ready nodes of the guide's MachineSet."""
    machines = cloud.api.list(MACHINES, labelSelector=f"{SET_LABEL}=guide")
    names = [node["name"] for machine in machines if (node := (machine.get("status") or {}).get("nodeRef"))]
    ready = [parse_node(node) for name in names if (node := cloud.api.get(f"/api/v1/nodes/{name}"))]
    return sorted(node.name for node in ready if node.ready)


def test_an_adopted_machineset_whose_label_is_not_its_name(cloud: FaultyCloud, guide: str) -> None:
    before = nodes_of(cloud)
    options = {"like": None, "adopt": True, "node_labels": {"accel.gpu/pool": "t4"}}
    adopted = cloud.run(guide, **options, node_count=2, wait_timeout=60)
    assert not adopted.get("failed"), adopted
    assert (adopted["nodegroup"]["node_count"], adopted["nodegroup"]["adopted_nodes"]) == (2, before)

    # Its nodes are taken in at once.
    pool = {"name": "t4", "model": "T4", "nodes": {"name": guide, "flavor": "g4dn.xlarge", "count": 2, "adopt": True}}
    variables = {
        "kubeconfig": str(cloud.lab.kubeconfig),
        "gpu_cluster": {"name": cloud.lab.name, "distribution": "openshift", "cloud": {"machineset": {}}},
        "gpu_pools": [pool],
        "wait_timeout": 20,
    }
    taken = run_module(nodegroup_nodes.main, {**variables, "nodegroups": adopted["nodegroups"]}, env=cloud.lab.env)
    assert not taken.get("failed"), taken
    assert (taken["nodegroup_nodes"]["changed_nodes"], taken["nodegroup_nodes"]["missing"]) == (before, {})
    again = cloud.run(guide, **options, node_count=2)
    assert not again["changed"]
    assert not run_module(nodegroup_nodes.main, {**variables, "nodegroups": again["nodegroups"]})["changed"]

    # A pod without a controller blocks the scale-down of its node. Without the drain, the pod would be gone.
    for index, node in enumerate(before):
        spec = {"nodeName": node, "containers": [{"name": "c", "image": "x"}], "terminationGracePeriodSeconds": 0}
        spec["tolerations"] = [{"operator": "Exists"}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"bare-{index}"}, "spec": spec}
        cloud.api.apply(f"{PODS}/bare-{index}", pod)
    blocked = cloud.run(guide, **options, node_count=1, wait_timeout=60)
    assert blocked.get("failed"), blocked
    assert "default/bare-" in blocked["msg"]
    assert nodes_of(cloud) == before
    cloud.api.request("DELETE", f"{PODS}/bare-0")
    cloud.api.request("DELETE", f"{PODS}/bare-1")
    smaller = cloud.run(guide, **options, node_count=1, wait_timeout=120)
    assert not smaller.get("failed"), smaller
    assert len(nodes_of(cloud)) == 1
    assert not cloud.run(guide, **options, node_count=1)["changed"]
