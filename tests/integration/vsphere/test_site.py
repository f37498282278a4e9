# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on OpenShift on vSphere: OpenShift's real machine controller clones the templates that the collection builds."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.modules import machineset, machineset_info, vgpu_template
from lab import build
from lab.tools import PARTS
from lab.vsphere import images
from tests.helpers.modules import run_module
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.labs import Lab, shared_lab
from tests.programs import REPO, run

INVENTORY = REPO / "inventories" / "openshift-vsphere"
DECLARED: dict[str, Any] = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())
HOST = "openshift"
FOLDER = "/DC1/vm/accel-gpu"
Object = dict[str, Any]

pytestmark = [pytest.mark.timeout(1200), pytest.mark.usual(90), pytest.mark.sampled(2, group="site on vSphere")]


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with OpenShift on vSphere. ACCEL_GPU_TEST_VSPHERE names a running one."""
    build.ensure(PARTS["vsphere"])
    options = ["--openshift", "--platform", "VSphere"]
    with shared_lab(request, "ACCEL_GPU_TEST_VSPHERE", "vsphere", builds=[], options=options) as running:
        yield running


def play(lab: Lab, name: str = "site", *arguments: str, **variables: Any) -> PlaybookRun:
    return run_playbook(
        f"accel.gpu.{name}", environ=lab.env, inventory=INVENTORY, variables=variables, arguments=arguments
    )


def govc(lab: Lab, *words: str) -> str:
    return run(lab.env["LAB_GOVC"], *words, env=lab.env)


def calls(lab: Lab) -> list[Object]:
    """The calls of the collection that have changed something in vCenter."""
    path = Path(lab.env["LAB_VSPHERE_CALLS"])
    listed = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [
        call
        for call in listed
        if call["method"] in ("ImportVApp", "Destroy_Task", "MarkAsTemplate", "ReconfigVM_Task", "CreateFolder")
    ]


def templates(lab: Lab) -> list[str]:
    paths = govc(lab, "find", FOLDER, "-type", "m").split()
    return sorted(path.rpartition("/")[2] for path in paths)


def machine_sets(lab: Lab) -> list[Object]:
    """The MachineSets with GPUs."""
    words = ("get", "machinesets", "-n", "openshift-machine-api", "-l", "accel.gpu/nodegroup", "-o", "json")
    items: list[Object] = json.loads(run("kubectl", *words, env=lab.env))["items"]
    return items


def named_templates(lab: Lab) -> dict[str, str]:
    """The template of each MachineSet with GPUs."""
    return {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["providerSpec"]["value"]["template"]
        for item in machine_sets(lab)
    }


def connection(lab: Lab) -> Object:
    return {
        "hostname": lab.env["LAB_VSPHERE_HOST"],
        "port": int(lab.env["LAB_VSPHERE_PORT"]),
        "username": lab.env["LAB_VSPHERE_USERNAME"],
        "password": lab.env["LAB_VSPHERE_PASSWORD"],
        "ca_cert": lab.env["LAB_VSPHERE_CA"],
    }


def sited(lab: Lab) -> None:
    lab.become("vsphere-site", lambda: play(lab).require_success())


def test_site_creates_nodes_with_vgpus_from_the_clusters_own_image(lab: Lab) -> None:
    lab.reset()
    assert govc(lab, "find", "/DC1/vm", "-type", "f", "-name", "accel-gpu").strip() == ""
    played = play(lab)
    played.require_success()
    nodes = json.loads(run("kubectl", "get", "nodes", "-l", "accel.gpu/pool", "-o", "json", env=lab.env))["items"]
    offered = sorted(
        (node["metadata"]["labels"]["accel.gpu/pool"], node["status"]["allocatable"]["nvidia.com/gpu"])
        for node in nodes
    )
    # Two vGPUs with two shares each, and one whole vGPU.
    assert offered == [("desktops", "4"), ("desktops", "4"), ("inference", "1")]
    stream = json.loads(
        run(
            "kubectl",
            "get",
            "cm",
            "-n",
            images.NAMESPACE,
            images.CONFIG_MAP,
            "-o",
            "jsonpath={.data.stream}",
            env=lab.env,
        )
    )
    release = stream["architectures"]["x86_64"]["artifacts"]["vmware"]["release"]
    assert [name.partition(f"-{release}-")[0] for name in templates(lab)] == ["desktops-zone-a", "inference-zone-b"]
    for node in nodes:
        machine = json.loads(govc(lab, "vm.info", "-json", f"/DC1/vm/openshift/{node['metadata']['name']}"))[
            "virtualMachines"
        ][0]
        config = machine["config"]
        assert (config["firmware"], config["memoryReservationLockedToMax"]) == ("efi", True)
        assert node["spec"]["providerID"] == f"vsphere://{config['uuid']}"
    before = calls(lab)
    again = play(lab)
    again.require_success()
    assert again.changed(HOST) == 0
    assert calls(lab) == before
    password = lab.env["LAB_VSPHERE_PASSWORD"]
    for text in (played.stdout, played.stderr, json.dumps(dict(played.document))):
        assert password not in text


def test_the_checklist_of_the_hosts_needs_only_the_shipped_rights_and_changes_nothing(lab: Lab) -> None:
    path = Path(lab.env["LAB_VSPHERE_CALLS"])
    before = path.read_text() if path.exists() else ""
    played = run_playbook("accel.gpu.vsphere_hosts", environ=lab.env_as("vsphere_hosts"), inventory=INVENTORY)
    played.require_success()
    assert played.changed(HOST) == 0
    lines = played.stderr.splitlines()
    assert any(
        words.split() == ["ok", "esx-a1.example.com", "manager", "vGPU", "manager", "580.95.02", "(vGPU", "19)"]
        for words in lines
    )
    # The unprepared host is listed, but no pool needs it.
    assert any(words.split()[:3] == ["problem", "esx-b3.example.com", "graphics"] for words in lines)
    refusals = {
        "have no effect without gpu_vsphere_hosts_apply": {"gpu_vsphere_hosts_restart": "true"},
        "requires gpu_vsphere_hosts_names": {
            "gpu_vsphere_hosts_apply": "true",
            "gpu_vsphere_hosts_vgpu_mode": "mixedSize",
        },
        "esx-9 is not a host": {"gpu_vsphere_hosts_apply": "true", "gpu_vsphere_hosts_names": "esx-9"},
    }
    for words, variables in refusals.items():
        refused = play(lab, "vsphere_hosts", **variables)
        assert words in refused.failure(HOST)
    # The lab's own machines may start at any time.
    after = path.read_text() if path.exists() else ""
    assert "UpdateGraphicsConfig" not in after.removeprefix(before)


def test_a_new_release_replaces_the_templates_and_the_second_run_changes_nothing(lab: Lab) -> None:
    sited(lab)
    old, named = templates(lab), named_templates(lab)
    base = lab.env["LAB_OVA_URL"]
    sums = {line.split()[1]: line.split()[0] for line in run("curl", "-sS", f"{base}/{images.CHECKSUMS}").splitlines()}
    current = next(name for name in sums if old[0].partition("zone-a-")[2].rpartition("-")[0] in name)
    other = next(name for name in sorted(sums, reverse=True) if name != current)
    release = other.removeprefix("rhcos-").removesuffix("-vmware.x86_64.ova")
    stream = {"release": release, "formats": {"ova": {"disk": {"location": f"{base}/{other}", "sha256": sums[other]}}}}
    body = {"data": {"stream": json.dumps({"architectures": {"x86_64": {"artifacts": {"vmware": stream}}}})}}
    run(
        "kubectl",
        "patch",
        "cm",
        "-n",
        images.NAMESPACE,
        images.CONFIG_MAP,
        "--type=merge",
        "-p",
        json.dumps(body),
        env=lab.env,
    )
    preview = play(lab, "nodegroups", "--check")
    preview.require_success()
    assert templates(lab) == old
    built = play(lab, "templates")
    built.require_success()
    assert named_templates(lab) == named
    assert set(templates(lab)) > set(old)
    play(lab, "nodegroups").require_success()
    assert all(release in path for path in named_templates(lab).values())
    # The old ones are deleted in the run that changed the MachineSets.
    assert not set(templates(lab)) & set(old)
    again = play(lab, "nodegroups")
    assert again.changed(HOST) == 0


def test_deleted_node_groups_leave_no_template(lab: Lab) -> None:
    sited(lab)
    refused = run_module(
        vgpu_template.main,
        {
            **connection(lab),
            "kubernetes": {"kubeconfig": lab.env["KUBECONFIG"]},
            "templates": [{"name": "desktops-zone-a"}],
            "state": "absent",
        },
    )
    assert refused["code"] == "in_use", refused
    assert "MachineSet desktops-zone-a" in refused["msg"]
    play(lab, "delete_nodegroups", gpu_pool="desktops", gpu_confirm=lab.name).require_success()
    assert [name.partition("-4")[0] for name in templates(lab)] == ["inference-zone-b"]


def edited(lab: Lab, *change: str) -> str:
    """The path of a template for one more MachineSet, changed by hand."""
    sited(lab)
    options = {**connection(lab), "kubernetes": {"kubeconfig": lab.env["KUBECONFIG"]}}
    result = run_module(
        vgpu_template.main, {**options, "name": "broken", "failure_domain": "zone-a", "profile": "grid_a100-10c"}
    )
    path: str = result["templates"]["broken"]["path"]
    if change:
        govc(lab, "vm.markasvm", "-pool", "/DC1/host/cluster-a/Resources", path)
        govc(lab, change[0], "-vm", path, *change[1:])
        govc(lab, "vm.markastemplate", path)
    return path


REFUSALS: dict[str, tuple[tuple[str, ...], int, str, str]] = {
    "memory-not-reserved": (("vm.change", "-memory-pin=false"), 1, "memory reservation", "must reserve all its memory"),
    "mmio-too-small": (("vm.change", "-e", "pciPassthru.64bitMMIOSizeGB=1"), 1, "MMIO", "mmio_gib"),
    "no-gpu-left": ((), 17, "graphics resource", "Free a GPU"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_machine_that_vcenter_does_not_start_says_why(lab: Lab, case: str) -> None:
    change, count, reason, remedy = REFUSALS[case]
    path = edited(lab, *change)
    options = {"kubeconfig": lab.env["KUBECONFIG"], "vcenter": connection(lab)}
    group = {"name": "broken", "zone": "zone-a", "template": path, "node_count": count, "wait_timeout": 15}
    result = run_module(machineset.main, {**options, **group})
    # The real controller says: "Machine successfully created".
    assert result["code"] == "timeout", result
    assert "its virtual machine exists but is not started" in result["msg"]
    assert reason in result["msg"]
    assert remedy in result["msg"]
    info = run_module(machineset_info.main, {**options, "names": ["broken"]})
    assert remedy in str(info["nodegroups"]["broken"]["problems"]), info
    assert lab.env["LAB_VSPHERE_PASSWORD"] not in json.dumps(info)
    without = run_module(machineset_info.main, {"kubeconfig": lab.env["KUBECONFIG"], "names": ["broken"]})
    assert "Set the host name, the user and the password of vCenter" in str(without["nodegroups"]["broken"]["problems"])


def test_a_run_that_waits_for_another_one_plans_again(lab: Lab, tmp_path: Path) -> None:
    """The other run builds the same template meanwhile, and a MachineSet begins to use one that should be deleted."""
    sited(lab)
    options = {**connection(lab), "kubernetes": {"kubeconfig": lab.env["KUBECONFIG"]}, "name": "raced"}
    build_options = {**options, "failure_domain": "zone-a", "profile": "grid_a100-10c"}
    lock = vgpu_template._locked
    built: list[Object] = []

    @contextlib.contextmanager
    def after_another_run(module: Any) -> Iterator[None]:
        vgpu_template._locked = lock
        built.append(run_module(vgpu_template.main, build_options))
        with lock(module):
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vgpu_template, "_locked", after_another_run)
        result = run_module(vgpu_template.main, build_options)
    path = built[0]["templates"]["raced"]["path"]
    assert (result["changed"], result["templates"]["raced"]["path"]) == (False, path), result
    assert [name for name in templates(lab) if name.startswith("raced")] == [path.rpartition("/")[2]]

    @contextlib.contextmanager
    def after_a_new_user(module: Any) -> Iterator[None]:
        (machine_set,) = [item for item in machine_sets(lab) if item["metadata"]["name"] == "desktops-zone-a"]
        new = {**machine_set, "metadata": {"name": "user", "namespace": machine_set["metadata"]["namespace"]}}
        new["spec"]["replicas"] = 0
        new["spec"]["template"]["spec"]["providerSpec"]["value"]["template"] = path
        file = tmp_path / "machineset.json"
        file.write_text(json.dumps(new))
        run("kubectl", "create", "-f", file, env=lab.env)
        with lock(module):
            yield

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vgpu_template, "_locked", after_a_new_user)
        refused = run_module(vgpu_template.main, {**options, "state": "absent", "confirm": [lab.name]})
    assert refused["code"] == "in_use", refused
    assert path.rpartition("/")[2] in templates(lab)
