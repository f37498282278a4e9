# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node belongs to which pool."""

from __future__ import annotations

import random
import time

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import (
    Membership,
    NodeFacts,
    matches,
    membership_by_labels,
)
from tests.helpers.variables import CLUSTER, Document

PIN = "accel.gpu/pool"
PRODUCT = "nvidia.com/gpu.product"
PCI = "feature.node.kubernetes.io/pci-10de.present"

T4: Document = {"name": "t4", "match": {"model": "T4"}}
RACK: Document = {"name": "rack", "match": {"labels": {"rack": "a"}}}
A100: Document = {"name": "a100", "match": {"model": "A100-SXM4-80GB", "labels": {"rack": "a", "zone": "1"}}}
PINNED: Document = {"name": "pinned"}


def sorted_into(pools: list[Document], **nodes: dict[str, str]) -> Membership:
    return membership_by_labels(
        derive(CLUSTER, {}, pools).pools, [NodeFacts(name, labels) for name, labels in nodes.items()]
    )


@pytest.mark.parametrize(
    "product",
    ["Tesla-T4", "Tesla-T4-SHARED", "tesla-t4", "NVIDIA-T4", "T4", "Tesla-T4-MIG-1g.5gb-SHARED", "NVIDIA-Tesla-T4"],
)
def test_model_by_whatever_gfd_calls_it(product: str) -> None:
    assert sorted_into([T4], n={PRODUCT: product}).by_pool == {"t4": ["n"]}


@pytest.mark.parametrize("product", ["Tesla-T40", "NVIDIA-L4", "GRID-T4-8Q", ""])
def test_other_models(product: str) -> None:
    assert sorted_into([T4], n={PRODUCT: product}).by_pool == {"t4": []}


@pytest.mark.parametrize("published", ["NVIDIA-TITAN-V", "NVIDIA-TITAN-V-SHARED", "nvidia-titan-v"])
def test_model_that_the_catalog_lacks_is_named_by_gfds_label(published: str) -> None:
    unlisted: Document = {"name": "p", "match": {"labels": {PRODUCT: "NVIDIA-TITAN-V", "rack": "a"}}}
    actual = sorted_into([unlisted], n={PRODUCT: published, "rack": "a"}, other={PRODUCT: published})
    assert actual.by_pool == {"p": ["n"]}


def test_labels_alone_take_gpu_nodes_only() -> None:
    actual = sorted_into([RACK], gpu={"rack": "a", PCI: "true"}, cpu={"rack": "a"}, other={"rack": "b", PCI: "true"})
    assert actual.by_pool == {"rack": ["gpu"]}
    assert actual.undiscovered == ["gpu", "other"]
    assert actual.unclaimed == []


def test_model_and_labels_both_count() -> None:
    full = {PRODUCT: "NVIDIA-A100-SXM4-80GB", "rack": "a", "zone": "1"}
    actual = sorted_into([A100], full=full, half={**full, "zone": "2"}, other={**full, PRODUCT: "Tesla-T4"})
    assert actual.by_pool == {"a100": ["full"]}
    assert actual.unclaimed == ["half", "other"]


def test_pin_beats_match() -> None:
    actual = sorted_into([T4, PINNED], n={PRODUCT: "Tesla-T4", PIN: "pinned"}, bare={PIN: "pinned"})
    assert actual.by_pool == {"t4": [], "pinned": ["bare", "n"]}
    assert actual.empty == ["t4"]
    assert actual.mismatched == {}


def test_pinned_node_of_another_model_is_said() -> None:
    actual = sorted_into([T4], n={PRODUCT: "NVIDIA-L4", PIN: "t4"}, unknown={PCI: "true", PIN: "t4"})
    assert actual.by_pool == {"t4": ["n", "unknown"]}
    assert actual.mismatched == {"t4": ["n"]}
    assert actual.undiscovered == ["unknown"]


def test_node_of_two_pools_is_in_neither() -> None:
    actual = sorted_into([T4, RACK], n={PRODUCT: "Tesla-T4", "rack": "a"})
    assert actual.overlaps == {"n": ["rack", "t4"]}
    assert actual.by_pool == {"t4": [], "rack": []}


