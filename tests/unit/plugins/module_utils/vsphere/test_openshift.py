# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an OpenShift cluster on vSphere says: its failure domains, the OVA of its release, and who uses a template."""

from __future__ import annotations

import copy
import json
import typing as t
from types import SimpleNamespace

import pytest
from hypothesis import given

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import FailureDomain, failure_domains
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.core.values import set_nested
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.openshift import (
    OpenShift,
    find_failure_domain,
    stream_source,
    template_of,
)
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.ova import OvaSource
from ansible_collections.accel.gpu.plugins.module_utils.vsphere.templates import Template
from tests.helpers.variables import anything

Object = dict[str, t.Any]

NAMESPACE = "openshift-machine-api"
SHA256 = "0123456789abcdef" * 4
RELEASE = "418.94.202501221327-0"
URL = "https://rhcos.mirror.example.com/rhcos.ova"


def domain(name: str, zone: str = "zone-1", **topology: t.Any) -> Object:
    return {"name": name, "zone": zone, "region": "r", "server": "vc.example.com", "topology": topology}


FULL = domain(
    "dc1-a",
    datacenter="DC1",
    computeCluster="/DC1/host/cluster-a",
    datastore="/DC1/datastore/vsan-a",
    networks=["VM Network", "Storage"],
    resourcePool="/DC1/host/cluster-a/Resources/gpu",
    folder="/DC1/vm/prod-x7k2p",
)


def infrastructure(*domains: Object, centers: t.Sequence[Object] | None = None, platform: str = "VSphere") -> Object:
    vsphere: Object = {"failureDomains": list(domains)}
    if centers is not None:
        vsphere["vcenters"] = list(centers)
    return {
        "spec": {"platformSpec": {"type": platform, "vsphere": vsphere}},
        "status": {"infrastructureName": "prod-x7k2p", "platformStatus": {"type": platform}},
    }


def openshift(body: Object | None = None, **lists: list[Object]) -> OpenShift:
    """A cluster with this Infrastructure object, and with lists by the last part of their path."""
    client: t.Any = SimpleNamespace(
        get_once=lambda path: body, get=lambda path: None, list=lambda path: lists.get(path.rpartition("/")[2], [])
    )
    return OpenShift(client, NAMESPACE)


# Failure domains.


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        (
            FULL,
            FailureDomain(
                "dc1-a",
                "zone-1",
                "vc.example.com",
                "DC1",
                "/DC1/host/cluster-a",
                "/DC1/datastore/vsan-a",
                "VM Network",
                "/DC1/host/cluster-a/Resources/gpu",
                "/DC1/vm/prod-x7k2p",
                "r",
            ),
        ),
        (
            domain("bare", networks=[], resourcePool="", folder=""),
            FailureDomain("bare", "zone-1", "vc.example.com", "", "", "", "", None, None, "r"),
        ),
        ({"name": "empty", "topology": None}, FailureDomain("empty", "", "", "", "", "", "", None, None)),
        ({}, FailureDomain("", "", "", "", "", "", "", None, None)),
    ],
)
def test_a_failure_domain_names_the_objects_of_vcenter(declared: Object, expected: FailureDomain) -> None:
    assert failure_domains(infrastructure(declared)) == [expected]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"spec": None},
        {"spec": {"platformSpec": {"vsphere": None}}},
        {"spec": {"platformSpec": {"vsphere": {"failureDomains": None}}}},
    ],
)
def test_a_cluster_without_failure_domains(body: Object) -> None:
    assert failure_domains(body) == []


SEVERAL = failure_domains(
    infrastructure(domain("a", "zone-1"), domain("b", "zone-2"), domain("c", "zone-2"), domain("zone-1", "zone-3"))
)


@pytest.mark.parametrize(
    ("domains", "name", "actual"),
    [
        (SEVERAL[:1], None, "a"),
        (SEVERAL, "b", "b"),
        (SEVERAL[:3], "zone-1", "a"),
        # A name counts more than a zone.
        (SEVERAL, "zone-1", "zone-1"),
        (SEVERAL, "zone-3", "zone-1"),
    ],
)
def test_a_failure_domain_is_found_by_name_or_zone(domains: list[FailureDomain], name: str | None, actual: str) -> None:
    assert find_failure_domain(domains, name).name == actual


