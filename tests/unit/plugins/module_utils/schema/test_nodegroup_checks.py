# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pools that make their own nodes: what is rejected before any cloud is asked."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import Document

MAGNUM: Document = {"name": "prod", "cloud": {"magnum": {"cloud": "mycloud"}}}
VKS: Document = {"name": "prod", "cloud": {"vks": {"region": "HAN"}}}
MACHINESET: Document = {"name": "prod", "cloud": {"machineset": {}}}
MADE: Document = {"name": "train", "nodes": {"flavor": "g4.p2.40g", "count": 2}}
MIG: Document = {"mode": "mig", "layout": {"1g.10gb": 7}}

CLOUD_MISTAKES: list[tuple[t.Any, str]] = [
    ({}, "gpu_cluster.cloud: names no provider; set exactly one of magnum, vks or machineset"),
    ({"magnum": None}, "gpu_cluster.cloud: names no provider"),
    (
        {"magnum": {}, "vks": {}},
        "gpu_cluster.cloud: names magnum and vks; set exactly one of magnum, vks or machineset",
    ),
    ({"aws": {}}, "gpu_cluster.cloud.aws: is not a known key; known: magnum, vks, machineset"),
    ({"magnum": {"region": "x"}}, "gpu_cluster.cloud.magnum.region: is not a known key; did you mean region_name?"),
    ({"magnum": {"nodegroup_label": "a b"}}, 'gpu_cluster.cloud.magnum.nodegroup_label: "a b" is not a label key'),
    (
        {"vks": {"vks_url": "vks.example.com"}},
        'gpu_cluster.cloud.vks.vks_url: "vks.example.com" is not an address; use https:',
    ),
    ({"vks": {"iam_url": "https://u:p@x"}}, "gpu_cluster.cloud.vks.iam_url: "),
    ("mycloud", 'gpu_cluster.cloud: "mycloud" is a string, not a map'),
]


@pytest.mark.parametrize(("cloud", "message"), CLOUD_MISTAKES)
def test_mistake_of_a_cloud(cloud: t.Any, message: str) -> None:
    problems = validate({"name": "prod", "cloud": cloud}, {}, [])
    assert [problem for problem in problems if problem.startswith(message)], problems
    assert all("; " in problem for problem in problems)


