# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs extra specs tell of, in the words of several operators."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.magnum_clusters import gpus_of, models_of

A100 = ("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-80GB-PCIe")

CASES: list[tuple[dict[str, str] | None, Any]] = [
    (None, None),
    ({}, None),
    ({"hw:cpu_policy": "dedicated"}, None),
    ({"pci_passthrough:alias": "t4:1"}, (1, "gpu", ("T4",))),
    ({"pci_passthrough:alias": "nic:2"}, None),
    ({"pci_passthrough:alias": "nic:2,a100:4"}, (4, "gpu", A100)),
    ({"pci_passthrough:alias": "l40s:2"}, (2, "gpu", ("L40S",))),
    ({"pci_passthrough:alias": "l40:2"}, (2, "gpu", ("L40",))),
    ({"pci_passthrough:alias": "nvidia_tesla_t4"}, (1, "gpu", ("T4",))),
    ({"pci_passthrough:alias": "gpu:8"}, (8, "gpu", ())),
    ({"pci_passthrough:alias": "h100_sxm5_80gb:8"}, (8, "gpu", ("H100-80GB-HBM3",))),
    ({"resources:VGPU": "1"}, (1, "vgpu", ())),
    ({"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_T4": "required"}, (1, "vgpu", ("T4",))),
    ({"resources:PGPU": "2"}, (2, "gpu", ())),
    ({"resources1:VGPU": "1"}, (1, "vgpu", ())),
    ({"resources_GPU:PGPU": "1"}, (1, "gpu", ())),
    ({"resources:CUSTOM_GPU_A40": "1"}, (1, "gpu", ("A40",))),
    ({"resources:VCPU": "4"}, None),
    ({"resources:VGPU": "0"}, None),
    ({"trait:HW_GPU_API_DIRECTX_V12_0": "required"}, (None, "hint", ())),
    ({"trait:CUSTOM_NVIDIA_V100": "forbidden"}, None),
    ({"accel:device_profile": "nvidia-a30"}, (None, "hint", ("A30",))),
]


@pytest.mark.parametrize(("specs", "expected"), CASES)
def test_extra_specs(specs: dict[str, str] | None, expected: Any) -> None:
    actual = gpus_of(specs)
    assert (actual and (actual.count, actual.kind, actual.models)) == expected


def test_an_operator_s_own_names() -> None:
    specs = {"pci_passthrough:alias": "bigcard:2"}
    assert gpus_of(specs) is None
    actual = gpus_of(specs, {"BigCard": "A100-SXM4-80GB"})
    assert actual is not None
    assert actual.to_result() == {
        "count": 2,
        "kind": "gpu",
        "model": "A100-SXM4-80GB",
        "models": ["A100-SXM4-80GB"],
        "source": "pci_passthrough:alias=bigcard:2",
    }


def test_a_short_name_means_no_other_model_that_begins_so() -> None:
    assert models_of("l4") == ("L4",)
    assert models_of("a10") == ("A10",)
    assert models_of("ethernet") == ()
