# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes the vServer resources and flavors that a node group refers to, and resolves their names (pure)."""

from __future__ import annotations

import difflib
import typing as t
from dataclasses import dataclass, field

from ...catalog.flavors import vks_flavor_gpus
from ...catalog.models import MODELS, Model
from .transport import Row

_SHOWN = 12


@dataclass(frozen=True)
class CatalogItem:
    """A resource that a group refers to by id.

    note: text that distinguishes the resource from others with the same name. usable: whether the status of the resource allows its use. aliases:
    additional names. An alias can be used only if no other item has the same alias.
    """

    id: str
    name: str
    note: str = ""
    usable: bool = True
    aliases: tuple[str, ...] = ()
    details: t.Mapping[str, t.Any] = field(default_factory=dict)

    def to_result(self) -> dict[str, t.Any]:
        """The item in the format of module results."""
        return {"id": self.id, "name": self.name, "usable": self.usable, **self.details}


class UnresolvedName(Exception):
    """Raised if a name is unknown or ambiguous, or if the resource cannot be used now. The message lists possible names or ids, or the reason."""


def resolve(option: str, requested: str, items: t.Sequence[CatalogItem], place: str) -> str:
    """The id of the only usable item with this id, name or alias. Raises UnresolvedName. If several items match, the message lists all their ids."""
    matches = [item for item in items if item.id == requested]
    matches = matches or [item for item in items if item.name == requested]
    matches = matches or [item for item in items if requested in item.aliases]
    usable = [item for item in matches if item.usable]
    if len(usable) == 1:
        return usable[0].id
    if len(usable) > 1:
        ids = ", ".join(f"{item.id}{f' ({item.note})' if item.note else ''}" for item in usable)
        raise UnresolvedName(
            f"{option}: {requested!r} is the name of {len(usable)} resources in {place}: {ids}. Use the id."
        )
    if matches:
        raise UnresolvedName(
            f"{option}: {requested!r} in {place} is not usable now ({matches[0].note or 'not ACTIVE'})."
        )
    names = [item.name for item in items if item.usable]
    raise UnresolvedName(f"{option}: there is no {requested!r} in {place}. {available(requested, names)}")


def available(requested: str, names: t.Iterable[str]) -> str:
    """A sentence that lists the available names, with similar names first. If there are many names, it lists only the similar ones."""
    known = list(dict.fromkeys(name for name in names if name))
    if not known:
        return "None is available."
    similar = difflib.get_close_matches(requested, known, n=_SHOWN, cutoff=0.5)
    if len(known) <= _SHOWN:
        similar += [name for name in sorted(known) if name not in similar]
    shown = similar or sorted(known)[:_SHOWN]
    more = len(known) - len(shown)
    return f"Available: {', '.join(shown)}{f', and {more} more' if more else ''}."


@dataclass(frozen=True)
class Flavor:
    """A flavor in one zone.

    gpus: the number of GPUs of a machine. The GPU model is not a field in the API, and is only part of the flavor's name. remaining: the number of
    machines that can still be created, or None if it is unknown.
    """

    id: str
    name: str
    cpus: int
    memory_gib: int
    gpus: int
    zone: str
    remaining: int | None = None
    sold_out: bool = False

    @property
    def available(self) -> bool:
        """Whether another machine with this flavor can be created."""
        return not self.sold_out and self.remaining != 0

    @property
    def models(self) -> tuple[Model, ...]:
        """The possible models of the GPUs. There are several if the name is ambiguous, and none if the name does not contain a model."""
        named_gpus = vks_flavor_gpus(self.name) if self.gpus else None
        return tuple(model for model in MODELS if model.key in named_gpus.keys) if named_gpus else ()

    def to_result(self) -> dict[str, t.Any]:
        """The flavor in the format of module results."""
        fields = {name: value for name, value in vars(self).items() if name != "sold_out"}
        return {
            **fields,
            "model": self.models[0].key if len(self.models) == 1 else None,
            "models": [model.key for model in self.models],
            "available": self.available,
        }


def flavor_of(row: t.Mapping[str, t.Any], zone: str) -> Flavor:
    """The flavor in a row from vServer. If the row does not have the field `gpu`, the number of GPUs is taken from the name."""
    name = str(row.get("name") or "")
    gpus = row.get("gpu")
    remaining = row.get("remainingVms")
    named_gpus = vks_flavor_gpus(name)
    return Flavor(
        id=str(row.get("flavorId") or row.get("id") or row.get("uuid") or ""),
        name=name,
        cpus=number(row.get("cpu")),
        memory_gib=number(row.get("memory")),
        gpus=number(gpus) if gpus is not None or named_gpus is None else named_gpus.count,
        zone=str(row.get("zoneId") or zone),
        remaining=remaining if isinstance(remaining, int) else None,
        sold_out=row.get("isSoldOut") is True,
    )


def flavor_items(flavors: t.Iterable[Flavor]) -> list[CatalogItem]:
    """The flavors as catalog items, including flavors that are sold out, which checks.py reports."""
    return [CatalogItem(flavor.id, flavor.name, note=f"zone {flavor.zone}") for flavor in flavors]


def subnet_item(row: Row) -> CatalogItem:
    """A subnet of a VPC. The zone of the subnet determines which flavors and volume types are available."""
    zone = row.get("zone") or {}
    secondary = [subnet.get("cidr") for subnet in row.get("secondarySubnets") or [] if isinstance(subnet, dict)]
    return _item(
        row,
        note=str(row.get("cidr") or ""),
        details={
            "cidr": row.get("cidr"),
            "zone": zone.get("uuid") or row.get("zoneId"),
            "zone_name": zone.get("name"),
            "secondary_cidrs": [cidr for cidr in secondary if cidr],
        },
    )


def volume_item(row: Row, kind: str) -> CatalogItem:
    """A volume type of a zone. Its aliases are the kind, such as SSD or NVME, and the kind with the IOPS, such as SSD-3000."""
    iops = row.get("iops")
    return _item(
        row,
        note=f"{kind}, {iops} IOPS",
        aliases=tuple(name for name in (kind, f"{kind}-{iops}" if iops else "") if name),
        details={"kind": kind, "iops": iops, "min_gib": row.get("minSize"), "max_gib": row.get("maxSize")},
    )


def plain_item(row: Row) -> CatalogItem:
    """An SSH key or a security group."""
    system = bool(row.get("system") or row.get("isSystem"))
    return _item(row, note=str(row.get("description") or ""), details={"system": system})


def zone_item(row: Row) -> CatalogItem:
    """A zone of the region."""
    return _item(row, usable=row.get("isEnabled") is not False)


def _item(row: Row, **more: t.Any) -> CatalogItem:
    usable = str(row.get("status") or "ACTIVE").upper() in ("ACTIVE", "AVAILABLE", "CREATED", "ENABLED")
    name = str(row.get("name") or row.get("displayName") or "")
    return CatalogItem(str(row.get("uuid") or row.get("id") or ""), name, **{"usable": usable, **more})


def text(value: t.Any) -> str:
    """A value in a response as a string, which is empty if the value is missing."""
    return "" if value is None else str(value)


def number(value: t.Any) -> int:
    """A whole number in a response, or 0 if it is missing."""
    return int(value) if isinstance(value, (int, float)) else 0
