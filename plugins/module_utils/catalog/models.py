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
NOT_VERIFIED = "NVIDIA's data sheet, not seen in the driver's own words"


@dataclasses.dataclass(frozen=True)
class Model:
    """One GPU model; `product` is GFD's label value without suffixes, `memory_mib` what GFD's gpu.memory says of the whole GPU."""

    key: str
    product: str
    memory_mib: int
    memory_source: str
    family: str
    compute: str
    mig_capable: bool
    pci_ids: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    other_products: tuple[str, ...] = ()

    @property
    def products(self) -> tuple[str, ...]:
        """Every name under which GFD is known to publish this model, the usual one first."""
        return (self.product, *self.other_products)


# PCI device ids: gpu-operator assets/state-mig-manager/0400_configmap.yaml for the MIG-capable ones, pci.ids for the others.
# Compute capability: developer.nvidia.com/cuda-gpus. Family: k8s-device-plugin internal/lm/resource.go (getArchFamily).
MODELS = (
    Model("T4", "Tesla-T4", 15360, TRANSCRIPT, "turing", "7.5", False, ("1eb8",), ("Tesla T4",)),
    Model(
        "V100-SXM2-16GB", "Tesla-V100-SXM2-16GB", 16384, NOT_VERIFIED, "volta", "7.0", False, ("1db1",), ("V100-16GB",)
    ),
    Model(
        "V100-SXM2-32GB", "Tesla-V100-SXM2-32GB", 32768, TRANSCRIPT, "volta", "7.0", False, ("1db5",), ("V100-32GB",)
    ),
    Model("V100-PCIE-16GB", "Tesla-V100-PCIE-16GB", 16384, NOT_VERIFIED, "volta", "7.0", False, ("1db4",)),
    Model("V100-PCIE-32GB", "Tesla-V100-PCIE-32GB", 32768, NOT_VERIFIED, "volta", "7.0", False, ("1db6",)),
    Model("V100S-PCIE-32GB", "Tesla-V100S-PCIE-32GB", 32768, NOT_VERIFIED, "volta", "7.0", False, ("1df6",), ("V100S",)),
    Model("A10", "NVIDIA-A10", 23028, TRANSCRIPT, "ampere", "8.6", False, ("2236",)),
    Model("A10G", "NVIDIA-A10G", 23028, TRANSCRIPT, "ampere", "8.6", False, ("2237",)),
    Model("A16", "NVIDIA-A16", 15356, TRANSCRIPT, "ampere", "8.6", False, ("25b6",)),
    Model("A30", "NVIDIA-A30", 24576, TRANSCRIPT, "ampere", "8.0", True, ("20b7",)),
    Model("A40", "NVIDIA-A40", 46068, TRANSCRIPT, "ampere", "8.6", False, ("2235",)),
    Model("A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", 40960, TRANSCRIPT, "ampere", "8.0", True, ("20b0",), ("A100-SXM-40GB",)),
    Model("A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", 81920, TRANSCRIPT, "ampere", "8.0", True, ("20b2",), ("A100-SXM-80GB",)),
    Model("A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB", 40960, TRANSCRIPT, "ampere", "8.0", True, ("20b1", "20f1")),
    Model("A100-80GB-PCIe", "NVIDIA-A100-80GB-PCIe", 81920, TRANSCRIPT, "ampere", "8.0", True, ("20b5",), ("A100-PCIE-80GB",)),
    Model("L4", "NVIDIA-L4", 23034, TRANSCRIPT, "ada-lovelace", "8.9", False, ("27b8",)),
    Model("L40", "NVIDIA-L40", 46068, TRANSCRIPT, "ada-lovelace", "8.9", False, ("26b5",)),
    Model("L40S", "NVIDIA-L40S", 46068, TRANSCRIPT, "ada-lovelace", "8.9", False, ("26b9",)),
    Model("RTX-6000-Ada", "NVIDIA-RTX-6000-Ada-Generation", 49140, TRANSCRIPT, "ada-lovelace", "8.9", False, ("26b1",)),
    Model("H100-PCIe", "NVIDIA-H100-PCIe", 81559, TRANSCRIPT, "hopper", "9.0", True, ("2331",), ("H100-PCIe-80GB",)),
    Model("H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3", 81559, TRANSCRIPT, "hopper", "9.0", True, ("2330",), ("H100-SXM", "H100-SXM5", "H100-SXM5-80GB")),
    Model("H100-NVL", "NVIDIA-H100-NVL", 95830, TRANSCRIPT, "hopper", "9.0", True, ("2321",)),
    Model("H200", "NVIDIA-H200", 143771, MEASURED, "hopper", "9.0", True, ("2335",), ("H200-SXM",)),
    Model("H200-NVL", "NVIDIA-H200-NVL", 143771, TRANSCRIPT, "hopper", "9.0", True, ("233b",)),
    Model("B200", "NVIDIA-B200", 183359, TRANSCRIPT, "blackwell", "10.0", True, ("2901",)),
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
    """Keys of the models whose names come nearest to `name`: those that it abbreviates first, then those spelt alike."""
    wanted = normal(bare_product(name))
    known = _by_name()
    begun = [model.key for spelling, model in known.items() if wanted and spelling.startswith(wanted)]
    alike = [known[spelling].key for spelling in difflib.get_close_matches(wanted, known, n=limit, cutoff=0.5)]
    return tuple(dict.fromkeys(begun + alike))[:limit]
