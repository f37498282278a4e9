# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases in which the simulator is compared with NVIDIA's agents."""

from __future__ import annotations

import itertools
import random

from lab.agents import AgentCase
from lab.api import Object
from lab.hardware import describe
from plugins.module_utils.catalog import mig, models
from plugins.module_utils.catalog.mig import Geometry
from plugins.module_utils.mig import enumerate, placement
from plugins.module_utils.mig.layout import Counts
from tests.integration.agents.configs import BAD, CONFIGS, GOOD, GPU, SILENT, sharing

DRIVER = "580.159.04"
STRATEGIES = ("none", "single", "mixed")


def hardware(model: models.Model, gpus: int = 1) -> Object:
    """A machine with GPUs of a model."""
    return describe(model, gpus, DRIVER)


def geometry_of(model: models.Model) -> Geometry:
    """The geometry of a model that has MIG."""
    geometry = mig.geometry(model.key)
    assert geometry is not None
    return geometry


def devices(model: models.Model, counts: Counts) -> tuple[str, ...]:
    """The MIG devices of a layout where they have room, as `3g.71gb@4`."""
    placed = placement.place(geometry_of(model), counts)
    assert placed is not None, (model.key, counts)
    return tuple(f"{one.profile}@{one.start}" for one in placed)


def whole(model: models.Model) -> list[AgentCase]:
    """MIG off: every config under every strategy, and what else the environment may say."""
    machine = hardware(model, 2)
    cases = [
        AgentCase(machine, config=config, strategy=strategy)
        for config, strategy in itertools.product(CONFIGS.values(), ("", *STRATEGIES))
    ]
    shared = [config for name, config in {**GOOD, **SILENT}.items() if "mps" in name]
    cases += [AgentCase(machine, config=config, mps_root="") for config in shared]
    cases += [AgentCase(machine, config=config, mps_daemon=False) for config in shared]
    return [*cases, AgentCase(machine, strategy="both"), AgentCase(hardware(model), config=GOOD["time-slicing"])]


def cut(model: models.Model) -> list[AgentCase]:
    """Every maximal layout under every strategy: not shared, its devices shared, by time and by MPS; renamed or not."""
    cases = []
    for counts in enumerate.maximal(geometry_of(model)):
        made = {0: devices(model, counts)}
        resources = [(f"nvidia.com/mig-{name.replace('+', '.')}", 3) for name in counts]
        for strategy in STRATEGIES:
            by_name = resources if strategy == "mixed" else [(GPU, 3)]
            for config in (
                "",
                sharing("timeSlicing", *by_name),
                sharing("timeSlicing", *by_name[-1:], renameByDefault=True, failRequestsGreaterThanOne=True),
                sharing("mps", *by_name),
            ):
                cases.append(AgentCase(hardware(model), made, config, strategy))
    return cases


def mixtures(model: models.Model, chance: random.Random, count: int) -> list[AgentCase]:
    """Nodes of up to four GPUs, each cut otherwise, empty or whole, with whatever config."""
    known = [*enumerate.all_layouts(geometry_of(model)), {}]
    cases = []
    for _number in range(count):
        gpus = chance.randint(1, 4)
        few = chance.sample(known, min(chance.randint(1, 2), len(known)))
        made = {gpu: devices(model, chance.choice(few)) for gpu in range(gpus) if chance.random() < 0.8}
        config = chance.choice([*GOOD.values(), *GOOD.values(), *SILENT.values(), *BAD.values()])
        cases.append(AgentCase(hardware(model, gpus), made, config, chance.choice(("", *STRATEGIES))))
    return cases


def guests(model: models.Model) -> list[AgentCase]:
    """Virtual machines with a vGPU of a model."""
    vgpu = {"host_driver": "580.159.01", "host_branch": "r580_00"}
    machine = describe(model, 1, DRIVER, vgpu=vgpu, machine="VMware Virtual Platform")
    return [AgentCase(machine, config=config, strategy=strategy) for config in GOOD.values() for strategy in STRATEGIES]


def of_model(model: models.Model, chance: random.Random) -> list[AgentCase]:
    """All cases of a model."""
    cases = whole(model)
    if model.vgpu:
        cases += guests(model)
    if model.mig_capable:
        cases += cut(model) + mixtures(model, chance, 100)
    return cases
