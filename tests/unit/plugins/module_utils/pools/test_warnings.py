# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Warnings about data that the catalog does not confirm, and about unusual nodes."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.openshift import autoscaler_rules
from ansible_collections.accel.gpu.plugins.module_utils.nodes import warnings
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, plan_warnings
from tests.helpers.fleet import node

A100 = {"name": "a", "match": {"model": "A100-SXM4-40GB"}, "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}}}
CLOUD = {"name": "lab", "cloud": {"magnum": {}}}
SCALED = {"name": "s", "model": "L4", "nodes": {"flavor": "f"}, "autoscale": {"min": 0, "max": 3}}
X4 = {"mode": "time-slicing", "replicas": 4}
WHOLE = {"name": "t", "match": {"model": "T4"}}


def _warnings(pools: list[dict[str, t.Any]], conditions: t.Collection[str] = (), version: str = "v25.3.4") -> list[str]:
    return plan_warnings(derive({**CLOUD, "operator": {"version": version}}, {}, pools), conditions)


@pytest.mark.parametrize(
    ("pools", "conditions", "version", "words"),
    [
        ([WHOLE], (), "v25.3.4", []),
        (
            [{**WHOLE, "labels": {"nvidia.com/gpu.deploy.dcgm": "false", "nvidia.com/vgpu.config": "A40-4Q"}}],
            (),
            "v25.3.4",
            [],
        ),
        (
            [{**WHOLE, "labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}}],
            (),
            "v25.3.4",
            [
                "Pool t: label nvidia.com/gpu.deploy.device-plugin=false keeps the device plugin away; its nodes expose no GPU to containers"
            ],
        ),
        (
            [{**WHOLE, "labels": {"nvidia.com/gpu.workload.config": "vm-vgpu"}}],
            (),
            "v25.3.4",
            [
                "Pool t: label nvidia.com/gpu.workload.config=vm-vgpu assigns its GPUs to virtual machines; its nodes expose no GPU"
            ],
        ),
        (
            [{**A100, "labels": {"nvidia.com/gpu.deploy.mig-manager": "false"}}],
            (),
            "v25.3.4",
            ["Pool a: label nvidia.com/gpu.deploy.mig-manager=false keeps the MIG manager off its nodes"],
        ),
        ([], ("openshift",), "v99.1.0", []),
        ([WHOLE], (), "v25.9.9", ["v25.9.9 is not in the catalog; it is treated like v25.3.4"]),
        ([WHOLE], ("openshift",), "v25.3.4", ["GPU operator v25.3.4: OpenShift 4.18.22"]),
        ([A100], (), "v25.10.1", ["v25.10.1: MIG manager v0.13.0 to v0.15.0"]),
        ([A100], ("rhel8",), "v25.10.1", ["v25.10.1: RHEL 8 with", "v25.10.1: MIG manager"]),
        ([WHOLE], ("rhel8",), "v25.10.1", []),
        ([{"name": "b", "match": {"model": "B200"}}], (), "v25.3.0", ["v25.3.0: HGX B200"]),
        (
            [{"name": "x", "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-X1"}}}],
            (),
            "v25.3.4",
            ["Pool x: the catalog has no model NVIDIA-X1"],
        ),
        (
            [{**A100, "match": {"model": "RTX-PRO-5000"}, "sharing": {"mode": "mig", "layout": {"1g.24gb": 2}}}],
            (),
            "v25.3.4",
            ["Pool a: the MIG profiles of a RTX-PRO-5000 are not verified"],
        ),
        (
            [{**A100, "match": {"model": "RTX-PRO-4500"}, "sharing": {"mode": "mig", "layout": {"1g.16gb": 2}}}],
            (),
            "v25.3.4",
            ["Pool a: the MIG profiles of a RTX-PRO-4500 may differ from those of its layout"],
        ),
        ([WHOLE, SCALED], (), "v25.3.4", []),
        ([{**SCALED, "sharing": X4}], (), "v25.3.4", []),
        (
            [{**SCALED, "sharing": {**X4, "rename": True}}],
            (),
            "v25.3.4",
            ["Pool s: the cluster autoscaler only counts nvidia.com/gpu"],
        ),
        ([{**SCALED, "model": "A30", "sharing": {"mode": "mig", "layout": {"1g.6gb": 4}}}], (), "v25.3.4", []),
        (
            [{**SCALED, "model": "A30", "sharing": {"mode": "mig", "layout": {"1g.6gb": 2, "2g.12gb": 1}}}],
            (),
            "v25.3.4",
            ["pods that request nvidia.com/mig-1g.6gb and nvidia.com/mig-2g.12gb"],
        ),
        (
            [{**SCALED, "autoscale": None, "nodes": {"flavor": "f", "count": 1}, "sharing": {**X4, "rename": True}}],
            (),
            "v25.3.4",
            [],
        ),
    ],
)
def test_reported_warnings(
    pools: list[dict[str, t.Any]], conditions: t.Collection[str], version: str, words: list[str]
) -> None:
    reported = _warnings(pools, conditions, version)
    assert len(reported) == len(words), reported
    assert [word for word in words if not any(word in text for text in reported)] == []


RENAMED = {**SCALED, "nodes": {"flavor": "g6.xlarge"}, "sharing": {**X4, "rename": True}}
MIXED = {
    **SCALED,
    "model": "A100-SXM4-80GB",
    "nodes": {"flavor": "p4de.24xlarge"},
    "sharing": {"mode": "mig", "layout": {"1g.10gb": 3, "2g.20gb": 2}},
}


@pytest.mark.parametrize(
    ("pool", "release", "expected"),
    [
        (RENAMED, None, "before OpenShift 5.0 only counts nvidia.com/gpu"),
        (RENAMED, None, "In 5.0 and later, it counts the resource that the pool offers."),
        (RENAMED, (4, 18), "before OpenShift 5.0 only counts nvidia.com/gpu"),
        (RENAMED, (5, 0), ""),
        (MIXED, (4, 20), "pods that request nvidia.com/mig-1g.10gb and nvidia.com/mig-2g.20gb"),
        (
            MIXED,
            (5, 0),
            "counts one resource of a MachineSet, nvidia.com/mig-1g.10gb, so it may not add a node for pods that request nvidia.com/mig-2g.20gb",
        ),
    ],
)
def test_the_warning_about_uncounted_resources_is_that_of_the_release(
    pool: dict[str, t.Any], release: tuple[int, int] | None, expected: str
) -> None:
    plan = derive({"name": "lab", "cloud": {"machineset": {}}}, {}, [pool])
    actual = [
        text
        for text in plan_warnings(plan, autoscaler=autoscaler_rules(release) if release else None)
        if "autoscaler" in text
    ]
    assert len(actual) == bool(expected)
    assert expected in "".join(actual)
    assert ("In 5.0 and later" in "".join(actual)) == (release is None)


@pytest.mark.parametrize("version", ["v25.10.1", "v99.1.0"])
def test_nothing_is_reported_about_an_unknown_release(version: str) -> None:
    declared = [{"text": "Always."}, {"text": "There.", "releases": [version]}]
    cluster = {"name": "c", "known_issues": declared, "operator": {"version": version}}
    plan = derive(cluster, {}, [{**A100, "sharing": {"mode": "mig", "layout": {"1g.5gb": 7}}}])
    known, unknown = plan_warnings(plan), plan_warnings(plan, version_known=False)
    assert [text for text in known if "GPU operator v" in text or text.endswith("There.")]
    assert [text for text in unknown if "GPU operator v" in text or text.endswith("There.")] == []
    assert [text for text in unknown if text.endswith("Always.")]
    assert set(unknown) < set(known)


NFD = "feature.node.kubernetes.io"


def test_warnings_about_nodes() -> None:
    plan = derive({"name": "lab"}, {}, [WHOLE, {**WHOLE, "name": "u", "match": {"labels": {"x": "y"}}}, {"name": "e"}])
    nodes = [
        node("both", labels={"x": "y"}),
        node("away", ready=False),
        node("new", "NVIDIA-X1", labels={"accel.gpu/pool": "gone"}),
        node("pinned", "NVIDIA-L4", labels={"accel.gpu/pool": "t"}),
    ]
    reported = warnings.all_warnings(nodes, assign_pools(plan.pools, nodes), (), {}, run=False)
    assert [text.partition(";")[0] for text in reported] == [
        "Node both matches the pools t, u and is not changed",
        "No node of the cluster belongs to: u, e.",
        "Pool t does not match pinned, pinned to it by the label accel.gpu/pool",
        "new have the label accel.gpu/pool=gone, which is not a declared pool",
        "The run neither waits for these nodes nor verifies them, because they are not ready: away.",
        "The catalog has no GPU model NVIDIA-X1 (new)",
    ]
    assert warnings.all_warnings([Node("cpu")], assign_pools(plan.pools, []), (), {}, run=False) == []


RDMA = {"driver": {"rdma": {"enabled": True}}}


@pytest.mark.parametrize(
    ("version", "conditions", "operator", "words"),
    [
        ("v24.9.0", ("k3s-or-rke2",), {}, "container toolkit v1.17.0 does not start"),
        ("v24.9.2", ("k0s",), {}, "On k0s, the container toolkit before v1.17.6"),
        ("v25.3.2", ("microk8s",), {}, "If CONTAINERD_SOCKET is set"),
        ("v25.10.0", ("cri-o",), {}, "operands remain in Init:RunContainerError"),
        ("v25.10.0", ("containerd",), {}, "its own imports"),
        ("v26.3.0", (), RDMA, "nvidia-peermem may not start again"),
        ("v26.3.2", ("rdma-nic",), {}, "every ibverbs device"),
        ("v26.3.1", ("host-users",), {}, "Pods with spec.hostUsers: false"),
        ("v26.7.0", ("gpucluster",), {}, "A GPUCluster in addition to a ClusterPolicy"),
    ],
)
def test_issues_are_shown_where_they_apply(
    version: str, conditions: tuple[str, ...], operator: dict[str, t.Any], words: str
) -> None:
    declared = {"name": "lab", "operator": {"version": version, **operator}}
    assert any(words in text for text in plan_warnings(derive(declared, {}, [WHOLE]), conditions))
    silent = {"name": "lab", "operator": {"version": version}}
    assert not any(words in text for text in plan_warnings(derive(silent, {}, [WHOLE])))
    assert not any(words in text for text in plan_warnings(derive({"name": "lab"}, {}, [WHOLE]), conditions))


OLD = {"name": "old", "match": {"model": "V100-SXM2-16GB"}}
OPEN = {"driver": {"kernel_module_type": "open"}}


@pytest.mark.parametrize(
    ("operator", "pool", "count"),
    [
        (OPEN, OLD, 1),
        ({"values": {"driver": {"kernelModuleType": "open"}}}, OLD, 1),
        (OPEN, {**OLD, "driver": {"kernel_module_type": "proprietary"}}, 0),
        (OPEN, {"name": "new", "match": {"model": "B200"}}, 0),
        (OPEN, {"name": "pinned"}, 0),
        ({}, OLD, 0),
        ({"values": {"driver": {"kernelModuleType": "open", "enabled": False}}}, OLD, 0),
    ],
)
def test_kernel_modules_of_the_operators_driver(operator: dict[str, t.Any], pool: dict[str, t.Any], count: int) -> None:
    actual = [
        text for text in plan_warnings(derive({"name": "lab", "operator": operator}, {}, [pool])) if "kernel" in text
    ]
    assert len(actual) == count
    assert all("Pool old" in text and "set proprietary, or auto" in text for text in actual)


def test_the_vgpu_driver_of_a_pool_is_a_condition() -> None:
    vgpu = {**WHOLE, "driver": {"type": "vgpu", "repository": "registry.example.com/nvidia"}}
    declared = {"name": "lab", "known_issues": [{"conditions": ["vgpu"], "text": "Licenses expire."}]}
    for pool, count in ((WHOLE, 0), ({**WHOLE, "driver": {}}, 0), (vgpu, 1)):
        assert sum("Licenses expire" in text for text in plan_warnings(derive(declared, {}, [pool]))) == count


@pytest.mark.parametrize(
    ("version", "warned"),
    [("", True), ("4.18.22", True), ("4.18.23", True), ("4.18.28", False), ("4.18.2", False), ("4.19.1", False)],
)
def test_an_issue_of_versions_of_openshift_is_reported_only_for_these(version: str, warned: bool) -> None:
    plan = derive({"name": "lab", "distribution": "openshift"}, {}, [WHOLE])
    actual = [text for text in plan_warnings(plan, openshift_version=version) if "OpenShift 4.18.22" in text]
    assert bool(actual) is warned


@pytest.mark.parametrize("component", ["operator", "nfd"])
@pytest.mark.parametrize(("approval", "count"), [("Automatic", 1), ("Manual", 0), ("", 0)])
def test_automatic_approval_is_a_warning(component: str, approval: str, count: int) -> None:
    cluster = {"name": "lab", "distribution": "openshift", component: {"olm": {"approval": approval}}}
    warnings = plan_warnings(derive(cluster, {}, [WHOLE]), openshift_version="4.18.28")
    assert (
        len([text for text in warnings if text.startswith(f"gpu_cluster.{component}.olm.approval is Automatic")])
        == count
    )
