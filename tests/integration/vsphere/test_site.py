# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on OpenShift on vSphere: OpenShift's real machine controller clones the templates that the collection builds."""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.modules import gpu_info, machineset, machineset_info, vgpu_template
from lab import build
from lab.tools import PARTS
from lab.vsphere import images, ova
from tests.helpers.modules import run_module
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.playbook_kills import killed_after
from tests.labs import Lab, shared_lab
from tests.programs import REPO, run

INVENTORY = REPO / "inventories" / "openshift-vsphere"
DECLARED: dict[str, Any] = yaml.safe_load((INVENTORY / "group_vars" / "gpu_clusters.yml").read_text())
# Without the driver images and licenses that the inventory declares, which are tested in test_chain.py.
DEFAULTS: dict[str, Any] = {"sharing": {"mode": "none"}}
HOST = "openshift"
FOLDER = "/DC1/vm/accel-gpu"
POOL = "/DC1/host/cluster-a/Resources"
Object = dict[str, Any]

pytestmark = [pytest.mark.timeout(1200), pytest.mark.usual(90), pytest.mark.sampled(2, group="site on vSphere")]


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with an OpenShift on vSphere that can update boot images. ACCEL_GPU_TEST_VSPHERE names a running one."""
    build.ensure(PARTS["vsphere"])
    options = ["--openshift", "4.20", "--platform", "VSphere"]
    with shared_lab(request, "ACCEL_GPU_TEST_VSPHERE", "vsphere", builds=[], options=options) as running:
        yield running


def play(lab: Lab, name: str = "site", *arguments: str, **variables: Any) -> PlaybookRun:
    given = {"gpu_defaults": DEFAULTS, **variables}
    return run_playbook(f"accel.gpu.{name}", environ=lab.env, inventory=INVENTORY, variables=given, arguments=arguments)


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
    return objects(lab, "machinesets", "-n", "openshift-machine-api", "-l", "accel.gpu/nodegroup")


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
    """All pools exist, and OpenShift updates the boot images of all MachineSets but theirs."""
    lab.become("vsphere-guarded-site", lambda: guarded_site(lab))


def guarded_site(lab: Lab) -> None:
    every = {"resource": "machinesets", "apiGroup": "machine.openshift.io", "selection": {"mode": "All"}}
    patch(lab, "machineconfiguration", "cluster", {"spec": {"managedBootImages": {"machineManagers": [every]}}})
    cluster = copy.deepcopy(DECLARED["gpu_cluster"])
    cluster["cloud"]["machineset"]["vsphere"]["narrow_boot_images"] = True
    play(lab, gpu_cluster=cluster).require_success()


def patch(lab: Lab, kind: str, name: str, change: Object, *words: str) -> None:
    run("kubectl", "patch", kind, name, *words, "--type=merge", "-p", json.dumps(change), env=lab.env)


def objects(lab: Lab, kind: str, *words: str) -> list[Object]:
    items: list[Object] = json.loads(run("kubectl", "get", kind, *words, "-o", "json", env=lab.env))["items"]
    return items


def boot_image(lab: Lab) -> str:
    """The release of RHCOS that the cluster's ConfigMap names."""
    words = ("get", "cm", "-n", images.NAMESPACE, images.CONFIG_MAP, "-o", "jsonpath={.data.stream}")
    stream = json.loads(run("kubectl", *words, env=lab.env))
    release: str = stream["architectures"]["x86_64"]["artifacts"]["vmware"]["release"]
    return release


def name_release(lab: Lab) -> str:
    """Have the ConfigMap name another release, as after an upgrade of OpenShift, and return it."""
    base, current = lab.env["LAB_OVA_URL"], boot_image(lab)
    sums = {line.split()[1]: line.split()[0] for line in run("curl", "-sS", f"{base}/{images.CHECKSUMS}").splitlines()}
    other = next(name for name in sorted(sums, reverse=True) if current not in name)
    release = other.removeprefix("rhcos-").removesuffix("-vmware.x86_64.ova")
    stream = {"release": release, "formats": {"ova": {"disk": {"location": f"{base}/{other}", "sha256": sums[other]}}}}
    data = {"stream": json.dumps({"architectures": {"x86_64": {"artifacts": {"vmware": stream}}}})}
    patch(lab, "cm", images.CONFIG_MAP, {"data": data}, "-n", images.NAMESPACE)
    return release