# A pool beside its name and nodes, what its nodes are beside flavor and count, and the one message about it.
POOL_MISTAKES: list[tuple[Document, Document, Document, str]] = [
    (MAGNUM, {}, {"count": None}, ".nodes.count: is missing; set the number of nodes"),
    (MAGNUM, {}, {"flavor": None}, ".nodes.flavor: is missing; set the flavor"),
    (
        MACHINESET,
        {},
        {"flavor": None},
        ".nodes.flavor: is missing; set the flavor of the nodes, which determines their GPUs, or set template",
    ),
    (MACHINESET, {}, {"template": "t"}, ".nodes.template: cannot be combined with flavor; remove one"),
    (MACHINESET, {}, {"zones": []}, ".nodes.zones: is empty; add a zone, or remove it"),
    (MACHINESET, {}, {"zones": ["a", "b", "a"]}, '.nodes.zones: contains "a" more than once'),
    (
        MACHINESET,
        {},
        {"zones": ["a b"]},
        '.nodes.zones: the node group in zone "a b" would be "train-a b", which is not a DNS label',
    ),
    (MACHINESET, {}, {"zones": ["z" * 60]}, '.nodes.zones: the node group in zone "zzz'),
    (
        MACHINESET,
        {"autoscale": {"min": 0, "max": 2}},
        {"zones": ["a", "b", "c"]},
        ".autoscale.max: 2 is less than the number of zones, 3",
    ),
    (MACHINESET, {"name": "a" * 58}, {}, ".nodes.name: is missing, and the pool's name \"aaa"),
    (
        MACHINESET,
        {},
        {"image": "i"},
        ".nodes.image: is a setting of Magnum, but gpu_cluster.cloud is machineset; remove it",
    ),
    (MACHINESET, {}, {"accelerators": {"count": 1}}, ".nodes.accelerators.type: is missing; set the type of GPU"),
    (
        MACHINESET,
        {"gpus_per_node": 2},
        {"flavor": "g4dn.xlarge"},
        ".gpus_per_node: the flavor g4dn.xlarge has 1, not 2; set 1",
    ),
    (
        MAGNUM,
        {},
        {"template": "t"},
        ".nodes.template: is a setting of OpenShift's Machine API, but gpu_cluster.cloud is magnum",
    ),
    (MAGNUM, {}, {"count": -1}, ".nodes.count: -1 is not allowed: the number of nodes must not be negative"),
    (MAGNUM, {}, {"count": 5001}, ".nodes.count: 5001 is not allowed: a cluster has at most 5000"),
    (MAGNUM, {}, {"node_count": 2}, ".nodes.node_count: is not a known key; use count"),
    (
        MAGNUM,
        {},
        {"max_node_count": 2},
        ".nodes.max_node_count: is not a known key; use autoscale: {min, max} in the pool",
    ),
    (
        MAGNUM,
        {},
        {"node_labels": {}},
        ".nodes.node_labels: is not a known key; use labels of the pool for the labels of its nodes",
    ),
    (
        VKS,
        {"name": "gpu-a"},
        {"taints": []},
        ".nodes.taints: is not a known key; use taints of the pool for the taints of its nodes",
    ),
    (VKS, {"name": "gpu-a"}, {"max_size": 2}, ".nodes.max_size: is not a known key; use autoscale"),
    (MAGNUM, {}, {"cluster": "x"}, ".nodes.cluster: is not a known key; it belongs under gpu_cluster.cloud"),
    (MAGNUM, {}, {"role": "master"}, '.nodes.role: "master" is the role of the control plane'),
    (MAGNUM, {}, {"labels": {"a": True}}, ".nodes.labels.a: true is a boolean, not a string; put it in quotes"),
    (
        MAGNUM,
        {},
        {"disk_type": "NVME"},
        ".nodes.disk_type: is a setting of VKS, but gpu_cluster.cloud is magnum; remove it",
    ),
    (
        VKS,
        {"name": "gpu-a"},
        {"image": "x"},
        ".nodes.image: is a setting of Magnum, but gpu_cluster.cloud is vks; remove it",
    ),
    (
        VKS,
        {"name": "gpu-a"},
        {"labels": {"a": "b"}},
        ".nodes.labels: is a setting of Magnum, but gpu_cluster.cloud is vks; use labels of the pool",
    ),
    (VKS, {"name": "gpu-a"}, {"disk_size": 10}, ".nodes.disk_size: 10 is not allowed: VKS requires at least 20 GiB"),
    (
        VKS,
        {"name": "gpu"},
        {},
        '.nodes.name: is missing, and the pool\'s name "gpu" is not a VKS node group name; use 5 to 15',
    ),
    (VKS, {}, {"name": "GPU_A"}, '.nodes.name: "GPU_A" is not a VKS node group name'),
    (VKS, {}, {"name": "a-name-that-is-long"}, '.nodes.name: "a-name-that-is-long" is not a VKS node group name'),
    (MAGNUM, {}, {"name": "x" * 64}, f'.nodes.name: "{"x" * 56}... has 64 characters; a label'),
    (MAGNUM, {}, {"name": "a b"}, '.nodes.name: "a b" is not a valid label value; use a-z'),
    (
        MAGNUM,
        {"autoscale": {"min": 3, "max": 6}},
        {},
        ".nodes.count: 2 is outside autoscale, 3 to 6; set a number within",
    ),
    (
        MAGNUM,
        {"autoscale": {"min": 0, "max": 1}},
        {},
        ".nodes.count: 2 is outside autoscale, 0 to 1; set a number within",
    ),
    (
        MAGNUM,
        {"autoscale": {"min": 3, "max": 2}},
        {},
        ".autoscale.min: 3 is greater than max, 2; set min to at most max",
    ),
    (MAGNUM, {"autoscale": {"min": 1}}, {}, ".autoscale.max: is missing; set the maximum number of nodes"),
    (
        MAGNUM,
        {"autoscale": {"min": 0, "max": 0}},
        {"count": 0},
        ".autoscale.max: 0 is not allowed: a group without nodes does not need an autoscaler",
    ),
    (MAGNUM, {"model": "T4", "match": {"model": "T4"}}, {}, ".model: cannot be combined with match.model; remove one"),
    (MAGNUM, {"model": "T9"}, {}, '.model: "T9" is not a GPU model in the catalog; did you mean T4?'),
    (
        MAGNUM,
        {"model": "L40S", "sharing": MIG},
        {},
        ".sharing.mode: a L40S does not support mig; use time-slicing or mps",
    ),
    (
        MAGNUM,
        {"model": "A100-SXM4-80GB", "sharing": {**MIG, "layout": {"1g.10gb": 8}}},
        {},
        ".sharing.layout: a A100-SXM4-80GB has room",
    ),
    (
        MAGNUM,
        {"labels": {"node-role.kubernetes.io/gpu": ""}},
        {},
        ".labels['node-role.kubernetes.io/gpu']: is in a Kubernetes namespace",
    ),
    (
        VKS,
        {"name": "gpu-a", "labels": {"k8s.io/x": ""}},
        {},
        ".labels['k8s.io/x']: is in a Kubernetes namespace that a kubelet",
    ),
    (
        VKS,
        {"name": "gpu-a", "labels": {f"l{i}": "" for i in range(48)}},
        {},
        ".labels: has 48 entries; a VKS node group has at most 50",
    ),
    (
        VKS,
        {"name": "gpu-a", "taints": [{"key": f"t{i}", "effect": "NoExecute"} for i in range(50)]},
        {},
        ".taints: has 50 entries; a VKS node group has at most 50",
    ),
    (
        VKS,
        {"name": "gpu-a", "sharing": MIG},
        {"flavor": "g4-standard-16x64-1L40s"},
        ".sharing.mode: mig does not exist on the L40s of the flavor g4-standard-16x64-1L40s; use time-slicing or mps, or a flavor",
    ),
    (
        VKS,
        {"name": "gpu-a", "sharing": MIG},
        {"flavor": "g1-standard-4x16-1rtx2080ti"},
        ".sharing.mode: mig does not exist on the rtx2080ti of the flavor",
    ),
    (
        VKS,
        {"name": "gpu-a", "gpus_per_node": 8},
        {"flavor": "g4-standard-16x64-1L40s"},
        ".gpus_per_node: the flavor g4-standard-16x64-1L40s has 1, not 8; set 1",
    ),
    (
        VKS,
        {"name": "gpu-a", "model": "A40"},
        {"flavor": "g4-standard-16x64-1L40s"},
        '.model: the flavor g4-standard-16x64-1L40s does not have "A40"; set L40S',
    ),
]


