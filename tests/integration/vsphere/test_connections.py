# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The connections of a run: certificates of ESXi hosts, sessions and leases that end, and secrets that stay secret."""

from __future__ import annotations

import json
import syslog
from collections.abc import Callable
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.vsphere import ova as uploads
from ansible_collections.accel.gpu.plugins.modules import vgpu_template_info
from tests.helpers.modules import run_module
from tests.helpers.vsphere_modules import Site

Object = dict[str, Any]
WRONG = ":".join(["00"] * 20)


@pytest.fixture
def pinned(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """The certificate of vCenter is trusted by the system, and `ca_cert` is not set."""
    monkeypatch.setenv("SSL_CERT_FILE", str(site.center.ca))
    del site.connection["ca_cert"]
    return site


def report_thumbprint(monkeypatch: pytest.MonkeyPatch, thumbprint: str) -> None:
    """Have vCenter's leases contain another thumbprint of the ESXi host."""
    ready = uploads._ready

    def changed(*arguments: Any) -> Any:
        info = ready(*arguments)
        for device in info.deviceUrl:
            device.sslThumbprint = thumbprint
        return info

    monkeypatch.setattr(uploads, "_ready", changed)


def test_without_a_ca_the_certificate_of_a_host_is_the_one_that_vcenter_reports(pinned: Site) -> None:
    # No CA has signed it.
    pinned.center.set_fault("untrusted-certificate")
    result = pinned.template()
    assert result["changed"], result
    assert not pinned.template()["changed"]


@pytest.mark.parametrize("signed", [True, False])
def test_a_host_with_another_certificate_gets_no_disk(
    pinned: Site, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    """Also a certificate of the trusted CA is not that of the host."""
    if not signed:
        pinned.center.set_fault("untrusted-certificate")
    report_thumbprint(monkeypatch, WRONG)
    result = pinned.template()
    assert result["code"] == "ova", result
    assert "The upload of disk.vmdk to 127.0.0.1" in result["msg"], result
    assert "ingerprint" in result["msg"], result
    assert pinned.machines() == []


@pytest.mark.parametrize("signed", [True, False])
def test_a_host_without_a_reported_certificate_is_verified_with_the_ca(
    pinned: Site, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    if not signed:
        pinned.center.set_fault("untrusted-certificate")
    report_thumbprint(monkeypatch, "")
    result = pinned.template()
    assert bool(result.get("failed")) != signed, result
    assert signed or "certificate" in result["msg"], result


def test_a_ca_is_used_even_if_vcenter_reports_the_certificate(site: Site) -> None:
    site.center.set_fault("untrusted-certificate")
    assert "root certificate of vCenter's CA" in site.template()["msg"]


def sessions(site: Site) -> list[str]:
    """The user agents of the open sessions, without govc's own."""
    listed = json.loads(site.center.govc("session.ls", "-json"))
    return [each["userAgent"] for each in listed["sessionList"] if not each["userAgent"].startswith("govc")]


def fail_with(name: str, value: str | None = None) -> Callable[[Site], None]:
    return lambda site: site.center.set_fault(name, value)


ENDINGS: dict[str, tuple[Callable[[Site], None], Object]] = {
    "success": (lambda site: None, {}),
    "lease-error": (fail_with("lease-error"), {}),
    "upload-cut": (fail_with("upload-cut", "100000"), {}),
    "task-fails": (fail_with("task-fails", "ReconfigVM_Task"), {}),
    "wait-timeout": (fail_with("task-hangs", "ReconfigVM_Task"), {"wait_timeout": 1}),
    "unknown-cluster": (lambda site: None, {"cluster": "missing"}),
    "missing-privileges": (lambda site: site.center.set_privileges({"/": []}, site.center.limited_username), {}),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_session_is_left(site: Site, ending: str) -> None:
    prepare, options = ENDINGS[ending]
    if ending == "missing-privileges":
        site.connection |= {"username": site.center.limited_username, "password": site.center.limited_password}
    prepare(site)
    result = site.template(**options)
    assert bool(result.get("failed")) == (ending != "success"), result
    site.center.clear()
    assert sessions(site) == []
    assert "templates" in run_module(vgpu_template_info.main, site.connection)
    assert sessions(site) == []


@pytest.mark.parametrize("reported", [True, False])
def test_a_lease_lives_as_long_as_its_progress_is_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch, reported: bool
) -> None:
    site.center.set("lease-seconds", "1")
    site.center.set_fault("upload-slow", "400000")
    monkeypatch.setattr(uploads, "_LEASE_INTERVAL", 0.2 if reported else 60.0)
    result = site.template()
    if reported:
        assert result["changed"], result
    else:
        assert "ended in vCenter before its upload was complete" in result["msg"], result
    assert site.center.methods().count("HttpNfcLeaseProgress") >= (3 if reported else 0)
    assert len(site.machines()) == reported


def test_secrets_are_in_no_result_and_no_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda *arguments: logged.append(str(arguments)))
    # The API server of the cluster does not exist.
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "one", "user": {"token": "planted-token", "client-key-data": "cGxhbnRlZC1rZXk="}}],
    }
    secrets = ["planted-token", "cGxhbnRlZC1rZXk=", site.center.password]
    connections: list[Object] = [
        {"kubeconfig": kubeconfig},
        {"kubeconfig": kubeconfig, "context": "missing"},
        {"kubeconfig": kubeconfig, "unknown": 1},
        {"kubeconfig": {"users": "planted-token"}},
    ]
    results = [site.template(kubernetes=each) for each in connections]
    results += [site.template(), site.template(password=site.center.password, cluster="missing")]
    assert logged
    for result in results:
        assert "invocation" in result, result
    for text in (*logged, *map(json.dumps, results)):
        assert [secret for secret in secrets if secret in text] == [], text
