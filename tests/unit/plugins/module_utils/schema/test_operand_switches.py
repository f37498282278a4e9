# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which operands run, and the pools that need an operand which the Helm values disable."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import runs, validate

NOTEBOOKS = {
    "name": "notebooks",
    "match": {"model": "Tesla-T4"},
    "sharing": {"mode": "time-slicing", "replicas": 4},
}
TRAIN = {
    "name": "train",
    "match": {"model": "NVIDIA-H100-80GB-HBM3"},
    "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}},
}
WHOLE = {"name": "whole", "match": {"model": "NVIDIA-L4"}}
WITHOUT_PLUGIN = {**WHOLE, "labels": {"nvidia.com/gpu.deploy.device-plugin": "false"}}
MACHINES = {
    "name": "machines",
    "match": {"model": "NVIDIA-A40"},
    "labels": {"nvidia.com/gpu.workload.config": "vm-passthrough"},
}


def problems(values: dict[str, Any], *pools: dict[str, Any]) -> list[str]:
    return validate({"name": "lab", "operator": {"values": values}}, {}, list(pools))


@pytest.mark.parametrize(
    ("part", "pools", "reason"),
    [
        ("devicePlugin", [NOTEBOOKS], "pool notebooks needs it, because only the device plugin of the operator"),
        ("devicePlugin", [NOTEBOOKS, WHOLE], "pools notebooks, whole need it"),
        ("gfd", [WHOLE], "pool whole needs it, because gpu-feature-discovery sets the labels"),
        ("migManager", [TRAIN, WHOLE], "pool train needs it, because only the MIG manager partitions its GPUs"),
    ],
)
@pytest.mark.parametrize("value", [False, "false", "False"])
def test_values_must_not_disable_a_needed_operand(part: str, pools: list[Any], reason: str, value: Any) -> None:
    (problem,) = problems({part: {"enabled": value}}, *pools)
    assert problem.startswith(f"gpu_cluster.operator.values.{part}.enabled: false disables an operand, but {reason}")
    assert "; remove it, or" in problem


@pytest.mark.parametrize(
    ("values", "pools"),
    [
        ({"devicePlugin": {"enabled": False}}, []),
        ({"devicePlugin": {"enabled": False}, "gfd": {"enabled": False}}, [WITHOUT_PLUGIN, MACHINES]),
        ({"migManager": {"enabled": False}}, [NOTEBOOKS, WHOLE]),
        ({"driver": {"enabled": False}, "toolkit": {"enabled": False}}, [NOTEBOOKS]),
        ({"dcgmExporter": {"enabled": False}, "dcgm": {"enabled": False}}, [NOTEBOOKS, TRAIN]),
        ({"devicePlugin": {"enabled": True}}, [NOTEBOOKS]),
    ],
)
def test_operands_that_no_pool_needs_may_be_disabled(values: dict[str, Any], pools: list[Any]) -> None:
    assert problems(values, *pools) == []


def test_defaults_of_operands() -> None:
    assert runs({}, "devicePlugin")
    assert runs({"devicePlugin": {"enabled": None}}, "devicePlugin")
    assert not runs({}, "nodeStatusExporter")
