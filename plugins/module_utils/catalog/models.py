# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPU models with their names in gpu-feature-discovery and the driver, and the lookup of models by the names that users write."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import functools
import re

from . import mig
from .names import MIG_INFIX, SHARED_SUFFIX

# The GPUs of HGX and DGX boards with NVSwitches (Fabric Manager user guide, "Supported Platforms"). Boards with four A100 GPUs have no NVSwitches.
NVSWITCH_MODELS = frozenset(
    {
        *("A100-SXM4-40GB", "A100-SXM4-80GB", "A800-SXM4-40GB", "A800-SXM4-80GB"),
        *("H100-80GB-HBM3", "H800", "H20", "H20-3e", "H200", "B200", "B300"),
    }
)

# The end of a vGPU type, such as A100-10C, A100-1-5CME or T4-1B4: the size of the frame buffer in GiB, and the series.
_VGPU_TYPE = re.compile(r"-([0-9]+)[QCBA](?:ME|4)?$")

# The compute capability of the first GPUs that the open kernel modules support (Turing). Blackwell and Grace Hopper require these modules (NVIDIA's
# developer blog, "NVIDIA Transitions Fully Towards Open-Source GPU Kernel Modules").
_OPEN_COMPUTE = 7.5


@dataclasses.dataclass(frozen=True)
class Model:
    """One GPU model; `product` and `memory_mib` are the values of GFD's labels gpu.product (without suffixes) and gpu.memory."""

    key: str
    product: str
    memory_mib: int
    family: str
    compute: str
    pci_ids: tuple[str, ...]
    vgpu: bool = False
    """Whether NVIDIA vGPU software has vGPU types for it."""
    aliases: tuple[str, ...] = ()
    other_products: tuple[str, ...] = ()

    @property
    def products(self) -> tuple[str, ...]:
        """Every known name of this model in GFD, the most common one first."""
        return (self.product, *self.other_products)

    @property
    def has_nvswitch(self) -> bool:
        """Whether its GPUs are usually connected by NVSwitches, which Fabric Manager configures."""
        return self.key in NVSWITCH_MODELS

    @property
    def kernel_modules(self) -> str:
        """The only kind of the driver's kernel modules that supports the model: open or proprietary; empty if both kinds do."""
        if self.family == "blackwell" or self.key.startswith("GH200"):
            return "open"
        return "proprietary" if float(self.compute) < _OPEN_COMPUTE else ""

    @property
    def mig_capable(self) -> bool:
        """Whether the catalog has its MIG profiles."""
        return mig.geometry(self.key) is not None


# Product and PCI device id: the driver's name for each id, open-gpu-kernel-modules 580.142 and 595.45.04
# src/nvidia/generated/g_nv_name_released.h, as GFD writes it (k8s-device-plugin internal/lm/resource.go, sanitise); the
# V100s: nvidia-smi and pci.ids. 20b1: gpu-operator assets/state-mig-manager/0400_configmap.yaml.
# vgpu: a default vGPU type in gpu-operator v26.7.0 assets/state-vgpu-device-manager/0500_configmap.yaml.
# Memory: nvidia-smi of that GPU in public transcripts, with ECC enabled if the GPU has it. Other sources are given next
# to the model. Compute capability: developer.nvidia.com/cuda-gpus. Family: k8s-device-plugin internal/lm/resource.go,
# getArchFamily.
_volta = functools.partial(Model, family="volta", compute="7.0", vgpu=True)
_turing = functools.partial(Model, family="turing", compute="7.5")
_ga100 = functools.partial(Model, family="ampere", compute="8.0")
_ga10x = functools.partial(Model, family="ampere", compute="8.6")
_ada = functools.partial(Model, family="ada-lovelace", compute="8.9")
_hopper = functools.partial(Model, family="hopper", compute="9.0", vgpu=True)
_gb100 = functools.partial(Model, family="blackwell", compute="10.0", vgpu=True)
_gb110 = functools.partial(Model, family="blackwell", compute="10.3")
_gb20x = functools.partial(Model, family="blackwell", compute="12.0")