NODEGROUP = "magnum.openstack.org/nodegroup"
CLOUD: Document = {"name": "lab", "cloud": {"magnum": {}}}
MADE: Document = {"name": "made", "model": "T4", "nodes": {"flavor": "f", "count": 1, "name": "gpus"}}


def of_a_cloud(*pools: Document, **nodes: dict[str, str]) -> Membership:
    return membership_by_labels(
        derive(CLOUD, {}, list(pools)).pools, [NodeFacts(name, labels) for name, labels in nodes.items()]
    )


def test_nodes_of_a_group_are_its_pools_before_anything_is_known_of_them() -> None:
    nodes = {
        "new": {NODEGROUP: "gpus"},
        # Anyone may choose the name of a replacement; the nodes of a replacement have the pool's label.
        "2026": {NODEGROUP: "gpus-2026"},
        "moved": {NODEGROUP: "gpus-0a1f", PIN: "made"},
        "other": {NODEGROUP: "gpus-large"},
        "none": {},
    }
    assert of_a_cloud(MADE, **nodes).by_pool == {"made": ["moved", "new"]}


def test_a_group_beats_a_match_and_a_pin_beats_a_group() -> None:
    existing = {NODEGROUP: "gpus", PRODUCT: "Tesla-T4"}
    actual = of_a_cloud(
        MADE, T4, PINNED, n={**existing}, pinned={**existing, PIN: "pinned"}, former={**existing, PIN: "gone"}
    )
    assert actual.by_pool == {"made": ["former", "n"], "t4": [], "pinned": ["pinned"]}
    assert actual.undeclared_pins == {"gone": ["former"]}


def test_a_group_whose_name_another_one_could_have_taken_is_its_own() -> None:
    other: Document = {"name": "other", "nodes": {"flavor": "f", "count": 1, "name": "gpus-beef"}}
    nodes = {"a": {NODEGROUP: "gpus-beef"}, "b": {NODEGROUP: "gpus"}}
    for pools in ([MADE, other], [other, MADE]):
        assert of_a_cloud(*pools, **nodes).by_pool == {"made": ["b"], "other": ["a"]}


def test_the_label_of_a_group_is_the_clouds() -> None:
    cloud = {"name": "lab", "cloud": {"magnum": {"nodegroup_label": "capi.stackhpc.com/node-group"}}}
    facts = [NodeFacts("a", {"capi.stackhpc.com/node-group": "gpus"}), NodeFacts("b", {NODEGROUP: "gpus"})]
    assert membership_by_labels(derive(cloud, {}, [MADE]).pools, facts).by_pool == {"made": ["a"]}
    vks = derive(
        {"name": "lab", "cloud": {"vks": {}}}, {}, [{**MADE, "nodes": {"flavor": "f", "count": 1, "name": "a-group"}}]
    )
    assert membership_by_labels(
        vks.pools, [NodeFacts("a", {"": "a-group"}), NodeFacts("b", {PIN: "made"})]
    ).by_pool == {"made": ["b"]}


def test_a_node_of_another_model_than_its_flavor_was_said_to_have() -> None:
    actual = of_a_cloud(
        MADE,
        right={NODEGROUP: "gpus", PRODUCT: "Tesla-T4-SHARED"},
        unknown={NODEGROUP: "gpus", PCI: "true"},
        wrong={NODEGROUP: "gpus", PRODUCT: "NVIDIA-L4"},
        pinned={PIN: "made", PRODUCT: "NVIDIA-L4"},
    )
    assert actual.by_pool == {"made": ["pinned", "right", "unknown", "wrong"]}
    assert actual.wrong_model == {"made": ["pinned", "wrong"]}
    assert actual.mismatched == {}


def test_the_labels_of_a_vgpu_do_not_contradict_the_physical_gpu_of_its_flavor() -> None:
    vgpu = {"nvidia.com/vgpu.present": "true", PRODUCT: "GRID-T4-16Q"}
    assert of_a_cloud(MADE, guest={NODEGROUP: "gpus", **vgpu}, pinned={PIN: "made", **vgpu}).wrong_model == {}


