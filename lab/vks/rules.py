# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guesses, faults and tuning values that currently apply to the fake, from the lab's settings."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from ..cloud_settings import CloudFault, CloudSettings, Setting
from ..errors import LabError
from ..layout import Lab
from . import contract

CLOUD = "vks"
_PAGE_SIZE = 10


def settings_of(lab: Lab) -> CloudSettings:
    """Return the settings of the lab that the fake reads, each named CLOUD.NAME."""
    known: dict[str, Setting] = {f"{CLOUD}.{name}": one for name, one in contract.settings().items()}
    return CloudSettings(lab, known)


@dataclass(frozen=True)
class VksRules:
    """A snapshot of the settings for one request or one timer step; only faults with a counter are read again."""

    live: CloudSettings
    values: dict[str, str]
    faults: tuple[CloudFault, ...]

    @classmethod
    def now(cls, live: CloudSettings) -> VksRules:
        """Return a snapshot of the current settings."""
        return cls(live, live.values(), tuple(live.faults()))

    def guess(self, name: str) -> str:
        """Return the selected alternative of a guess."""
        return self.values[f"{CLOUD}.{name}"]

    def number(self, name: str) -> float:
        """Return a numeric tuning value."""
        return float(self.values[f"{CLOUD}.{name}"])

    def fault(self, name: str, group: str | None = None) -> CloudFault | None:
        """Return the fault for this group or for all groups, or None."""
        full = f"{CLOUD}.{name}"
        return next((one for one in self.faults if one.name == full and one.group in (None, group)), None)

    def value(self, name: str, default: float, group: str | None = None) -> float | None:
        """Return the numeric value of a fault, or the default if it has no value, or None without the fault."""
        fault = self.fault(name, group)
        return None if fault is None else default if fault.value is None else float(fault.value)

    def consume(self, name: str, group: str | None = None) -> bool:
        """Return whether a fault with a counter applies now, and decrement its counter."""
        return self.fault(name, group) is not None and self.live.consume(f"{CLOUD}.{name}", group)

    def chance(self, subject: str) -> random.Random:
        """Return a random generator that depends on the seed and on its purpose."""
        return random.Random(f"{self.values[f'{CLOUD}.seed']} {subject}")

    def delay(self, subject: str) -> float:
        """Return the duration of an operation in seconds."""
        low, dummy, high = self.values[f"{CLOUD}.delay"].partition("..")
        return self.chance(subject).uniform(float(low), float(high or low))

    def page(self, rows: list[Any], query: dict[str, Any]) -> dict[str, Any]:
        """Return one page of rows: numbered from 0, 10 rows unless the query asks for another size (MCP)."""
        number, size = int(query.get("page", 0)), int(query.get("pageSize", _PAGE_SIZE))
        limit = self.value("page-limit", _PAGE_SIZE)
        size = max(1, size if limit is None else min(size, int(limit)))
        return {
            "items": rows[number * size : (number + 1) * size],
            "total": len(rows),
            "page": number,
            "pageSize": size,
        }


def check_setting(name: str, value: str) -> None:
    """Raise LabError for an unknown setting or an invalid value."""
    known = contract.settings()
    if name not in known:
        raise LabError(f"unknown setting '{name}'; known: {', '.join(known)}")
    if known[name].choices and value not in known[name].choices:
        raise LabError(f"invalid value '{value}' for {name}; choose from {', '.join(known[name].choices)}")


def check_fault(name: str, group: str | None, value: str | None) -> None:
    """Raise LabError for an unknown fault, or for an invalid value or group."""
    known = contract.load().faults
    if name not in known:
        raise LabError(f"unknown fault '{name}'; known: {', '.join(known)}")
    fault = known[name]
    if group is not None and not fault.groups:
        raise LabError(f"the fault {name} cannot be limited to a group")
    if value is not None and not (fault.times or fault.value):
        raise LabError(f"the fault {name} accepts no value")
    if value is not None and (fault.times or fault.value in ("seconds", "requests", "number")):
        try:
            float(value)
        except ValueError:
            raise LabError(f"the fault {name} requires a number, not '{value}'") from None
