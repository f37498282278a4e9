# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab with OpenShift on vSphere: OpenShift's own controllers, the simulated vCenter, and the nodes of its virtual machines."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lab.api import Api, Object
from lab.fleet import HARDWARE_ANNOTATION
from lab.lifecycle import say
from lab.machine_api.machine_sets import MACHINE_SETS, NAMESPACE, SET_LABEL, machine_set, provider_spec
from lab.nodes import NODES, is_ready
from lab.openshift import machine_configuration, releases
from lab.vsphere import images, inventory
from lab.vsphere.part import VSphere
from tests.helpers.polling import until
from tests.labs import OPENSHIFT

from .conftest import OwnLab

MACHINES = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}/machines"
TEMPLATE = f"{inventory.TEMPLATES_FOLDER}/gpu-10c"
RELEASE = releases.find("4.20")
POOL = "/DC1/host/cluster-a/Resources"
GROUP = "prod-gpu"


@pytest.fixture(scope="module")
def vsphere(own: OwnLab, request: pytest.FixtureRequest) -> OwnLab:
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        say("tests: building the lab, OpenShift and vSphere if necessary")
    own.command("build", "kube", *OPENSHIFT, VSphere.name)
    own.command("up", "--openshift", RELEASE.minor, "--platform", "VSphere")
    return own


def api(lab: OwnLab) -> Api:
    return Api(lab.lab)


def machines(lab: OwnLab, group: str = GROUP) -> dict[str, Object]:
    reply = api(lab).list(MACHINES)
    return {one["metadata"]["name"]: one for one in reply if one["metadata"]["labels"][SET_LABEL] == group}


def running(lab: OwnLab, group: str, count: int) -> bool:
    phases = [one.get("status", {}).get("phase") for one in machines(lab, group).values()]
    return phases == ["Running"] * count


def govc(lab: OwnLab, words: str) -> str:
    return lab.shell(f"govc {words}")


def virtual_machine(lab: OwnLab, path: str) -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(govc(lab, f"vm.info -json {path}"))["virtualMachines"][0]
    return reply


def node_is_ready(lab: OwnLab, name: str) -> bool:
    return is_ready(api(lab).get(f"{NODES}/{name}") or {"spec": {}})


def scale(lab: OwnLab, replicas: int) -> None:
    api(lab).merge(f"{MACHINE_SETS}/{GROUP}", {"spec": {"replicas": replicas}})


def test_the_installers_machines_run_from_the_start(vsphere: OwnLab) -> None:
    for number, zone in enumerate("ab"):
        assert running(vsphere, f"prod-worker-{number}", 1)
        (machine,) = machines(vsphere, f"prod-worker-{number}").values()
        node = api(vsphere).get(f"{NODES}/{machine['status']['nodeRef']['name']}")
        assert node
        assert is_ready(node)
        assert node["spec"]["providerID"] == machine["spec"]["providerID"]
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == f"zone-{zone}"
        assert json.loads(node["metadata"]["annotations"][HARDWARE_ANNOTATION])["gpus"] == 0
        assert node["status"]["nodeInfo"]["osImage"].startswith("Red Hat Enterprise Linux CoreOS")


def test_the_boot_images_name_a_file_with_this_checksum(vsphere: OwnLab) -> None:
    body = api(vsphere).get(f"/api/v1/namespaces/{images.NAMESPACE}/configmaps/{images.CONFIG_MAP}")
    assert body
    vmware = json.loads(body["data"]["stream"])["architectures"]["x86_64"]["artifacts"]["vmware"]
    disk = vmware["formats"]["ova"]["disk"]
    actual = vsphere.shell(f"curl -sS {disk['location']} | sha256sum").split()[0]
    assert actual == disk["sha256"]
    product = virtual_machine(vsphere, f"{inventory.MACHINES_FOLDER}/{images.template('zone-a')}")
    assert product["summary"]["config"]["product"]["version"] == vmware["release"]
    part = vsphere.shell(f"curl -sS -r 0-9 -o /dev/null -w '%{{http_code}}' {disk['location']}")
    assert part == "206"


