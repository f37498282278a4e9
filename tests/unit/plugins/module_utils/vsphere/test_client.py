# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of vCenter as errors, remedies for machines that do not start, API versions, and the options of the connection."""

from __future__ import annotations

import ssl
import typing as t
from pathlib import Path

import pytest
from pyVmomi import vim, vmodl

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ConnectionProblem, InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import (
    PowerOnFailure,
    VCenterOptions,
    fault_error,
    supported_versions,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.connection import VARIABLES

FOLDER = vim.Folder("group-v7", None)
PARAMS = {"hostname": "vc.example.com", "username": "automation@vsphere.local", "password": "PLANTED-secret"}
MEMORY = "reserve all its memory"
MMIO = "Set vgpu.mmio_gib of the pool"
GRAPHICS = "or the default graphics type of the hosts is not Shared Direct"
HOST_MEMORY, HOST_CPU = "has enough memory that is not reserved", "has enough CPU that is not reserved"
FAILOVER = "The admission control of vSphere HA keeps resources free"
FULL = "No usable host of the cluster can place this vGPU profile"


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        (
            vmodl.fault.ManagedObjectNotFound(msg="Gone."),
            404,
            "Gone. It was removed during the run; run the playbook again.",
        ),
        (
            vim.fault.NotAuthenticated(object=FOLDER, privilegeId="System.View", msg="Not authenticated."),
            401,
            "vCenter: Not authenticated.",
        ),
        (vim.fault.InvalidLogin(msg="Cannot complete login."), 401, "Cannot complete login."),
        (
            vim.fault.DuplicateName(msg="The name 'x' already exists."),
            409,
            "exists. Remove or rename the object with this name.",
        ),
        (
            vim.fault.TaskInProgress(msg="Busy"),
            409,
            "Busy. Wait for the other task of this object, and run the playbook again.",
        ),
        (vim.fault.NoDiskSpace(msg="Full"), 400, "Full. Free space on the datastore, or choose another one."),
        (
            vmodl.fault.HostNotConnected(msg="Lost"),
            503,
            "Lost. Reconnect the host in vCenter, or put it into maintenance mode",
        ),
        (vim.fault.RestrictedVersion(msg="No"), 400, "No. vCenter's license does not allow this operation."),
        # A fault without a remedy of its own.
        (
            vmodl.fault.InvalidArgument(msg="A specified parameter was not correct: spec.host"),
            400,
            "correct: spec.host.",
        ),
        # A fault without a text has its inner messages, or else its name.
        (vmodl.fault.SystemError(faultMessage=[vmodl.LocalizableMessage(key="a", message="inner")]), 400, "inner."),
        (vmodl.fault.SystemError(msg="SystemError"), 400, "SystemError."),
        (vim.fault.InvalidState(), 400, "InvalidState."),
        # The fault of a task that has none.
        (None, 400, "NoneType."),
    ],
)
def test_a_fault_is_an_error_with_its_remedy(fault: t.Any, status: int, message: str) -> None:
    error = fault_error(fault, "the deletion of /DC1/vm/x")
    assert error.message.startswith("the deletion of /DC1/vm/x failed in vCenter: ")
    assert message in error.message
    assert error.status == status
    assert error.fault == type(fault).__name__.rpartition(".")[2]


