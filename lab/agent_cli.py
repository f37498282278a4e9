# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab labels` and `lab/lab resources`: the labels and resources that a node would get, without starting it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from plugins.module_utils.catalog import mig, models
from plugins.module_utils.sharing_modes import mig as fit_error
from plugins.module_utils.sharing_modes import mig as placement

from . import agents
from .agents import AgentCase, AgentOutput
from .errors import LabError
from .hardware import describe
from .systems import CUDA_OF_BRANCH

# The lines to print, and the error message if there are none.
Lines = tuple[list[str], str]


def node(name: str, gpus: int, driver: str, layout: str | None) -> AgentCase:
    """Return a node whose GPUs have one model and one MIG layout; raise LabError for an invalid argument."""
    model = models.find(name)
    if model is None:
        raise LabError(f"--model: '{name}' is not in the catalog; nearest: {', '.join(models.nearest(name)) or 'none'}")
    if gpus < 1:
        raise LabError(f"--gpus: {gpus} is not a positive number")
    branch = driver.partition(".")[0]
    if branch not in CUDA_OF_BRANCH:
        raise LabError(f"--driver: unknown branch {branch}; known: {', '.join(CUDA_OF_BRANCH)}")
    devices = None if layout is None else _devices(model, layout)
    layouts = {} if devices is None else dict.fromkeys(range(gpus), devices)
    return AgentCase(describe(model, gpus, driver), layouts)


def _devices(model: models.Model, layout: str) -> tuple[str, ...]:
    geometry = mig.geometry(model.key)
    if geometry is None:
        raise LabError(f"--mig: {model.key} does not support MIG")
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


def run_agents(case: AgentCase, config: Path | None, strategy: str, *, nvidia: bool) -> AgentOutput:
    """Return the output of the simulator, or of NVIDIA's own agents."""
    try:
        text = config.read_text() if config else ""
    except OSError as error:
        raise LabError(f"--config: cannot read {config}: {error.strerror}") from None
    configured = AgentCase(case.hardware, case.mig, text, strategy)
    [output] = agents.run_nvidia([configured]) if nvidia else agents.run_simulator([configured])
    return output


def labels(output: AgentOutput) -> Lines:
    """Return the labels as key=value."""
    return [f"{key}={value}" for key, value in output.labels.items()], output.labels_error


def resources(output: AgentOutput) -> Lines:
    """Return the resources as name=count."""
    return [f"{name}={len(devices)}" for name, devices in output.resources.items()], output.resources_error


def show(result: Lines) -> int:
    """Print the sorted lines, or the agent's last log line to stderr if the agent rejects its config."""
    lines, error = result
    if error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(sorted(lines)))
    return 0


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Add both commands to the command line; `command` creates a subcommand parser."""
    for name, run, text in (
        (
            "labels",
            lambda _lab, options: show(labels(_output(options))),
            "print the labels that gpu-feature-discovery would give a node",
        ),
        (
            "resources",
            lambda _lab, options: show(resources(_output(options))),
            "print the resources that the device plugin would offer on a node",
        ),
    ):
        one = command(name, run, f"{text}, or to stderr the error if it rejects the config")
        one.add_argument("--model", required=True, help="GPU model from the catalog")
        one.add_argument("--gpus", type=int, default=1, metavar="N", help="number of GPUs (default: 1)")
        one.add_argument(
            "--driver", default="580.159.04", metavar="VERSION", help="driver version (default: 580.159.04)"
        )
        one.add_argument(
            "--mig",
            metavar="LAYOUT",
            help="MIG devices of each GPU, as 3g.71gb,1g.18gb:2; 'on': MIG enabled, no devices",
        )
        one.add_argument("--strategy", default="", help="MIG strategy that the operator sets (default: none set)")
        one.add_argument("--config", type=Path, metavar="FILE", help="device plugin config file (default: none)")
        one.add_argument("--nvidia", action="store_true", help="run NVIDIA's own agents instead of the simulator")


def _output(options: argparse.Namespace) -> AgentOutput:
    case = node(options.model, options.gpus, options.driver, options.mig)
    return run_agents(case, options.config, options.strategy, nvidia=options.nvidia)
