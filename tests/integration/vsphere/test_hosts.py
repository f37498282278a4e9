# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The graphics of hosts: from shared to MIG with the restarts that are owed, refusals, faults and killed runs; and the checklist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.vsphere import hosts as host_code
from lab.vsphere import inventory
from tests.helpers.vcenter import start_vcenter
from tests.helpers.vsphere_modules import Site

Object = dict[str, Any]
CLUSTER = "/DC1/host/cluster-a"
# A host whose GPUs are shared and support MIG, one that is ready, and one without the vGPU manager.
SHARED, READY, BARE = "esx-1", "esx-2", "esx-3"
SHARED_DIRECT: Object = {"graphics_type": "sharedDirect", "gpus": [{"graphics_type": "sharedDirect"}]}
MIG: Object = {"gpus": [{"vgpu_mode": "multiInstanceGpu"}]}
RESTART = ["EnterMaintenanceMode_Task", "RebootHost_Task", "ExitMaintenanceMode_Task"]


def objects() -> Object:
    """A cluster with these hosts."""
    listed = [
        inventory.host(SHARED, "a100", graphics="shared"),
        inventory.host(READY, "a100"),
        inventory.host(BARE, "l40s", graphics="shared", manager=None),
    ]
    cluster = {"name": "cluster-a", "datastores": ["vsan-a"], "resource_pools": ["gpu"], "hosts": listed}
    return {"datacenters": [{"name": "DC1", "folders": ["openshift"], "clusters": [cluster]}]}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with start_vcenter(tmp_path / "vcenter", objects=objects()) as center:
        center.set("reboot-seconds", "0.3")
        yield Site(center, tmp_path)


@pytest.fixture
def old_site(tmp_path: Path) -> Iterator[Site]:
    """A vCenter whose API has no modes of GPUs."""
    with start_vcenter(tmp_path / "vcenter", objects=objects(), version="8.0.2.0") as center:
        center.set("reboot-seconds", "0.3")
        yield Site(center, tmp_path)


def shown(site: Site, host: str) -> Object:
    """What govc shows of the graphics of a host."""
    names = ("config.graphicsConfig", "config.graphicsInfo", "config.sharedPassthruGpuTypes", "runtime")
    listed = json.loads(site.center.govc("object.collect", "-json", f"{CLUSTER}/{host}", *names))
    values = {each["name"]: each["val"] for each in listed}
    config, infos = values["config.graphicsConfig"], values["config.graphicsInfo"]
    profiles = values.get("config.sharedPassthruGpuTypes") or []
    return {
        "default": config["hostDefaultGraphicsType"],
        "policy": config["sharedPassthruAssignmentPolicy"],
        "configured": [(each["graphicsType"], each.get("vgpuMode")) for each in config["deviceType"]],
        "active": [(each["graphicsType"], each.get("vgpuMode")) for each in _listed(infos)],
        "profiles": _listed(profiles),
        "maintenance": values["runtime"]["inMaintenanceMode"],
        "connected": values["runtime"]["connectionState"],
    }


def _listed(value: Any) -> list[Any]:
    """govc writes some lists with their type."""
    return list((value["_value"] if isinstance(value, dict) else value) or ())


def power_on(site: Site, name: str, profile: str | None = None, host: str = READY) -> None:
    """Start a virtual machine on a host."""
    govc, path = site.center.govc, f"/DC1/vm/{name}"
    govc("vm.create", "-on=false", "-ds=vsan-a", "-net=", f"-host={CLUSTER}/{host}", "-m=4096", "-firmware=efi", name)
    if profile is not None:
        settings = ("pciPassthru.use64bitMMIO=TRUE", "pciPassthru.64bitMMIOSizeGB=256")
        govc("vm.change", f"-vm={path}", "-memory-pin=true", *(f"-e={setting}" for setting in settings))
        govc("gpu.vm.add", f"-vm={path}", f"-profile={profile}")
    govc("vm.power", "-on", path)


def one(result: Object, host: str) -> Object:
    """A host in the result of host_graphics."""
    (entry,) = [each for each in result["hosts"] if each["name"] == host]
    return dict(entry)