MODELS: tuple[Model, ...] = (
    _volta("V100-SXM2-16GB", "Tesla-V100-SXM2-16GB", 16384, pci_ids=("1db1",)),
    _volta("V100-SXM2-32GB", "Tesla-V100-SXM2-32GB", 32768, pci_ids=("1db5",)),
    _volta("V100-PCIE-16GB", "Tesla-V100-PCIE-16GB", 16384, pci_ids=("1db4",)),
    _volta("V100-PCIE-32GB", "Tesla-V100-PCIE-32GB", 32768, pci_ids=("1db6",)),
    _volta("V100S-PCIE-32GB", "Tesla-V100S-PCIE-32GB", 32768, pci_ids=("1df6",), aliases=("V100S",)),
    _turing("T4", "Tesla-T4", 15360, pci_ids=("1eb8",), vgpu=True),
    _turing("RTX-2080-Ti", "NVIDIA-GeForce-RTX-2080-Ti", 11264, pci_ids=("1e07", "1e04")),
    # Both models have the same PCI device id; only their subsystem ids differ.
    _ga10x("A2", "NVIDIA-A2", 15356, pci_ids=("25b6",), vgpu=True),
    _ga10x("A16", "NVIDIA-A16", 15356, pci_ids=("25b6",), vgpu=True),
    _ga10x("A10", "NVIDIA-A10", 23028, pci_ids=("2236",), vgpu=True),
    _ga10x("A10G", "NVIDIA-A10G", 23028, pci_ids=("2237",)),
    _ga10x("A40", "NVIDIA-A40", 46068, pci_ids=("2235",), vgpu=True),
    _ga100("A30", "NVIDIA-A30", 24576, pci_ids=("20b7",), vgpu=True),
    _ga100(
        "A100-SXM4-40GB",
        "NVIDIA-A100-SXM4-40GB",
        40960,
        pci_ids=("20b0",),
        vgpu=True,
        aliases=("A100-SXM-40GB",),
    ),
    _ga100(
        "A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB",
        81920,
        pci_ids=("20b2",),
        vgpu=True,
        aliases=("A100-SXM-80GB",),
    ),
    _ga100("A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB", 40960, pci_ids=("20b1", "20f1"), vgpu=True),
    _ga100(
        "A100-80GB-PCIe",
        "NVIDIA-A100-80GB-PCIe",
        81920,
        pci_ids=("20b5",),
        vgpu=True,
        other_products=("NVIDIA-A100-PCIE-80GB",),
    ),
    _ga100("A800-SXM4-40GB", "NVIDIA-A800-SXM4-40GB", 40960, pci_ids=("20bd",), aliases=("A800-SXM-40GB",)),
    _ga100("A800-40GB-Active", "NVIDIA-A800-40GB-Active", 40960, pci_ids=("20f6",), vgpu=True),
    _ga100(
        "A800-SXM4-80GB",
        "NVIDIA-A800-SXM4-80GB",
        81920,
        pci_ids=("20f3",),
        vgpu=True,
        aliases=("A800-SXM-80GB",),
    ),
    _ga100(
        "A800-80GB-PCIe",
        "NVIDIA-A800-80GB-PCIe",
        81920,
        pci_ids=("20f5",),
        vgpu=True,
        aliases=("A800-PCIE-80GB",),
        other_products=("NVIDIA-A800-80GB-PCIe-LC",),
    ),
    _ga100("PG506-232", "NVIDIA-PG506-232", 98304, pci_ids=("20b6",), other_products=("NVIDIA-PG506-230",)),
    _ada("L4", "NVIDIA-L4", 23034, pci_ids=("27b8",), vgpu=True),
    _ada("L20", "NVIDIA-L20", 46068, pci_ids=("26ba",), vgpu=True),
    _ada("L40", "NVIDIA-L40", 46068, pci_ids=("26b5",), vgpu=True),
    _ada("L40S", "NVIDIA-L40S", 46068, pci_ids=("26b9",), vgpu=True),
    _ada("RTX-6000-Ada", "NVIDIA-RTX-6000-Ada-Generation", 49140, pci_ids=("26b1",), vgpu=True),
    _ada("RTX-4090", "NVIDIA-GeForce-RTX-4090", 24564, pci_ids=("2684",)),
    _hopper(
        "H100-PCIe",
        "NVIDIA-H100-PCIe",
        81559,
        pci_ids=("2331",),
        aliases=("H100-PCIe-80GB", "H100-80GB-PCIe"),
    ),
    _hopper(
        "H100-80GB-HBM3",
        "NVIDIA-H100-80GB-HBM3",
        81559,
        pci_ids=("2330",),
        aliases=("H100-80GB", "H100-SXM", "H100-SXM5", "H100-SXM5-80GB"),
    ),
    _hopper("H100-NVL", "NVIDIA-H100-NVL", 95830, pci_ids=("2321",)),
    # Both models report themselves as plain "NVIDIA H100": see of_gpu.
    _hopper("H100-SXM5-94GB", "NVIDIA-H100", 95830, pci_ids=("2339",), aliases=("H100-94GB",)),
    _hopper("H100-SXM5-64GB", "NVIDIA-H100", 65247, pci_ids=("2337",), aliases=("H100-64GB",)),
    _hopper("H800", "NVIDIA-H800", 81559, pci_ids=("2324",), aliases=("H800-SXM", "H800-SXM5")),
    _hopper("H800-PCIe", "NVIDIA-H800-PCIe", 81559, pci_ids=("2322",)),
    # The memory is taken from the H100-NVL, and was not verified with the driver.
    _hopper("H800-NVL", "NVIDIA-H800-NVL", 95830, pci_ids=("233a",)),
    _hopper("H20", "NVIDIA-H20", 97871, pci_ids=("2329",), aliases=("H20-96GB",)),
    _hopper("H20-3e", "NVIDIA-H20-3e", 143771, pci_ids=("232c",), aliases=("H20-141GB",)),
    # The memory: gpu-feature-discovery v0.19.0 on the GPU itself, driver 580.159.04.
    _hopper("H200", "NVIDIA-H200", 143771, pci_ids=("2335",), aliases=("H200-SXM", "H200-SXM-141GB")),
    _hopper("H200-NVL", "NVIDIA-H200-NVL", 143771, pci_ids=("233b",)),
    # 480 GB and 120 GB are the sizes of the CPU's memory; in both cases, the GPU has 96 GB.
    _hopper(
        "GH200-480GB",
        "NVIDIA-GH200-480GB",
        97871,
        pci_ids=("2342",),
        aliases=("GH200-96GB",),
        other_products=("NVIDIA-GH200-120GB",),
    ),
    _hopper("GH200-144GB", "NVIDIA-GH200-144G-HBM3e", 146831, pci_ids=("2348",)),
    _gb100("B200", "NVIDIA-B200", 183359, pci_ids=("2901",)),
    _gb100("GB200", "NVIDIA-GB200", 189471, pci_ids=("2941",)),
    _gb110("B300", "NVIDIA-B300-SXM6-AC", 275040, pci_ids=("3182",), vgpu=True, aliases=("B300-SXM6",)),
    _gb110("GB300", "NVIDIA-GB300", 284208, pci_ids=("31c2",)),
    _gb20x(
        "RTX-PRO-6000-Server",
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
        97887,
        pci_ids=("2bb5",),
        vgpu=True,
    ),
    _gb20x(
        "RTX-PRO-6000-Workstation",
        "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
        97887,
        pci_ids=("2bb1",),
    ),
    _gb20x(
        "RTX-PRO-6000-Max-Q",
        "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition",
        97887,
        pci_ids=("2bb4",),
    ),
    # The model with 72 GB has the same id, but another product name and unpublished MIG profiles.
    _gb20x("RTX-PRO-5000", "NVIDIA-RTX-PRO-5000-Blackwell", 48935, pci_ids=("2bb3",)),
    _gb20x("RTX-PRO-4500", "NVIDIA-RTX-PRO-4500-Blackwell", 32623, pci_ids=("2c31",)),
    _gb20x(
        "RTX-PRO-4500-Server",
        "NVIDIA-RTX-PRO-4500-Blackwell-Server-Edition",
        32623,
        pci_ids=("2c3a",),
        vgpu=True,
    ),
    _gb20x("RTX-5090", "NVIDIA-GeForce-RTX-5090", 32607, pci_ids=("2b85",)),
)


