# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The templates that pools with vGPUs need, and their node groups."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan, VspherePlan
from tests.helpers.variables import Document

PROFILE = "grid_a100-10c"
DRIVER: Document = {
    "type": "vgpu",
    "version": "580.95.05",
    "repository": "registry.example.com/nvidia",
    "licensing_secret": "nls",
}


def planned(*pools: Document, defaults: Document | None = None, **vsphere: t.Any) -> Plan:
    """The plan of a cluster with these settings of vCenter."""
    cluster = {"name": "prod", "cloud": {"machineset": {"vsphere": vsphere} if vsphere else {}}}
    return derive(cluster, defaults, list(pools))


def pool(name: str = "vdi", nodes: Document | None = None, **vgpu: t.Any) -> Document:
    return {"name": name, "nodes": {"count": 3, **(nodes or {})}, "vgpu": {"profile": PROFILE, **vgpu}}


def template(name: str = "vdi", **more: t.Any) -> Document:
    return {"name": name, "profile": PROFILE, "count": 1, "folder": "accel-gpu", "machines": 3, **more}


@pytest.mark.parametrize(
    ("pools", "templates"),
    [
        ([pool()], [template()]),
        ([pool(count=2, mmio_gib=512)], [template(count=2, mmio_gib=512)]),
        ([pool(mmio_gib=None)], [template()]),
        ([pool(nodes={"name": "desktops"})], [template("desktops")]),
        # Each zone is a failure domain with a template of its own.
        (
            [pool(nodes={"zones": ["a", "b"]})],
            [template("vdi-a", failure_domain="a", machines=2), template("vdi-b", failure_domain="b", machines=1)],
        ),
        # What is compared with the hosts.
        (
            [{**pool(nodes={"count": None, "zones": ["a", "b"], "recreate": True}), "autoscale": {"min": 0, "max": 5}}],
            [
                template("vdi-a", failure_domain="a", machines=0, max_machines=3, recreate=True),
                template("vdi-b", failure_domain="b", machines=0, max_machines=2, recreate=True),
            ],
        ),
        ([{**pool(), "driver": DRIVER}], [template(driver_version="580.95.05")]),
        ([pool("one"), pool("two", count=4)], [template("one"), template("two", count=4)]),
        # Other pools need none.
        ([pool(), {"name": "aws", "nodes": {"flavor": "g4dn.xlarge", "count": 1}}], [template()]),
        ([pool(), {"name": "cloned", "nodes": {"template": "x", "count": 1}}, {"name": "old"}], [template()]),
    ],
)
def test_each_node_group_with_vgpus_has_a_template(pools: list[Document], templates: list[Document]) -> None:
    assert planned(*pools).vsphere == VspherePlan({}, tuple(templates), False)


@pytest.mark.parametrize("pools", [[], [{"name": "old"}], [{"name": "cloned", "nodes": {"template": "x", "count": 1}}]])
def test_without_vgpus_the_plan_has_at_most_the_connection_to_vcenter(pools: list[Document]) -> None:
    """Machines of other templates may not start either."""
    assert planned(*pools).vsphere is None
    assert planned(*pools, hostname="vc").vsphere == VspherePlan({"hostname": "vc"}, (), False)


def test_other_clouds_have_no_plan_for_vcenter() -> None:
    assert derive({"name": "prod"}, None, [{"name": "old"}]).vsphere is None
    assert derive({"name": "prod", "cloud": {"vks": {"region": "HAN"}}}, None, [{"name": "old"}]).vsphere is None


@pytest.mark.parametrize(
    ("settings", "connection", "options"),
    [
        ({"hostname": "vc", "port": 8443, "username": "u"}, {"hostname": "vc", "port": 8443, "username": "u"}, {}),
        ({"validate_certs": False}, {"validate_certs": False}, {}),
        (
            {"ca_cert": "/ca.pem", "proxy_host": "p", "proxy_port": 3128},
            {"ca_cert": "/ca.pem", "proxy_host": "p", "proxy_port": 3128},
            {},
        ),
        ({"folder": "/DC1/vm/gpu"}, {}, {"folder": "/DC1/vm/gpu"}),
        (
            {"url": "https://m/x.ova", "checksum": "sha256:" + "a" * 64},
            {},
            {"url": "https://m/x.ova", "checksum": "sha256:" + "a" * 64},
        ),
        ({"hostname": None, "folder": "x"}, {}, {"folder": "x"}),
    ],
)
def test_settings_of_vcenter(settings: Document, connection: Document, options: Document) -> None:
    assert planned(pool(), **settings).vsphere == VspherePlan(connection, (template(**options),), False)


@pytest.mark.parametrize(
    ("declared", "narrows"), [({}, False), ({"narrow_boot_images": False}, False), ({"narrow_boot_images": True}, True)]
)
def test_a_selection_of_boot_images_is_narrowed_on_request(declared: Document, narrows: bool) -> None:
    plan = planned(pool(), **declared).vsphere
    assert plan is not None
    assert plan.narrow_boot_images is narrows
    assert "narrow_boot_images" not in plan.connection


def test_the_node_group_has_the_vgpus_as_its_gpus_and_no_flavor() -> None:
    plan = planned(pool(nodes={"zones": ["a", "b"]}, count=2))
    (made,) = plan.pools
    assert made.nodegroup is not None
    assert (made.nodegroup.flavor, made.nodegroup.flavor_gpus) == ("2 x grid_a100-10c", 2)
    first, second = plan.nodegroups
    assert [(group["name"], group["zone"], group["node_count"]) for group in plan.nodegroups] == [
        ("vdi-a", "a", 2),
        ("vdi-b", "b", 1),
    ]
    assert not {"flavor", "template", "vgpu"} & {*first, *second}


def test_defaults_of_pools_with_vgpus() -> None:
    plan = planned(pool(), {"name": "old"}, defaults={"vgpu": {"count": 2, "mmio_gib": 256}})
    assert plan.vsphere is not None
    assert plan.vsphere.templates == (template(count=2, mmio_gib=256),)