def machines(lab: Lab) -> dict[str, str]:
    """The template of each Machine with GPUs, by the name of the Machine."""
    listed = objects(lab, "machines", "-n", "openshift-machine-api")
    named = {item["metadata"]["name"]: item["spec"]["providerSpec"]["value"]["template"] for item in listed}
    return {name: template for name, template in named.items() if template.startswith(FOLDER)}


def removed_templates(played: PlaybookRun) -> list[str]:
    """The templates that a run has deleted or, in check mode, would delete."""
    results = played.module_results("accel.gpu.vgpu_template", HOST)
    return sorted(path for result in results for each in result["templates"].values() for path in each["removed"])


def test_site_creates_nodes_with_vgpus_from_the_clusters_own_image(lab: Lab) -> None:
    lab.reset()
    assert govc(lab, "find", "/DC1/vm", "-type", "f", "-name", "accel-gpu").strip() == ""
    played = play(lab)
    played.require_success()
    nodes = objects(lab, "nodes", "-l", "accel.gpu/pool")
    offered = sorted(
        (node["metadata"]["labels"]["accel.gpu/pool"], node["status"]["allocatable"]["nvidia.com/gpu"])
        for node in nodes
    )
    # Two vGPUs with two shares each, and one whole vGPU.
    assert offered == [("desktops", "4"), ("desktops", "4"), ("inference", "1")]
    release = boot_image(lab)
    assert [name.partition(f"-{release}-")[0] for name in templates(lab)] == [
        "burst-zone-a",
        "desktops-zone-a",
        "inference-zone-b",
    ]
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
    # A host is selected by its name or its path.
    for host, changed in (("esx-b1.example.com", 0), ("/DC1/host/cluster-b/esx-b3.example.com", 1)):
        variables = {"gpu_vsphere_hosts_apply": "true", "gpu_vsphere_hosts_names": host}
        predicted = play(lab, "vsphere_hosts", "--check", **variables)
        predicted.require_success()
        assert predicted.changed(HOST) == changed
    # The lab's own machines may start at any time.
    after = path.read_text() if path.exists() else ""
    assert "UpdateGraphicsConfig" not in after.removeprefix(before)


def test_a_new_release_replaces_the_templates_and_the_second_run_changes_nothing(lab: Lab) -> None:
    sited(lab)
    old, named = templates(lab), named_templates(lab)
    release = name_release(lab)
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


def test_templates_refresh_predicts_what_it_replaces(lab: Lab) -> None:
    sited(lab)
    old, before = templates(lab), machines(lab)
    release = name_release(lab)
    refused = play(lab, "templates_refresh", gpu_pool="all")
    assert (
        f"Nothing was done. To list these machines, add --check --diff. To confirm, add -e gpu_confirm={lab.name}"
        in refused.failure(HOST)
    )
    assert (machines(lab), templates(lab)) == (before, old)
    predicted = play(lab, "templates_refresh", "--check", "--diff", gpu_pool="all").require_success()
    assert (machines(lab), templates(lab)) == (before, old)
    played = play(lab, "templates_refresh", "--diff", gpu_pool="all", gpu_confirm=lab.name).require_success()
    (expected,), (actual,) = (each.module_results("accel.gpu.machineset", HOST) for each in (predicted, played))
    # The MachineSets with their templates, then the Machines in their order.
    assert actual["diff"] == expected["diff"]
    assert actual["rollouts"] == expected["rollouts"]
    batches = {pool: len(rollout["batches"]) for pool, rollout in actual["rollouts"].items()}
    assert batches == {"desktops": 2, "inference": 1}
    assert removed_templates(played) == removed_templates(predicted) == [f"{FOLDER}/{name}" for name in old]
    assert not set(templates(lab)) & set(old)
    assert not set(machines(lab)) & set(before)
    # OpenShift has updated the other MachineSets to the same release, but not these.
    # The pool without nodes has only a template.
    assert {*machines(lab).values()} == {path for path in named_templates(lab).values() if "/burst-" not in path}
    assert all(release in path for path in named_templates(lab).values())
    installed = json.loads(govc(lab, "vm.info", "-json", "/DC1/vm/openshift/prod-rhcos-dc1-*"))["virtualMachines"]
    versions = {each["config"]["vAppConfig"]["product"][0]["version"] for each in installed}
    assert versions == {release}
    again = play(lab, "templates_refresh", gpu_pool="all", gpu_confirm=lab.name)
    assert again.require_success().changed(HOST) == 0


