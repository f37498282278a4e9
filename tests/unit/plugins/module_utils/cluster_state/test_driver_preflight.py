# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on which a driver container cannot work, before anything is installed."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.driver_preflight import (
    driver_warnings,
    missing_image_problem,
)
from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.node import Node
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
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU], ["no network card of NVIDIA"]),
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU, CARD], ["no Network Operator manages"]),
        ({"driver": {"rdma": {"enabled": True, "use_host_mofed": True}}}, [UBUNTU, CARD], []),
        ({"driver": {"rdma": {"enabled": True}}}, [UBUNTU, MANAGED_CARD], []),
    ],
)
def test_warnings(operator: dict[str, t.Any], labels: list[dict[str, str]], words: list[str]) -> None:
    found = driver_warnings(planned(**operator), [node(GPU, *labels)])
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))
