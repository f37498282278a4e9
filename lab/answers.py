# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab labels` and `lab/lab resources`: what the agents would say of a node that nobody has to start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from plugins.module_utils.catalog import mig, models
from plugins.module_utils.mig import fit_error, placement

from . import agents
from .agents import Case, Said
from .errors import LabError
from .hardware import described
from .systems import CUDA_OF_BRANCH

# Lines to print, and the reason why there are none.
Answer = tuple[list[str], str]


def node(name: str, gpus: int, driver: str, layout: str | None) -> Case:
    """Return a node with GPUs of one model, each cut into the same; every word of the user's is checked."""
    model = models.find(name)
    if model is None:
        raise LabError(f"--model: '{name}' is not in the catalog; nearest: {', '.join(models.nearest(name)) or 'none'}")
    if gpus < 1:
        raise LabError(f"--gpus: {gpus} is not a number of GPUs")
    branch = driver.partition(".")[0]
    if branch not in CUDA_OF_BRANCH:
        raise LabError(f"--driver: branch {branch} is not known; known are {', '.join(CUDA_OF_BRANCH)}")
    devices = None if layout is None else _devices(model, layout)
    made = {} if devices is None else dict.fromkeys(range(gpus), devices)
    return Case(described(model, gpus, driver), made)


def _devices(model: models.Model, layout: str) -> tuple[str, ...]:
    geometry = mig.geometry(model.key)
    if geometry is None:
        raise LabError(f"--mig: {model.key} has no MIG")
    counts: dict[str, int] = {}
    for word in [] if layout == "on" else layout.split(","):
        name, _colon, count = word.partition(":")
        if not (count or "1").isdecimal():
            raise LabError(f"--mig: '{word}' is not PROFILE or PROFILE:COUNT")
        counts[name] = counts.get(name, 0) + int(count or "1")
    placed = placement.place(geometry, counts)
    if placed is None:
        raise LabError(f"--mig: {model.key} {fit_error.fit_error(geometry, counts)}")
    return tuple(f"{one.profile}@{one.start}" for one in placed)


def ask(case: Case, config: Path | None, strategy: str, *, nvidia: bool) -> Said:
    """Return what the simulator says, or NVIDIA's own agents."""
    try:
        text = config.read_text() if config else ""
    except OSError as error:
        raise LabError(f"--config: {config} cannot be read: {error.strerror}") from None
    asked = Case(case.hardware, case.mig, text, strategy)
    [said] = agents.nvidia([asked]) if nvidia else agents.simulated([asked])
    return said


def labels(said: Said) -> Answer:
    """Return the labels as key=value."""
    return [f"{key}={value}" for key, value in said.labels.items()], said.labels_error


def resources(said: Said) -> Answer:
    """Return the resources as name=count."""
    return [f"{name}={len(devices)}" for name, devices in said.resources.items()], said.resources_error


def show(answer: Answer) -> int:
    """Print the lines in order, or on stderr what an agent logs last when it refuses, in its words."""
    lines, refused = answer
    if refused:
        print(refused, file=sys.stderr)
        return 1
    print("\n".join(sorted(lines)))
    return 0


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add both commands; `command` makes one of them as the command line's others are made."""
    for name, run, text in (
        (
            "labels",
            lambda _lab, options: show(labels(_said(options))),
            "print the labels that gpu-feature-discovery would give a node",
        ),
        (
            "resources",
            lambda _lab, options: show(resources(_said(options))),
            "print the resources that the device plugin would offer on a node",
        ),
    ):
        one = command(name, run, f"{text}, or to stderr why it refuses the config")
        one.add_argument("--model", required=True, help="a GPU model of the catalog")
        one.add_argument("--gpus", type=int, default=1, metavar="N", help="how many of them (default: 1)")
        one.add_argument("--driver", default="580.159.04", metavar="VERSION", help="default: 580.159.04")
        one.add_argument(
            "--mig", metavar="LAYOUT", help="what each GPU is cut into, as 3g.71gb,1g.18gb:2; 'on': nothing"
        )
        one.add_argument("--strategy", default="", help="the MIG strategy that the operator asks for")
        one.add_argument("--config", type=Path, metavar="FILE", help="config file of the device plugin (default: none)")
        one.add_argument("--nvidia", action="store_true", help="ask NVIDIA's own agents instead of the simulator")


def _said(options: argparse.Namespace) -> Said:
    case = node(options.model, options.gpus, options.driver, options.mig)
    return ask(case, options.config, options.strategy, nvidia=options.nvidia)