def test_a_killed_templates_refresh_continues(lab: Lab, tmp_path: Path) -> None:
    sited(lab)
    before = machines(lab)
    release = name_release(lab)
    confirmed = {"gpu_pool": "desktops", "gpu_confirm": lab.name, "gpu_defaults": DEFAULTS}
    drawn = random.Random(lab.name)
    for number in drawn.sample(range(3, 16), 3):
        killed_after(lab, "accel.gpu.templates_refresh", number, tmp_path, inventory=INVENTORY, variables=confirmed)
    play(lab, "templates_refresh", **confirmed).require_success()
    after = {name: path for name, path in machines(lab).items() if name.startswith("desktops")}
    assert len(after) == 2
    assert not after.keys() & before.keys()
    assert all(release in path for path in after.values())
    nodes = objects(lab, "nodes", "-l", "accel.gpu/pool=desktops")
    assert {node["metadata"]["name"] for node in nodes} == after.keys()
    assert not [node for node in nodes if node["spec"].get("unschedulable")]
    assert [name for name in templates(lab) if name.startswith("desktops")] == [
        path.rpartition("/")[2] for path in {*after.values()}
    ]


def test_hosts_without_a_free_gpu(lab: Lab) -> None:
    """An additional machine does not fit, so nothing is drained; without it, each machine is removed before the next one is created."""
    path = built(lab)
    options = {"kubeconfig": lab.env["KUBECONFIG"], "name": "broken", "zone": "zone-a", "template": path}
    created = run_module(machineset.main, {**options, "node_count": 12})
    assert created["nodegroup"]["status"] == "READY", created
    before = machines(lab)
    name_release(lab)
    confirmed = {"gpu_pool": "desktops", "gpu_confirm": lab.name}
    refused = play(lab, "templates_refresh", gpu_nodegroups_surge=True, **confirmed)
    assert "This was the additional machine of surge" in refused.failure(HOST)
    assert "graphics resource" in refused.failure(HOST)
    assert machines(lab) == before
    assert not [node for node in objects(lab, "nodes") if node["spec"].get("unschedulable")]
    play(lab, "templates_refresh", **confirmed).require_success()
    left = {name for name in machines(lab) if name in before}
    assert {name for name in before if name not in left} == {name for name in before if name.startswith("desktops")}


def test_a_pool_without_nodes_and_back(lab: Lab) -> None:
    sited(lab)
    (machine,) = [name for name in machines(lab) if name.startswith("inference")]
    play(lab, "scale", gpu_pool="inference", gpu_node_count=0).require_success()
    assert govc(lab, "find", "/DC1/vm/openshift", "-name", machine).strip() == ""
    # The way in which machines are replaced does not matter to a run that replaces none.
    play(lab, "scale", gpu_pool="inference", gpu_node_count=1, gpu_nodegroups_surge=True).require_success()
    (node,) = objects(lab, "nodes", "-l", "accel.gpu/pool=inference")
    assert node["metadata"]["name"] != machine
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "1"


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
    assert [name.partition(f"-{boot_image(lab)}")[0] for name in templates(lab)] == ["burst-zone-a", "inference-zone-b"]


def pool(name: str, profile: str, count: int, **more: Any) -> Object:
    return {"name": name, "nodes": {"zones": ["zone-a"], "count": count}, "vgpu": {"profile": profile}, **more}


