# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs the machines of a flavor have, as far as Nova's extra specs tell (pure).

Sources: Nova's admin guide, "Attaching physical PCI devices to guests" and "Attaching virtual GPU devices to guests", and its
"Extra Specs" reference; os-resource-classes (VGPU, PGPU, PCI_DEVICE); os-traits (HW_GPU_*).
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ...catalog import models

# A GPU of a resource class, of a PCI alias, or one that a trait alone hints at.
VIRTUAL, PHYSICAL, HINT = "vgpu", "gpu", "hint"

_ALIAS = "pci_passthrough:alias"
_RESOURCE = re.compile(r"resources\d*(?:_[\w-]+)?:(?P<class>[A-Z0-9_]+)$")
_TRAIT = re.compile(r"trait\d*(?:_[\w-]+)?:(?P<trait>[A-Z0-9_]+)$")
_PROFILE = "accel:device_profile"
_CUSTOM = re.compile(r"CUSTOM_\w*(?:GPU|NVIDIA)\w*$")
# Words that operators put around a model's name.
_NOISE = frozenset(
    {"nvidia", "gpu", "gpus", "tesla", "pci", "passthrough", "custom", "resource", "pgpu", "vgpu", "geforce"}
)
# What tells a graphics card's alias from that of a network card, where no model of the catalog is in it.
_GPU_WORD = re.compile(r"gpu|nvidia|tesla|quadro|rtx|(?<![a-z0-9])[abhlptv]\d{1,3}(?![0-9])", re.IGNORECASE)


@dataclass(frozen=True)
class FlavorGpus:
    """The GPUs of one machine; `models` are the keys of the catalog that the flavor may mean, `told_by` the extra spec that tells.

    count: None where only a hint tells that there are any.
    """

    count: int | None
    kind: str
    models: tuple[str, ...]
    told_by: str

    def told(self) -> dict[str, t.Any]:
        """For a result; `model` only where one alone is meant."""
        return {
            "count": self.count,
            "kind": self.kind,
            "model": self.models[0] if len(self.models) == 1 else None,
            "models": list(self.models),
            "told_by": self.told_by,
        }


def gpus_of(specs: t.Mapping[str, str] | None, aliases: t.Mapping[str, str] | None = None) -> FlavorGpus | None:
    """The GPUs of a flavor with these extra specs; None where nothing in them tells of any (or they may not be read).

    aliases: what the operator's names (PCI aliases, custom classes and traits) mean, by name, as models of the catalog.
    """
    known = {name.casefold(): model for name, model in (aliases or {}).items()}
    specs = specs or {}
    found = [*_by_alias(specs, known), *_by_class(specs, known)] or list(_by_hint(specs, known))
    if not found:
        return None
    # A trait beside a bare VGPU or PGPU says which card that is.
    hinted = next((hint.models for hint in _by_hint(specs, known) if hint.models), ())
    best = max(found, key=lambda gpus: (gpus.count is not None, bool(gpus.models)))
    return best if best.models else FlavorGpus(best.count, best.kind, hinted, best.told_by)


def models_of(name: str, known: t.Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Keys of the models that an operator's name for a card may mean: T4 of "nvidia_t4", all A100 of "a100"."""
    given = (known or {}).get(name.casefold())
    if given is not None:
        found = models.find(given)
        return (found.key,) if found else ()
    words = [word for word in re.split(r"[^a-z0-9]+", name.casefold()) if word and word not in _NOISE]
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            spelt = "-".join(words[start : start + length])
            if exact := models.find(spelt):
                return (exact.key,)
            if begun := _begun(spelt):
                return begun
    return ()


def _begun(spelt: str) -> tuple[str, ...]:
    """Models whose name begins with this whole word: not L40S for "l4"."""
    return tuple(
        dict.fromkeys(
            model.key
            for model in models.MODELS
            for name in (model.key, model.product, *model.aliases)
            if models.normalized(name).startswith(f"{spelt}-")
        )
    )


def _by_alias(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[FlavorGpus]:
    """Of `t4:1,other:2`; the same key gives away network cards, too."""
    for part in str(specs.get(_ALIAS) or "").split(","):
        name, dummy, count = part.strip().partition(":")
        found = models_of(name, known)
        if name and (found or name.casefold() in known or _GPU_WORD.search(name)):
            yield FlavorGpus(_number(count or "1"), PHYSICAL, found, f"{_ALIAS}={part.strip()}")


def _by_class(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[FlavorGpus]:
    for key, value in sorted(specs.items()):
        found = _RESOURCE.match(key)
        if found is None or not _number(value):
            continue
        name = found["class"]
        if name in ("VGPU", "PGPU"):
            yield FlavorGpus(_number(value), VIRTUAL if name == "VGPU" else PHYSICAL, (), f"{key}={value}")
        elif _CUSTOM.match(name) or name.casefold() in known:
            kind = VIRTUAL if "VGPU" in name else PHYSICAL
            yield FlavorGpus(_number(value), kind, models_of(name, known), f"{key}={value}")


def _by_hint(specs: t.Mapping[str, str], known: t.Mapping[str, str]) -> t.Iterator[FlavorGpus]:
    for key, value in sorted(specs.items()):
        found = _TRAIT.match(key)
        if found and value == "required":
            trait = found["trait"]
            if trait.startswith("HW_GPU_") or _CUSTOM.match(trait) or trait.casefold() in known:
                yield FlavorGpus(None, HINT, models_of(trait, known), f"{key}={value}")
        elif key == _PROFILE and (models_of(value, known) or _GPU_WORD.search(value)):
            yield FlavorGpus(None, HINT, models_of(value, known), f"{key}={value}")


def _number(text: str) -> int | None:
    return int(text) if text.strip().isdigit() else None
