# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flavors as vServer tells them. That one has GPUs, and how many, is its field `gpu`; which ones, only its name says; pure."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...catalog.models import MODELS, Model
from ...catalog.vks_flavor_names import vks_flavor_gpus


@dataclass(frozen=True)
class Flavor:
    """A machine on offer in one zone; memory in GiB, `remaining` None where the service does not say."""

    id: str
    name: str
    cpus: int
    memory: int
    gpus: int
    zone: str
    remaining: int | None = None
    sold_out: bool = False

    @property
    def available(self) -> bool:
        """One more can be had."""
        return not self.sold_out and self.remaining != 0

    @property
    def models(self) -> tuple[Model, ...]:
        """What its GPUs may be: one model where its name tells so, several where it abbreviates, none where it tells nothing."""
        return models_of(self.name) if self.gpus else ()

    @property
    def model(self) -> Model | None:
        """What its GPUs are, as far as the name says."""
        return self.models[0] if len(self.models) == 1 else None

    def told(self) -> dict[str, t.Any]:
        """As modules return it."""
        return {
            "id": self.id,
            "name": self.name,
            "cpus": self.cpus,
            "memory_gib": self.memory,
            "gpus": self.gpus,
            "model": self.model.key if self.model else None,
            "models": [model.key for model in self.models],
            "zone": self.zone,
            "remaining": self.remaining,
            "available": self.available,
        }


def flavor_of(row: t.Mapping[str, t.Any], zone: str) -> Flavor:
    """A flavor as vServer tells it; the number of GPUs from its name where the field is missing."""
    name = str(row.get("name") or "")
    gpus = row.get("gpu")
    remaining = row.get("remainingVms")
    card = vks_flavor_gpus(name)
    return Flavor(
        id=str(row.get("flavorId") or row.get("id") or row.get("uuid") or ""),
        name=name,
        cpus=_count(row.get("cpu")),
        memory=_count(row.get("memory")),
        gpus=_count(gpus) if gpus is not None or card is None else card.count,
        zone=str(row.get("zoneId") or zone),
        remaining=remaining if isinstance(remaining, int) else None,
        sold_out=row.get("isSoldOut") is True,
    )


def models_of(name: str) -> tuple[Model, ...]:
    """The catalog's models that a flavor's name may mean; none for a flavor without GPUs."""
    card = vks_flavor_gpus(name)
    return tuple(model for model in MODELS if model.key in card.keys) if card else ()


def _count(told: t.Any) -> int:
    return int(told) if isinstance(told, (int, float)) else 0
