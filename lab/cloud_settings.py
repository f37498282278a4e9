# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults and settings of a lab's clouds: `lab/lab cloud` writes them to a file, which the services read at each use."""

from __future__ import annotations

import dataclasses
import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .layout import Lab


@dataclass(frozen=True)
class Setting:
    """A setting of a cloud: its default, its description and its valid values (empty: any)."""

    default: str
    text: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class CloudFault:
    """One fault of a cloud (`CLOUD.NAME`), for one node group or for all; its part defines the meaning of the value."""

    name: str
    group: str | None = None
    value: str | None = None


class CloudSettings:
    """The current faults and settings of a lab; safe for concurrent use by several processes."""

    def __init__(self, lab: Lab, settings: Mapping[str, Setting]) -> None:
        """Take the known settings, by `CLOUD.NAME`."""
        self._path = lab.clouds / "switches.json"
        self._settings = settings

    def faults(self) -> list[CloudFault]:
        """Return all faults, in the order of their injection."""
        return [CloudFault(**fault) for fault in self._read()["faults"]]

    def fault(self, name: str, group: str | None = None) -> CloudFault | None:
        """Return the fault with this name for the group or for all groups, or None."""
        return next((fault for fault in self.faults() if fault.name == name and fault.group in (None, group)), None)

    def inject(self, fault: CloudFault) -> None:
        """Inject a fault; it replaces one with the same name and group."""

        def change(state: dict[str, Any]) -> None:
            kept = [one for one in state["faults"] if (one["name"], one["group"]) != (fault.name, fault.group)]
            state["faults"] = [*kept, dataclasses.asdict(fault)]

        self._change(change)

    def clear(self, name: str | None = None) -> list[CloudFault]:
        """Clear the faults with this name (None: all), and return them."""
        cleared: list[CloudFault] = []

        def change(state: dict[str, Any]) -> None:
            cleared.extend(CloudFault(**one) for one in state["faults"] if name in (None, one["name"]))
            state["faults"] = [one for one in state["faults"] if name not in (None, one["name"])]

        self._change(change)
        return cleared

    def consume(self, name: str, group: str | None = None) -> bool:
        """Return whether the fault is set, and decrement its value, the number of remaining occurrences.

        A fault without a value never ends; after the last occurrence the fault is removed.
        """
        if self.fault(name, group) is None:
            return False
        present = False

        def change(state: dict[str, Any]) -> None:
            nonlocal present
            for one in state["faults"]:
                if one["name"] == name and one["group"] in (None, group):
                    present = True
                    if one["value"] is not None:
                        one["value"] = str(int(one["value"]) - 1)
                    break
            state["faults"] = [one for one in state["faults"] if not (one["name"] == name and one["value"] == "0")]

        self._change(change)
        return present

    def set(self, key: str, value: str) -> None:
        """Change a setting."""
        self._change(lambda state: state["settings"].update({key: value}))

    def setting(self, key: str) -> str:
        """Return the value of a setting, or its default."""
        return str(self._read()["settings"].get(key, self._settings[key].default))

    def values(self) -> dict[str, str]:
        """Return the values of all settings, in one consistent read."""
        state = self._read()["settings"]
        return {key: str(state.get(key, setting.default)) for key, setting in self._settings.items()}

    def reset(self) -> None:
        """Clear all faults, and set all settings to their defaults."""
        self._change(lambda state: state.update(faults=[], settings={}))

    def _read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {"faults": [], "settings": {}}
        return state

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with self._exclusive():
            state = self._read()
            change(state)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps(state, indent=2) + "\n")
            fresh.replace(self._path)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
