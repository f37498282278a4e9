# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab cloud`: the faults and settings of a lab's clouds."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from . import parts
from .cloud_settings import CloudFault, CloudSettings
from .errors import LabError
from .layout import Lab
from .part import LabPart


def settings_of(lab: Lab) -> CloudSettings:
    """Return the faults and settings of a lab, with the settings that its parts define."""
    known = {f"{part.cloud}.{key}": setting for part in _parts(lab) for key, setting in part.settings.items()}
    return CloudSettings(lab, known)


def add(group: object, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands below `cloud`; `command` creates a subcommand parser."""
    below = group.add_parser("cloud", help="faults and settings of the lab's clouds")  # type: ignore[attr-defined]
    below = below.add_subparsers(required=True, metavar="COMMAND")
    command("show", _show, "show the known faults and settings, and the current ones", below)
    command("set", _set, "change a setting", below).add_argument("setting", metavar="CLOUD.KEY=VALUE")
    below = below.add_parser("fault", help="inject faults into a cloud").add_subparsers(
        required=True, metavar="COMMAND"
    )
    one = command("inject", _inject, "inject a fault into a cloud or one of its node groups", below)
    one.add_argument("fault", metavar="FAULT", help="[CLOUD.]NAME; 'cloud show' lists them")
    one.add_argument("--group", metavar="NAME", help="node group (default: all, and requests without a group)")
    one.add_argument("--value", metavar="VALUE", help="value of the fault; 'cloud show' describes it")
    one = command("clear", _clear, "clear a fault (default: all) of the lab's clouds", below)
    one.add_argument("fault", nargs="?", metavar="FAULT")
    command("list", _list, "list the current faults", below)


def _inject(lab: Lab, options: argparse.Namespace) -> None:
    part, name = _fault(lab, options.fault)
    fault = CloudFault(f"{part.cloud}.{name}", options.group, options.value)
    part.inject(lab, fault)
    settings_of(lab).inject(fault)
    part.changed(lab)
    print(f"{_describe(fault)}: injected")


def _clear(lab: Lab, options: argparse.Namespace) -> None:
    named = None
    if options.fault:
        part, name = _fault(lab, options.fault)
        named = f"{part.cloud}.{name}"
    gone = settings_of(lab).clear(named)
    for part in _parts(lab):
        for fault in gone:
            if fault.name.startswith(f"{part.cloud}."):
                part.clear(lab, fault)
        if any(fault.name.startswith(f"{part.cloud}.") for fault in gone):
            part.changed(lab)
    print(f"{len(gone)} faults cleared")


def _list(lab: Lab, _options: argparse.Namespace) -> None:
    for fault in settings_of(lab).faults():
        print(_describe(fault))


def _set(lab: Lab, options: argparse.Namespace) -> None:
    key, equals, value = options.setting.partition("=")
    known = {f"{part.cloud}.{name}": setting for part in _parts(lab) for name, setting in part.settings.items()}
    if not equals or key not in known:
        raise LabError(f"'{options.setting}' is not KEY=VALUE; known keys: {', '.join(known) or '(none)'}")
    if known[key].choices and value not in known[key].choices:
        raise LabError(f"invalid value '{value}' for {key}; choose from {', '.join(known[key].choices)}")
    settings_of(lab).set(key, value)
    next(part for part in _parts(lab) if key.startswith(f"{part.cloud}.")).changed(lab)


def _show(lab: Lab, _options: argparse.Namespace) -> None:
    live = settings_of(lab)
    for part in _parts(lab):
        for key, setting in part.settings.items():
            print(f"{part.cloud}.{key}={live.setting(f'{part.cloud}.{key}')}  # {setting.text}")
        for name, text in part.faults.items():
            print(f"fault {part.cloud}.{name}: {text}")
    for fault in live.faults():
        print(f"current: {_describe(fault)}")


def _parts(lab: Lab) -> list[LabPart]:
    clouds = parts.of(lab)
    if not clouds:
        raise LabError(f"lab '{lab.name}' has no cloud: run 'lab/lab{lab.option} up --part {'|'.join(parts.KNOWN)}'")
    return clouds


def _fault(lab: Lab, named: str) -> tuple[LabPart, str]:
    cloud, dot, name = named.rpartition(".")
    matching = [part for part in _parts(lab) if name in part.faults and (not dot or part.cloud == cloud)]
    if len(matching) == 1:
        return matching[0], name
    known = [f"{part.cloud}.{fault}" for part in matching or _parts(lab) for fault in part.faults]
    if matching:
        raise LabError(
            f"several clouds have a fault '{named}': use one of {', '.join(one for one in known if one.endswith(name))}"
        )
    raise LabError(f"unknown fault '{named}'; known: {', '.join(known)}")


def _describe(fault: CloudFault) -> str:
    on = f" on group {fault.group}" if fault.group else ""
    return f"{fault.name}{on}" + (f" ({fault.value})" if fault.value is not None else "")
