# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a cloud of the lab creates, in a lab with machines of a fleet file."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator

import pytest

from lab.api import Api, Object
from lab.errors import LabError
from lab.fleet import HARDWARE_ANNOTATION
from lab.layout import DEFAULT_FLEET
from lab.layout import Lab as LabLayout
from lab.machines import NETWORK, Machines
from tests.helpers.polling import until
from tests.labs import Lab

pytestmark = pytest.mark.lab

FLAVOR = "g4-standard-32x128-2L40s"
NAMES = ["vks-demo-1", "vks-demo-2"]
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def machines(lab: Lab) -> Iterator[Machines]:
    # Another file of this process may have left machines of its own fleet.
    lab.command("nodes", "apply", str(DEFAULT_FLEET), "--wait")
    actual = Machines(LabLayout.named(lab.name), "vks")
    actual.create(
        "ng-1",
        NAMES,
        FLAVOR,
        labels={"team": "a"},
        taints=[TAINT],
        provider_ids={name: f"vngcloud://{name}" for name in NAMES},
    )
    yield actual
    actual.delete(NAMES)


def node(lab: Lab, name: str) -> Object:
    actual = Api(LabLayout.named(lab.name)).get(f"/api/v1/nodes/{name}")
    assert actual
    return actual


def test_machines_become_ready_nodes_with_the_flavors_hardware(lab: Lab, machines: Machines) -> None:
    until(lambda: machines.ready("ng-1") == set(NAMES), limit=30)
    assert machines.names("ng-1") == NAMES
    assert machines.names("ng-2") == []
    first, second = (node(lab, name) for name in NAMES)
    labels = first["metadata"]["labels"]
    assert labels["team"] == "a"
    assert labels["lab.accel.gpu/cloud"] == "vks"
    assert labels["node.kubernetes.io/instance-type"] == FLAVOR
    assert "lab.accel.gpu/group" not in labels
    assert first["metadata"]["annotations"]["lab.accel.gpu/node-group"] == "ng-1"
    hardware = json.loads(first["metadata"]["annotations"][HARDWARE_ANNOTATION])
    assert (hardware["product"], hardware["gpus"]) == ("NVIDIA L40S", 2)
    assert first["spec"]["providerID"] == "vngcloud://vks-demo-1"
    assert TAINT in first["spec"]["taints"]
    assert first["status"]["capacity"]["memory"] == "128Gi"
    internal = [one["status"]["addresses"][0]["address"] for one in (first, second)]
    assert len(set(internal)) == 2
    assert all(ipaddress.ip_address(one) in NETWORK for one in internal)


def test_pod_logs_of_a_cloud_machine(lab: Lab, machines: Machines) -> None:
    layout = LabLayout.named(lab.name)
    file = layout.pod_logs / "of-a-cloud.log"
    file.write_text("2026-01-01T00:00:00.000000000Z stdout F logged on a cloud's machine\n")
    api, pod = Api(layout), "/api/v1/namespaces/default/pods/of-a-cloud"
    logs = "/apis/kwok.x-k8s.io/v1alpha1/namespaces/default/logs"
    container = {"name": "main", "image": "any"}
    pinned = {"nodeName": NAMES[0], "containers": [container], "automountServiceAccountToken": False}
    metadata = {"name": "of-a-cloud", "namespace": "default"}
    api.request("POST", logs, _object("kwok.x-k8s.io/v1alpha1", "Logs", metadata, {"logs": [{"logsFile": str(file)}]}))
    api.request("POST", "/api/v1/namespaces/default/pods", _object("v1", "Pod", metadata, pinned))
    try:
        until(lambda: ((api.get(pod) or {}).get("status") or {}).get("phase") == "Running", limit=30)
        assert api.request("GET", f"{pod}/log")["message"] == "logged on a cloud's machine\n"
    finally:
        api.request("DELETE", f"{pod}?gracePeriodSeconds=0")
        api.request("DELETE", f"{logs}/of-a-cloud")


def _object(version: str, kind: str, metadata: Object, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def test_creating_existing_machines_changes_nothing(lab: Lab, machines: Machines) -> None:
    before = node(lab, NAMES[0])["metadata"]
    machines.create("ng-1", NAMES, FLAVOR, labels={}, taints=[], provider_ids=dict.fromkeys(NAMES, "x"))
    after = node(lab, NAMES[0])["metadata"]
    assert after["uid"] == before["uid"]
    # NFD and the simulated agents may label a new node in the meantime.
    assert before["labels"].items() <= after["labels"].items()


def test_fleet_commands_do_not_change_cloud_machines(lab: Lab, machines: Machines) -> None:
    before = {name: node(lab, name)["metadata"]["uid"] for name in NAMES}
    lab.command("nodes", "scale", "cpu", "1", "--wait")
    lab.command("nodes", "apply", str(DEFAULT_FLEET), "--wait")
    assert {name: node(lab, name)["metadata"]["uid"] for name in NAMES} == before
    assert "vks 2" in lab.command("status")


def test_reboot(lab: Lab, machines: Machines) -> None:
    until(lambda: machines.ready("ng-1") == set(NAMES), limit=30)
    lab.command("nodes", "reboot", NAMES[1])
    assert "lab.accel.gpu/rebooting" in node(lab, NAMES[1])["metadata"]["annotations"]


def test_machines_of_others_are_not_deleted(lab: Lab, machines: Machines) -> None:
    with pytest.raises(LabError, match="node 'cpu-1' is not a machine of vks"):
        machines.delete(["cpu-1"])
    with pytest.raises(LabError, match="'vks-demo-1' is not a machine of magnum"):
        Machines(LabLayout.named(lab.name), "magnum").delete(NAMES)
    assert node(lab, "cpu-1")
    assert machines.names("ng-1") == NAMES


def test_flavor_of_another_cloud_is_rejected(machines: Machines) -> None:
    with pytest.raises(LabError, match=r"vks has no flavor 'm2\.large'; known: s-general-4x8"):
        machines.create("ng-1", ["x"], "m2.large", labels={}, taints=[], provider_ids={"x": "y"})


def test_delete_is_idempotent(machines: Machines) -> None:
    machines.create("ng-2", ["vks-gone-1"], FLAVOR, labels={}, taints=[], provider_ids={"vks-gone-1": "y"})
    assert machines.names("ng-2") == ["vks-gone-1"]
    machines.delete(["vks-gone-1"])
    assert machines.names("ng-2") == []
    machines.delete(["vks-gone-1"])
