# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`lab/lab labels` and `lab/lab resources`: what the agents would say of a node that nobody has to start."""

from __future__ import annotations

import sys
from pathlib import Path

from plugins.module_utils.catalog import mig, models
from plugins.module_utils.mig import misfit, placing

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
    placed = placing.place(geometry, counts)
    if placed is None:
        raise LabError(f"--mig: {model.key} {misfit.misfit(geometry, counts)}")
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
