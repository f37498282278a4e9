# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the modules for vSphere: which templates they declare, with which places and which OVA, and how disks are sent."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import syslog
import typing as t
from pathlib import Path
from types import SimpleNamespace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import NAMESPACE_OPTION
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.client import start_failures
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.connection import VCENTER
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.module import (
    KUBERNETES,
    TEMPLATES,
    VSphereModule,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.openshift import OpenShift
from tests.helpers.modules import run_module

Object = dict[str, t.Any]

SHA256 = "0123456789abcdef" * 4
PLACES = {"datacenter": "DC1", "cluster": "cluster-a", "datastore": "vsan-a", "network": "VM Network"}
OVA = {"url": "https://mirror.example.com/rhcos.ova", "checksum": f"sha256:{SHA256}"}
# A template that needs no cluster, and one that gets everything from it.
WHOLE: Object = {"name": "vdi", "profile": "grid_a100-10c", **PLACES, **OVA}
SHORT: Object = {"name": "vdi", "profile": "grid_a100-10c"}
CONNECTION = {"hostname": "vc.example.com", "username": "u", "password": "PLANTED-secret"}
STREAM = {
    "architectures": {
        "x86_64": {
            "artifacts": {
                "vmware": {
                    "release": "418.94",
                    "formats": {"ova": {"disk": {"location": "https://rhcos.example.com/r.ova", "sha256": SHA256}}},
                }
            }
        }
    }
}


def domain(name: str, **topology: t.Any) -> Object:
    places = {
        "datacenter": "DC1",
        "computeCluster": f"/DC1/host/{name}",
        "datastore": f"vsan-{name}",
        "networks": ["net"],
    }
    return {"name": name, "zone": f"zone-{name}", "server": "VC.example.com", "topology": {**places, **topology}}


def cluster(*domains: Object, centers: t.Sequence[Object] = ()) -> OpenShift:
    """A cluster with these failure domains and vCenters, and with the boot image of its release."""
    body = {
        "spec": {"platformSpec": {"vsphere": {"failureDomains": list(domains), "vcenters": list(centers)}}},
        "status": {"platformStatus": {"type": "VSphere"}},
    }
    config_map = {"data": {"stream": json.dumps(STREAM)}}
    client: t.Any = SimpleNamespace(get_once=lambda path: body, get=lambda path: config_map)
    return OpenShift(client, "openshift-machine-api")


def requests(options: Object, openshift: OpenShift | None = None) -> Object:
    """The result of a module that returns its requests."""

    def main() -> None:
        module = VSphereModule({**TEMPLATES, **KUBERNETES, **NAMESPACE_OPTION})
        module.__dict__["openshift"] = openshift
        module.run(lambda module: {"requests": [dataclasses.asdict(each) for each in module.requests()]})

    return run_module(main, {**CONNECTION, **options})


def problems(options: Object, openshift: OpenShift | None = None) -> list[str]:
    result = requests(options, openshift)
    assert result.get("failed"), result
    return list(result["details"]["problems"])


def test_a_template_that_needs_no_cluster() -> None:
    (request,) = requests(WHOLE)["requests"]
    assert request == {
        "name": "vdi",
        "profile": "grid_a100-10c",
        "count": 1,
        **PLACES,
        "folder": "accel-gpu",
        "source": {"location": OVA["url"], "sha256": SHA256, "release": ""},
        "resource_pool": None,
        "mmio_gib": None,
        "machines": None,
        "max_machines": None,
        "recreate": False,
        "driver_version": None,
    }


ENTRIES: list[tuple[Object, str]] = [
    ({"name": ""}, "name: must have 1 to 40 characters without a slash"),
    ({"name": "  "}, "name: must have 1 to 40 characters without a slash"),
    ({"name": "a/b"}, "name: must have 1 to 40 characters without a slash"),
    ({"name": "n" * 41}, "name: must have 1 to 40 characters without a slash"),
    ({"profile": None}, "profile: is not set; set a vGPU profile, such as grid_a100-10c"),
    ({"profile": ""}, "profile: is not set"),
    ({"count": 0}, "count: 0 is not a number of vGPUs from 1 to 16"),
    ({"count": -1}, "count: -1 is not a number"),
    ({"count": 17}, "count: 17 is not a number"),
    ({"mmio_gib": 0}, "mmio_gib: 0 is not a power of two; set one, such as 256, or omit it"),
    ({"mmio_gib": -256}, "mmio_gib: -256 is not a power of two"),
    ({"mmio_gib": 131072}, "mmio_gib: 131072 is larger than any MMIO space of a virtual machine; set at most 65536"),
    ({"mmio_gib": 96}, "mmio_gib: 96 is not a power of two"),
    ({"network": None}, "network: not set; set them, or set kubernetes"),
    ({"datastore": "", "cluster": None}, "cluster, datastore: not set; set them, or set kubernetes"),
    ({"url": None, "checksum": None}, "url, path: not set; set one of them, or set kubernetes"),
    (
        {"profile": "nvidia_l40s-2b"},
        "profile: nvidia_l40s-2b is of the series B (virtual PC), on which CUDA does not run",
    ),
    ({"machines": -1}, "machines: -1 is negative; set the number of virtual machines"),
    ({"max_machines": -1}, "max_machines: -1 is negative; set the number of virtual machines"),
    ({"machines": 5, "max_machines": 0}, "max_machines: 0 is less than machines, which is 5; raise it, or omit it"),
    # A lone surrogate cannot be sent.
    ({"folder": "gpu\udc80"}, "folder: contains the character U+DC80, which is invisible; remove it"),
    ({"datastore": "vsan\x1b[2J"}, "datastore: contains the character U+001B, which is invisible; remove it"),
    ({"resource_pool": "p" * 1025}, "resource_pool: has 1025 characters; the limit is 1024"),
    ({"path": "/x.ova"}, "url and path: are mutually exclusive"),
    ({"url": "ftp://mirror/x.ova"}, "url: must begin with https:// or http://"),
    ({"url": "https://mirror/x\udc80.ova"}, "url: contains an invisible character; remove it"),
    ({"url": "mirror/x.ova"}, "url: must begin with https:// or http://"),
    ({"checksum": None}, "checksum: is required with url; set sha256: and the SHA-256 of the file"),
    ({"checksum": "sha256:"}, "checksum: is required with url"),
    ({"checksum": SHA256[:-1]}, "checksum: is not a SHA-256; set sha256: and 64 hexadecimal digits"),
    ({"checksum": "g" * 64}, "checksum: is not a SHA-256"),
    ({"checksum": f"md5:{SHA256}"}, "checksum: is not a SHA-256"),
    ({"checksum": "٣" * 64}, "checksum: is not a SHA-256"),
]


@pytest.mark.parametrize(("changed", "message"), ENTRIES)
@pytest.mark.parametrize("listed", [False, True])
def test_a_template_with_a_mistake(changed: Object, message: str, listed: bool) -> None:
    entry = {key: value for key, value in {**WHOLE, **changed}.items() if value is not None}
    (problem,) = problems({"templates": [entry]} if listed else entry)
    assert problem.startswith(f"Template {entry['name']}: {message}")


@pytest.mark.parametrize("count", [1, 16])
@pytest.mark.parametrize("checksum", [SHA256, f"sha256:{SHA256}", f"sha256:{SHA256.upper()}"])
def test_values_at_the_limits(count: int, checksum: str) -> None:
    limits = {"mmio_gib": 1, "machines": 2, "max_machines": 2}
    options = {**WHOLE, "name": "n" * 40, "count": count, **limits, "checksum": checksum}
    (request,) = requests(options)["requests"]
    assert (request["count"], request["source"]["sha256"]) == (count, SHA256)


def test_all_problems_are_reported_and_each_name_is_unique() -> None:
    entries = [{**WHOLE, "count": 0}, {**WHOLE, "mmio_gib": 3}, {**WHOLE, "name": "train"}]
    assert [problem.partition(";")[0] for problem in problems({"templates": entries})] == [
        "Template vdi: count: 0 is not a number of vGPUs from 1 to 16",
        "Template vdi: mmio_gib: 3 is not a power of two",
        "Template vdi: is declared more than once",
    ]


def test_no_templates() -> None:
    assert requests({"templates": []})["requests"] == []


def test_a_cluster_names_the_places_and_the_image() -> None:
    (request,) = requests(SHORT, cluster(domain("a", resourcePool="/DC1/host/a/Resources/gpu")))["requests"]
    assert request["source"] == {"location": "https://rhcos.example.com/r.ova", "sha256": SHA256, "release": "418.94"}
    assert {key: request[key] for key in (*PLACES, "resource_pool")} == {
        "datacenter": "DC1",
        "cluster": "/DC1/host/a",
        "datastore": "vsan-a",
        "network": "net",
        "resource_pool": "/DC1/host/a/Resources/gpu",
    }


def test_what_is_declared_counts_more_than_the_failure_domain() -> None:
    given = {**SHORT, **OVA, "failure_domain": "zone-b", "datastore": "fast", "resource_pool": "gpu"}
    (request,) = requests(given, cluster(domain("a"), domain("b")))["requests"]
    assert (request["cluster"], request["datastore"], request["resource_pool"]) == ("/DC1/host/b", "fast", "gpu")
    assert (request["source"]["location"], request["source"]["release"]) == (OVA["url"], "")


def test_with_all_places_no_failure_domain_is_read() -> None:
    (request,) = requests(WHOLE, cluster())["requests"]
    assert request["cluster"] == "cluster-a"


@pytest.mark.parametrize(
    ("domains", "changed", "message"),
    [
        (
            [],
            {},
            "failure_domain: is not set, and the cluster has 0 (none); add a failure domain to it",
        ),
        ([domain("a"), domain("b")], {}, "failure_domain: is not set, and the cluster has 2 (a, b); set one of them"),
        ([domain("a")], {"failure_domain": "c"}, 'failure_domain: "c" is not in the Infrastructure object; known: a'),
        # The folder of the cluster's machines.
        (
            [domain("a", folder="/DC1/vm/prod")],
            {"folder": "prod"},
            "folder: prod is the folder of the cluster's machines",
        ),
        ([domain("a", folder="/DC1/vm/prod/")], {"folder": "/DC1/vm/prod"}, "folder: /DC1/vm/prod is the folder of"),
        ([domain("a", folder="/DC1/vm/prod")], {"folder": "/DC1/vm/prod/"}, "folder: /DC1/vm/prod/ is the folder of"),
        ([domain("a", folder="/DC1/vm/a/b")], {"folder": "a//b"}, 'folder: "a//b" contains an empty part'),
        (
            [domain("a", folder="/DC1/vm/b")],
            {"folder": "a/../b"},
            'folder: "a/../b" contains an empty part, a dot or two dots',
        ),
    ],
)
def test_a_template_that_does_not_fit_the_cluster(domains: list[Object], changed: Object, message: str) -> None:
    (problem,) = problems({**SHORT, **changed}, cluster(*domains))
    assert problem.startswith(f"Template vdi: {message}")


@pytest.mark.parametrize("folder", ["prod/gpu", "gpu", "/DC1/vm/prod-gpu", "/DC2/vm/prod"])
def test_another_folder(folder: str) -> None:
    (request,) = requests({**SHORT, "folder": folder}, cluster(domain("a", folder="/DC1/vm/prod")))["requests"]
    assert request["folder"] == folder


def test_the_checksum_of_a_file_is_computed(tmp_path: Path) -> None:
    path = tmp_path / "rhcos.ova"
    path.write_bytes(b"ova")
    options = {**WHOLE, "path": str(path)}
    del options["url"], options["checksum"]
    (request,) = requests(options)["requests"]
    assert request["source"] == {"location": str(path), "sha256": hashlib.sha256(b"ova").hexdigest(), "release": ""}
    (declared,) = requests({**options, "checksum": SHA256})["requests"]
    assert declared["source"]["sha256"] == SHA256
    (problem,) = problems({**options, "path": str(tmp_path / "gone.ova")})
    assert problem.endswith("gone.ova cannot be read: No such file or directory")


# The connection.


def connected(options: Object, openshift: OpenShift | None = None, env: dict[str, str] | None = None) -> Object:
    """The connection that a module would use, and whether certificates of hosts are pinned."""

    def work(module: VSphereModule) -> Object:
        used = module.center.options
        return {"address": used.address, "user": used.username, "pinned": module.upload().pinned is not None}

    def main() -> None:
        module = VSphereModule({**TEMPLATES, **KUBERNETES, **NAMESPACE_OPTION})
        module.__dict__["openshift"] = openshift
        module.run(work)

    return run_module(main, options, env=env)


ACCOUNT = {"username": "u", "password": "PLANTED-secret"}


@pytest.mark.parametrize(
    ("options", "of_cluster", "address"),
    [
        (CONNECTION, True, "vc.example.com:443"),
        ({**CONNECTION, "port": 8443}, True, "vc.example.com:8443"),
        # Without a host name, it is the vCenter of the cluster.
        (ACCOUNT, True, "VC.example.com:443"),
        ({**ACCOUNT, "port": 8443}, True, "VC.example.com:8443"),
    ],
)
def test_the_vcenter(options: Object, of_cluster: bool, address: str) -> None:
    assert connected(options, cluster(domain("a")) if of_cluster else None)["address"] == address


TWO = [{"server": "vc1", "port": 443}, {"server": "VC2.example.com", "port": 8443}]


@pytest.mark.parametrize(
    ("options", "env", "centers", "address"),
    [
        (ACCOUNT, {"VMWARE_HOST": "vc1"}, TWO[:1], "vc1:443"),
        # The environment chooses among several; a host name has no case.
        (ACCOUNT, {"VMWARE_HOST": "vc2.EXAMPLE.com"}, TWO, "vc2.EXAMPLE.com:8443"),
        (ACCOUNT, {"VMWARE_HOST": "vc1", "VMWARE_PORT": "443"}, TWO, "vc1:443"),
        # A port that the cluster does not name.
        (ACCOUNT, {"VMWARE_HOST": "vc1", "VMWARE_PORT": "9443"}, [{"server": "vc1"}], "vc1:9443"),
        # What is declared counts more than the environment.
        ({**ACCOUNT, "hostname": "alias"}, {"VMWARE_HOST": "vc9"}, TWO, "alias:443"),
        ({**ACCOUNT, "hostname": "vc1", "port": 8444}, {"VMWARE_PORT": "9443"}, TWO, "vc1:8444"),
        ({**ACCOUNT, "hostname": ""}, {"VMWARE_HOST": "vc9"}, TWO[:1], "vc1:443"),
    ],
)
def test_the_environment_names_a_vcenter_of_the_cluster(
    options: Object, env: dict[str, str], centers: list[Object], address: str
) -> None:
    assert connected(options, cluster(centers=centers), env).get("address") == address


@pytest.mark.parametrize(
    ("options", "env", "centers", "texts"),
    [
        (ACCOUNT, {"VMWARE_HOST": "other"}, TWO[:1], ["VMWARE_HOST is other, but", "vCenter vc1:443."]),
        (ACCOUNT, {"VMWARE_HOST": "other"}, TWO, ["VMWARE_HOST is other, but", "vc1:443, VC2.example.com:8443."]),
        (ACCOUNT, {"VMWARE_HOST": "other"}, [], ["VMWARE_HOST is other, but", "vCenter (none)."]),
        (ACCOUNT, {"VMWARE_HOST": "vc1", "VMWARE_PORT": "9443"}, TWO, ["VMWARE_PORT is 9443, but"]),
        # The host name of the cluster with the port of something else.
        (ACCOUNT, {"VMWARE_PORT": "9443"}, TWO[:1], ["VMWARE_PORT is 9443, but"]),
        ({**ACCOUNT, "hostname": "vc1"}, {"VMWARE_PORT": "9443"}, TWO, ["VMWARE_PORT is 9443, but"]),
    ],
)
def test_the_environment_names_another_vcenter(
    options: Object, env: dict[str, str], centers: list[Object], texts: list[str]
) -> None:
    result = connected(options, cluster(centers=centers), env)
    assert result.get("code") == "invalid", result
    assert all(text in result["msg"] for text in [*texts, "Nothing was changed. Unset the variable"]), result["msg"]


def test_a_failure_domain_on_another_vcenter() -> None:
    domains = [{**domain("a"), "server": "vc1"}, {**domain("b"), "server": "VC2.example.com"}]
    openshift = cluster(*domains, centers=TWO)
    (problem,) = problems({**SHORT, "hostname": "vc1", "failure_domain": "b"}, openshift)
    assert problem == (
        "Template vdi: hostname: failure domain b is on vCenter VC2.example.com, but the run is connected to vc1, another vCenter of the cluster; set hostname "
        "to VC2.example.com"
    )
    # Perhaps it is an alias.
    result = requests({**SHORT, "hostname": "192.0.2.7", "failure_domain": "b"}, openshift)
    assert result["requests"]
    (warning,) = result["warnings"]
    assert "failure domain b is on vCenter VC2.example.com, but the run is connected to 192.0.2.7." in str(warning)
    assert "warnings" not in requests({**SHORT, "hostname": "vc2.example.com", "failure_domain": "b"}, openshift)


def test_a_connection_that_is_not_known() -> None:
    for options, openshift in ((ACCOUNT, None), (ACCOUNT, cluster(domain("a"), {**domain("b"), "server": "vc2"}))):
        result = connected(options, openshift)
        assert (
            "Not set: hostname of vCenter. Set the options, or the environment variables VMWARE_HOST." in result["msg"]
        )
    env = {"VMWARE_HOST": "vc3", "VMWARE_USER": "e", "VMWARE_PASSWORD": "PLANTED-secret", "VMWARE_PORT": "9443"}
    result = connected({}, None, env)
    assert (result["address"], result["user"]) == ("vc3:9443", "e")
    assert "PLANTED" not in json.dumps(result)


@pytest.mark.parametrize(
    ("options", "pinned"),
    [({}, True), ({"validate_certs": False}, False), ({"ca_cert": "/etc/ssl/vcenter.pem"}, False)],
)
def test_certificates_of_hosts_are_pinned_unless_a_ca_is_given(options: Object, pinned: bool) -> None:
    assert connected({**CONNECTION, **options})["pinned"] is pinned


@pytest.mark.parametrize(
    "url",
    [
        "https://user:PLANTED-secret@mirror.example.com/rhcos.ova",
        "https://mirror.example.com/rhcos.ova?X-Amz-Signature=PLANTED-secret",
        # A URL that is refused.
        "user:PLANTED-secret@mirror.example.com/rhcos.ova",
    ],
)
@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("changed", [{}, {"checksum": "none"}])
def test_the_credentials_in_a_url_are_not_shown(
    monkeypatch: pytest.MonkeyPatch, url: str, listed: bool, changed: Object
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(syslog, "syslog", lambda *arguments: logged.append(str(arguments)))
    entry = {**WHOLE, "url": url}
    given: Object = {**CONNECTION, **({"templates": [{**entry, **changed}]} if listed else {**entry, **changed})}

    def main() -> None:
        module = VSphereModule({**TEMPLATES, **KUBERNETES})
        module.run(lambda module: {"names": [each.name for each in module.requests()]})

    result = run_module(main, given)
    shown = result["invocation"]["module_args"]
    assert "mirror.example.com/rhcos.ova" in json.dumps(shown)
    assert "PLANTED" not in json.dumps([result, logged])


# Machines that do not start.


@pytest.mark.parametrize(
    ("vcenter", "message"),
    [
        (None, "Set the host name, the user and the password of vCenter"),
        ({}, "Set the host name, the user and the password of vCenter"),
        ({"hostname": "vc", "username": None}, "Set the host name, the user and the password of vCenter"),
        # Anybody who may create Machines chooses the server that they name.
        ({"username": "u", "password": "PLANTED-secret"}, "Set the host name, the user and the password of vCenter"),
        (
            {"hostname": "127.0.0.1", "username": "u", "password": None},
            "The reason is not known, because vCenter cannot be asked: Not set: password",
        ),
        (
            {"hostname": "127.0.0.1", "port": 9, "username": "u", "password": "PLANTED-secret", "request_timeout": 5},
            "The reason is not known, because vCenter cannot be asked: No response from vCenter 127.0.0.1:9",
        ),
        (
            {"hostname": "127.0.0.1", "username": "u", "password": "PLANTED-secret", "ca_cert": "/gone.pem"},
            "The reason is not known, because vCenter cannot be asked: ",
        ),
    ],
)
def test_why_a_machine_does_not_start_is_asked_and_never_fails(vcenter: Object | None, message: str) -> None:
    module: t.Any = SimpleNamespace(params={"vcenter": vcenter, "gpu_cluster": None}, user_agent="test")
    text = str(*start_failures(module, {"vdi-0": "127.0.0.1"}))
    assert text.startswith(message)
    assert "PLANTED" not in text


def test_the_options_are_those_of_vmware_vmware() -> None:
    options = VCENTER["vcenter"]["options"]
    assert {name for name, option in options.items() if option.get("no_log")} == {"password"}
    assert options["username"]["aliases"] == ["admin", "user"]
    assert all(
        option["fallback"][1][0].startswith("VMWARE_") for name, option in options.items() if "fallback" in option
    )