def test_a_template_with_vgpus_becomes_nodes_with_gpus(vsphere: OwnLab) -> None:
    image = vsphere.lab.dir / "vsphere" / "images" / images.file_name(images.release_of(RELEASE))
    folder = inventory.TEMPLATES_FOLDER
    govc(vsphere, f"import.ova -name gpu-10c -folder {folder} -pool {POOL} -ds templates {image}")
    for _number in range(2):
        govc(vsphere, f"gpu.vm.add -vm {TEMPLATE} -profile grid_a100-10c")
    window = "-e pciPassthru.use64bitMMIO=TRUE -e pciPassthru.64bitMMIOSizeGB=256"
    govc(vsphere, f"vm.change -vm {TEMPLATE} -memory-pin=true {window}")
    govc(vsphere, f"vm.markastemplate {TEMPLATE}")
    provider = provider_spec("VSphere", "zone-a") | {"template": TEMPLATE}
    body = machine_set(GROUP, provider, replicas=2)
    body["spec"]["template"]["spec"]["metadata"] = {"labels": {"cluster-api/accelerator": "A100"}}
    api(vsphere).apply(f"{MACHINE_SETS}/{GROUP}", body)
    until(lambda: running(vsphere, GROUP, 2), limit=60)
    until(lambda: all(node_is_ready(vsphere, name) for name in machines(vsphere)), limit=20)
    for name in machines(vsphere):
        node = api(vsphere).get(f"{NODES}/{name}")
        assert node
        hardware = json.loads(node["metadata"]["annotations"][HARDWARE_ANNOTATION])
        assert (hardware["product"], hardware["gpus"]) == ("GRID A100-10C", 2)
        assert node["metadata"]["labels"]["cluster-api/accelerator"] == "A100"
        assert node["status"]["capacity"]["memory"] == "16Gi"


def test_a_machine_survives_down_and_up(vsphere: OwnLab) -> None:
    before = {
        name: virtual_machine(vsphere, f"{inventory.MACHINES_FOLDER}/{name}")["config"]["uuid"]
        for name in machines(vsphere)
    }
    nodes = {node["metadata"]["name"]: node["metadata"]["uid"] for node in api(vsphere).list(NODES)}
    vsphere.command("down")
    vsphere.command("up")
    time.sleep(2)
    until(lambda: running(vsphere, GROUP, 2), limit=30)
    after = {name: virtual_machine(vsphere, f"{inventory.MACHINES_FOLDER}/{name}") for name in machines(vsphere)}
    assert {name: vm["config"]["uuid"] for name, vm in after.items()} == before
    assert {vm["runtime"]["powerState"] for vm in after.values()} == {"poweredOn"}
    assert {node["metadata"]["name"]: node["metadata"]["uid"] for node in api(vsphere).list(NODES)} == nodes
    assert virtual_machine(vsphere, TEMPLATE)["config"]["template"] is True


def test_scaling_down_after_a_restart_removes_the_virtual_machine_and_its_node(vsphere: OwnLab) -> None:
    before = set(machines(vsphere))
    scale(vsphere, 1)
    until(lambda: running(vsphere, GROUP, 1), limit=60)
    (gone,) = before - set(machines(vsphere))
    assert gone not in govc(vsphere, f"ls {inventory.MACHINES_FOLDER}")
    until(lambda: api(vsphere).get(f"{NODES}/{gone}") is None, limit=20)


def test_reset_to_a_saved_cluster_brings_back_its_machines(vsphere: OwnLab) -> None:
    vsphere.command("save", "one")
    saved = set(machines(vsphere))
    scale(vsphere, 0)
    until(lambda: not machines(vsphere), limit=60)
    vsphere.command("reset", "--to", "one")
    until(lambda: running(vsphere, GROUP, 1), limit=60)
    assert set(machines(vsphere)) == saved
    for name in saved:
        assert name in govc(vsphere, f"ls {inventory.MACHINES_FOLDER}")


def test_the_simulated_autoscaler_takes_the_machine_set(vsphere: OwnLab) -> None:
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": GROUP}
    body = {
        "apiVersion": "autoscaling.openshift.io/v1beta1",
        "kind": "MachineAutoscaler",
        "metadata": {"name": GROUP, "namespace": NAMESPACE},
        "spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": target},
    }
    path = f"/apis/autoscaling.openshift.io/v1beta1/namespaces/{NAMESPACE}/machineautoscalers/{GROUP}"
    api(vsphere).apply(path, body)

    def annotations() -> dict[str, str]:
        reply = api(vsphere).get(f"{MACHINE_SETS}/{GROUP}") or {}
        return dict(reply["metadata"].get("annotations") or {})

    until(lambda: "machine.openshift.io/cluster-api-autoscaler-node-group-max-size" in annotations(), limit=20)
    # The capacity is written by OpenShift's own controller, without the GPUs.
    assert annotations()["machine.openshift.io/vCPU"] == "4"
    assert annotations()["machine.openshift.io/memoryMb"] == "16384"
    assert "machine.openshift.io/GPU" not in annotations()
    api(vsphere).request("DELETE", path)


