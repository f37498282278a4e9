# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which guesses, faults and paces the double plays just now: the lab's switches, as the contract names them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ..errors import LabError
from ..layout import Lab
from ..switches import Fault, Setting, Switches
from . import contract

CLOUD = "vks"


def switches(lab: Lab) -> Switches:
    """The switches of the lab that the double reads, each called CLOUD.NAME."""
    known: dict[str, Setting] = {f"{CLOUD}.{name}": one for name, one in contract.settings().items()}
    return Switches(lab, known)


@dataclass(frozen=True)
class Rules:
    """What holds for one request, or for one look at all groups; only faults that count down are asked for afresh."""

    live: Switches
    values: dict[str, str]
    faults: tuple[Fault, ...]

    @classmethod
    def now(cls, live: Switches) -> Rules:
        """Read them."""
        return cls(live, live.values(), tuple(live.faults()))

    def guess(self, name: str) -> str:
        """Which alternative of a guess holds."""
        return self.values[f"{CLOUD}.{name}"]

    def number(self, name: str) -> float:
        """A tuning value that is a number."""
        return float(self.values[f"{CLOUD}.{name}"])

    def fault(self, name: str, group: str | None = None) -> Fault | None:
        """The fault on this group or on all, if there is one."""
        full = f"{CLOUD}.{name}"
        return next((one for one in self.faults if one.name == full and one.group in (None, group)), None)

    def value(self, name: str, default: float, group: str | None = None) -> float | None:
        """The number that a fault says, its default when it says none, or None without that fault."""
        found = self.fault(name, group)
        return None if found is None else default if found.value is None else float(found.value)

    def strikes(self, name: str, group: str | None = None) -> bool:
        """Tell whether a fault that counts strikes now, and count it down."""
        return self.fault(name, group) is not None and self.live.spend(f"{CLOUD}.{name}", group)

    def chance(self, of: str) -> random.Random:
        """Random numbers that follow from the seed and from what they are for."""
        return random.Random(f"{self.values[f'{CLOUD}.seed']} {of}")

    def delay(self, of: str) -> float:
        """How long an operation takes, in seconds."""
        low, dummy, high = self.values[f"{CLOUD}.delay"].partition("..")
        return self.chance(of).uniform(float(low), float(high or low))


def check_setting(name: str, value: str) -> None:
    """Refuse a setting that the double does not know, or that it cannot be."""
    known = contract.settings()
    if name not in known:
        raise LabError(f"there is no setting '{name}': known are {', '.join(known)}")
    if known[name].choices and value not in known[name].choices:
        raise LabError(f"{name} cannot be '{value}': it may be {', '.join(known[name].choices)}")


def check_fault(name: str, group: str | None, value: str | None) -> None:
    """Refuse a fault that the double does not know, or whose value or group makes no sense."""
    known = contract.load().faults
    if name not in known:
        raise LabError(f"there is no fault '{name}': known are {', '.join(known)}")
    fault = known[name]
    if group is not None and not fault.groups:
        raise LabError(f"the fault {name} is not one of a group")
    if value is not None and not (fault.times or fault.value):
        raise LabError(f"the fault {name} takes no value")
    if value is not None and (fault.times or fault.value in ("seconds", "requests", "number")):
        try:
            float(value)
        except ValueError:
            raise LabError(f"the fault {name} takes a number, not '{value}'") from None