def bare_product(product: str) -> str:
    """GFD's product name without the suffixes of sharing and MIG: `NVIDIA-A30-MIG-1g.6gb-SHARED` -> `NVIDIA-A30`."""
    return product.removesuffix(SHARED_SUFFIX).partition(MIG_INFIX)[0]


@functools.lru_cache(maxsize=4096)
def normalized(name: str) -> str:
    """The normalized spelling of a model's name; names that differ only in case, blanks or the vendor's name have the same normalized spelling.

    The driver of a vGPU shows GRID instead of the vendor's name if the hypervisor is vSphere.
    """
    dashed = re.sub(r"[\s_]+", "-", name.strip()).casefold()
    return dashed.removeprefix("nvidia-").removeprefix("grid-").removeprefix("tesla-")


def vgpu_memory_mib(product: str) -> int | None:
    """The frame buffer of a vGPU by GFD's product name, which is its vGPU type and ends with the size in GiB (0 stands for 512 MiB), such as GRID-A100-10C or
    NVIDIA-A16-4Q; None for any other product.
    """
    match = _VGPU_TYPE.search(bare_product(product))
    return (int(match[1]) * 1024 or 512) if match else None


@functools.lru_cache(maxsize=1)
def _named() -> dict[str, tuple[Model, ...]]:
    """The models by every known spelling; several models if the driver gives them the same name."""
    named: dict[str, dict[str, Model]] = collections.defaultdict(dict)
    for model in MODELS:
        for name in (model.key, *model.products, *model.aliases):
            named[normalized(name)][model.key] = model
    return {name: tuple(models.values()) for name, models in named.items()}


