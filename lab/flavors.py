# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flavors of the lab's clouds, and which hardware the machines of each have: `lab/fleets/clouds.yaml`."""

from __future__ import annotations

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
    """One flavor: its machines as a group of a fleet of none, and what each cloud says of it (None: does not offer it)."""

    name: str
    machine: fleet.Group
    magnum: dict[str, Any] | None = None
    vks: dict[str, Any] | None = None


def load(path: Path = FILE) -> dict[str, Flavor]:
    """Read the flavors by name; every mistake in the file is told at once, each with its place."""
    document = yaml.safe_load(path.read_text())
    flavors: dict[str, Flavor] = {}
    problems: list[str] = []
    for name, entry in document["flavors"].items():
        hardware = {key: value for key, value in entry.items() if key not in CLOUDS}
        offers = {key: entry[key] for key in CLOUDS if key in entry}
        found = [f"{key}: is none of a flavor's" for key in _NOT_HARDWARE if key in hardware]
        found = found or fleet.problems_of({"name": name, "count": 0, **hardware})
        if not offers:
            found.append(f"no cloud offers it: it needs {' or '.join(CLOUDS)}")
        problems += [f"flavors.{name}.{problem}" for problem in found]
        if not found:
            flavors[name] = Flavor(name, fleet.Group(name, 0, **hardware), **offers)
    if problems:
        raise LabError("\n".join([f"{path} cannot be used:", *(f"  {problem}" for problem in problems)]))
    return flavors
