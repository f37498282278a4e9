# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's GPU models as gpu-feature-discovery and the driver name them, and the look-up of what a user calls them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re

from .names import MIG_INFIX, SHARED_SUFFIX

# Where a number of memory comes from.
MEASURED = "gpu-feature-discovery v0.19.0 on the GPU itself, driver 580.159.04"
TRANSCRIPT = "nvidia-smi of that GPU in public transcripts, ECC on where the GPU has it"
NOT_VERIFIED = "NVIDIA's data sheet; not seen in the driver's own words"


@dataclasses.dataclass(frozen=True)
class Model:
    """One GPU model; `product` is GFD's label value without suffixes, `memory_mib` its gpu.memory."""

    key: str
    product: str
    memory_mib: int
    family: str
    compute: str
    pci_ids: tuple[str, ...]
    mig_capable: bool = False
    aliases: tuple[str, ...] = ()
    other_products: tuple[str, ...] = ()
    memory_source: str = TRANSCRIPT

    @property
    def products(self) -> tuple[str, ...]:
        """Every name under which GFD is known to publish this model, the usual one first."""
        return (self.product, *self.other_products)


# PCI device ids: gpu-operator assets/state-mig-manager/0400_configmap.yaml where MIG is possible, else pci.ids.
# Compute capability: developer.nvidia.com/cuda-gpus. Family: k8s-device-plugin internal/lm/resource.go.
MODELS = (
    Model("T4", "Tesla-T4", 15360, "turing", "7.5", ("1eb8",)),
    Model("V100-SXM2-16GB", "Tesla-V100-SXM2-16GB", 16384, "volta", "7.0", ("1db1",), memory_source=NOT_VERIFIED),
    Model("V100-SXM2-32GB", "Tesla-V100-SXM2-32GB", 32768, "volta", "7.0", ("1db5",)),
    Model("V100-PCIE-16GB", "Tesla-V100-PCIE-16GB", 16384, "volta", "7.0", ("1db4",), memory_source=NOT_VERIFIED),
    Model("V100-PCIE-32GB", "Tesla-V100-PCIE-32GB", 32768, "volta", "7.0", ("1db6",), memory_source=NOT_VERIFIED),
    Model(
        "V100S-PCIE-32GB",
        "Tesla-V100S-PCIE-32GB",
        32768,
        "volta",
        "7.0",
        ("1df6",),
        aliases=("V100S",),
        memory_source=NOT_VERIFIED,
    ),
    Model("A10", "NVIDIA-A10", 23028, "ampere", "8.6", ("2236",)),
    Model("A10G", "NVIDIA-A10G", 23028, "ampere", "8.6", ("2237",)),
    Model("A16", "NVIDIA-A16", 15356, "ampere", "8.6", ("25b6",)),
    Model("A30", "NVIDIA-A30", 24576, "ampere", "8.0", ("20b7",), mig_capable=True),
    Model("A40", "NVIDIA-A40", 46068, "ampere", "8.6", ("2235",)),
    Model(
        "A100-SXM4-40GB",
        "NVIDIA-A100-SXM4-40GB",
        40960,
        "ampere",
        "8.0",
        ("20b0",),
        mig_capable=True,
        aliases=("A100-SXM-40GB",),
    ),
    Model(
        "A100-SXM4-80GB",
        "NVIDIA-A100-SXM4-80GB",
        81920,
        "ampere",
        "8.0",
        ("20b2",),
        mig_capable=True,
        aliases=("A100-SXM-80GB",),
    ),
    Model("A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB", 40960, "ampere", "8.0", ("20b1", "20f1"), mig_capable=True),
    Model(
        "A100-80GB-PCIe",
        "NVIDIA-A100-80GB-PCIe",
        81920,
        "ampere",
        "8.0",
        ("20b5",),
        mig_capable=True,
        aliases=("A100-PCIE-80GB",),
    ),
    Model("L4", "NVIDIA-L4", 23034, "ada-lovelace", "8.9", ("27b8",)),
    Model("L40", "NVIDIA-L40", 46068, "ada-lovelace", "8.9", ("26b5",)),
    Model("L40S", "NVIDIA-L40S", 46068, "ada-lovelace", "8.9", ("26b9",)),
    Model("RTX-6000-Ada", "NVIDIA-RTX-6000-Ada-Generation", 49140, "ada-lovelace", "8.9", ("26b1",)),
    Model(
        "H100-PCIe",
        "NVIDIA-H100-PCIe",
        81559,
        "hopper",
        "9.0",
        ("2331",),
        mig_capable=True,
        aliases=("H100-PCIe-80GB", "H100-80GB-PCIe"),
    ),
    Model(
        "H100-80GB-HBM3",
        "NVIDIA-H100-80GB-HBM3",
        81559,
        "hopper",
        "9.0",
        ("2330",),
        mig_capable=True,
        aliases=("H100-80GB", "H100-SXM", "H100-SXM5", "H100-SXM5-80GB"),
    ),
    Model("H100-NVL", "NVIDIA-H100-NVL", 95830, "hopper", "9.0", ("2321",), mig_capable=True),
    Model(
        "H200",
        "NVIDIA-H200",
        143771,
        "hopper",
        "9.0",
        ("2335",),
        mig_capable=True,
        aliases=("H200-SXM", "H200-SXM-141GB"),
        memory_source=MEASURED,
    ),
    Model("H200-NVL", "NVIDIA-H200-NVL", 143771, "hopper", "9.0", ("233b",), mig_capable=True),
    Model("B200", "NVIDIA-B200", 183359, "blackwell", "10.0", ("2901",), mig_capable=True),
)


def bare_product(product: str) -> str:
    """GFD's product name without what sharing and MIG append: `NVIDIA-A30-MIG-1g.6gb-SHARED` -> `NVIDIA-A30`."""
    return product.removesuffix(SHARED_SUFFIX).partition(MIG_INFIX)[0]


@functools.lru_cache(maxsize=4096)
def normal(name: str) -> str:
    """One spelling for all that mean the same model: case, blanks and the maker's name do not tell models apart."""
    dashed = re.sub(r"[\s_]+", "-", name.strip()).casefold()
    return dashed.removeprefix("nvidia-").removeprefix("tesla-")


@functools.lru_cache(maxsize=1)
def _by_name() -> dict[str, Model]:
    return {normal(name): model for model in MODELS for name in (model.key, *model.products, *model.aliases)}


def find(name: str) -> Model | None:
    """The model that `name` means: its key, GFD's product name (with or without suffixes), or a common short name."""
    return _by_name().get(normal(bare_product(name)))


def nearest(name: str, limit: int = 4) -> tuple[str, ...]:
    """Keys of the models that `name` may mean: those that it abbreviates first, then those spelt alike."""
    wanted = normal(bare_product(name))
    known = _by_name()
    begun = [model.key for spelling, model in known.items() if wanted and spelling.startswith(wanted)]
    alike = [known[spelling].key for spelling in difflib.get_close_matches(wanted, known, n=limit, cutoff=0.5)]
    return tuple(dict.fromkeys(begun + alike))[:limit]