def find(name: str) -> Model | None:
    """The model with this name: its key, GFD's product name (with or without suffixes), or a common short name.

    None for a name that several models share; `nearest` lists these models, and `of_gpu` distinguishes them.
    """
    models = _named().get(normalized(bare_product(name)), ())
    return models[0] if len(models) == 1 else None


def with_product(product: str) -> tuple[Model, ...]:
    """The models with this label gpu.product, with or without the suffixes of sharing and MIG; several if they share a name."""
    return _named().get(normalized(bare_product(product)), ())


def of_gpu(product: str, memory_mib: int | None) -> Model | None:
    """The model for a node's labels gpu.product and gpu.memory; the memory is only needed if several models share the name.

    Pass None for a node with the MIG strategy single, because gpu.memory is then the memory of a MIG device.
    """
    models = with_product(product)
    if len(models) > 1 and memory_mib is not None:
        models = tuple(model for model in models if abs(model.memory_mib - memory_mib) * 50 < model.memory_mib)
    return models[0] if len(models) == 1 else None


def nearest(name: str, limit: int = 4) -> tuple[str, ...]:
    """Keys of models with similar names: first the models that `name` abbreviates, then models with a similar spelling."""
    searched = normalized(bare_product(name))
    known = _named()
    abbreviated = [
        model.key
        for spelling, models in known.items()
        if searched and spelling.startswith(searched)
        for model in models
    ]
    similar = [
        model.key
        for spelling in difflib.get_close_matches(searched, known, n=limit, cutoff=0.5)
        for model in known[spelling]
    ]
    return tuple(dict.fromkeys(abbreviated + similar))[:limit]