GUEST_DRIVER = {
    "type": "vgpu",
    "version": "595.71.05",
    "repository": "registry.example.com/nvidia",
    "licensing_secret": "nls",
}
# The pools, other variables, and what is said.
NOT_STARTING: dict[str, tuple[list[Object], Object, list[str]]] = {
    "unknown profile": ([pool("vdi", "grid_a100-11c", 1)], {}, ['no host of cluster-a offers "grid_a100-11c"']),
    "wrong class": (
        [pool("vdi", "grid_a100-10b", 1)],
        {},
        ["gpu_pools[0].vgpu.profile: grid_a100-10b is of the series B"],
    ),
    "wrong license": (
        [pool("vdi", "grid_a100-10c", 1)],
        {"gpu_licensing_feature_type": "2"},
        ["Template vdi-zone-a: gpu_licensing_feature_type", "vGPU types of the series C require 1 (NVIDIA vGPU) or 4"],
    ),
    "no license": (
        [pool("vdi", "grid_a100-10c", 1)],
        {"gpu_licensing_feature_type": 0},
        ["Template vdi-zone-a: gpu_licensing_feature_type", "FeatureType=0 requests no license"],
    ),
    "too many, and a newer driver": (
        [pool("vdi", "grid_a100-10c", 17, driver=GUEST_DRIVER)],
        {},
        [
            "the hosts of cluster-a have room for 16 machines with 1 x grid_a100-10c, not for 17 (esx-a1.example.com: 8; esx-a2.example.com: 8;",
            "Guest driver 595.71.05 belongs to vGPU 20, and is newer than vGPU manager 580.95.02",
        ],
    ),
    "mixed sizes": (
        [pool("small", "grid_a100-10c", 2), pool("large", "grid_a100-20c", 7)],
        {},
        ["Templates small-zone-a and large-zone-a: nodes.count", "set the vGPU mode of the GPUs to Mixed Size"],
    ),
}


@pytest.mark.parametrize("case", NOT_STARTING)
def test_plan_and_site_refuse_what_vcenter_could_not_start(lab: Lab, case: str) -> None:
    lab.reset()
    pools, variables, texts = NOT_STARTING[case]
    before, sets = calls(lab), named_templates(lab)
    for name in ("plan", "site"):
        played = play(lab, name, gpu_pools=pools, **variables)
        for text in texts:
            assert text in played.failure(HOST)
    assert (calls(lab), named_templates(lab)) == (before, sets)


def built(lab: Lab, profile: str = "grid_a100-10c") -> str:
    """The path of a template for one more MachineSet."""
    options = {**connection(lab), "kubernetes": {"kubeconfig": lab.env["KUBECONFIG"]}}
    result = run_module(
        vgpu_template.main, {**options, "name": "broken", "failure_domain": "zone-a", "profile": profile}
    )
    path: str = result["templates"]["broken"]["path"]
    return path


def test_only_the_named_templates_are_deleted(lab: Lab) -> None:
    lab.reset()
    access = {"kubeconfig": lab.env["KUBECONFIG"], "gpu_cluster": {"name": lab.name}}
    entries = [{"name": name, "failure_domain": "zone-a", "profile": "grid_a100-10c"} for name in ("first", "second")]
    options: Object = {**connection(lab), "kubernetes": access, "templates": entries}
    old = {name: each["path"] for name, each in run_module(vgpu_template.main, options)["templates"].items()}
    for name, path in old.items():
        group = {**access, "name": name, "zone": "zone-a", "template": path, "node_count": 0}
        assert run_module(machineset.main, group)["changed"]
    name_release(lab)
    new = {name: each["path"] for name, each in run_module(vgpu_template.main, options)["templates"].items()}
    for name in old:
        deleted = run_module(machineset.main, {**access, "name": name, "state": "absent", "confirm": [lab.name]})
        assert deleted["changed"], deleted

    def delete(state: str, *names: str, check: bool = False) -> Object:
        named = {**options, "state": state, "names": names, "confirm": [lab.name]}
        return run_module(vgpu_template.main, named, check=check)

    def left() -> set[str]:
        return {f"{FOLDER}/{name}" for name in templates(lab)}

    for state in ("collected", "absent"):
        assert "names: scond is not the name of a template" in delete(state, "first", "scond")["msg"]
        assert not delete(state)["changed"]
    assert left() == {*old.values(), *new.values()}
    predicted, actual = (delete("collected", "second", check=check) for check in (True, False))
    assert actual["templates"] == predicted["templates"]
    assert {name: each["removed"] for name, each in actual["templates"].items()} == {"second": [old["second"]]}
    assert left() == {old["first"], *new.values()}
    assert delete("absent", "first")["changed"]
    assert left() == {new["second"]}


