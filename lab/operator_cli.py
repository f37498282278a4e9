# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab operator`: the releases of the GPU operator that the labs of this user can run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from . import operators
from .layout import Lab


def add(group: object, command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add the commands below `operator`; `command` creates a subcommand parser."""
    below = group.add_parser("operator", help="releases of the GPU operator")  # type: ignore[attr-defined]
    below = below.add_subparsers(required=True, metavar="COMMAND")
    one = command(
        "add", _add, "add a release from files on this machine, for all labs; nothing is built or downloaded", below
    )
    one.add_argument("--version", required=True, metavar="VERSION", help="its version, as in the tag of its image")
    one.add_argument("--binary", required=True, type=Path, metavar="FILE", help="the operator's binary, gpu-operator")
    one.add_argument("--chart", required=True, type=Path, metavar="DIR", help="the folder of the Helm chart")
    one.add_argument("--crds", type=Path, metavar="DIR", help="the folder of the CRDs (default: crds in the chart)")
    one.add_argument(
        "--image-files",
        type=Path,
        metavar="DIR",
        help="NVIDIA's sources with assets and manifests, or /opt/gpu-operator of the image (default: found next to"
        " the chart or the binary, else those of the nearest older release)",
    )
    one = command("remove", _remove, "remove an added release", below)
    one.add_argument("version", metavar="VERSION")
    one = command("list", _list, "list the releases that a lab can run, with their charts", below)
    one.add_argument("--json", action="store_true", help="print JSON")


def _add(_lab: Lab, options: argparse.Namespace) -> None:
    added, remarks = operators.add(options.version, options.binary, options.chart, options.crds, options.image_files)
    for remark in remarks:
        print(f"lab: {remark}", file=sys.stderr)
    print(operators.render([added]))


def _remove(_lab: Lab, options: argparse.Namespace) -> None:
    operators.remove(options.version)
    print(f"{options.version}: removed")


def _list(_lab: Lab, options: argparse.Namespace) -> None:
    listed = operators.releases()
    if options.json:
        print(json.dumps([operators.describe(release) for release in listed], indent=2))
    else:
        print(operators.render(listed))
