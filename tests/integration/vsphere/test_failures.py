# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of vCenter, of ESXi hosts and of OVAs: one message with a remedy, nothing left behind, and the next run converges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.vsphere import templates
from ansible_collections.accel.gpu.plugins.modules import vgpu_template
from lab.vsphere import inventory, ova
from tests.helpers.vcenter import start_vcenter
from tests.helpers.vsphere_modules import Site

FAULTS = [
    ("upload-cut", "100000", "ova", "The upload of disk.vmdk to 127.0.0.1"),
    ("upload-error", "100000", "ova", "The upload of disk.vmdk"),
    ("uploads-refused", None, "ova", "The upload of disk.vmdk to 127.0.0.1"),
    ("untrusted-certificate", None, "ova", "root certificate of vCenter's CA"),
    ("lease-error", None, "ova", "the import of vdi-"),
    ("datastore-full", None, "ova", "Free space on the datastore"),
    ("session-expires-in-upload", None, "ova", "the session has expired"),
    ("task-hangs", "ReconfigVM_Task", "timeout", "the configuration of vdi-"),
    ("task-fails", "ReconfigVM_Task", 400, "the configuration of vdi-"),
]


@pytest.mark.parametrize(("fault", "value", "code", "words"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_explained_and_leaves_nothing(
    site: Site, fault: str, value: str | None, code: object, words: str
) -> None:
    site.center.set_fault(fault, value)
    result = site.template(wait_timeout=2, request_timeout=5)
    assert result["failed"]
    assert (result["code"], words in result["msg"]) == (code, True), result["msg"]
    left = site.machines()
    assert not left or fault.startswith("task"), left
    site.center.clear()
    again = site.template()
    assert site.machines() == [again["templates"]["vdi"]["path"]], again
    assert not site.template()["changed"]


def test_a_host_that_is_disconnected_is_not_used(site: Site) -> None:
    site.center.govc("host.disconnect", "/DC1/host/cluster-a/esx-a1.example.com")
    assert site.template()["changed"]
    for name in ("esx-a2", "esx-a3"):
        site.center.govc("host.disconnect", f"/DC1/host/cluster-a/{name}.example.com")
    result = site.template(name="other")
    assert "no usable host of cluster-a" in result["msg"], result
    # What exists needs no host.
    again = site.template()
    assert again["changed"] is False, again


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"checksum": "sha256:" + "0" * 64}, "the file is damaged, or not the one that was declared"),
        ({"path": "/dev/null", "checksum": "sha256:" + "0" * 64}, "The OVA ends 512 bytes too early"),
    ],
)
def test_an_ova_that_is_not_the_declared_one(site: Site, change: dict[str, Any], words: str) -> None:
    result = site.template(**change)
    assert words in result["msg"], result
    assert site.machines() == []
    assert site.template()["changed"]


def test_an_ova_with_an_old_hardware_version_is_refused_before_anything_is_created(site: Site) -> None:
    old = site.folder / "old.ova"
    checksum = ova.write(old, "1", hardware=13)
    result = site.template(path=str(old), checksum=checksum)
    assert "hardware version 13" in result["msg"], result
    assert "ImportVApp" not in site.center.methods()


def test_wrong_credentials_and_addresses(site: Site) -> None:
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({"password": "wrong"}, "login", "does not accept the user name and the password"),
        ({"port": 1}, "unreachable", "Nothing listens there"),
        ({"hostname": ""}, "connection", "VMWARE_HOST"),
        ({"ca_cert": str(site.ova)}, "unreachable", "no certificate or crl found"),
        ({"ca_cert": None}, "unreachable", "ca_cert"),
    ]
    for change, code, words in cases:
        result = site.template(**change)
        assert result.get("failed"), (change, result)
        assert (result.get("code"), words in result["msg"]) == (code, True), (change, result["msg"])
        assert site.center.password not in str(result)


@pytest.mark.parametrize("seconds", [0, -1])
@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_time_limit_that_is_none_is_refused_before_anything_is_read(site: Site, seconds: int, state: str) -> None:
    result = site.template(wait_timeout=seconds, state=state)
    assert result["details"]["problems"] == [f"wait_timeout: {seconds} is not a number of seconds from 1 on"]
    assert site.center.methods() == []


READING = {"System.Anonymous", "System.Read", "System.View"}
# The documented privileges by the object that vCenter checks them on; the folder of the templates does not exist, and inherits from the one above it.
PRIVILEGES: dict[str, set[str]] = {
    "/DC1/vm": {*templates.FOLDER_PRIVILEGES, *templates.PARENT_PRIVILEGES},
    "/DC1/host/cluster-a/Resources": {*templates.POOL_PRIVILEGES},
    "/DC1/datastore/vsan-a": {*templates.DATASTORE_PRIVILEGES},
    "/DC1/network/VM Network": {*templates.NETWORK_PRIVILEGES},
}
NEEDED = [(path, privilege) for path, privileges in PRIVILEGES.items() for privilege in sorted(privileges)]


def grant(site: Site, path: str = "", privilege: str = "") -> None:
    """Give the limited user all documented privileges, except one on one object."""
    granted = {each: READING | (names - {privilege} if each == path else names) for each, names in PRIVILEGES.items()}
    site.center.set_privileges({"/": sorted(READING)} | {each: sorted(names) for each, names in granted.items()})


@pytest.mark.parametrize(("path", "privilege"), NEEDED)
def test_each_documented_privilege_is_needed_and_all_of_them_suffice(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, privilege: str
) -> None:
    if privilege == "VirtualMachine.Inventory.Delete":
        site.killed(2)
    site.connection |= {"username": site.center.limited_username, "password": site.center.limited_password}
    site.center.forget_calls()
    grant(site, path, privilege)
    checked = site.template()
    assert f"{privilege}; add" in checked["msg"], checked
    assert path in checked["msg"], checked
    assert site.center.methods() == []
    # Only vCenter itself refuses now, so a privilege that nothing needs would not be missed.
    with monkeypatch.context() as patched:
        patched.setattr(vgpu_template, "privilege_problems", lambda *_arguments: [])
        refused = site.template()
    assert f"the user lacks the privilege {privilege} on" in refused["msg"], refused
    grant(site)
    assert site.template()["changed"]
    assert not site.template()["changed"]


def test_the_limited_user_of_the_lab_has_exactly_the_documented_privileges(site: Site) -> None:
    assert set(inventory.TEMPLATE_PRIVILEGES) == READING.union(*PRIVILEGES.values())
    site.connection |= {"username": site.center.limited_username, "password": site.center.limited_password}
    assert site.template()["changed"]


@pytest.fixture(params=["7.0.3.0", "9.0.0.0"])
def other_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """A vCenter with another version of the API."""
    with start_vcenter(tmp_path / "vcenter", version=request.param) as center:
        yield Site(center, tmp_path)


def test_other_versions_of_the_api(other_site: Site) -> None:
    assert other_site.template()["changed"]
    assert not other_site.template()["changed"]
    (first, _second) = other_site.profiles()["clusters"]
    assert {profile["sharing"] for profile in first["profiles"]} == {"time-sliced", "mig"}
    (info,) = other_site.info()
    assert info["drift"] == {}
