# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What driver and firmware would say of a machine: the one derivation for the simulator and for the driver's library."""

from __future__ import annotations

from collections.abc import Mapping

from plugins.module_utils.catalog import models

from . import mig
from .api import Object
from .systems import CUDA_OF_BRANCH


def described(
    model: models.Model | None,
    gpus: int,
    driver: str,
    *,
    vgpu: Mapping[str, str] | None = None,
    machine: str = "unknown",
    passthrough: bool = False,
) -> Object:
    """Return a machine's hardware as the simulator's annotation has it (lab/sim/rules/hardware.go); all GPUs are alike."""
    if model is None:
        return {"gpus": 0, "machine": machine}
    return {
        # nvidia-smi writes blanks where GFD's label has dashes; the first one parts the maker's name.
        "product": model.product.replace("-", " ", 1),
        "gpus": gpus,
        "memory_mib": model.memory_mib,
        "family": model.family,
        "compute": model.compute,
        # A guest cannot cut the GPU of which it has a part.
        "mig_capable": model.mig_capable and not vgpu,
        "mig": None if vgpu else mig.described(model, driver),
        "driver": driver,
        "cuda": CUDA_OF_BRANCH[driver.partition(".")[0]],
        "pci": model.pci_ids[0],
        "vgpu": dict(vgpu) if vgpu else None,
        "machine": machine,
        "passthrough": passthrough,
    }