def both(site: Site, **options: Any) -> Object:
    """The result of a run, which its check mode has predicted."""
    predicted = site.graphics(check=True, **options)
    before = site.center.methods()
    result = site.graphics(**options)
    assert (predicted.get("changed"), predicted.get("diff")) == (result.get("changed"), result.get("diff"))
    assert predicted.get("hosts") == result.get("hosts")
    assert predicted.get("msg") == result.get("msg")
    assert result.get("changed") == (site.center.methods() != before)
    again = site.graphics(**options)
    assert again["changed"] is False, again
    return result


def test_from_shared_to_shared_direct_to_mig(site: Site) -> None:
    # The restart is owed, and done by the next run that is told to.
    result = both(site, hosts=[SHARED], **SHARED_DIRECT)
    entry = one(result, SHARED)
    assert (entry["updated"], entry["restarted"], entry["restart_owed"]) == (True, False, "xorg")
    assert entry["restart_command"].startswith("/etc/init.d/xorg stop")
    assert entry["gpus"][0]["graphics_type"] == {"configured": "sharedDirect", "active": "shared"}
    actual = shown(site, SHARED)
    assert (actual["default"], actual["policy"]) == ("sharedDirect", "performance")
    assert actual["configured"] == [("sharedDirect", "sameSize")] * 2
    assert actual["active"] == [("shared", "sameSize")] * 2
    assert site.center.methods() == ["UpdateGraphicsConfig"]

    entry = one(both(site, hosts=[SHARED], restart="host"), SHARED)
    assert (entry["updated"], entry["restarted"], entry["restart_owed"]) == (False, True, "none")
    actual = shown(site, SHARED)
    assert actual["active"] == [("sharedDirect", "sameSize")] * 2
    assert "grid_a100-10c" in actual["profiles"]
    assert (actual["maintenance"], actual["connected"]) == (False, "connected")
    assert site.center.methods()[1:] == RESTART

    # MIG on one of the GPUs.
    second = entry["gpus"][1]["pci_id"]
    entry = one(
        both(site, hosts=[SHARED], gpus=[{"pci_id": second, "vgpu_mode": "multiInstanceGpu"}], restart="host"), SHARED
    )
    assert (entry["updated"], entry["restarted"], entry["restart_owed"]) == (True, True, "none")
    actual = shown(site, SHARED)
    assert actual["active"] == [("sharedDirect", "sameSize"), ("sharedDirect", "multiInstanceGpu")]
    assert {"grid_a100-10c", "grid_a100-3-20c"} <= set(actual["profiles"])

    # Without the restart, it is owed; everything else is kept.
    entry = one(both(site, hosts=[SHARED], assignment_policy="consolidation", **MIG), SHARED)
    assert (entry["updated"], entry["restart_owed"]) == (True, "host")
    actual = shown(site, SHARED)
    assert actual["policy"] == "consolidation"
    assert actual["configured"] == [("sharedDirect", "multiInstanceGpu")] * 2


def test_all_hosts_of_a_cluster(site: Site) -> None:
    result = both(site, cluster="cluster-a", **SHARED_DIRECT)
    states = {each["name"]: (each["updated"], each["restart_owed"]) for each in result["hosts"]}
    # No driver runs the GPUs of the host without the vGPU manager, so a restart would not help.
    assert states == {SHARED: (True, "xorg"), READY: (False, "none"), BARE: (True, "none")}


def test_a_gpu_with_a_setting_of_its_own_keeps_it(site: Site) -> None:
    result = site.graphics(hosts=[SHARED], graphics_type="sharedDirect")
    assert one(result, SHARED)["gpus"][0]["graphics_type"]["configured"] == "shared"
    assert "its own setting overrides it" in str(result["warnings"])


