# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab cloud`: the faults and switches of a lab's clouds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from . import parts
from .errors import LabError
from .layout import Lab
from .part import Part
from .switches import Fault, Switches


def switches(lab: Lab) -> Switches:
    """Return the faults and switches of a lab, with what its parts know."""
    known = {f"{part.cloud}.{key}": setting for part in _parts(lab) for key, setting in part.settings.items()}
    return Switches(lab, known)


def add(group: object, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands below `cloud`; `command` makes one of them as the command line's others are made."""
    below = group.add_parser("cloud", help="faults and switches of the lab's clouds")  # type: ignore[attr-defined]
    below = below.add_subparsers(required=True, metavar="COMMAND")
    command("show", _show, "show faults, switches, and what there is of them", below)
    command("set", _set, "set a switch", below).add_argument("setting", metavar="CLOUD.KEY=VALUE")
    below = below.add_parser("fault", help="put faults on a cloud").add_subparsers(required=True, metavar="COMMAND")
    one = command("put", _put, "put a fault on a cloud, or on one group of nodes of it", below)
    one.add_argument("fault", metavar="FAULT", help="[CLOUD.]NAME; 'cloud show' lists them")
    one.add_argument("--group", metavar="NAME", help="the group of nodes (default: all, and what has no group)")
    one.add_argument("--value", metavar="VALUE", help="what it is depends on the fault")
    one = command("clear", _clear, "take a fault (default: all) from the lab's clouds", below)
    one.add_argument("fault", nargs="?", metavar="FAULT")
    command("list", _list, "show which faults there are", below)


def _put(lab: Lab, options: argparse.Namespace) -> None:
    part, name = _fault(lab, options.fault)
    fault = Fault(f"{part.cloud}.{name}", options.group, options.value)
    part.put(lab, fault)
    switches(lab).put(fault)
    print(f"{_told(fault)}: put")


def _clear(lab: Lab, options: argparse.Namespace) -> None:
    named = None
    if options.fault:
        part, name = _fault(lab, options.fault)
        named = f"{part.cloud}.{name}"
    gone = switches(lab).clear(named)
    for part in _parts(lab):
        for fault in gone:
            if fault.name.startswith(f"{part.cloud}."):
                part.clear(lab, fault)
    print(f"{len(gone)} faults cleared")


def _list(lab: Lab, _options: argparse.Namespace) -> None:
    for fault in switches(lab).faults():
        print(_told(fault))


def _set(lab: Lab, options: argparse.Namespace) -> None:
    key, equals, value = options.setting.partition("=")
    known = {f"{part.cloud}.{name}": setting for part in _parts(lab) for name, setting in part.settings.items()}
    if not equals or key not in known:
        raise LabError(f"'{options.setting}' is not KEY=VALUE with one of the keys {', '.join(known) or '(none)'}")
    if known[key].choices and value not in known[key].choices:
        raise LabError(f"{key} cannot be '{value}': it may be {', '.join(known[key].choices)}")
    switches(lab).set(key, value)


def _show(lab: Lab, _options: argparse.Namespace) -> None:
    live = switches(lab)
    for part in _parts(lab):
        for key, setting in part.settings.items():
            print(f"{part.cloud}.{key}={live.setting(f'{part.cloud}.{key}')}  # {setting.text}")
        for name, text in part.faults.items():
            print(f"fault {part.cloud}.{name}: {text}")
    for fault in live.faults():
        print(f"now: {_told(fault)}")


def _parts(lab: Lab) -> list[Part]:
    found = parts.of(lab)
    if not found:
        raise LabError(f"lab '{lab.name}' has no cloud: run 'lab/lab{lab.option} up --part {'|'.join(parts.KNOWN)}'")
    return found


def _fault(lab: Lab, named: str) -> tuple[Part, str]:
    cloud, dot, name = named.rpartition(".")
    found = [part for part in _parts(lab) if name in part.faults and (not dot or part.cloud == cloud)]
    if len(found) == 1:
        return found[0], name
    known = [f"{part.cloud}.{fault}" for part in found or _parts(lab) for fault in part.faults]
    if found:
        raise LabError(
            f"more than one cloud has a fault '{named}': {', '.join(of for of in known if of.endswith(name))}"
        )
    raise LabError(f"there is no fault '{named}': known are {', '.join(known)}")


def _told(fault: Fault) -> str:
    on = f" on group {fault.group}" if fault.group else ""
    return f"{fault.name}{on}" + (f" ({fault.value})" if fault.value is not None else "")
