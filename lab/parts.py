# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The parts that a lab may have, and those that one has."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import LabError
from .layout import Lab
from .openstack.part import OpenStack
from .part import Part
from .vks.part import Vks

# Each says all of itself in a file of its own.
_ALL: tuple[Part, ...] = (OpenStack(), Vks())
KNOWN = {part.name: part for part in _ALL}


def of(lab: Lab, more: Iterable[str] = ()) -> list[Part]:
    """Return the parts of a lab, those that it is to have from now on included, in the order of KNOWN."""
    wanted = {*lab.state().get("parts", ()), *more}
    if strangers := wanted - KNOWN.keys():
        raise LabError(f"there is no part '{min(strangers)}': known are {', '.join(KNOWN)}")
    return [part for name, part in KNOWN.items() if name in wanted]