def test_a_host_whose_gpus_are_used_is_refused(site: Site) -> None:
    power_on(site, "desktop-1", "grid_a100-10c")
    power_on(site, "plain", host=SHARED)
    site.center.forget_calls()
    options: Object = {"hosts": [SHARED, READY], "graphics_type": "sharedDirect", "gpus": [{"vgpu_mode": "mixedSize"}]}
    for check in (True, False):
        result = site.graphics(check=check, **options)
        assert (result["code"], result["changed"]) == ("in_use", False), result
        assert f"{CLUSTER}/{READY}: the GPUs are used by desktop-1" in result["msg"]
        assert f"{CLUSTER}/{SHARED}" not in result["msg"]
    assert site.center.methods() == []
    # A virtual machine without a GPU does not prevent the change, but the restart.
    assert site.graphics(hosts=[SHARED], **SHARED_DIRECT)["changed"]
    result = site.graphics(hosts=[SHARED], restart="host")
    assert result["code"] == "in_use"
    assert "the restart would stop plain" in result["msg"]
    # What is configured already is no change.
    assert not site.graphics(hosts=[READY], **SHARED_DIRECT)["changed"]
    assert site.center.methods() == ["UpdateGraphicsConfig"]


def test_vcenter_also_refuses_a_host_in_use(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    power_on(site, "desktop-1", "grid_a100-10c")
    monkeypatch.setattr(host_code.HostConfigurator, "check_use", lambda *_arguments: None)
    result = site.graphics(hosts=[READY], gpus=[{"vgpu_mode": "mixedSize"}])
    assert "while virtual machines use the GPUs" in result["msg"], result
    assert not result["changed"]


def test_modes_are_refused_at_an_api_that_would_drop_them(old_site: Site) -> None:
    result = old_site.graphics(hosts=[SHARED], **MIG)
    assert result["code"] == "invalid"
    assert "have only 8.0.2.0 in common, which would ignore it" in result["msg"], result
    assert old_site.center.methods() == []
    # Graphics types are as old as vGPUs.
    assert both(old_site, hosts=[SHARED], restart="host", **SHARED_DIRECT)["changed"]
    assert shown(old_site, SHARED)["active"] == [("sharedDirect", None)] * 2


REFUSED: list[tuple[Object, str]] = [
    ({"hosts": ["esx-9", "esx-8"]}, "'esx-9'|\"esx-9\" does not exist"),
    ({"hosts": []}, "hosts: is empty"),
    ({"cluster": "missing"}, "cluster:"),
    (
        {"hosts": [READY], "gpus": [{"pci_id": "0000:99:00.0", "vgpu_mode": "mixedSize"}]},
        "no NVIDIA GPU has the PCI id 0000:99:00.0",
    ),
    ({"hosts": [READY], "gpus": [{"vgpu_mode": "mixedSize"}, {"vgpu_mode": "sameSize"}]}, "listed more than once"),
    ({"hosts": [READY], "gpus": [{"pci_id": "0000:3b:00.0"}]}, "gpus[0]: sets nothing"),
    ({"hosts": [BARE], **MIG}, "no vGPU manager reports the GPUs"),
    ({"hosts": [READY], "wait_timeout": 0}, "wait_timeout: 0"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_what_is_refused(site: Site, options: Object, words: str) -> None:
    result = site.graphics(**options)
    assert result["code"] == "invalid", result
    assert any(word in result["msg"] for word in words.split("|")), result["msg"]
    assert site.center.methods() == []


def test_all_unknown_hosts_are_named_at_once(site: Site) -> None:
    result = site.graphics(hosts=["esx-9", READY, "esx-8"])
    assert len(result["details"]["problems"]) == 2


def test_mig_is_refused_on_a_gpu_without_it(tmp_path: Path) -> None:
    with start_vcenter(tmp_path / "vcenter") as center:
        site = Site(center, tmp_path)
        result = site.graphics(hosts=["esx-b1.example.com"], **MIG)
        assert "(NVIDIA L40S) does not support MIG" in result["msg"], result
        assert center.methods() == []


def test_a_vcenter_that_does_not_set_mig(site: Site) -> None:
    """vSphere's documentation does not list MIG among the modes that can be set."""
    site.center.set("mig-by-api", "false")
    result = site.graphics(hosts=[READY], **MIG)
    assert "nvidia-smi -i PCI_ID -mig 1" in result["msg"], result
    assert not result["changed"]
    # A GPU on which the administrator has switched it on is left alone.
    site.center.set("mig-by-api", "true")
    site.graphics(hosts=[READY], restart="host", **MIG)
    site.center.set("mig-by-api", "false")
    assert not site.graphics(hosts=[READY], restart="host", **MIG)["changed"]


def test_a_disconnected_host_is_refused_before_another_one_is_changed(site: Site) -> None:
    site.center.set_fault("host-disconnected", group=BARE)
    result = site.graphics(cluster="cluster-a", **SHARED_DIRECT)
    assert result["code"] == "invalid", result
    assert f"{CLUSTER}/{BARE}: the host is disconnected" in result["msg"]
    assert site.center.methods() == []
    site.center.clear()
    assert site.graphics(cluster="cluster-a", **SHARED_DIRECT)["changed"]


FAULTS: list[tuple[str, str, str, str]] = [
    ("task-fails", "UpdateGraphicsConfig", "400", "The graphics configuration of"),
    ("task-fails", "EnterMaintenanceMode_Task", "400", "the maintenance mode of"),
    ("task-fails", "RebootHost_Task", "400", "the restart of"),
    ("task-hangs", "RebootHost_Task", "timeout", "the restart of"),
]


@pytest.mark.parametrize(("fault", "method", "code", "words"), FAULTS)
def test_a_fault_is_explained_and_the_next_run_converges(
    site: Site, fault: str, method: str, code: str, words: str
) -> None:
    options: Object = {"hosts": [SHARED], "restart": "host", **SHARED_DIRECT}
    site.center.set_fault(fault, method)
    result = site.graphics(wait_timeout=2, **options)
    assert (str(result["code"]), words in result["msg"]) == (code, True), result["msg"]
    assert result["changed"] == (method != "UpdateGraphicsConfig")
    site.center.clear()
    # A host whose restart was refused leaves maintenance mode; if the outcome is not known, it stays there.
    assert shown(site, SHARED)["maintenance"] == (fault == "task-hangs")
    assert site.graphics(**options)["changed"]
    assert shown(site, SHARED)["active"] == [("sharedDirect", "sameSize")] * 2
    assert not site.graphics(**options)["changed"]


def test_a_host_that_does_not_come_back(site: Site) -> None:
    site.center.set("reboot-seconds", "600")
    result = site.graphics(hosts=[SHARED], restart="host", wait_timeout=1, **SHARED_DIRECT)
    assert result["code"] == "timeout"
    assert "is not responding after the command to restart" in result["msg"]
    assert "still in maintenance mode" in result["msg"]
    assert result["changed"]
    entry = one(result, SHARED)
    assert (entry["updated"], entry["restarted"], entry["connected"]) == (True, True, False)


def test_a_restart_that_does_not_help(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_code, "_SHOWN_AFTER", 0.2)
    # As if the restart had not changed the mode.
    monkeypatch.setattr(host_code, "owed_restart", lambda *_arguments: "host")
    result = site.graphics(hosts=[READY], restart="host", **MIG)
    assert result["code"] == "mismatch", result
    assert "has restarted, but its GPUs still run with" in result["msg"]
    assert "nvidia-smi" in result["msg"]
    assert not shown(site, READY)["maintenance"]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_killed_run_is_finished_by_the_next_one(site: Site, after: int) -> None:
    """Killed after the update, in maintenance mode before the restart, and during the restart."""
    options: Object = {"hosts": [SHARED], "restart": "host", **SHARED_DIRECT}
    site.kill("host_graphics", after, **options)
    site.center.forget_calls()
    waited = 100
    while shown(site, SHARED)["connected"] != "connected" and waited:
        waited -= 1
    result = site.graphics(**options)
    assert result["changed"] == (after < 3), result
    assert site.center.methods() == {1: RESTART, 2: RESTART[1:2], 3: []}[after]
    actual = shown(site, SHARED)
    assert actual["active"] == [("sharedDirect", "sameSize")] * 2
    # A maintenance mode that a run has not begun is not ended.
    assert actual["maintenance"] == (after > 1)
    assert one(result, SHARED)["maintenance_mode"] == (after > 1)
    again = site.graphics(**options)
    assert not again["changed"]
    for each in (result, again, site.graphics(check=True, **options)):
        assert ("stays in maintenance mode" in str(each.get("warnings"))) == (after > 1), each


def test_a_host_in_maintenance_mode_stays_there(site: Site) -> None:
    site.center.govc("host.maintenance.enter", f"{CLUSTER}/{SHARED}")
    site.center.forget_calls()
    result = site.graphics(hosts=[SHARED], restart="host", **SHARED_DIRECT)
    assert "stays in maintenance mode, because this run has not begun it" in str(result["warnings"])
    assert site.center.methods() == ["UpdateGraphicsConfig", "RebootHost_Task"]
    assert shown(site, SHARED)["maintenance"]


def test_a_failure_returns_what_was_done(site: Site) -> None:
    site.center.set_fault("task-fails", "EnterMaintenanceMode_Task")
    result = site.graphics(cluster="cluster-a", restart="host", **SHARED_DIRECT)
    assert result["changed"]
    assert [each["name"] for each in result["hosts"]] == [SHARED, READY, BARE]
    entry = one(result, SHARED)
    assert (entry["updated"], entry["restarted"], entry["restart_owed"]) == (True, False, "xorg")
    assert entry["graphics_type"] == shown(site, SHARED)["default"] == "sharedDirect"
    assert [each["updated"] for each in result["hosts"]] == [True, False, False]
    path = f"{CLUSTER}/{SHARED}"
    before, after = (result["diff"][side][path]["graphics_type"] for side in ("before", "after"))
    assert (before, after) == ("shared", "sharedDirect")
    # One after the other: the hosts behind the failed one are not touched.
    assert site.center.methods() == ["UpdateGraphicsConfig", "EnterMaintenanceMode_Task"]
    assert shown(site, BARE)["default"] == "shared"


READING = ["System.Anonymous", "System.Read", "System.View"]


@pytest.mark.parametrize("privilege", [host_code.UPDATE_PRIVILEGE, host_code.RESTART_PRIVILEGE])
def test_each_privilege_is_named_before_anything_is_written(
    site: Site, monkeypatch: pytest.MonkeyPatch, privilege: str
) -> None:
    documented = [host_code.UPDATE_PRIVILEGE, host_code.RESTART_PRIVILEGE]
    site.connection |= {"username": site.center.limited_username, "password": site.center.limited_password}
    options: Object = {"hosts": [SHARED], "restart": "host", **SHARED_DIRECT}
    site.center.set_privileges({"/": [*READING, *(each for each in documented if each != privilege)]})
    for check in (True, False):
        result = site.graphics(check=check, **options)
        assert (
            f"{CLUSTER}/{SHARED}: user {site.center.limited_username} lacks the privileges {privilege}; add"
            in result["msg"]
        ), result
    assert site.center.methods() == []
    with monkeypatch.context() as patched:
        patched.setattr(host_code.HostConfigurator, "privilege_problems", lambda *_arguments: [])
        assert f"the user lacks the privilege {privilege} on" in site.graphics(**options)["msg"]
    site.center.set_privileges({"/": [*READING, *documented]})
    assert site.graphics(**options)["changed"]
    assert not site.graphics(**options)["changed"]


def test_a_configuration_that_vcenter_does_not_show(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_code, "_SHOWN_AFTER", 0.2)
    merged = host_code.merged_config

    def lossy(plan: Any) -> Any:
        config = merged(plan)
        for device in config.deviceType:
            device.vgpuMode = None
        return config

    monkeypatch.setattr(host_code, "merged_config", lossy)
    result = site.graphics(hosts=[READY], gpus=[{"vgpu_mode": "mixedSize"}])
    assert result["code"] == "mismatch", result
    assert "ESXi must be as new as vCenter" in result["msg"]


def test_the_checklist(site: Site) -> None:
    pools = [
        {"name": "vdi", "profile": "grid_a100-10c", "driver_version": "580.95.05", "cluster": "cluster-a"},
        {"name": "mig", "profile": "grid_a100-3-20c", "driver_version": "580.95.05", "cluster": "cluster-a"},
    ]
    result = site.checklist(pools=pools)
    assert site.center.methods() == []
    assert not result["ready"]
    (cluster,) = result["clusters"]
    states = {(each["subject"], each["check"]): each["status"] for each in cluster["checks"]}
    assert states == {
        (SHARED, "manager"): "ok",
        (SHARED, "driver"): "ok",
        (SHARED, "graphics"): "problem",
        (READY, "manager"): "ok",
        (READY, "driver"): "ok",
        (READY, "graphics"): "ok",
        (BARE, "manager"): "problem",
        (BARE, "graphics"): "problem",
        ("vdi", "profile"): "ok",
        ("mig", "profile"): "problem",
    }
    (command,) = [
        each["command"] for each in cluster["checks"] if each["subject"] == BARE and each["check"] == "manager"
    ]
    assert f"           $ {command}" in result["lines"]
    # What the checklist advises is sufficient.
    site.graphics(hosts=[SHARED], restart="host", **SHARED_DIRECT, assignment_policy="performance")
    site.graphics(hosts=[SHARED], restart="host", **MIG)
    result = site.checklist(pools=pools)
    assert result["ready"], result["lines"]
    by_host = {each["name"]: each for each in result["clusters"][0]["hosts"]}
    assert "grid_a100-3-20c" in by_host[SHARED]["placeable_profiles"]
    assert by_host[BARE]["vgpu_manager"] == ""


def test_the_checklist_without_pools_is_that_of_all_clusters(site: Site) -> None:
    result = site.checklist()
    (cluster,) = result["clusters"]
    assert (cluster["path"], result["ready"]) == (CLUSTER, False)
    assert {each["subject"] for each in cluster["checks"]} == {SHARED, READY, BARE}
    site.center.set_fault("host-disconnected", group=BARE)
    # Each module describes a host in the same way.
    (profiles,) = site.profiles()["clusters"]
    for checked, offering, configured in zip(
        site.checklist()["clusters"][0]["hosts"],
        profiles["hosts"],
        site.graphics(cluster="cluster-a")["hosts"],
        strict=True,
    ):
        common = checked.keys() & configured.keys()
        assert common == {
            *(
                "name",
                "path",
                "connected",
                "maintenance_mode",
                "graphics_type",
                "assignment_policy",
                "gpus",
                "restart_owed",
            )
        }
        assert {name: checked[name] for name in common} == {name: configured[name] for name in common}
        assert offering.items() <= checked.items()
    assert {each["name"]: each["vgpu_manager"] for each in profiles["hosts"]} == {
        SHARED: "580.95.02",
        READY: "580.95.02",
        BARE: None,
    }


def test_a_pool_whose_hosts_are_all_disconnected(site: Site) -> None:
    site.center.set_fault("host-disconnected", group=READY)
    result = site.checklist(pools=[{"name": "vdi", "profile": "grid_a100-10c", "cluster": "cluster-a"}])
    (check,) = [each for each in result["clusters"][0]["checks"] if each["check"] == "profile"]
    assert (result["ready"], check["status"]) == (False, "problem")
    assert f"{READY} is disconnected" in check["evidence"]


def test_the_checklist_of_a_user_without_privileges(site: Site) -> None:
    site.connection |= {"username": site.center.limited_username, "password": site.center.limited_password}
    site.center.set_privileges({"/": READING})
    result = site.checklist(pools=[{"name": "vdi", "profile": "grid_a100-10c", "cluster": "cluster-a"}])
    checks = [each for each in result["clusters"][0]["checks"] if each["check"] == "manager"]
    assert {each["status"] for each in checks} == {"warning"}
    assert "Host.Config.Image" in checks[0]["remedy"]


def test_the_problems_of_all_pools_are_named_at_once(site: Site) -> None:
    pools = [{"name": "a", "profile": "x", "cluster": "missing"}, {"name": "b", "profile": "x"}]
    result = site.checklist(pools=pools)
    assert [problem.partition(":")[0] for problem in result["details"]["problems"]] == ["Pool a", "Pool b"]