@pytest.mark.parametrize(
    ("fields", "privileges"),
    [
        ({"privilegeId": "VApp.Import"}, "VApp.Import"),
        (
            {
                "privilegeId": "VApp.Import",
                "missingPrivileges": [
                    vim.fault.NoPermission.EntityPrivileges(
                        entity=FOLDER, privilegeIds=["Folder.Create", "VApp.Import"]
                    )
                ],
            },
            "Folder.Create and VApp.Import",
        ),
    ],
)
def test_a_missing_privilege_is_named_with_its_object(fields: dict[str, t.Any], privileges: str) -> None:
    error = fault_error(vim.fault.NoPermission(object=FOLDER, msg="Denied", **fields), "ImportVApp")
    assert error.status == 403
    assert f"the user lacks the privilege {privileges} on Folder group-v7. Add it to the user's role" in error.message


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Invalid memory setting: memory reservation (sched.mem.min) should be equal to memsize(16384).", MEMORY),
        ("Memory is not reserved", MEMORY),
        ("The firmware could not allocate 137438953472 KB of PCI MMIO.", MMIO),
        ("PCI passthru device pciPassthru0 needs a 64-bit BAR 2 ", MMIO),
        (
            "The amount of graphics resource available in the parent resource pool is insufficient for the operation.",
            GRAPHICS,
        ),
        ("The host graphics type is not SharedDirect", GRAPHICS),
        (
            "Insufficient resources. One or more devices (pciPassthru0) required by VM x are not available on host y.",
            FULL,
        ),
        ("No host is compatible with the virtual machine.", FULL),
        ("Could not initialize plugin 'libnvidia-vgx.so' for vGPU 'grid_a100-40c'.", FULL),
        ("The host does not have sufficient memory resources to satisfy the reservation.", HOST_MEMORY),
        ("The available Memory resources in the parent resource pool are insufficient for the operation.", HOST_MEMORY),
        ("The host does not have sufficient CPU resources to satisfy the reservation.", HOST_CPU),
        ("The available CPU resources in the parent resource pool are insufficient for the operation.", HOST_CPU),
        ("Insufficient resources to satisfy configured failover level for vSphere HA.", FAILOVER),
        # Reasons that have nothing to do with vGPUs.
        ("Insufficient disk space on datastore vsan-a.", ""),
        ("Insufficient memory", ""),
        ("Could not find the file [vsan-a] a/a.vmdk", ""),
        ("Virtual machine storage profile is not compliant.", ""),
        ("This host does not support 64-bit guest operating systems.", ""),
        ("The operation is not allowed in the current state.", ""),
        ("", ""),
    ],
)
def test_the_reason_why_a_machine_does_not_start_has_a_remedy(reason: str, remedy: str) -> None:
    actual = PowerOnFailure("vdi-0", reason, "2026-08-01T10:00:00").remedy
    assert remedy in actual
    assert bool(actual) == bool(remedy)
    assert actual.endswith(".") or not actual


@pytest.mark.parametrize(
    ("fault", "remedy", "lasts"),
    [
        ("InsufficientGraphicsResourcesFault", GRAPHICS, True),
        ("InsufficientHostMemoryCapacityFault", HOST_MEMORY, True),
        ("InsufficientMemoryResourcesFault", HOST_MEMORY, True),
        ("InsufficientHostCpuCapacityFault", HOST_CPU, True),
        ("InsufficientCpuResourcesFault", HOST_CPU, True),
        ("InsufficientFailoverResourcesFault", FAILOVER, False),
        ("NoCompatibleHost", FULL, True),
        ("FileFault", "", False),
    ],
)
def test_the_type_of_the_fault_decides_where_the_text_is_translated(fault: str, remedy: str, lasts: bool) -> None:
    assert hasattr(vim.fault, fault)
    failure = PowerOnFailure("vdi-0", "Ressourcen fehlen", "", fault)
    assert remedy in failure.remedy
    assert (bool(failure.remedy), failure.lasts) == (bool(remedy), lasts)


NEWEST = b"<namespace><name>urn:vim25</name><version>8.0.3.0</version>"
PRIOR = b"<priorVersions><version>8.0.2.0</version><version> 7.0 </version></priorVersions></namespace>"
OTHER = b"<namespace><name>urn:vim2</name><version>2.0</version></namespace>"
DECLARATION, COMMENT = b'<?xml version="1.0" encoding="UTF-8" ?>\n', b"<!--\n   Copyright of the vendor.\n-->\n"


