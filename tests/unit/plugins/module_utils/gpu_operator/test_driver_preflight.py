# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on which a driver container cannot work, before anything is installed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.gpu_operator.detect import (
    driver_warnings,
    missing_image_problem,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan

NFD = "feature.node.kubernetes.io/"
GPU = {f"{NFD}pci-10de.present": "true"}
FEDORA = {f"{NFD}system-os_release.ID": "fedora", f"{NFD}system-os_release.VERSION_ID": "43"}
UBUNTU = {f"{NFD}system-os_release.ID": "ubuntu", f"{NFD}system-os_release.VERSION_ID": "24.04"}
CARD = {f"{NFD}pci-15b3.present": "true"}
MANAGED_CARD = {**CARD, "network.nvidia.com/operator.mofed.wait": "false"}
COREOS = "Fedora CoreOS 43.20260413.3.2"
NOUVEAU = {f"{NFD}kernel-loadedmodule.nouveau": "true"}
SECURED = {f"{NFD}secure-boot": "true"}


def planned(**operator: t.Any) -> Plan:
    return derive({"name": "c", "operator": operator}, {}, [{"name": "p", "match": {"model": "T4"}}])


def pooled(driver: dict[str, t.Any], operator: dict[str, t.Any]) -> Plan:
    """Rack a has a driver of its own; rack b has that of the operator, and one model is not known before its driver runs."""
    pools = [
        {"name": "p", "match": {"labels": {"rack": "a"}}, "driver": driver},
        {"name": "q", "match": {"labels": {"rack": "b"}}},
    ]
    return derive({"name": "c", "operator": operator}, {}, pools)


def node(*labels: dict[str, str], image: str = "Ubuntu 24.04.3 LTS", name: str = "a") -> Node:
    return Node(name, {key: value for each in labels for key, value in each.items()}, os_image=image)


@pytest.mark.parametrize(
    ("operator", "nodes", "system"),
    [
        ({}, [node(GPU, UBUNTU)], ""),
        ({}, [node(GPU, FEDORA, image=COREOS)], f"node a: NVIDIA publishes no driver image for {COREOS} (fedora43)"),
        ({}, [node(GPU, FEDORA, image=COREOS), node(GPU, UBUNTU, name="b")], "node a: NVIDIA publishes no driver"),
        # Before NFD runs, GPU nodes are unknown: all nodes have to be without images.
        ({}, [node(image=COREOS)], f"node a: NVIDIA publishes no driver image for {COREOS}, so"),
        ({}, [node(image=COREOS), node(name="b")], ""),
        ({}, [node(FEDORA, image=COREOS), node(GPU, UBUNTU, name="b")], ""),
        ({}, [node(GPU, image="Flatcar Container Linux by Kinvolk 4230.2.3")], "node a: NVIDIA publishes no"),
        ({}, [], ""),
        # Drivers of the nodes' own, other images, and drivers that work.
        ({"driver": {"enabled": False}}, [node(GPU, FEDORA)], ""),
        ({"values": {"driver": {"repository": "registry.example.com/nvidia"}}}, [node(GPU, FEDORA)], ""),
        ({"registry": "registry.example.com"}, [node(GPU, FEDORA)], ""),
        ({}, [node(GPU, FEDORA, {"nvidia.com/gpu.deploy.driver": "pre-installed"})], ""),
        ({}, [node(GPU, FEDORA, {"nvidia.com/cuda.driver-version.full": "580.95.05"})], ""),
    ],
)
def test_systems_without_driver_images(operator: dict[str, t.Any], nodes: list[Node], system: str) -> None:
    problem = missing_image_problem(planned(**operator), nodes)
    assert problem.startswith(system)
    assert bool(problem) == bool(system)
    assert not problem or "nvidia.com/gpu.deploy.driver=pre-installed" in problem


@pytest.mark.parametrize(
    ("operator", "labels", "words"),
    [
        ({}, [UBUNTU], []),
        ({}, [UBUNTU, NOUVEAU], ["node a: the kernel module nouveau is loaded"]),
        ({}, [UBUNTU, NOUVEAU, {"nvidia.com/cuda.driver-version.full": "580.95.05"}], []),
        ({"driver": {"enabled": False}}, [UBUNTU, NOUVEAU, SECURED], []),
        ({}, [UBUNTU, SECURED], ["node a: Secure Boot is enabled"]),
        ({"driver": {"precompiled": True, "version": "580"}}, [UBUNTU, SECURED], []),
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU], ["no NVIDIA (Mellanox) network adapter"]),
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU, CARD], ["no Network Operator manages"]),
        ({"driver": {"rdma": {"enabled": True, "use_host_mofed": True}}}, [UBUNTU, CARD], []),
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU, MANAGED_CARD], []),
    ],
)
def test_warnings(operator: dict[str, t.Any], labels: list[dict[str, str]], words: list[str]) -> None:
    messages = driver_warnings(planned(**operator), [node(GPU, *labels)])
    assert len(messages) == len(words)
    assert all(word in text for word, text in zip(words, messages, strict=True))


