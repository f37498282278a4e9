# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools with vGPUs on vSphere, and the settings of vCenter."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import Document

PROFILE = "grid_a100-10c"
CHECKSUM = "sha256:" + "0123456789abcdef" * 4
URL = "https://mirror.example.com/rhcos.ova"


def cluster(**vsphere: t.Any) -> Document:
    return {"name": "prod", "cloud": {"machineset": {"vsphere": vsphere} if vsphere else {}}}


def pool(nodes: Document | None = None, vgpu: t.Any = None, **more: t.Any) -> Document:
    """A pool of nodes with a vGPU."""
    return {
        "name": "vdi",
        "nodes": {"count": 2, "zones": ["a"], **(nodes or {})},
        "vgpu": {"profile": PROFILE} if vgpu is None else vgpu,
        **more,
    }


DRIVER: Document = {
    "type": "vgpu",
    "repository": "registry.example.com/nvidia",
    "licensing_secret": "nls",
    "version": "570.148.08",
}
SOUND: list[Document] = [
    pool(),
    pool({"zones": ["a", "b"]}),
    pool(vgpu={"profile": PROFILE, "count": 1}),
    pool(vgpu={"profile": PROFILE, "count": 16}, gpus_per_node=16),
    pool(vgpu={"profile": PROFILE, "mmio_gib": 1}),
    pool(vgpu={"profile": PROFILE, "mmio_gib": 65536}),
    # An unset key is no key.
    pool(vgpu={"profile": PROFILE, "count": 2, "mmio_gib": None}),
    pool(driver=DRIVER),
    pool(sharing={"mode": "time-slicing", "replicas": 4}),
    pool({"provider_spec": {"numCPUs": 8, "memoryMiB": 32768}}),
    pool(autoscale={"min": 0, "max": 4}),
    # The name of a template has room for a release: 40 characters with the zone.
    pool({"name": "n" * 38}),
    {"name": "n" * 40, "nodes": {"count": 1}, "vgpu": {"profile": PROFILE}},
    # Without vgpu, a template is named.
    {"name": "vdi", "nodes": {"template": "rhcos-a100", "count": 1}},
]


@pytest.mark.parametrize("declared", SOUND)
def test_sound(declared: Document) -> None:
    assert validate(cluster(), {}, [declared]) == []


# Nodes with vGPUs that no template is built for.
EXISTING: Document = {"name": "vdi", "match": {"labels": {"nvidia.com/gpu.product": "GRID-A100-10C"}}, "driver": DRIVER}


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ({"mode": "mps", "replicas": 2}, "MPS does not work on vGPUs"),
        ({"mode": "mig", "layout": {"1g.5gb": 7}}, "a vGPU cannot be partitioned with MIG by its node"),
    ],
)
def test_existing_vgpus_cannot_have_every_mode(mode: Document, message: str) -> None:
    bare = {"name": "prod", "distribution": "openshift"}
    assert validate(bare, {}, [{**EXISTING, "sharing": {"mode": "time-slicing", "replicas": 2}}]) == []
    (problem,) = validate(bare, {}, [{**EXISTING, "sharing": mode}])
    assert problem.startswith(f"gpu_pools[0].sharing.mode: {message}")


MISTAKES: list[tuple[Document, str]] = [
    (pool(vgpu={}), ".vgpu.profile: is missing; set a vGPU profile, such as grid_a100-10c"),
    (pool(vgpu={"count": 2}), ".vgpu.profile: is missing"),
    (pool(vgpu={"profile": ["a"]}), ".vgpu.profile: "),
    (pool(vgpu=PROFILE), '.vgpu: "grid_a100-10c" is a string, not a map'),
    (pool(vgpu=[PROFILE]), ".vgpu: "),
    (pool(vgpu={"profile": PROFILE, "gpus": 2}), ".vgpu.gpus: is not a known key; known: profile, count"),
    (pool(vgpu={"profile": PROFILE, "cuont": 2}), ".vgpu.cuont: is not a known key; did you mean count?"),
    (pool(vgpu={"profile": PROFILE, "count": 0}), ".vgpu.count: 0 is not allowed: "),
    (pool(vgpu={"profile": PROFILE, "count": 17}), ".vgpu.count: 17 is not allowed: "),
    (pool(vgpu={"profile": PROFILE, "count": 1.5}), ".vgpu.count: 1.5 is "),
    (pool(vgpu={"profile": PROFILE, "mmio_gib": 0}), ".vgpu.mmio_gib: 0 is not allowed: "),
    (pool(vgpu={"profile": PROFILE, "mmio_gib": 96}), ".vgpu.mmio_gib: 96 is not a power of two; set one, such as 256"),
    (pool(vgpu={"profile": PROFILE, "mmio_gib": 131072}), ".vgpu.mmio_gib: 131072 is not allowed: "),
    (pool(gpus_per_node=2), ".gpus_per_node: 2 differs from vgpu.count, 1; remove it"),
    (
        pool(vgpu={"profile": PROFILE, "count": 2}, gpus_per_node=1),
        ".gpus_per_node: 1 differs from vgpu.count, 2; remove it",
    ),
    (
        pool({"template": "x"}),
        ".nodes.template: cannot be combined with vgpu, from which the template of the nodes is built",
    ),
    (pool({"flavor": "g4dn.xlarge"}), ".nodes.flavor: cannot be combined with vgpu"),
    (
        pool(sharing={"mode": "mig", "layout": {"1g.10gb": 7}}, model="A100-80GB-PCIe"),
        ".sharing.mode: a vGPU cannot be partitioned with MIG by its node; choose a MIG-backed profile",
    ),
    (
        pool(sharing={"mode": "mps", "replicas": 2}),
        ".sharing.mode: MPS does not work on vGPUs; choose a smaller profile",
    ),
    (
        pool(vgpu={"profile": "nvidia_l40s-2b"}),
        ".vgpu.profile: nvidia_l40s-2b is of the series B (virtual PC), on which CUDA does not run",
    ),
    (pool(driver={"type": "gpu"}), '.driver.type: "gpu" does not work with vGPUs; set type: vgpu'),
    (pool({"name": "n" * 39}), f'.nodes.name: the template would be called "{"n" * 39}-a", which is longer than 40'),
    (
        pool({"zones": ["z" * 40]}),
        f'.nodes.name: the template would be called "vdi-{"z" * 40}", which is longer than 40',
    ),
    (
        {"name": "n" * 41, "nodes": {"count": 1}, "vgpu": {"profile": PROFILE}},
        f'.nodes.name: the template would be called "{"n" * 41}"',
    ),
]