@pytest.mark.parametrize(
    ("document", "versions"),
    [
        (b"<namespaces>%s%s%s</namespaces>" % (NEWEST, PRIOR, OTHER), {"8.0.3.0", "8.0.2.0", "7.0"}),
        # vCenter's own file has a declaration and a comment ("vSphere Web Services SDK Programming Guide", Service-Versions File).
        (DECLARATION + COMMENT + b"<namespaces>%s%s</namespaces>" % (NEWEST, PRIOR), {"8.0.3.0", "8.0.2.0", "7.0"}),
        (COMMENT + b"<namespaces>%s</namespace></namespaces>" % NEWEST, {"8.0.3.0"}),
        (b"<namespaces>%s</namespaces>" % OTHER, set()),
        (b"<namespaces/>", set()),
        (b"<namespaces><namespace><name>urn:vim25</name><version/></namespace></namespaces>", {""}),
        (b"<html><body>Sign in to the proxy", set()),
        (b'<!DOCTYPE n [<!ENTITY v "8.0.3.0">]><namespaces>%s%s</namespaces>' % (NEWEST, PRIOR), set()),
        (DECLARATION + b"<!DOCTYPE html><namespaces>%s%s</namespaces>" % (NEWEST, PRIOR), set()),
        (b"", set()),
        (b"\xff\xfe\0", set()),
    ],
)
def test_versions_of_the_api(document: bytes, versions: set[str]) -> None:
    assert supported_versions(document) == versions


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (["hostname"], "Not set: hostname of vCenter. "),
        (["username", "password"], "Not set: username and password of vCenter. "),
        (["hostname", "username", "password"], "Not set: hostname, username and password of vCenter. "),
    ],
)
@pytest.mark.parametrize("empty", [None, ""])
def test_options_that_are_missing_are_named_with_their_variables(
    missing: list[str], named: str, empty: str | None
) -> None:
    with pytest.raises(ConnectionProblem) as raised:
        VCenterOptions.from_params({**PARAMS, **dict.fromkeys(missing, empty)})
    assert str(raised.value).startswith(named)
    assert all(VARIABLES[name] in str(raised.value) for name in missing)


def test_options_that_are_not_set_have_defaults() -> None:
    options = VCenterOptions.from_params(
        {**PARAMS, "port": None, "ca_cert": None, "request_timeout": None, "folder": "x"}
    )
    assert (options.port, options.request_timeout, options.validate_certs) == (443, 60, True)
    assert "PLANTED" not in repr(options)


@pytest.mark.parametrize(
    ("hostname", "port", "address"),
    [
        ("vc.example.com", 443, "vc.example.com:443"),
        ("192.0.2.7", 8443, "192.0.2.7:8443"),
        ("2001:db8::7", 443, "[2001:db8::7]:443"),
        ("vc_1.example.com.", 443, "vc_1.example.com.:443"),
    ],
)
def test_address(hostname: str, port: int, address: str) -> None:
    assert VCenterOptions.from_params({**PARAMS, "hostname": hostname, "port": port}).address == address


@pytest.mark.parametrize(
    "hostname",
    [
        "vcenter.example.com:443",
        "https://vcenter.example.com",
        "https://user:PLANTED-secret@vcenter.example.com",
        "vcenter.example.com/sdk",
        "[::1]",
        "[::1]:443",
        "::1%eth0/x",
        "a..example.com",
        f"{'a' * 64}.example.com",
        " vcenter.example.com",
        "vcenter\x1b[2J",
        "\udc80",
    ],
)
@pytest.mark.parametrize(("option", "port"), [("hostname", "port"), ("proxy_host", "proxy_port")])
def test_what_is_no_host_name(hostname: str, option: str, port: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        VCenterOptions.from_params({**PARAMS, option: hostname})
    (problem,) = raised.value.problems
    assert problem.startswith(f'{option}: "')
    assert problem.endswith(
        f" is not a host name or an IP address; set it without scheme, brackets and port (the port is the option {port})"
    )
    assert "PLANTED" not in problem
    assert problem.isprintable()


def test_a_ca_that_cannot_be_read(tmp_path: Path) -> None:
    for name, text in (("missing.pem", None), ("empty.pem", ""), ("text.pem", "no certificate")):
        path = tmp_path / name
        if text is not None:
            path.write_text(text)
        with pytest.raises(
            ConnectionProblem, match=f"ca_cert: .*{name} contains no CA certificates .* Set the path of a PEM file"
        ):
            VCenterOptions.from_params({**PARAMS, "ca_cert": str(path)}).tls_context()


def test_without_verification_no_ca_is_read() -> None:
    context = VCenterOptions.from_params({**PARAMS, "validate_certs": False, "ca_cert": "/missing"}).tls_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
