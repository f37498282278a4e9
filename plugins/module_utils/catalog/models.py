# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPU models that the collection knows, what clouds call the machines that have them, and what was measured on one of them."""

from __future__ import annotations

import collections
import dataclasses
import difflib
import functools
import math
import re
import typing as t

from . import mig
from .names import MIG_INFIX, MPS_MODE, SHARED_SUFFIX, TIME_SLICING_MODE
from .vgpu import vgpu_type

# NVIDIA's GPU models with their names in gpu-feature-discovery and the driver, and the lookup of models by the names that users write.

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
    nvswitch: bool = False
    """Whether its GPUs are usually connected by NVSwitches, which Fabric Manager configures."""
    aliases: tuple[str, ...] = ()
    other_products: tuple[str, ...] = ()

    @property
    def products(self) -> tuple[str, ...]:
        """Every known name of this model in GFD, the most common one first."""
        return (self.product, *self.other_products)

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
# getArchFamily. nvswitch: the GPUs of HGX and DGX boards with NVSwitches (Fabric Manager user guide, "Supported Platforms");
# boards with four A100 GPUs have none.
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
        nvswitch=True,
    ),
    _ga100(
        "A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB",
        81920,
        pci_ids=("20b2",),
        vgpu=True,
        aliases=("A100-SXM-80GB",),
        nvswitch=True,
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
    _ga100(
        "A800-SXM4-40GB", "NVIDIA-A800-SXM4-40GB", 40960, pci_ids=("20bd",), aliases=("A800-SXM-40GB",), nvswitch=True
    ),
    _ga100("A800-40GB-Active", "NVIDIA-A800-40GB-Active", 40960, pci_ids=("20f6",), vgpu=True),
    _ga100(
        "A800-SXM4-80GB",
        "NVIDIA-A800-SXM4-80GB",
        81920,
        pci_ids=("20f3",),
        vgpu=True,
        aliases=("A800-SXM-80GB",),
        nvswitch=True,
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
        nvswitch=True,
    ),
    _hopper("H100-NVL", "NVIDIA-H100-NVL", 95830, pci_ids=("2321",)),
    # Both models report themselves as plain "NVIDIA H100": see of_gpu.
    _hopper("H100-SXM5-94GB", "NVIDIA-H100", 95830, pci_ids=("2339",), aliases=("H100-94GB",)),
    _hopper("H100-SXM5-64GB", "NVIDIA-H100", 65247, pci_ids=("2337",), aliases=("H100-64GB",)),
    _hopper("H800", "NVIDIA-H800", 81559, pci_ids=("2324",), aliases=("H800-SXM", "H800-SXM5"), nvswitch=True),
    _hopper("H800-PCIe", "NVIDIA-H800-PCIe", 81559, pci_ids=("2322",)),
    # The memory is taken from the H100-NVL, and was not verified with the driver.
    _hopper("H800-NVL", "NVIDIA-H800-NVL", 95830, pci_ids=("233a",)),
    _hopper("H20", "NVIDIA-H20", 97871, pci_ids=("2329",), aliases=("H20-96GB",), nvswitch=True),
    _hopper("H20-3e", "NVIDIA-H20-3e", 143771, pci_ids=("232c",), aliases=("H20-141GB",), nvswitch=True),
    # The memory: gpu-feature-discovery v0.19.0 on the GPU itself, driver 580.159.04.
    _hopper("H200", "NVIDIA-H200", 143771, pci_ids=("2335",), aliases=("H200-SXM", "H200-SXM-141GB"), nvswitch=True),
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
    _gb100("B200", "NVIDIA-B200", 183359, pci_ids=("2901",), nvswitch=True),
    _gb100("GB200", "NVIDIA-GB200", 189471, pci_ids=("2941",)),
    _gb110("B300", "NVIDIA-B300-SXM6-AC", 275040, pci_ids=("3182",), vgpu=True, aliases=("B300-SXM6",), nvswitch=True),
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
    known = vgpu_type(bare_product(product))
    return int(known.size_gib * 1024) if known else None


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


# The GPUs of a flavor: the class for all clouds, and the GPUs of VKS flavors by flavor name.
#
# Source: vngcloud/docs Vietnamese/vks/reference/node-flavors (2026-08), which lists names such as g4-standard-32x128-2L40s.

_NAME = re.compile(r"g\d+-standard-\d+x\d+(?:x\d+\w*)?-(?P<count>\d+)(?P<name>[A-Za-z]\w*)")


@dataclasses.dataclass(frozen=True)
class FlavorGpus:
    """The GPUs of one node: their number, their name in the flavor, and the keys of matching models, which are empty if the catalog has none."""

    count: int
    name: str
    keys: tuple[str, ...]

    @property
    def has_mig(self) -> bool | None:
        """Whether these GPUs support MIG; None if they are not in the catalog."""
        return any(mig.geometry(key) for key in self.keys) if self.keys else None


def vks_flavor_gpus(flavor: str) -> FlavorGpus | None:
    """The GPUs in the flavor's name; None for a name in another format (an id, or a flavor without GPU)."""
    match = _NAME.fullmatch(flavor)
    if not match:
        return None
    name = match["name"].lower()
    keys = tuple(
        model.key
        for model in MODELS
        if name in (model.key.replace("-", "").lower(), model.key.partition("-")[0].lower())
    )
    return FlavorGpus(int(match["count"]), match["name"], keys)


# The NVIDIA GPUs of the machine types of AWS, Azure and Google Cloud, by machine type.
#
# Sources: docs.aws.amazon.com/ec2 "Accelerated computing instances"; learn.microsoft.com/azure/virtual-machines "GPU accelerated";
# cloud.google.com/compute/docs/gpus. The table contains neither types with a fraction of a GPU nor types whose GPUs are chosen separately (Google
# Cloud's n1).

# For each family of types: patterns for the size of a type, each with the number of GPUs.
_ONE_TO_8 = {r"(2|4|8|16)?xlarge": 1, r"(12|24)xlarge": 4, r"48xlarge": 8}
_FAMILIES: tuple[tuple[str, str, tuple[str, ...], dict[str, int]], ...] = (
    # AWS
    (r"g4dn\.", "T4", ("T4",), {r"(2|4|8|16)?xlarge": 1, r"12xlarge": 4, r"metal": 8}),
    (r"g5\.", "A10G", ("A10G",), _ONE_TO_8),
    (r"g6\.", "L4", ("L4",), _ONE_TO_8),
    (r"g6e\.", "L40S", ("L40S",), _ONE_TO_8),
    (r"p3\.", "V100", ("V100-SXM2-16GB",), {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8}),
    (r"p3dn\.", "V100", ("V100-SXM2-32GB",), {"24xlarge": 8}),
    (r"p4d\.", "A100", ("A100-SXM4-40GB",), {"24xlarge": 8}),
    (r"p4de\.", "A100", ("A100-SXM4-80GB",), {"24xlarge": 8}),
    (r"p5\.", "H100", ("H100-80GB-HBM3",), {"4xlarge": 1, "48xlarge": 8}),
    (r"p5en?\.", "H200", ("H200",), {"48xlarge": 8}),
    (r"p6-b200\.", "B200", ("B200",), {"48xlarge": 8}),
    # Azure
    (r"standard_nc", "T4", ("T4",), {r"(4|8|16)as_t4_v3": 1, r"64as_t4_v3": 4}),
    (r"standard_nc", "V100", ("V100-PCIE-16GB",), {"6s_v3": 1, "12s_v3": 2, "24r?s_v3": 4}),
    (r"standard_nc", "A100", ("A100-80GB-PCIe",), {"24ads_a100_v4": 1, "48ads_a100_v4": 2, "96ads_a100_v4": 4}),
    (r"standard_nc", "H100", ("H100-NVL",), {"40ads_h100_v5": 1, "80adis_h100_v5": 2}),
    (r"standard_nd", "A100", ("A100-SXM4-40GB",), {"96asr(_a100)?_v4": 8}),
    (r"standard_nd", "A100", ("A100-SXM4-80GB",), {"96amsr_a100_v4": 8}),
    (r"standard_nd", "H100", ("H100-80GB-HBM3",), {"96isr_h100_v5": 8}),
    (r"standard_nd", "H200", ("H200",), {"96isr_h200_v5": 8}),
    (r"standard_nv", "A10", ("A10",), {"36adm?s_a10_v5": 1, "72ads_a10_v5": 2}),
    # Google Cloud
    (r"g2-standard-", "L4", ("L4",), {"(4|8|12|16|32)": 1, "24": 2, "48": 4, "96": 8}),
    (r"a2-highgpu-", "A100", ("A100-SXM4-40GB",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a2-megagpu-", "A100", ("A100-SXM4-40GB",), {"16g": 16}),
    (r"a2-ultragpu-", "A100", ("A100-SXM4-80GB",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a3-highgpu-", "H100", ("H100-80GB-HBM3",), {"1g": 1, "2g": 2, "4g": 4, "8g": 8}),
    (r"a3-megagpu-", "H100", ("H100-80GB-HBM3",), {"8g": 8}),
    (r"a3-ultragpu-", "H200", ("H200",), {"8g": 8}),
    (r"a4-highgpu-", "B200", ("B200",), {"8g": 8}),
)

# Machine types with NVIDIA GPUs, including those whose number of GPUs or fraction of a GPU is not in the table.
_WITH_GPUS = re.compile(
    r"(g[3-7](dn|e|f|g|s)?|gr6f?|p[2-6](d|dn|de|e|en|-b200|-b300|e-gb200)?)\.(\d*xlarge|metal)"  # AWS; g4ad has GPUs of AMD
    r"|standard_n(c\w+|d(?!\w*mi\d)\w+|v\d+(ad)?m?s_(v3|a10_v5))"  # Azure; NVv4 and NVv5 have GPUs of AMD
    r"|(a[234]x?|g[24])-(standard|highgpu|megagpu|ultragpu|edgegpu|maxgpu)-\w+"  # Google Cloud
    r"|(vm|bm)\.gpu(?!\.mi)[\w.]+"  # Oracle Cloud
    r"|ecs\.s?e?gn\d[\w-]*\..+"  # Alibaba Cloud
)
# Labels by which clouds, autoscalers and other tools describe a node's GPU, each with a text that its value contains if the GPU is NVIDIA's.
GPU_LABELS = {
    "cloud.google.com/gke-accelerator": "nvidia",
    "k8s.amazonaws.com/accelerator": "",
    "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
    "eks.amazonaws.com/instance-gpu-manufacturer": "nvidia",
    "karpenter.azure.com/sku-gpu-manufacturer": "nvidia",
    "kubernetes.azure.com/accelerator": "nvidia",
    "accelerator": "nvidia",
    "cluster-api/accelerator": "",
    "doks.digitalocean.com/gpu-brand": "nvidia",
    "gpu.nvidia.com/model": "",
    "aliyun.accelerator/nvidia_name": "",
}


def has_nvidia_gpu(machine_type: str) -> bool:
    """Whether a machine type of a known cloud has NVIDIA GPUs."""
    return bool(_WITH_GPUS.fullmatch(machine_type.lower()))


def machine_type_gpus(machine_type: str) -> FlavorGpus | None:
    """The GPUs of a machine type; None if it is not in the table."""
    name = machine_type.lower()
    for family, title, keys, sizes in _FAMILIES:
        for size, count in sizes.items():
            if re.fullmatch(family + size, name):
                return FlavorGpus(count, title, keys)
    return None


# The cost of sharing a GPU: measurements of this project and of CERN, and the rules derived from them.

# The measurements comprise 189 timed cases with synthetic kernels (compute-bound, copies, short bursts), started through the driver API. Each value
# is the median of 3 repeats; clocks and results were checked in each repeat. Under MPS, each of N clients gets 100/N % of the SMs, which is the
# device plugin's setting. Not measured: more than 8 processes, MIG, tensor cores at the power limit, faults.
MEASURED_MODEL = "H200"
MEASURED = f"one NVIDIA {MEASURED_MODEL}, driver 580.159.04, 2026-11-21"
MAX_MEASURED_PODS = 8


class BusyPods(t.NamedTuple):
    """The speed of each of N processes that always have work, as a fraction of a process's speed alone on the GPU, and how evenly they are served."""

    mode: str
    load: str
    pods: int
    share: float
    fairness: float
    """The smallest share divided by the largest, in the worst of the repeats."""


class LaunchLatency(t.NamedTuple):
    """The milliseconds from submission to completion of a synchronous launch next to busy processes; 1.0 ms without busy processes."""

    mode: str
    busy: int
    median_ms: float
    p99_ms: float


class Loss(t.NamedTuple):
    """The loss measured with CERN's simulation, in per cent of the time that ideal sharing would take; one value for each problem size."""

    step: str
    per_cent: tuple[float, float, float]


BUSY: tuple[BusyPods, ...] = (
    BusyPods(TIME_SLICING_MODE, "compute", 2, 0.452, 0.999),
    BusyPods(TIME_SLICING_MODE, "compute", 4, 0.226, 0.996),
    BusyPods(TIME_SLICING_MODE, "compute", 8, 0.113, 0.996),
    BusyPods(TIME_SLICING_MODE, "copy", 2, 0.453, 0.999),
    BusyPods(TIME_SLICING_MODE, "copy", 4, 0.226, 0.998),
    BusyPods(TIME_SLICING_MODE, "copy", 8, 0.113, 0.993),
    BusyPods(MPS_MODE, "compute", 2, 0.502, 1.000),
    BusyPods(MPS_MODE, "compute", 4, 0.244, 0.996),
    BusyPods(MPS_MODE, "compute", 8, 0.122, 0.996),
    BusyPods(MPS_MODE, "copy", 2, 0.499, 0.988),
    BusyPods(MPS_MODE, "copy", 4, 0.248, 0.962),
    BusyPods(MPS_MODE, "copy", 8, 0.123, 0.935),
)
WAITING: tuple[LaunchLatency, ...] = (
    LaunchLatency(TIME_SLICING_MODE, 0, 1.01, 1.02),
    LaunchLatency(TIME_SLICING_MODE, 1, 2.29, 3.29),
    LaunchLatency(TIME_SLICING_MODE, 3, 5.10, 7.95),
    LaunchLatency(MPS_MODE, 1, 1.01, 1.02),
    LaunchLatency(MPS_MODE, 3, 1.01, 1.03),
)
# The fraction of the GPU that all busy processes get together. These rules fit the rows above.
TOTAL = {TIME_SLICING_MODE: 0.905, MPS_MODE: 0.98}
# One turn of a busy process: a time slice of 2.06 ms and a switch of 0.22 ms. A launch waits for the turns of all other processes.
TURN_MS = 2.3
# The memory that each MPS client should leave free. If four clients fill their shares, the shares, the MPS server and the driver's
# reserve together exceed the GPU's memory: in the measurement, one of the four clients could not allocate the last 0.7 GiB of its share.
MPS_RESERVE_MIB = 819

# Source: CERN's webinar "Adding and managing GPUs on Kubernetes", autumn 2024, Diana Gaponcic, IT-CD-PI; A100 40GB PCIe, driver 470.129.06, CUDA 11.6.
# The workload is a simulation (Xsuite) that uses the GPU heavily, with few memory accesses and little communication with the CPU.
# Each row compares a time with twice the time of the previous row ("Shared x2" with twice x1). The resulting shares of the GPU: 0.36, 0.18 and 0.09.
WEBINAR_TIME_SLICING: tuple[Loss, ...] = (
    Loss("x1 to x2", (37.90, 38.23, 38.61)),
    Loss("x2 to x4", (0, 0, 0)),
    Loss("x4 to x8", (0, 0, 0)),
)
WEBINAR_MIG = Loss("whole GPU to 7g.40gb", (8.97, 9.37, 8.91))

# The number of SMs of the whole GPU, and of each profile by its id. Sources: nvidia-smi mig -lgip on an H200; go-nvml's mock of an A100 DGX.
_H200 = (132, {19: 16, 20: 16, 15: 26, 14: 32, 9: 60, 5: 64, 0: 132})
_A100 = (108, {19: 14, 20: 14, 15: 14, 14: 28, 9: 42, 5: 56, 0: 98})
SMS_BY_MODEL: dict[str, tuple[int, dict[int, int]]] = {
    "H200": _H200,
    **dict.fromkeys(("A100-SXM4-40GB", "A100-PCIE-40GB", "A100-SXM4-80GB", "A100-80GB-PCIe"), _A100),
}
# The memory of MIG devices in MiB by model and profile (nvidia-smi mig -lgip), which is slightly less than the sizes in their names.
MIB_BY_MODEL = {"H200": {19: 16384, 20: 16384, 15: 33280, 14: 33280, 9: 71424, 5: 71424, 0: 143360}}


def measured_limit_note(pods: int) -> str:
    """A note for the end of a sentence if this number of pods exceeds the measured numbers; otherwise empty."""
    return f"; not measured beyond {MAX_MEASURED_PODS} pods" if pods > MAX_MEASURED_PODS else ""


def measured_share(mode: str, pods: int) -> float:
    """The fraction of the GPU for each of `pods` busy pods: the measured value if there is one, otherwise the value that the rule TOTAL yields."""
    measured = (row.share for row in BUSY if (row.mode, row.load, row.pods) == (mode, "compute", pods))
    return next(measured, TOTAL[mode] / pods)


def measured_wait_ms(pods: int) -> int:
    """The longest wait of a launch under time-slicing while all other pods are busy, in milliseconds, rounded up."""
    return math.ceil((pods - 1) * TURN_MS)