@pytest.mark.parametrize(
    ("domains", "name", "message"),
    [
        (SEVERAL[:2], None, "is not set, and the cluster has 2 (a, b); set one of them (nodes.zones of the pool)"),
        (
            [],
            None,
            "is not set, and the cluster has 0 (none); add a failure domain to it (oc edit infrastructure cluster), or set datacenter, cluster, "
            "datastore and network of the module",
        ),
        (SEVERAL, "zone-2", '"zone-2" is the zone of several (b, c); set one of them'),
        (SEVERAL[:2], "A", '"A" is not in the Infrastructure object; known: a, b'),
        (SEVERAL[:2], "", '"" is not in the Infrastructure object; known: a, b'),
        ([], "a", '"a" is not in the Infrastructure object; known: none'),
    ],
)
def test_a_failure_domain_that_is_not_found(domains: list[FailureDomain], name: str | None, message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        find_failure_domain(domains, name)
    assert raised.value.problems == [f"failure_domain: {message}"]


# The cluster.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (None, "kubernetes: the cluster has no Infrastructure object, so it is not OpenShift; "),
        ({}, "kubernetes: the cluster has no Infrastructure object, so it is not OpenShift; "),
        (
            infrastructure(platform="AWS"),
            "kubernetes: the cluster has the platform AWS; templates of virtual machines are",
        ),
        (infrastructure(platform="None"), "kubernetes: the cluster has the platform None; "),
    ],
)
def test_another_cluster_has_no_templates(body: Object | None, message: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        openshift(body).infrastructure_name()
    assert raised.value.problems[0].startswith(message)


def test_a_cluster_before_its_status_is_written() -> None:
    body = infrastructure()
    del body["status"]
    assert openshift(body).infrastructure_name() == ""
    assert openshift(infrastructure()).infrastructure_name() == "prod-x7k2p"


@pytest.mark.parametrize(
    ("body", "vcenters"),
    [
        (infrastructure(FULL, centers=[{"server": "vc", "port": 8443}]), {"vc": 8443}),
        (infrastructure(FULL, centers=[{"server": "vc"}]), {"vc": None}),
        # An old cluster names its vCenter only in the failure domains.
        (infrastructure(FULL, FULL), {"vc.example.com": None}),
        (infrastructure(FULL, centers=[]), {"vc.example.com": None}),
        (infrastructure(FULL, {**FULL, "server": "vc2"}), {"vc.example.com": None, "vc2": None}),
        (infrastructure(centers=[{"server": "vc"}, {"server": "vc2", "port": 0}]), {"vc": None, "vc2": None}),
        (infrastructure(), {}),
    ],
)
def test_the_vcenters_of_a_cluster(body: Object, vcenters: dict[str, int | None]) -> None:
    assert openshift(body).vcenters() == vcenters


# The OVA of the release.


def stream(*keys: str, value: t.Any = None) -> Object:
    """The stream of a release, with another value below some keys."""
    disk = {"location": URL, "signature": f"{URL}.sig", "sha256": SHA256}
    vmware = {"release": RELEASE, "formats": {"ova": {"disk": disk}}}
    document: Object = {"stream": "rhcos-4.18", "architectures": {"x86_64": {"artifacts": {"vmware": vmware}}}}
    document = copy.deepcopy(document)
    if keys:
        set_nested(document, keys, value)
    return document


VMWARE = ("architectures", "x86_64", "artifacts", "vmware")
DISK = (*VMWARE, "formats", "ova", "disk")


OTHER: list[t.Any] = [None, [], "text", 7]
# A file of the machine that runs Ansible, other schemes, and more than a URL.
NO_URL: list[t.Any] = [
    None,
    "",
    7,
    [],
    {},
    "/etc/passwd",
    "file:///etc/passwd",
    "ftp://m/x",
    "https://",
    f"{URL} x",
    f"{URL}\n",
]
NO_SHA256: list[t.Any] = [None, "", 7, SHA256[:-1], f"{SHA256}0", f"sha256:{SHA256}", "g" * 64, f"{SHA256}\n"]
NO_RELEASE: list[t.Any] = [None, "", [], "../x", "a/b", "-1", "4 18", "9" * 33, "418\n"]


def config_map(text: t.Any) -> Object:
    return {"metadata": {"name": "coreos-bootimages"}, "data": {"stream": text}}


def test_the_ova_of_a_release() -> None:
    assert stream_source(config_map(json.dumps(stream()))) == OvaSource(URL, SHA256, RELEASE)
    upper = stream(*DISK, "sha256", value=SHA256.upper())
    assert stream_source(config_map(json.dumps(upper))) == OvaSource(URL, SHA256, RELEASE)


def test_a_cluster_without_boot_images() -> None:
    with pytest.raises(InvalidOptions, match="ova: the cluster has no ConfigMap coreos-bootimages"):
        openshift(infrastructure()).source()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "location, sha256 and release"),
        ("{", "location, sha256 and release"),
        ("null", "location, sha256 and release"),
        ("[]", "location, sha256 and release"),
        ("[" * 100_000, "location, sha256 and release"),
        *(
            (json.dumps(stream(*VMWARE[:depth], value=value)), "location, sha256 and release")
            for depth in range(1, len(VMWARE) + 1)
            for value in OTHER
        ),
        *((json.dumps(stream(*DISK, value=value)), "location and sha256") for value in OTHER),
        *((json.dumps(stream(*DISK, "location", value=value)), "location") for value in NO_URL),
        *((json.dumps(stream(*DISK, "sha256", value=value)), "sha256") for value in NO_SHA256),
        *((json.dumps(stream(*VMWARE, "release", value=value)), "release") for value in NO_RELEASE),
    ],
)
def test_a_stream_that_has_no_ova(text: str, wrong: str) -> None:
    with pytest.raises(InvalidOptions) as raised:
        stream_source(config_map(text))
    (problem,) = raised.value.problems
    assert problem == (
        f"ova: ConfigMap coreos-bootimages has no OVA for x86_64, because {wrong} is missing or invalid; set url and checksum"
    )


