# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the data that driver and firmware report of a machine, for both the simulator and the lab's NVML library."""

from __future__ import annotations

from collections.abc import Mapping

from plugins.module_utils.catalog import models

from . import mig
from .api import Object
from .systems import CUDA_OF_BRANCH


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

    All GPUs of a machine are of one model.
    """
    if model is None:
        return {"gpus": 0, "machine": machine}
    return {
        # nvidia-smi prints spaces where GFD's label has dashes; the first one follows the vendor's name.
        "product": model.product.replace("-", " ", 1),
        "gpus": gpus,
        "memory_mib": model.memory_mib,
        "family": model.family,
        "compute": model.compute,
        # A vGPU guest cannot partition the GPU.
        "mig_capable": model.mig_capable and not vgpu,
        "mig": None if vgpu else mig.describe(model, driver),
        "driver": driver,
        "cuda": CUDA_OF_BRANCH[driver.partition(".")[0]],
        "pci": model.pci_ids[0],
        "vgpu": {"host_driver": driver, **vgpu} if vgpu else None,
        "machine": machine,
        "passthrough": passthrough,
    }
