# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated vCenter, as govc sees it: imports with their faults, privileges, hosts, and what a restart keeps."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lab import build
from lab.vsphere import inventory, ova
from tests.helpers.polling import until
from tests.helpers.vcenter import GovcError, VCenter, start_vcenter

RELEASE = "9.6.20260101-0"
POOL, FOLDER = "/DC1/host/cluster-a/Resources", inventory.TEMPLATES_FOLDER
HOST = "/DC1/host/cluster-a/esx-a1.example.com"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "rhcos.ova"
    ova.write(path, RELEASE, secure_boot=True)
    return path


def import_image(vcenter: VCenter, image: Path, name: str = "imported") -> None:
    vcenter.govc("import.ova", "-name", name, "-folder", FOLDER, "-pool", POOL, "-ds", "templates", str(image))


def machine(vcenter: VCenter, name: str = "imported") -> dict[str, Any]:
    reply: dict[str, Any] = json.loads(vcenter.govc("vm.info", "-json", f"{FOLDER}/{name}"))
    (only,) = reply["virtualMachines"]
    return dict(only)


def left(vcenter: VCenter) -> list[str]:
    return vcenter.govc("ls", FOLDER).split()


def test_it_starts_quickly(tmp_path: Path) -> None:
    build.ensure(["vcsim"])
    started = time.monotonic()
    with start_vcenter(tmp_path):
        assert time.monotonic() - started < 1.5


@pytest.mark.parametrize("version", ["7.0.3.0", "8.0.3.0", "9.0.0.0"])
def test_versions(tmp_path: Path, version: str) -> None:
    with start_vcenter(tmp_path, version=version) as vcenter:
        about = json.loads(vcenter.govc("about", "-json"))["about"]
        host = json.loads(vcenter.govc("host.info", "-json", "-host.ipath", HOST))["hostSystems"][0]
    assert (about["apiVersion"], about["version"]) == (version, version.rpartition(".")[0])
    modes = {one.get("vgpuMode") for one in host["config"]["graphicsInfo"]}
    assert modes == {None if version < "8.0.3" else "sameSize"}


def test_an_import_has_firmware_product_and_a_log(vcenter: VCenter, image: Path) -> None:
    vcenter.govc("ls", "/DC1/vm")
    vcenter.govc("gpu.host.profile.ls", "-host", HOST)
    assert vcenter.calls() == []
    import_image(vcenter, image)
    actual = machine(vcenter)
    assert actual["config"]["firmware"] == "efi"
    assert actual["config"]["bootOptions"]["efiSecureBootEnabled"] is True
    assert actual["config"]["version"] == "vmx-15"
    assert actual["summary"]["config"]["product"]["version"] == RELEASE
    assert vcenter.methods()[0] == "ImportVApp"
    assert set(vcenter.methods()) <= {"ImportVApp", "HttpNfcLeaseProgress", "HttpNfcLeaseComplete"}
    assert vcenter.calls()[0] | {"object": ""} == {
        "method": "ImportVApp",
        "type": "ResourcePool",
        "object": "",
        "name": "Resources",
        "user": inventory.ADMINISTRATOR,
    }
    vcenter.forget_calls()
    assert vcenter.calls() == []


@pytest.mark.parametrize(
    ("fault", "value", "message"),
    [
        ("upload-cut", "300000", None),
        ("upload-error", "300000", None),
        ("uploads-refused", None, None),
        ("lease-error", "Disk is locked", "Disk is locked"),
        ("datastore-full", None, "Insufficient disk space"),
        ("session-expires-in-upload", None, "not authenticated|NotAuthenticated"),
        ("unavailable", None, "503"),
        ("task-fails", "ImportVApp", None),
    ],
)
def test_faults_of_imports(vcenter: VCenter, image: Path, fault: str, value: str | None, message: str | None) -> None:
    vcenter.set_fault(fault, value)
    with pytest.raises(GovcError, match=message):
        import_image(vcenter, image)
    vcenter.clear(fault)
    if fault != "session-expires-in-upload":  # only the end of its lease removes that machine
        assert left(vcenter) == []
    import_image(vcenter, image, "second")
    assert f"{FOLDER}/second" in left(vcenter)


def test_a_name_that_is_taken_in_the_datastore_gets_another_directory(vcenter: VCenter, image: Path) -> None:
    options = ["import.ova", "-name", "imported", "-pool", POOL, "-ds", "templates"]
    folders = [FOLDER, inventory.MACHINES_FOLDER, "/DC1/vm"]
    for folder in folders:
        vcenter.govc(*options, "-folder", folder, str(image))
    directories = []
    for folder in folders:
        config = json.loads(vcenter.govc("vm.info", "-json", f"{folder}/imported"))["virtualMachines"][0]["config"]
        (disk,) = (one["backing"] for one in config["hardware"]["device"] if "capacityInKB" in one)
        directories.append(config["files"]["vmPathName"].rpartition("/")[0])
        assert disk["fileName"].startswith(f"{directories[-1]}/")
    assert directories == ["[templates] imported", "[templates] imported_1", "[templates] imported_2"]
    vcenter.govc("vm.destroy", f"{inventory.MACHINES_FOLDER}/imported")
    assert vcenter.govc("find", "/", "-type", "m").split() == [f"{FOLDER}/imported", "/DC1/vm/imported"]


def test_a_name_that_is_taken_in_the_folder_is_refused(vcenter: VCenter, image: Path) -> None:
    import_image(vcenter, image)
    with pytest.raises(GovcError) as error:
        import_image(vcenter, image)
    assert "The name 'imported' already exists" in str(error.value)
    assert "types." not in str(error.value)
    assert left(vcenter) == [f"{FOLDER}/imported"]