@pytest.mark.parametrize(("declared", "message"), MISTAKES)
def test_mistake(declared: Document, message: str) -> None:
    problems = validate(cluster(), {}, [declared])
    assert [problem for problem in problems if problem.startswith(f"gpu_pools[0]{message}")], problems
    assert len(problems) == 1, problems


@pytest.mark.parametrize(
    ("cloud", "declared", "message"),
    [
        (
            {"magnum": {"cloud": "x"}},
            {"name": "vdi", "nodes": {"count": 1}, "vgpu": {"profile": PROFILE}},
            ".vgpu: templates are built for OpenShift on vSphere (cloud: {machineset: {}}), but gpu_cluster.cloud is magnum; remove it",
        ),
        (
            {"machineset": {}},
            {"name": "vdi", "vgpu": {"profile": PROFILE}},
            ".vgpu: has no effect without nodes; declare both",
        ),
        (None, {"name": "vdi", "vgpu": {"profile": PROFILE}}, ".vgpu: has no effect without nodes; declare both"),
    ],
)
def test_vgpus_need_nodes_that_the_machine_api_creates(
    cloud: Document | None, declared: Document, message: str
) -> None:
    problems = validate({"name": "prod", **({"cloud": cloud} if cloud else {})}, {}, [declared])
    assert f"gpu_pools[0]{message}" in "\n".join(problems)


def test_defaults_apply_to_pools_with_vgpus() -> None:
    bare: Document = {"name": "vdi", "nodes": {"count": 1}, "vgpu": {"profile": PROFILE}}
    assert validate(cluster(), {"vgpu": {"count": 2}}, [bare]) == []
    (problem,) = validate(cluster(), {"vgpu": {"count": 2}}, [{**bare, "gpus_per_node": 1}])
    assert problem == "gpu_pools[0].gpus_per_node: 1 differs from vgpu.count, 2; remove it"


@pytest.mark.parametrize(
    "settings",
    [
        {"hostname": "vc.example.com", "port": 443, "username": "u@vsphere.local"},
        {"validate_certs": False, "proxy_host": "proxy", "proxy_port": 3128, "ca_cert": "/etc/ssl/vcenter.pem"},
        {"url": URL, "checksum": CHECKSUM},
        {"url": "http://mirror/x.ova", "checksum": CHECKSUM.upper().replace("SHA256", "sha256")},
        {"folder": "/DC1/vm/gpu", "narrow_boot_images": True},
    ],
)
def test_sound_settings_of_vcenter(settings: Document) -> None:
    assert validate(cluster(**settings), {}, [pool()]) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": URL}, "checksum: is missing; set the SHA-256 of url"),
        ({"checksum": CHECKSUM}, "checksum: has no effect without url; remove it, or set url"),
        (
            {"url": "ftp://m/x", "checksum": CHECKSUM},
            'url: "ftp://m/x" is not a URL; begin it with https:// or http://',
        ),
        ({"url": "https://", "checksum": CHECKSUM}, 'url: "https://" is not a URL'),
        ({"url": f"{URL} x", "checksum": CHECKSUM}, "url: "),
        ({"url": URL, "checksum": CHECKSUM.removeprefix("sha256:")}, "checksum: "),
        ({"url": URL, "checksum": CHECKSUM[:-1]}, "checksum: "),
        ({"port": 0}, "port: 0 is not allowed: "),
        ({"port": 65536}, "port: 65536 is not allowed: "),
        ({"proxy_port": 0}, "proxy_port: 0 is not allowed: "),
        ({"user": "u"}, "user: is not a known key"),
        ({"password": "PLANTED-secret"}, "password: "),
    ],
)
def test_mistake_of_the_settings_of_vcenter(settings: Document, message: str) -> None:
    (problem,) = validate(cluster(**settings), {}, [pool()])
    assert problem.startswith(f"gpu_cluster.cloud.machineset.vsphere.{message}")
    assert "PLANTED" not in problem
