# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines the GPUs of a flavor from Nova's extra specs (pure).

Sources: Nova's admin guide, "Attaching physical PCI devices to guests" and "Attaching virtual GPU devices to guests", and its
"Extra Specs" reference; os-resource-classes (VGPU, PGPU, PCI_DEVICE); os-traits (HW_GPU_*).
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ...catalog import models

# A virtual GPU, a physical GPU, or a GPU that only a trait or a device profile suggests.
VIRTUAL, PHYSICAL, HINT = "vgpu", "gpu", "hint"

_ALIAS = "pci_passthrough:alias"
_RESOURCE = re.compile(r"resources\d*(?:_[\w-]+)?:(?P<class>[A-Z0-9_]+)$")
_TRAIT = re.compile(r"trait\d*(?:_[\w-]+)?:(?P<trait>[A-Z0-9_]+)$")
_PROFILE = "accel:device_profile"
_CUSTOM = re.compile(r"CUSTOM_\w*(?:GPU|NVIDIA)\w*$")
# Words that cloud operators add to a model's name.
_NOISE = frozenset(
    {"nvidia", "gpu", "gpus", "tesla", "pci", "passthrough", "custom", "resource", "pgpu", "vgpu", "geforce"}
)
# Distinguishes the aliases of GPUs from those of network cards if an alias contains no model of the catalog.
_GPU_WORD = re.compile(r"gpu|nvidia|tesla|quadro|rtx|(?<![a-z0-9])[abhlptv]\d{1,3}(?![0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class MagnumFlavorGpus:
    """The GPUs of one machine.

    count: None if only a hint suggests GPUs. models: the possible models, as keys of the catalog. source: the extra spec.
    """

    count: int | None
    kind: str
    models: tuple[str, ...]
    source: str

    def to_result(self) -> dict[str, t.Any]:
        """The GPUs for a result; `model` is null if several models are possible."""
        model = self.models[0] if len(self.models) == 1 else None
        return {**vars(self), "models": list(self.models), "model": model}


def gpus_of(specs: t.Mapping[str, str] | None, aliases: t.Mapping[str, str] | None = None) -> MagnumFlavorGpus | None:
    """The GPUs of a flavor with these extra specs; None if the specs contain no GPUs or cannot be read.

    aliases: maps the cloud operator's names for GPUs (PCI aliases, custom resource classes and traits) to models of the catalog.
    """
    known = {name.casefold(): model for name, model in (aliases or {}).items()}
    specs = specs or {}
    matching = [*_by_alias(specs, known), *_by_class(specs, known)] or list(_by_hint(specs, known))
    if not matching:
        return None
    # VGPU and PGPU do not identify the model, but an additional trait may do so.
    hinted = next((hint.models for hint in _by_hint(specs, known) if hint.models), ())
    best = max(matching, key=lambda gpus: (gpus.count is not None, bool(gpus.models)))
    return best if best.models else MagnumFlavorGpus(best.count, best.kind, hinted, best.source)


def models_of(name: str, known: t.Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The possible models (keys of the catalog) for a cloud operator's name for a GPU, such as T4 for "nvidia_t4" and all A100 models for "a100"."""
    given = (known or {}).get(name.casefold())
    if given is not None:
        model = models.find(given)
        return (model.key,) if model else ()
    words = [word for word in re.split(r"[^a-z0-9]+", name.casefold()) if word and word not in _NOISE]
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            name_part = "-".join(words[start : start + length])
            if exact := models.find(name_part):
                return (exact.key,)
            if matches := _models_beginning_with(name_part):
                return matches
    return ()


def _models_beginning_with(name_part: str) -> tuple[str, ...]:
    """Models whose name begins with these whole words, so L40S does not match "l4"."""
    return tuple(
        dict.fromkeys(
            model.key
            for model in models.MODELS
            for name in (model.key, model.product, *model.aliases)
            if models.normalized(name).startswith(f"{name_part}-")
        )
    )


def _by_alias(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    """The GPUs in a PCI alias such as `t4:1,other:2`; network cards use the same key."""
    for part in str(specs.get(_ALIAS) or "").split(","):
        name, dummy, count = part.strip().partition(":")
        matching = models_of(name, known)
        if name and (matching or name.casefold() in known or _GPU_WORD.search(name)):
            yield MagnumFlavorGpus(_number(count or "1"), PHYSICAL, matching, f"{_ALIAS}={part.strip()}")


def _by_class(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    for key, value in sorted(specs.items()):
        match = _RESOURCE.match(key)
        if match is None or not _number(value):
            continue
        name = match["class"]
        if name in ("VGPU", "PGPU"):
            yield MagnumFlavorGpus(_number(value), VIRTUAL if name == "VGPU" else PHYSICAL, (), f"{key}={value}")
        elif _CUSTOM.match(name) or name.casefold() in known:
            kind = VIRTUAL if "VGPU" in name else PHYSICAL
            yield MagnumFlavorGpus(_number(value), kind, models_of(name, known), f"{key}={value}")


def _by_hint(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[MagnumFlavorGpus]:
    for key, value in sorted(specs.items()):
        match = _TRAIT.match(key)
        if match and value == "required":
            trait = match["trait"]
            if trait.startswith("HW_GPU_") or _CUSTOM.match(trait) or trait.casefold() in known:
                yield MagnumFlavorGpus(None, HINT, models_of(trait, known), f"{key}={value}")
        elif key == _PROFILE and (models_of(value, known) or _GPU_WORD.search(value)):
            yield MagnumFlavorGpus(None, HINT, models_of(value, known), f"{key}={value}")


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdecimal() else None