def test_the_operator_replaces_a_template_in_the_folder_and_leaves_another_one(vsphere: OwnLab) -> None:
    path = f"{MACHINE_SETS}/{GROUP}"
    inside = f"{inventory.MACHINES_FOLDER}/gpu-inside"
    before = f"{vsphere.lab.dir}/vsphere/images/{images.file_name(images.release_before(RELEASE))}"
    govc(vsphere, f"import.ova -name gpu-inside -folder {inventory.MACHINES_FOLDER} -pool {POOL} -ds vsan-a {before}")
    govc(vsphere, f"gpu.vm.add -vm {inside} -profile grid_a100-10c")
    govc(vsphere, f"vm.markastemplate {inside}")
    body = machine_set("prod-inside", provider_spec("VSphere", "zone-a") | {"template": "gpu-inside"}, replicas=0)
    api(vsphere).apply(f"{MACHINE_SETS}/prod-inside", body)

    def template() -> str:
        live = api(vsphere).get(path) or {}
        return str(live["spec"]["template"]["spec"]["providerSpec"]["value"]["template"])

    def manage(mode: str) -> None:
        entry = {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": mode}}
        spec = {"managedBootImages": {"machineManagers": [entry]}}
        api(vsphere).merge(machine_configuration.PATH, {"spec": spec})

    time.sleep(3)
    assert template() == TEMPLATE
    manage("All")
    until(lambda: template() == "prod-rhcos-zone-a", limit=20)

    def devices() -> list[str]:
        hardware = virtual_machine(vsphere, inside)["config"]["hardware"]["device"]
        return [one["backing"]["vgpu"] for one in hardware if "vgpu" in (one.get("backing") or {})]

    until(lambda: devices() == [], limit=20)
    product = virtual_machine(vsphere, inside)["summary"]["config"]["product"]
    assert product["version"] == images.release_of(RELEASE)
    assert "prod-rhcos-zone-a" in govc(vsphere, f"ls {inventory.MACHINES_FOLDER}")
    live = api(vsphere).get(machine_configuration.PATH) or {}
    assert live["status"]["observedGeneration"] == live["metadata"]["generation"]
    manage("None")
    api(vsphere).request("DELETE", f"{MACHINE_SETS}/prod-inside")


def test_a_machine_that_the_vcenter_cannot_start_is_told_only_there(vsphere: OwnLab) -> None:
    govc(
        vsphere,
        f"vm.clone -on=false -vm {TEMPLATE} -pool {POOL} -folder {inventory.TEMPLATES_FOLDER} -ds templates small",
    )
    small = f"{inventory.TEMPLATES_FOLDER}/small"
    govc(vsphere, f"vm.change -vm {small} -e pciPassthru.64bitMMIOSizeGB=64")
    govc(vsphere, f"vm.markastemplate {small}")
    body = machine_set("prod-small", provider_spec("VSphere", "zone-a") | {"template": small}, replicas=1)
    api(vsphere).apply(f"{MACHINE_SETS}/prod-small", body)
    until(lambda: "MMIO" in govc(vsphere, f"events {inventory.MACHINES_FOLDER}/prod-small*"), limit=30)
    (machine,) = machines(vsphere, "prod-small").values()
    assert machine["status"]["phase"] in ("Provisioning", "Provisioned")
    assert "errorMessage" not in machine["status"]
    api(vsphere).request("DELETE", f"{MACHINE_SETS}/prod-small")
    until(lambda: not machines(vsphere, "prod-small"), limit=60)


def test_the_node_of_a_lost_virtual_machine_is_not_ready(vsphere: OwnLab) -> None:
    (name,) = machines(vsphere)
    govc(vsphere, f"vm.destroy {inventory.MACHINES_FOLDER}/{name}")
    until(lambda: not node_is_ready(vsphere, name), limit=30)


def test_faults_are_checked(vsphere: OwnLab) -> None:
    for words, text in (
        (("vsphere.upload-cut",), "needs --value: bytes"),
        (("vsphere.host-disconnected",), "needs --group"),
        (("vsphere.lease-error", "--group", "a"), "omit --group"),
        (("machines.quota",), "not available on vSphere"),
    ):
        done = vsphere.execute("cloud", "fault", "inject", *words)
        assert done.returncode != 0
        assert text in done.stderr
