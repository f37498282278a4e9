# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vServer has that a node group is made of, and which of it a name means; pure."""

from __future__ import annotations

import difflib
import typing as t
from dataclasses import dataclass, field

from .flavors import Flavor
from .paging import Row

_SHOWN = 12


@dataclass(frozen=True)
class Offer:
    """A thing that a group refers to by id: `note` tells it from others of its name, `usable` is False for one not ACTIVE."""

    id: str
    name: str
    note: str = ""
    usable: bool = True
    others: tuple[str, ...] = ()
    """Further names that mean it, where only one thing has them."""
    facts: t.Mapping[str, t.Any] = field(default_factory=dict)

    def told(self) -> dict[str, t.Any]:
        """As modules return it."""
        return {"id": self.id, "name": self.name, "usable": self.usable, **self.facts}


@dataclass(frozen=True)
class ResolvedName:
    """What a name means: an id, or why it means none."""

    id: str | None = None
    problem: str | None = None


def choose(what: str, wanted: str, offers: t.Sequence[Offer], where: str) -> ResolvedName:
    """The one offer that is meant by its id or its name; several of one name are refused with their ids."""
    meant = [offer for offer in offers if offer.id == wanted]
    meant = meant or [offer for offer in offers if offer.name == wanted]
    meant = meant or [offer for offer in offers if wanted in offer.others]
    usable = [offer for offer in meant if offer.usable]
    if len(usable) == 1:
        return ResolvedName(id=usable[0].id)
    if len(usable) > 1:
        told = ", ".join(f"{offer.id}{f' ({offer.note})' if offer.note else ''}" for offer in usable)
        return ResolvedName(problem=f"{what}: {wanted!r} is the name of {len(usable)} in {where}: {told}. Give the id.")
    if meant:
        return ResolvedName(
            problem=f"{what}: {wanted!r} in {where} cannot be used now ({meant[0].note or 'not ACTIVE'})."
        )
    return ResolvedName(
        problem=f"{what}: there is no {wanted!r} in {where}. {listed(wanted, [o.name for o in offers if o.usable])}"
    )


def listed(wanted: str, names: t.Iterable[str]) -> str:
    """What there is, those spelt alike first and alone where there are many."""
    there = list(dict.fromkeys(name for name in names if name))
    if not there:
        return "There is none at all."
    near = difflib.get_close_matches(wanted, there, n=_SHOWN, cutoff=0.5)
    if len(there) <= _SHOWN:
        near += [name for name in sorted(there) if name not in near]
    shown = near or sorted(there)[:_SHOWN]
    more = len(there) - len(shown)
    return f"There are {', '.join(shown)}{f', and {more} more' if more else ''}."


def flavor_offers(flavors: t.Iterable[Flavor]) -> list[Offer]:
    """Flavors to choose from; one that is sold out is told apart by `flavor_problem`."""
    return [Offer(flavor.id, flavor.name, note=f"zone {flavor.zone}", facts=flavor.told()) for flavor in flavors]


def subnet_offer(row: Row) -> Offer:
    """A subnet of a VPC; its zone decides on flavors and volume types."""
    zone = row.get("zone") or {}
    secondary = [one.get("cidr") for one in row.get("secondarySubnets") or [] if isinstance(one, dict)]
    return Offer(
        _id(row),
        _name(row),
        note=str(row.get("cidr") or ""),
        usable=_active(row),
        facts={
            "cidr": row.get("cidr"),
            "zone": zone.get("uuid") or row.get("zoneId"),
            "zone_name": zone.get("name"),
            "secondary_cidrs": [cidr for cidr in secondary if cidr],
        },
    )


def volume_offer(row: Row, kind: str) -> Offer:
    """A volume type of a zone, called by its name, by its kind (SSD, NVME) or by kind and IOPS (SSD-3000)."""
    iops = row.get("iops")
    return Offer(
        _id(row),
        _name(row),
        note=f"{kind}, {iops} IOPS",
        usable=_active(row),
        others=tuple(name for name in (kind, f"{kind}-{iops}" if iops else "") if name),
        facts={"kind": kind, "iops": iops, "min_gib": row.get("minSize"), "max_gib": row.get("maxSize")},
    )


def plain_offer(row: Row) -> Offer:
    """An SSH key or a security group."""
    return Offer(
        _id(row),
        _name(row),
        note=str(row.get("description") or ""),
        usable=_active(row),
        facts={"system": bool(row.get("system") or row.get("isSystem"))},
    )


def zone_offer(row: Row) -> Offer:
    """A zone of the region."""
    return Offer(_id(row), _name(row), usable=row.get("isEnabled") is not False)


def _id(row: Row) -> str:
    return str(row.get("uuid") or row.get("id") or "")


def _name(row: Row) -> str:
    return str(row.get("name") or row.get("displayName") or "")


def _active(row: Row) -> bool:
    return str(row.get("status") or "ACTIVE").upper() in ("ACTIVE", "AVAILABLE", "CREATED", "ENABLED")