@pytest.mark.parametrize("product", ["NVIDIA-A100-10C", "GRID-A100-10C", "GRID-A100-10C-SHARED"])
@pytest.mark.parametrize("declared", ["NVIDIA-A100-10C", "GRID-A100-10C"])
def test_a_vgpu_type_matches_with_the_prefix_of_every_hypervisor(product: str, declared: str) -> None:
    pool = {"name": "vdi", "match": {"labels": {PRODUCT: declared}}}
    nodes = {"a": {PRODUCT: product}, "b": {PRODUCT: "NVIDIA-A100-20C"}}
    assert sorted_into([pool], **nodes).by_pool == {"vdi": ["a"]}


@pytest.mark.parametrize(
    ("driver", "match", "memory"),
    [
        ("vgpu", {"labels": {PRODUCT: "GRID-A100-10C"}}, 10240),
        ("vgpu", {"labels": {PRODUCT: "NVIDIA-A100-10C", "zone": "a"}}, 10240),
        ("vgpu", {"labels": {"zone": "a"}}, None),
        ("vgpu", {"model": "A100-SXM4-80GB"}, None),
        ("gpu", {"model": "A100-SXM4-80GB"}, 81920),
    ],
)
def test_the_memory_of_a_vgpu_pool_is_not_that_of_the_card(driver: str, match: Document, memory: int | None) -> None:
    given = {"type": driver, "version": "580.95.05", "repository": "registry.example.com/nvidia"}
    licensing = {"licensing_secret": "licensing-config"} if driver == "vgpu" else {}
    pool = {"name": "vdi", "match": match, "driver": {**given, **licensing}}
    (actual,) = derive(CLUSTER, {}, [pool]).pools
    assert actual.memory_mib_per_share == memory


def test_node_of_a_pool_that_is_gone_is_said_and_may_find_another() -> None:
    actual = sorted_into([T4], new={PRODUCT: "Tesla-T4", PIN: "old"}, lost={PRODUCT: "NVIDIA-L4", PIN: "old"})
    assert actual.undeclared_pins == {"old": ["lost", "new"]}
    assert actual.by_pool == {"t4": ["new"]}
    assert actual.unclaimed == []


@pytest.mark.parametrize(
    ("labels", "undiscovered"),
    [
        ({PCI: "true"}, True),
        ({"feature.node.kubernetes.io/pci-0302_10de.present": "true"}, True),
        ({"nvidia.com/gpu.present": "true"}, True),
        ({"nvidia.com/gpu.present": "false"}, False),
        ({PCI: "true", PRODUCT: "NVIDIA-L4"}, False),
        ({}, False),
    ],
)
def test_undiscovered(labels: dict[str, str], undiscovered: bool) -> None:
    assert bool(sorted_into([T4], n=labels).undiscovered) is undiscovered


def test_no_nodes_and_no_pools() -> None:
    assert sorted_into([T4]).empty == ["t4"]
    assert sorted_into([], n={PRODUCT: "Tesla-T4"}).unclaimed == ["n"]


def test_five_thousand_nodes_and_three_hundred_pools(rng: random.Random) -> None:
    """The index finds what asking every pool about every node finds, in a fraction of the time."""
    racks = [{"name": f"rack-{number}", "match": {"labels": {"rack": str(number)}}} for number in range(298)]
    pools = derive(CLUSTER, {}, [T4, A100, *racks]).pools
    noise = {f"example.com/label-{number}": "x" for number in range(40)}
    nodes = [
        NodeFacts(
            f"node-{number:04}",
            {
                **noise,
                PRODUCT: rng.choice(["Tesla-T4-SHARED", "NVIDIA-A100-SXM4-80GB", "NVIDIA-H200"]),
                "rack": rng.choice(["a", str(rng.randrange(400))]),
                "zone": rng.choice("12"),
            },
        )
        for number in range(5000)
    ]
    started = time.process_time()
    actual = membership_by_labels(pools, nodes)
    spent = time.process_time() - started
    assert spent < 1, f"took {spent:.2f} s"
    for node in rng.sample(nodes, 200):
        matching = [pool.name for pool in pools if matches(pool, node)]
        assert [name for name, own in actual.by_pool.items() if node.name in own] == (
            matching if len(matching) == 1 else []
        )
        assert actual.overlaps.get(node.name, []) == (sorted(matching) if len(matching) > 1 else [])
