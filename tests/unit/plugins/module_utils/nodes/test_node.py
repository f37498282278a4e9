# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of Node objects."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_node

MODELS = [
    ("Tesla-T4", "Tesla-T4"),
    ("Tesla-T4-SHARED", "Tesla-T4"),
    ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "NVIDIA-A100-SXM4-80GB"),
    ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me-SHARED", "NVIDIA-A100-SXM4-80GB"),
    ("NVIDIA-A100-SXM4-80GB-MIG-INVALID", "NVIDIA-A100-SXM4-80GB"),
    ("", ""),
]


@pytest.mark.parametrize(("product", "model"), MODELS)
def test_model(product: str, model: str) -> None:
    assert Node("n", {"nvidia.com/gpu.product": product}).model == model


GPU_NODES = [
    ({}, False, False),
    ({"feature.node.kubernetes.io/pci-10de.present": "true"}, True, False),
    ({"nvidia.com/gpu.present": "true"}, True, False),
    ({"nvidia.com/gpu.present": "false", "feature.node.kubernetes.io/pci-10de.present": "true"}, False, False),
    ({"nvidia.com/gpu.product": "Tesla-T4"}, True, True),
]


@pytest.mark.parametrize(("labels", "has_gpu", "discovered"), GPU_NODES)
def test_gpu_nodes(labels: dict[str, str], has_gpu: bool, discovered: bool) -> None:
    assert (Node("n", labels).has_gpu, Node("n", labels).discovered) == (has_gpu, discovered)


def test_parse() -> None:
    node = parse_node(
        {
            "metadata": {"name": "n1", "resourceVersion": "5", "labels": {"nvidia.com/gpu.count": "8"}},
            "spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
                "capacity": {"nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )
    assert (node.name, node.gpus, node.ready, node.unschedulable) == ("n1", 8, True, True)
    assert node.allocatable == {"nvidia.com/gpu": 8}
    assert node.resource_version == "5"


def test_a_bare_node_is_read() -> None:
    assert parse_node({"metadata": {"name": "n1"}}) == Node("n1")


@pytest.mark.parametrize(
    ("labels", "driver"),
    [
        ({"nvidia.com/cuda.driver-version.full": "580.95.05"}, "580.95.05"),
        (
            {f"nvidia.com/cuda.driver.{k}": v for k, v in (("major", "550"), ("minor", "90"), ("rev", "07"))},
            "550.90.07",
        ),
        ({}, ""),
    ],
)
def test_driver(labels: dict[str, str], driver: str) -> None:
    assert Node("n", labels).driver == driver


@pytest.mark.parametrize(
    ("resource", "reported"),
    [
        *((name, True) for name in ("volcano.sh/vgpu-number", "mig.das.com/1g.5gb", "aliyun.com/gpu-mem")),
        # Unknown vendors.
        *(
            (name, True)
            for name in ("example.com/gpu", "4paradigm.com/vgpu", "example.com/mig-1g.10gb", "xamd.com/gpu")
        ),
        # Known vendors of other GPUs, and resources that are no GPUs.
        *((name, False) for name in ("amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/gpu", "habana.ai/gaudi")),
        *((name, False) for name in ("cpu", "nvidia.com/gpu", "example.com/fpga", "example.com/migration-slots")),
    ],
)
def test_resources_of_known_and_unknown_plugins_are_reported(resource: str, reported: bool) -> None:
    node = parse_node({"metadata": {"name": "n"}, "status": {"capacity": {resource: "1"}}})
    assert node.foreign_resources == ((resource,) if reported else ())
