# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a GPU model may be called, and that the catalog is consistent."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import (
    MODELS,
    Model,
    bare_product,
    find,
    nearest,
    normal,
)

FOUND = [
    ("Tesla-T4", "T4"),
    ("NVIDIA-T4", "T4"),
    ("tesla t4", "T4"),
    ("t4", "T4"),
    ("Tesla-T4-SHARED", "T4"),
    ("A100-SXM4-40GB", "A100-SXM4-40GB"),
    ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb-SHARED", "A100-SXM4-80GB"),
    ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
    ("A100-PCIe-80GB", "A100-80GB-PCIe"),
    ("h100-sxm", "H100-80GB-HBM3"),
    ("NVIDIA-H200-MIG-INVALID", "H200"),
    ("V100S", "V100S-PCIE-32GB"),
    ("L40", "L40"),
    ("L40s", "L40S"),
]


@pytest.mark.parametrize(("name", "key"), FOUND)
def test_found(name: str, key: str) -> None:
    model = find(name)
    assert model is not None
    assert model.key == key


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("A100", ("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-80GB-PCIe")),
        ("H100", ("H100-PCIe", "H100-80GB-HBM3", "H100-NVL")),
        ("A100-SXM5-80GB", ("A100-SXM4-80GB",)),
        ("T5", ("T4",)),
        ("Radeon Instinct", ()),
        ("", ()),
    ],
)
def test_not_found_but_near(name: str, keys: tuple[str, ...]) -> None:
    assert find(name) is None
    assert nearest(name)[: len(keys)] == keys
    assert bool(nearest(name)) == bool(keys)


@pytest.mark.parametrize(
    ("published", "bare"),
    [
        ("NVIDIA-H200", "NVIDIA-H200"),
        ("NVIDIA-H200-SHARED", "NVIDIA-H200"),
        ("NVIDIA-A30-MIG-1g.6gb", "NVIDIA-A30"),
        ("NVIDIA-A30-MIG-INVALID", "NVIDIA-A30"),
        ("", ""),
    ],
)
def test_bare_product(published: str, bare: str) -> None:
    assert bare_product(published) == bare


def test_no_name_means_two_models() -> None:
    names = Counter(
        name for model in MODELS for name in {normal(name) for name in (model.key, *model.products, *model.aliases)}
    )
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
def test_entry(model: Model) -> None:
    assert find(model.product) is find(model.key) is model
    assert re.fullmatch(r"(NVIDIA|Tesla)-[A-Za-z0-9-]+", model.product)
    assert 15000 < model.memory_mib < 200000
    assert all(re.fullmatch(r"[0-9a-f]{4}", device) for device in model.pci_ids)
    assert re.fullmatch(r"\d+\.\d", model.compute)
    # The families in which MIG exists at all; the A10, A16 and A40 are of one of them and lack it.
    assert not model.mig_capable or model.compute in {"8.0", "9.0", "10.0"}


def test_pci_ids_are_unique() -> None:
    ids = Counter(device for model in MODELS for device in model.pci_ids)
    assert ids.most_common(1)[0][1] == 1


def test_h200_is_as_measured() -> None:
    model = find("NVIDIA-H200")
    assert model is not None
    assert (model.memory_mib, model.family, model.compute, model.mig_capable) == (143771, "hopper", "9.0", True)
