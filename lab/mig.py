# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG data that the driver reports for a simulated GPU: the catalog's geometry and the size of each MIG device."""

from __future__ import annotations

from plugins.module_utils.catalog import mig, models

from .api import Object

# MiB of a MIG device by its number of memory slices. Sources: `nvidia-smi mig -lgip` of an A100-SXM4-40GB and an
# A100-SXM4-80GB (MIG user guide), and of an H100 80GB HBM3 and an H200 with driver 580.159.04 (measured). No source covers
# other models: their value is the slices' share of the memory, less 4 %.
_MEMORY = {
    "A100-SXM4-40GB": {1: 4864, 2: 9984, 4: 20096, 8: 40448},
    "A100-SXM4-80GB": {1: 9728, 2: 19968, 4: 40192, 8: 80640},
    "H100-80GB-HBM3": {1: 9984, 2: 20096, 4: 40448, 8: 81152},
    "H200": {1: 16384, 2: 33280, 4: 71424, 8: 143360},
}
_USABLE = 0.96

# Multiprocessors of a MIG device by (compute slices, memory slices); those of A100, H100 and H200 are from the same sources.
# For other chips _PER_SLICE has the multiprocessors of one compute slice.
_MULTIPROCESSORS: dict[str, dict[tuple[int, int], int]] = {
    "9.0": {(1, 1): 16, (1, 2): 26, (2, 2): 32, (3, 4): 60, (4, 4): 64, (7, 8): 132},
}
_PER_SLICE = {"8.0": 14, "9.0": 16, "10.0": 20, "10.3": 20, "12.0": 47}

# Video decoders by compute slices. Since Hopper, a GPU has one decoder and one JPEG engine per slice. Ampere GPUs have fewer:
# small devices get none, and 1g with twice the memory gets one. Ampere's single JPEG engine, and the single OFA of every
# chip, are assigned only to the whole GPU and to profiles with media extensions. Sources: those of _MEMORY.
_AMPERE_DECODERS = {1: 0, 2: 1, 3: 2, 4: 2, 7: 5}


def describe(model: models.Model, driver: str) -> Object | None:
    """Return the geometry of a model in the simulator's format, with the profiles that this driver offers."""
    geometry = mig.geometry(model.key)
    if geometry is None:
        return None
    branch = int(driver.partition(".")[0])
    profiles = [_profile(model, geometry, profile) for profile in geometry.profiles if profile.driver <= branch]
    return {"slices": geometry.slices, "profiles": profiles}


def _profile(model: models.Model, geometry: mig.Geometry, profile: mig.Profile) -> Object:
    whole = profile.size == geometry.slices
    alone = int(whole or profile.media in ("one", "all"))
    ampere = model.compute.startswith("8.")
    return {
        "name": profile.name,
        "id": profile.id,
        "compute": profile.compute,
        "size": profile.size,
        "starts": list(profile.starts),
        "most": profile.max_count,
        "media": profile.media,
        "memory_mib": _memory(model, geometry, profile),
        "sms": _multiprocessors(model, profile),
        # A whole Hopper GPU has one more copy engine than compute slices.
        "copy": profile.compute + int(whole and model.family == "hopper"),
        "decoder": _decoders(model, profile),
        "jpeg": alone if ampere else _decoders(model, profile),
        "ofa": alone,
    }


def _memory(model: models.Model, geometry: mig.Geometry, profile: mig.Profile) -> int:
    for key, sizes in _MEMORY.items():
        known = models.find(key)
        if known and known.memory_mib == model.memory_mib and known.family == model.family:
            return sizes[profile.size]
    return int(model.memory_mib * profile.size / geometry.slices * _USABLE)


def _multiprocessors(model: models.Model, profile: mig.Profile) -> int:
    exact = _MULTIPROCESSORS.get(model.compute, {}).get((profile.compute, profile.size))
    return exact or profile.compute * _PER_SLICE.get(model.compute, 14)


def _decoders(model: models.Model, profile: mig.Profile) -> int:
    if profile.media == "none":
        return 0
    if not model.compute.startswith("8."):
        return profile.compute
    return max(_AMPERE_DECODERS[profile.compute], int(profile.media == "one"), int(profile.size > profile.compute == 1))
