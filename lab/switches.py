# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults and switches of a lab's clouds: `lab/lab cloud` writes them to a file, their services read it at each use."""

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
    """What a switch of a cloud is set to when nobody sets it, what it does, and what it may be (empty: anything)."""

    default: str
    text: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fault:
    """One fault of a cloud (`CLOUD.NAME`), on one group or on all, with a value whose meaning its part tells."""

    name: str
    group: str | None = None
    value: str | None = None


class Switches:
    """The faults and switches of a lab; any process may read or change them while others do."""

    def __init__(self, lab: Lab, settings: Mapping[str, Setting]) -> None:
        """Take the settings that may be asked for, by `CLOUD.NAME`."""
        self._path = lab.clouds / "switches.json"
        self._settings = settings

    def faults(self) -> list[Fault]:
        """Return all faults, in the order in which they were put."""
        return [Fault(**fault) for fault in self._read()["faults"]]

    def fault(self, name: str, group: str | None = None) -> Fault | None:
        """Return the fault of that name that is on the group, or on all, if there is one."""
        return next((fault for fault in self.faults() if fault.name == name and fault.group in (None, group)), None)

    def put(self, fault: Fault) -> None:
        """Put a fault; one of the same name on the same group is replaced."""

        def change(state: dict[str, Any]) -> None:
            kept = [of for of in state["faults"] if (of["name"], of["group"]) != (fault.name, fault.group)]
            state["faults"] = [*kept, dataclasses.asdict(fault)]

        self._change(change)

    def clear(self, name: str | None = None) -> list[Fault]:
        """Take away the faults of that name (None: all), and return them."""
        gone: list[Fault] = []

        def change(state: dict[str, Any]) -> None:
            gone.extend(Fault(**of) for of in state["faults"] if name in (None, of["name"]))
            state["faults"] = [of for of in state["faults"] if name not in (None, of["name"])]

        self._change(change)
        return gone

    def spend(self, name: str, group: str | None = None) -> bool:
        """Tell whether the fault is there, and count down its value, which says how often it is yet to strike.

        Without a value it strikes for ever; with the last time it is gone.
        """
        if self.fault(name, group) is None:
            return False
        struck = False

        def change(state: dict[str, Any]) -> None:
            nonlocal struck
            for of in state["faults"]:
                if of["name"] == name and of["group"] in (None, group):
                    struck = True
                    if of["value"] is not None:
                        of["value"] = str(int(of["value"]) - 1)
                    break
            state["faults"] = [of for of in state["faults"] if not (of["name"] == name and of["value"] == "0")]

        self._change(change)
        return struck

    def set(self, key: str, value: str) -> None:
        """Set a switch."""
        self._change(lambda state: state["settings"].update({key: value}))

    def setting(self, key: str) -> str:
        """Return what a switch is set to, else its default."""
        return str(self._read()["settings"].get(key, self._settings[key].default))

    def values(self) -> dict[str, str]:
        """Return what all switches are set to, read at once."""
        state = self._read()["settings"]
        return {key: str(state.get(key, setting.default)) for key, setting in self._settings.items()}

    def reset(self) -> None:
        """Take all faults away, and set all switches to their defaults."""
        self._change(lambda state: state.update(faults=[], settings={}))

    def _read(self) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {"faults": [], "settings": {}}
        return state

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        with self._alone():
            state = self._read()
            change(state)
            fresh = self._path.with_suffix(".new")
            fresh.write_text(json.dumps(state, indent=2) + "\n")
            fresh.replace(self._path)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
