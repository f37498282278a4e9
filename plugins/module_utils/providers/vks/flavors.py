# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vServer's flavors: the field `gpu` is the number of GPUs, and only the name says which model (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...catalog.models import MODELS, Model
from ...catalog.vks_flavor_names import vks_flavor_gpus


@dataclass(frozen=True)
class Flavor:
    """A flavor in one zone; memory in GiB, `remaining` None where it is unknown."""

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
        """Whether another machine can be created."""
        return not self.sold_out and self.remaining != 0

    @property
    def models(self) -> tuple[Model, ...]:
        """The models that its GPUs may be: several where the name is ambiguous, none where it says nothing."""
        return models_of(self.name) if self.gpus else ()

    @property
    def model(self) -> Model | None:
        """The model of its GPUs; None where the name does not say."""
        return self.models[0] if len(self.models) == 1 else None

    def to_result(self) -> dict[str, t.Any]:
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
    """A flavor of vServer; the number of GPUs from its name where the field is missing."""
    name = str(row.get("name") or "")
    gpus = row.get("gpu")
    remaining = row.get("remainingVms")
    named_gpus = vks_flavor_gpus(name)
    return Flavor(
        id=str(row.get("flavorId") or row.get("id") or row.get("uuid") or ""),
        name=name,
        cpus=_count(row.get("cpu")),
        memory=_count(row.get("memory")),
        gpus=_count(gpus) if gpus is not None or named_gpus is None else named_gpus.count,
        zone=str(row.get("zoneId") or zone),
        remaining=remaining if isinstance(remaining, int) else None,
        sold_out=row.get("isSoldOut") is True,
    )


def models_of(name: str) -> tuple[Model, ...]:
    """The catalog's models that a flavor's name may mean."""
    named_gpus = vks_flavor_gpus(name)
    return tuple(model for model in MODELS if model.key in named_gpus.keys) if named_gpus else ()


def _count(value: t.Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