def edited(lab: Lab, *change: str) -> str:
    """The path of a template that somebody has changed."""
    path = built(lab)
    govc(lab, "vm.markasvm", "-pool", POOL, path)
    govc(lab, change[0], "-vm", path, *change[1:])
    govc(lab, "vm.markastemplate", path)
    return path


def imported(lab: Lab, folder: str, hardware: int = 15) -> str:
    """The path of a template that was imported by hand."""
    path = lab.directory / "broken.ova"
    ova.write(path, "1", hardware=hardware)
    words = ("-dc", "DC1", "-ds", "vsan-a", "-pool", POOL, "-folder", folder, "-name", "broken")
    govc(lab, "import.ova", *words, str(path))
    govc(lab, "vm.markastemplate", f"{folder}/broken")
    return f"{folder}/broken"


def without_profile(lab: Lab) -> str:
    """The path of a template whose profile no connected host offers any longer."""
    path = built(lab, "grid_a100-3-20c")
    govc(lab, "host.disconnect", "/DC1/host/cluster-a/esx-a3.example.com")
    return path


def named_twice(lab: Lab) -> str:
    """The name of two templates."""
    first, _second = (imported(lab, folder) for folder in ("/DC1/vm/gpu-templates", "/DC1/vm/openshift"))
    return first.rpartition("/")[2]