FLATCAR = "Flatcar Container Linux by Kinvolk 4230.2.3"
MIRROR: dict[str, t.Any] = {"values": {"driver": {"repository": "registry.example.com/nvidia"}}}
A, B = {"rack": "a"}, {"rack": "b"}


@pytest.mark.parametrize(
    ("driver", "operator", "nodes", "names"),
    [
        ({"repository": "registry.example/own"}, {}, [node(GPU, A, image=FLATCAR)], ""),
        ({"repository": "registry.example/own"}, {}, [node(GPU, B, image=FLATCAR, name="b")], "node b:"),
        (
            {"repository": "registry.example/own"},
            {},
            [node(GPU, A, image=FLATCAR), node(GPU, B, image=FLATCAR, name="b"), node(GPU, image=FLATCAR, name="c")],
            "2 nodes, b, c:",
        ),
        ({"version": "580.105.08"}, {}, [node(GPU, A, image=FLATCAR)], "node a:"),
        ({"version": "580.105.08"}, MIRROR, [node(GPU, A, image=FLATCAR), node(GPU, B, image=FLATCAR)], ""),
        # Before NFD runs.
        ({"repository": "registry.example/own"}, {}, [node(A, image=FLATCAR)], ""),
        ({"repository": "registry.example/own"}, {}, [node(B, image=FLATCAR)], "node a:"),
    ],
)
def test_images_of_the_drivers_of_pools(
    driver: dict[str, t.Any], operator: dict[str, t.Any], nodes: list[Node], names: str
) -> None:
    problem = missing_image_problem(pooled(driver, operator), nodes)
    assert problem.startswith(names)
    assert bool(problem) == bool(names)


def test_a_node_whose_pool_is_not_known_yet_may_get_any_of_the_drivers() -> None:
    pools = [{"name": "p", "match": {"model": "T4"}, "driver": {"repository": "registry.example/own"}}]
    undiscovered = node(GPU, image=FLATCAR)
    assert missing_image_problem(derive({"name": "c"}, {}, pools), [undiscovered]) == ""
    discovered = node(GPU, {"nvidia.com/gpu.product": "NVIDIA-L40S"}, image=FLATCAR)
    assert missing_image_problem(derive({"name": "c"}, {}, pools), [discovered]).startswith("node a:")


PRECOMPILED: dict[str, t.Any] = {"driver": {"precompiled": True, "version": "580"}}


@pytest.mark.parametrize(
    ("driver", "operator", "names"),
    [
        ({}, {}, "2 nodes, a, b:"),
        ({"precompiled": True, "version": "580"}, {}, "node b:"),
        ({"precompiled": False, "version": "580.105.08"}, PRECOMPILED, "node a:"),
        ({}, PRECOMPILED, ""),
        ({"precompiled": False, "version": "580.105.08"}, {}, "2 nodes, a, b:"),
    ],
)
def test_secure_boot_and_the_drivers_of_pools(driver: dict[str, t.Any], operator: dict[str, t.Any], names: str) -> None:
    nodes = [node(GPU, UBUNTU, SECURED, A), node(GPU, UBUNTU, SECURED, B, name="b")]
    messages = [text for text in driver_warnings(pooled(driver, operator), nodes) if "Secure Boot" in text]
    assert [text[: len(names)] for text in messages] == ([names] if names else [])


DRIVERS: list[dict[str, t.Any]] = [
    {},
    {"version": "580.105.08"},
    {"version": "580.105.08", "repository": "registry.example/own"},
    {"version": "580", "precompiled": True},
    {"version": "580", "precompiled": True, "repository": "registry.example/own"},
]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_pool_and_the_operator_with_the_same_driver_have_the_same_warnings(driver: dict[str, t.Any]) -> None:
    nodes = [node(GPU, A, *labels, image=FLATCAR) for labels in ([], [SECURED], [SECURED, NOUVEAU])]
    values = {"driver": {"repository": driver["repository"]}} if "repository" in driver else {}
    operator = {"driver": {key: value for key, value in driver.items() if key != "repository"}, "values": values}
    for item in nodes:
        of_operator = driver_warnings(pooled({}, operator), [item])
        assert driver_warnings(pooled(driver, {}), [item]) == of_operator
        assert missing_image_problem(pooled(driver, {}), [item]) == missing_image_problem(pooled({}, operator), [item])