@pytest.mark.parametrize(("cluster", "pool", "nodes", "message"), POOL_MISTAKES)
def test_mistake_of_a_pool(cluster: Document, pool: Document, nodes: Document, message: str) -> None:
    (problem,) = validate(cluster, {}, [{**MADE, **pool, "nodes": {**MADE["nodes"], **nodes}}])
    assert problem.startswith(f"gpu_pools[0]{message}")
    assert "; " in problem


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        (MADE, ".nodes: needs a cloud that creates the nodes; add it to gpu_cluster.cloud"),
        ({"name": "p", "autoscale": {"min": 1, "max": 2}}, ".autoscale: has no effect without nodes"),
        (
            {"name": "p", "model": "T4"},
            ".model: has no effect without nodes; existing nodes are selected by match.model",
        ),
    ],
)
def test_pool_of_a_cluster_without_cloud(pool: Document, message: str) -> None:
    (problem,) = validate({"name": "prod"}, {}, [pool])
    assert problem.startswith(f"gpu_pools[0]{message}")


def test_a_group_is_of_one_pool() -> None:
    other = {"name": "other", "nodes": {**MADE["nodes"], "name": "train"}}
    (problem,) = validate(MAGNUM, {}, [MADE, other])
    assert (
        problem
        == 'gpu_pools[1].nodes.name: the node group "train" is already used by gpu_pools[0] (train); use a unique name for each pool'
    )


@pytest.mark.parametrize(
    ("cluster", "pool"),
    [
        (MAGNUM, {"name": "x" * 63}),
        (MAGNUM, {"autoscale": {"min": 0, "max": 2}}),
        (MAGNUM, {"autoscale": {"min": 2, "max": 2}}),
        (MAGNUM, {"match": {"model": "T4"}}),
        (MAGNUM, {"labels": {"node.kubernetes.io/x": "", "topology.kubernetes.io/zone": "a"}}),
        (MAGNUM, {"taints": [{"key": "node-role.kubernetes.io/gpu", "effect": "NoSchedule"}]}),
        (
            VKS,
            {"sharing": MIG, "nodes": {"flavor": "g5-standard-48x360x900NVMe-2H100", "count": 0}, "gpus_per_node": 2},
        ),
        (VKS, {"sharing": MIG, "nodes": {"flavor": "flav-4711", "count": 0}}),
        (VKS, {"name": "gpu-12345678901", "labels": {f"l{i}": "" for i in range(47)}}),
    ],
)
def test_sound(cluster: Document, pool: Document) -> None:
    assert validate(cluster, {}, [{**MADE, **pool}]) == []


def test_the_machine_api_sets_labels_that_a_kubelet_may_not_set() -> None:
    labels = {"node-role.kubernetes.io/gpu": ""}
    assert validate(MACHINESET, {}, [{**MADE, "labels": labels}]) == []
    assert validate(MAGNUM, {}, [{**MADE, "labels": labels}]) != []


def test_groups_in_zones_differ_from_those_of_other_pools() -> None:
    zoned: Document = {**MADE, "nodes": {**MADE["nodes"], "zones": ["a"]}}
    (problem,) = validate(MACHINESET, {}, [zoned, {**MADE, "name": "train-a"}])
    assert 'the node group "train-a" is already used by' in problem


@pytest.mark.parametrize("distribution", [None, "openshift", "rke2", "kubeadm"])
def test_only_openshift_has_the_machine_api(distribution: str | None) -> None:
    problems = validate({**MACHINESET, "distribution": distribution}, {}, [])
    expected = distribution in (None, "openshift")
    assert (problems == []) is expected, problems
    assert expected or problems[0].startswith("gpu_cluster.cloud.machineset: this API exists only on openshift")


def test_a_cloud_for_any_distribution() -> None:
    assert validate({**MAGNUM, "distribution": "kubeadm"}, {}, []) == []