# What a Machine shows that vCenter does not start (phase, state of the virtual machine, message), and one whose template the controller does not clone.
SILENT = ("Provisioning", "poweredOff", "Machine successfully created")
FAILED = ("Failed", None)
# By case: the template, the number of Machines, what the Machine shows, vCenter's or the controller's reason, and the remedy.
REFUSALS: dict[str, tuple[Callable[[Lab], str], int, tuple[str | None, ...], str, str]] = {
    "memory-not-reserved": (
        lambda lab: edited(lab, "vm.change", "-memory-pin=false"),
        1,
        SILENT,
        "memory reservation",
        "must reserve all its memory",
    ),
    "mmio-too-small": (
        lambda lab: edited(lab, "vm.change", "-e", "pciPassthru.64bitMMIOSizeGB=1"),
        1,
        SILENT,
        "MMIO",
        "mmio_gib",
    ),
    "no-gpu-left": (built, 17, SILENT, "graphics resource", "Free a GPU"),
    "profile-gone": (without_profile, 1, SILENT, "No host is compatible", "choose another profile"),
    "hardware-13": (
        lambda lab: imported(lab, "/DC1/vm/gpu-templates", 13),
        1,
        FAILED,
        "machine template version is 13",
        "The template's hardware version is too old",
    ),
    "name-twice": (named_twice, 1, FAILED, "multiple templates found", "set the whole inventory path"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_machine_that_does_not_start_says_why(lab: Lab, case: str) -> None:
    make, count, shown, reason, remedy = REFUSALS[case]
    sited(lab)
    path = make(lab)
    options = {"kubeconfig": lab.env["KUBECONFIG"], "vcenter": connection(lab)}
    group = {"name": "broken", "zone": "zone-a", "template": path, "node_count": count}
    result = run_module(machineset.main, {**options, **group})
    assert result["code"] == "partial", result
    statuses = machine_statuses(lab, "broken")
    assert [status for status in statuses if status[: len(shown)] == shown], statuses
    info = run_module(machineset_info.main, {**options, "names": ["broken"]})
    report = run_module(
        gpu_info.main, {**options, **declared(lab, {"name": "broken", "nodes": {"template": path, "count": count}})}
    )
    outputs = (result["msg"], str(info["nodegroups"]["broken"]["problems"]), str(report["gpu_info"]["warnings"]))
    assert [text for text in outputs if reason not in text or remedy not in text] == []
    assert lab.env["LAB_VSPHERE_PASSWORD"] not in json.dumps([result, info, report])
    if shown == SILENT:
        assert "its virtual machine exists but is not started" in result["msg"]
        without = run_module(machineset_info.main, {"kubeconfig": lab.env["KUBECONFIG"], "names": ["broken"]})
        asked = "Set the host name, the user and the password of vCenter"
        assert asked in str(without["nodegroups"]["broken"]["problems"])


def machine_statuses(lab: Lab, name: str) -> list[tuple[str | None, ...]]:
    """What the Machines of a MachineSet show: phase, state of the virtual machine, message of the controller."""
    label = f"machine.openshift.io/cluster-api-machineset={name}"
    words = ("get", "machines", "-n", "openshift-machine-api", "-l", label, "-o", "json")
    statuses = [item["status"] for item in json.loads(run("kubectl", *words, env=lab.env))["items"]]
    return [
        (
            status["phase"],
            status["providerStatus"].get("instanceState"),
            status["providerStatus"]["conditions"][0]["message"],
        )
        for status in statuses
    ]


def declared(lab: Lab, pool: Object) -> Object:
    """The variables of the inventory with one more pool."""
    vsphere = {"username": lab.env["LAB_VSPHERE_USERNAME"], "ca_cert": lab.env["LAB_VSPHERE_CA"]}
    cluster = {**DECLARED["gpu_cluster"], "name": lab.name, "cloud": {"machineset": {"vsphere": vsphere}}}
    return {
        "gpu_cluster": cluster,
        "gpu_defaults": DEFAULTS,
        "gpu_pools": [*DECLARED["gpu_pools"], pool],
    }


def test_a_user_who_may_not_delete_templates_is_told_before_anything_is_deleted(lab: Lab) -> None:
    sited(lab)
    path = built(lab)
    users = Path(lab.env["LAB_VSPHERE_USERS"])
    before, content = users.read_text(), json.loads(users.read_text())
    limited = lab.env["LAB_VSPHERE_LIMITED_USERNAME"]
    content[limited]["permissions"]["/"].remove("VirtualMachine.Inventory.Delete")
    options = {
        **connection(lab),
        "username": limited,
        "password": lab.env["LAB_VSPHERE_LIMITED_PASSWORD"],
        "kubernetes": {"kubeconfig": lab.env["KUBECONFIG"]},
        "name": "broken",
        "state": "absent",
        "confirm": [lab.name],
    }
    try:
        users.write_text(json.dumps(content))
        refused = run_module(vgpu_template.main, options)
    finally:
        users.write_text(before)
    assert f"{FOLDER}: user {limited} lacks the privileges VirtualMachine.Inventory.Delete" in refused["msg"], refused
    assert path.rpartition("/")[2] in templates(lab)
    assert run_module(vgpu_template.main, options)["changed"]


def test_the_credential_of_awx_is_enough(lab: Lab) -> None:
    """AWX's credential type for vCenter sets these variables, and has no file with CA certificates."""
    sited(lab)
    names = {"VMWARE_HOST": "HOST", "VMWARE_USER": "USERNAME", "VMWARE_PASSWORD": "PASSWORD"}
    credential = {variable: lab.env[f"LAB_VSPHERE_{name}"] for variable, name in names.items()}
    cluster = {"name": lab.name, "distribution": "openshift", "cloud": {"machineset": {"vsphere": {}}}}
    variables = {"gpu_cluster": cluster, "gpu_defaults": DEFAULTS, "gpu_vsphere_password": ""}
    for validate, succeeds in (("False", True), ("True", False)):
        environ = {**lab.env, **credential, "VMWARE_VALIDATE_CERTS": validate}
        played = run_playbook("accel.gpu.templates", environ=environ, inventory=INVENTORY, variables=variables)
        assert (played.rc == 0) is succeeds, played.stdout
        assert succeeds or "ca_cert" in played.stdout


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
