# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The accepted names of GPU models, and the consistency of the catalog."""

from __future__ import annotations

import re

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import (
    MODELS,
    Model,
    bare_product,
    find,
    nearest,
    normalized,
    of_gpu,
    vgpu_memory_mib,
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
    ("NVIDIA-A800-80GB-PCIe-LC", "A800-80GB-PCIe"),
    ("NVIDIA-A100-PCIE-80GB", "A100-80GB-PCIe"),
    ("NVIDIA GH200 120GB", "GH200-480GB"),
    ("GH200-96GB", "GH200-480GB"),
    ("NVIDIA-GH200-144G-HBM3e-MIG-1g.18gb.me", "GH200-144GB"),
    ("NVIDIA-B300-SXM6-AC", "B300"),
    ("RTX PRO 5000 Blackwell", "RTX-PRO-5000"),
    ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb-SHARED", "RTX-PRO-6000-Server"),
    ("H100-94GB", "H100-SXM5-94GB"),
    ("GeForce RTX 4090", "RTX-4090"),
]

# Products under which more than one model publishes itself.
SHARED_PRODUCTS = {"NVIDIA-H100"}
# PCI device ids that more than one model has.
SHARED_IDS = {"25b6": {"A2", "A16"}}


@pytest.mark.parametrize(("name", "key"), FOUND)
def test_found(name: str, key: str) -> None:
    model = find(name)
    assert model is not None
    assert model.key == key


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("A100", ("A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIE-40GB", "A100-80GB-PCIe")),
        ("H100", ("H100-PCIe", "H100-80GB-HBM3", "H100-NVL", "H100-SXM5-94GB")),
        ("H100-SXM5-96GB", ("H100-SXM5-94GB",)),
        ("NVIDIA-RTX-PRO-5000-72GB-Blackwell", ("RTX-PRO-5000",)),
        ("RTX PRO 6000", ("RTX-PRO-6000-Server", "RTX-PRO-6000-Workstation", "RTX-PRO-6000-Max-Q")),
        ("GH200", ("GH200-480GB", "GH200-144GB")),
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
    owners: dict[str, set[str]] = {}
    for model in MODELS:
        for name in (model.key, *model.products, *model.aliases):
            owners.setdefault(normalized(name), set()).add(model.key)
    assert {name for name, keys in owners.items() if len(keys) > 1} == {normalized(name) for name in SHARED_PRODUCTS}


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
@pytest.mark.parametrize("suffix", ["", "-SHARED", "-MIG-1g.5gb", "-MIG-1g.5gb-SHARED", "-MIG-INVALID"])
def test_found_by_every_name(model: Model, suffix: str) -> None:
    assert find(model.key) is model
    assert all(find(alias) is model for alias in model.aliases)
    for product in model.products:
        actual = find(product + suffix)
        assert actual is (None if product in SHARED_PRODUCTS else model)
        assert of_gpu(product + suffix, model.memory_mib) is model


@pytest.mark.parametrize(
    ("product", "memory_mib", "key"),
    [
        ("NVIDIA-H100", 95830, "H100-SXM5-94GB"),
        ("NVIDIA-H100-SHARED", 65247, "H100-SXM5-64GB"),
        ("NVIDIA-H100", 97871, None),
        ("NVIDIA-H100", None, None),
        ("NVIDIA-H100-MIG-1g.12gb", 11264, None),
        ("NVIDIA-H200", None, "H200"),
        ("NVIDIA-H200-MIG-1g.18gb", 16384, "H200"),
        ("NVIDIA-H999", 95830, None),
    ],
)
def test_memory_distinguishes_models_with_the_same_name(product: str, memory_mib: int | None, key: str | None) -> None:
    model = of_gpu(product, memory_mib)
    assert (model.key if model else None) == key


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
def test_entry(model: Model) -> None:
    assert re.fullmatch(r"(NVIDIA|Tesla)-[A-Za-z0-9-]+", model.product)
    assert all(len(product) <= 63 for product in model.products)
    assert 11000 < model.memory_mib < 300000
    assert model.pci_ids
    assert all(re.fullmatch(r"[0-9a-f]{4}", device) for device in model.pci_ids)
    assert re.fullmatch(r"\d+\.\d", model.compute)
    assert model.mig_capable == (mig.geometry(model.key) is not None)
    # The families in which MIG exists at all.
    assert not model.mig_capable or model.compute in {"8.0", "9.0", "10.0", "10.3", "12.0"}


# As k8s-device-plugin's getArchFamily has it.
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
def test_family_follows_from_compute(model: Model) -> None:
    major, minor = (int(number) for number in model.compute.split("."))
    families = {7: ("volta", "turing", 5), 8: ("ampere", "ada-lovelace", 9)}
    if major in families:
        older, newer, since = families[major]
        assert model.family == (older if minor < since else newer)
    else:
        assert model.family == {9: "hopper", 10: "blackwell", 12: "blackwell"}[major]


@pytest.mark.parametrize(
    ("key", "vgpu"),
    [("T4", True), ("A16", True), ("L40S", True), ("H200-NVL", True), ("A10G", False), ("RTX-4090", False)],
)
def test_vgpu(key: str, vgpu: bool) -> None:
    model = find(key)
    assert model is not None
    assert model.vgpu is vgpu


@pytest.mark.parametrize(
    ("product", "memory"),
    [
        # Labels of real guests: vSphere, and KVM.
        *(
            ("GRID-A100-10C", 10240),
            ("GRID-A100-40C", 40960),
            ("NVIDIA-A16-4Q", 4096),
            ("NVIDIA-A10-24Q-SHARED", 24576),
        ),
        *(("A100-1-5CME", 5120), ("T4-1B4", 1024), ("M10-0Q", 512)),
        *((model.product, None) for model in MODELS),
    ],
)
def test_the_memory_of_a_vgpu_type(product: str, memory: int | None) -> None:
    assert vgpu_memory_mib(product) == memory


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        *(("V100-SXM2-16GB", "proprietary"), ("T4", ""), ("A100-SXM4-80GB", ""), ("H200", ""), ("B200", "open")),
        *(("GH200-480GB", "open"), ("GB300", "open"), ("RTX-PRO-6000-BLACKWELL-SERVER-EDITION", "open")),
    ],
)
def test_kernel_modules(key: str, kind: str) -> None:
    model = find(key)
    assert model is not None
    assert model.kernel_modules == kind


def test_pci_ids_are_unique() -> None:
    owners: dict[str, set[str]] = {}
    for model in MODELS:
        for device in model.pci_ids:
            owners.setdefault(device, set()).add(model.key)
    assert {device: keys for device, keys in owners.items() if len(keys) > 1} == SHARED_IDS


def test_h200_is_as_measured() -> None:
    model = find("NVIDIA-H200")
    assert model is not None
    assert (model.memory_mib, model.family, model.compute, model.mig_capable) == (143771, "hopper", "9.0", True)
