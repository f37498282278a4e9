# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flavors of the lab's clouds and the hardware of their machines: `lab/fleets/clouds.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import fleet
from .errors import LabError
from .layout import LAB

CLOUDS = ("magnum", "vks")
FILE = LAB / "fleets" / "clouds.yaml"
_NOT_HARDWARE = ("name", "count", "labels", "taints", *CLOUDS)


@dataclass(frozen=True)
class Flavor:
    """One flavor: its machine as a fleet group with count 0, and its data in each cloud that offers it."""

    name: str
    machine: fleet.Group
    offers: Mapping[str, dict[str, Any]]


def load(path: Path = FILE) -> dict[str, Flavor]:
    """Return the flavors by name; raise one LabError that lists every error in the file with its position."""
    document = yaml.safe_load(path.read_text())
    flavors: dict[str, Flavor] = {}
    problems: list[str] = []
    for name, entry in document["flavors"].items():
        hardware = {key: value for key, value in entry.items() if key not in CLOUDS}
        offers = {key: entry[key] for key in CLOUDS if key in entry}
        problems_of_key = [f"{key}: is not a key of a flavor" for key in _NOT_HARDWARE if key in hardware]
        problems_of_key = problems_of_key or fleet.validate_group({"name": name, "count": 0, **hardware})
        if not offers:
            problems_of_key.append(f"no cloud offers this flavor: add {' or '.join(CLOUDS)}")
        problems += [f"flavors.{name}.{problem}" for problem in problems_of_key]
        if not problems_of_key:
            flavors[name] = Flavor(name, fleet.Group(name, 0, **hardware), offers)
    if problems:
        raise LabError("\n".join([f"{path} is invalid:", *(f"  {problem}" for problem in problems)]))
    return flavors