def test_an_import_that_never_becomes_ready(vcenter: VCenter, image: Path) -> None:
    vcenter.set_fault("lease-hangs")
    with pytest.raises(GovcError, match="timed out"):
        vcenter.govc(
            "import.ova", "-name", "a", "-folder", FOLDER, "-pool", POOL, "-ds", "templates", str(image), limit=1.5
        )
    assert left(vcenter) == []


def test_tags_are_logged_when_they_change(vcenter: VCenter) -> None:
    vcenter.govc("tags.category.create", "cluster")
    vcenter.govc("tags.create", "-c", "cluster", "prod")
    count = len(vcenter.calls())
    assert count == 2
    vcenter.govc("tags.ls")
    vcenter.govc("tags.attached.ls", "prod")
    assert len(vcenter.calls()) == count


def test_a_slow_upload(vcenter: VCenter, image: Path) -> None:
    vcenter.set_fault("upload-slow", "2000000")
    started = time.monotonic()
    import_image(vcenter, image)
    assert time.monotonic() - started > 0.4


def test_a_lease_without_progress_ends_and_its_machine_is_removed(vcenter: VCenter, image: Path) -> None:
    vcenter.set("lease-seconds", "0.3")
    vcenter.set_fault("session-expires-in-upload")
    with pytest.raises(GovcError):
        import_image(vcenter, image)
    vcenter.clear()
    until(lambda: left(vcenter) == [], limit=10)


def test_profiles_of_a_host_follow_its_graphics(vcenter: VCenter) -> None:
    def profiles(host: str) -> str:
        return vcenter.govc("gpu.host.profile.ls", "-host", f"/DC1/host/{host}.example.com")

    assert "grid_a100-10c" in profiles("cluster-a/esx-a1")
    assert "grid_a100-3-20c" not in profiles("cluster-a/esx-a1")
    assert "grid_a100-3-20c" in profiles("cluster-a/esx-a3")
    assert "nvidia_l40s-24c" in profiles("cluster-b/esx-b1")
    with pytest.raises(GovcError, match="no vGPU profiles"):
        profiles("cluster-b/esx-b3")


def test_a_disconnected_host(vcenter: VCenter) -> None:
    def state() -> str:
        host = json.loads(vcenter.govc("host.info", "-json", "-host.ipath", HOST))["hostSystems"][0]
        return str(host["runtime"]["connectionState"])

    vcenter.set_fault("host-disconnected", group="esx-a1.example.com")
    assert state() == "disconnected"
    vcenter.clear()
    assert state() == "connected"


def test_a_limited_user_may_do_what_its_file_says(vcenter: VCenter, image: Path) -> None:
    limited = vcenter.limited()
    import_image(limited, image)
    with pytest.raises(GovcError, match="ermission"):
        limited.govc("vm.clone", "-vm", f"{FOLDER}/imported", "-pool", POOL, "-ds", "templates", "clone")
    with pytest.raises(GovcError, match="ermission"):
        limited.govc("vm.change", "-vm", f"{FOLDER}/imported", "-annotation", "mine")
    vcenter.set_privileges({"/": ["System.Read"], FOLDER: list(inventory.TEMPLATE_PRIVILEGES)})
    with pytest.raises(GovcError, match="ermission"):
        import_image(limited, image, "second")  # the resource pool is not in the folder
    limited.govc("vm.change", "-vm", f"{FOLDER}/imported", "-e", "owner=mine")
    assert {"key": "owner", "value": "mine"}.items() <= machine(vcenter)["config"]["extraConfig"][-1].items()


def test_a_task_that_never_ends(vcenter: VCenter, image: Path) -> None:
    import_image(vcenter, image)
    vcenter.set_fault("task-hangs", "ReconfigVM_Task")
    with pytest.raises(GovcError, match="timed out"):
        vcenter.govc("vm.change", "-vm", f"{FOLDER}/imported", "-annotation", "mine", limit=1.5)


def test_a_restart_keeps_templates(tmp_path: Path, image: Path) -> None:
    state = tmp_path / "state.json"
    with start_vcenter(tmp_path / "first", state=state) as vcenter:
        import_image(vcenter, image)
        vcenter.govc("gpu.vm.add", "-vm", f"{FOLDER}/imported", "-profile", "grid_a100-10c")
        vcenter.govc("vm.markastemplate", f"{FOLDER}/imported")
        before = machine(vcenter)
    with start_vcenter(tmp_path / "second", state=state) as vcenter:
        after = machine(vcenter)
    for part in ("uuid", "instanceUuid", "template", "extraConfig", "vAppConfig", "bootOptions"):
        assert after["config"][part] == before["config"][part]
    assert after["config"]["template"] is True
    devices = [
        [(one["key"], one["deviceInfo"]["label"]) for one in each["config"]["hardware"]["device"]]
        for each in (before, after)
    ]
    assert devices[0] == devices[1]
    assert after["summary"]["config"]["product"] == before["summary"]["config"]["product"]


def test_uploads_have_the_certificate_of_the_same_authority(vcenter: VCenter) -> None:
    context = ssl.create_default_context(cafile=str(vcenter.ca))
    address = f"https://{vcenter.host}:{vcenter.uploads_port}/"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address, context=context, timeout=10)
    vcenter.set_fault("untrusted-certificate")
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(address, context=context, timeout=10)


def test_a_wrong_password_is_refused(vcenter: VCenter) -> None:
    vcenter.password = "wrong"
    with pytest.raises(GovcError, match="incorrect user name or password"):
        vcenter.govc("ls", "/DC1/vm")