@pytest.mark.parametrize("body", [{}, {"data": None}, {"data": {}}, {"data": {"other": "x"}}])
def test_a_config_map_without_a_stream(body: Object) -> None:
    with pytest.raises(InvalidOptions, match="has no OVA for x86_64"):
        stream_source(body)


@given(anything)
def test_any_other_stream_is_refused(value: t.Any) -> None:
    with pytest.raises(InvalidOptions):
        stream_source(config_map(json.dumps(value, skipkeys=True)))


# Users of templates.


def machineset(name: str, template: t.Any) -> Object:
    spec = {"template": {"spec": {"providerSpec": {"value": {"template": template}}}}}
    return {"metadata": {"name": name}, "spec": spec}


def machine(name: str, template: t.Any, phase: str | None = None) -> Object:
    spec = {"providerSpec": {"value": {"template": template}}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase} if phase else {}}


UUID = "5021f0a2-8f0e-4f3b-9a52-0c7d6a1f4b11"
TEMPLATE = Template(
    "vm-1", "vdi-418-3fa0c1", "/DC1/vm/accel-gpu/vdi-418-3fa0c1", True, False, False, False, UUID, {}, None, True
)
USERS: list[tuple[str, bool]] = [
    ("vdi-418-3fa0c1", True),
    ("/DC1/vm/accel-gpu/vdi-418-3fa0c1", True),
    ("accel-gpu/vdi-418-3fa0c1", True),
    (UUID, True),
    (UUID.upper(), True),
    # A template of this name in any folder is taken for it, so that nothing in use is deleted.
    ("/DC1/vm/other/vdi-418-3fa0c1", True),
    ("vdi-418", False),
    ("vdi-418-3fa0c1-2", False),
    ("/DC1/vm/vdi-418-3fa0c1/other", False),
    ("", False),
]


@pytest.mark.parametrize(("template", "uses"), USERS)
def test_a_machineset_uses_a_template(template: str, uses: bool) -> None:
    cluster = openshift(machinesets=[machineset("vdi", template), machineset("aws", None)])
    assert cluster.users_of(cluster.templates_in_use(), TEMPLATE) == (["MachineSet vdi"] if uses else [])


@pytest.mark.parametrize(
    ("phase", "uses"),
    [
        (None, True),
        ("Provisioning", True),
        ("Something new", True),
        # Its virtual machine exists.
        ("Provisioned", False),
        ("Running", False),
        ("Deleting", False),
        ("Failed", False),
    ],
)
def test_a_machine_uses_a_template_until_it_is_cloned(phase: str | None, uses: bool) -> None:
    cluster = openshift(machines=[machine("vdi-0", TEMPLATE.name, phase)])
    assert cluster.users_of(cluster.templates_in_use(), TEMPLATE) == (["Machine vdi-0"] if uses else [])


def test_all_users_are_named() -> None:
    cluster = openshift(
        machinesets=[machineset("a", TEMPLATE.name), machineset("b", TEMPLATE.path)],
        machines=[machine("a-0", TEMPLATE.instance_uuid, "Provisioning")],
    )
    users = cluster.users_of(cluster.templates_in_use(), TEMPLATE)
    assert users == ["MachineSet a", "MachineSet b", "Machine a-0"]


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"spec": None},
        {"spec": {"template": {}}},
        {"spec": {"providerSpec": {"value": None}}},
        machineset("a", None),
        machine("a", ""),
    ],
)
def test_an_object_that_names_no_template(item: Object) -> None:
    assert template_of(item) == ""
