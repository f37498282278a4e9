# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the data that driver and firmware report of a machine, for both the simulator and the lab's NVML library."""

from __future__ import annotations

from collections.abc import Mapping

from plugins.module_utils.catalog import models

from . import mig
from .api import Object
from .systems import CUDA_OF_BRANCH

# The PCI classes 3D controller, as which data center GPUs and C-series vGPUs are shown, and VGA controller, as which Q-series vGPUs are shown. GFD writes the
# label gpu.mode by this class. B- and A-series vGPUs, which also have displays, are assumed to be VGA controllers.
_COMPUTE_CLASS, _GRAPHICS_CLASS = "0302", "0300"


def vgpu_memory_mib(vgpu_type: str) -> int:
    """Return the frame buffer of a vGPU type such as A100D-10C, whose name contains its size in GiB; 0 stands for 512 MiB."""
    return int(vgpu_type.rpartition("-")[2][:-1]) * 1024 or 512


def describe(
    model: models.Model | None,
    gpus: int,
    driver: str,
    *,
    vgpu: Mapping[str, str] | None = None,
    machine: str = "unknown",
    passthrough: bool = False,
) -> Object:
    """Return a machine's hardware in the format of the simulator's annotation (lab/sim/rules/hardware.go).

    All GPUs of a machine are of one model. The driver of a vGPU guest reports the name and the frame buffer of the vGPU, not those of the physical GPU:
    on vSphere, a vGPU is called `GRID A100-10C`, and on other hypervisors `NVIDIA A16-4Q`. Source: the labels of VMware's conformance reports of vSphere
    Kubernetes Service 1.35 and 1.36 (GRID-A100-10C, memory 10240, mode compute, mig.capable false), and of a KVM guest with an A16-4Q (NVIDIA-A16-4Q,
    memory 4096, mode graphics).
    """
    if model is None:
        return {"gpus": 0, "machine": machine}
    # nvidia-smi prints spaces where GFD's label has dashes; the first one follows the vendor's name.
    product, memory_mib, pci_class = model.product.replace("-", " ", 1), model.memory_mib, _COMPUTE_CLASS
    if vgpu and (vgpu_type := vgpu.get("profile")):
        product = f"{'GRID' if machine.startswith('VMware') else 'NVIDIA'} {vgpu_type}"
        memory_mib = vgpu_memory_mib(vgpu_type)
        pci_class = _COMPUTE_CLASS if vgpu_type.endswith("C") else _GRAPHICS_CLASS
    return {
        "product": product,
        "gpus": gpus,
        "memory_mib": memory_mib,
        "family": model.family,
        "compute": model.compute,
        # A vGPU guest cannot partition the GPU.
        "mig_capable": model.mig_capable and not vgpu,
        "mig": None if vgpu else mig.describe(model, driver),
        "driver": driver,
        "cuda": CUDA_OF_BRANCH[driver.partition(".")[0]],
        "pci": model.pci_ids[0],
        "pci_class": pci_class,
        "vgpu": {"host_driver": driver, **vgpu} if vgpu else None,
        "machine": machine,
        "passthrough": passthrough,
    }
