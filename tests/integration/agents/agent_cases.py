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
from plugins.module_utils.sharing_modes import mig as placement
from plugins.module_utils.sharing_modes.mig import Counts
from tests.integration.agents.configs import BAD, CONFIGS, GOOD, GPU, SILENT, sharing

DRIVER = "580.159.04"
STRATEGIES = ("none", "single", "mixed")


def hardware(model: models.Model, gpus: int = 1) -> Object:
    """Return a machine with GPUs of a model."""
    return describe(model, gpus, DRIVER)


def geometry_of(model: models.Model) -> Geometry:
    """Return the geometry of a MIG-capable model."""
    geometry = mig.geometry(model.key)
    assert geometry is not None
    return geometry


def devices(model: models.Model, counts: Counts) -> tuple[str, ...]:
    """Return the MIG devices of a layout with their positions, such as `3g.71gb@4`."""
    placed = placement.place(geometry_of(model), counts)
    assert placed is not None, (model.key, counts)
    return tuple(f"{one.profile}@{one.start}" for one in placed)


def unpartitioned(model: models.Model) -> list[AgentCase]:
    """Return cases with MIG disabled: every config with every strategy, and other settings of the environment."""
    machine = hardware(model, 2)
    cases = [
        AgentCase(machine, config=config, strategy=strategy)
        for config, strategy in itertools.product(CONFIGS.values(), ("", *STRATEGIES))
    ]
    shared = [config for name, config in {**GOOD, **SILENT}.items() if "mps" in name]
    cases += [AgentCase(machine, config=config, mps_root="") for config in shared]
    cases += [AgentCase(machine, config=config, mps_daemon=False) for config in shared]
    return [*cases, AgentCase(machine, strategy="both"), AgentCase(hardware(model), config=GOOD["time-slicing"])]


def partitioned(model: models.Model) -> list[AgentCase]:
    """Return every maximal layout with every strategy: not shared, time-sliced, renamed, with MPS, and devices by index."""
    cases = []
    for counts in placement.maximal(geometry_of(model)):
        mig_devices = {0: devices(model, counts)}
        resources = [(f"nvidia.com/mig-{name.replace('+', '.')}", 3) for name in counts]
        for strategy in STRATEGIES:
            by_name = resources if strategy == "mixed" else [(GPU, 3)]
            for config in (
                "",
                sharing("timeSlicing", *by_name),
                sharing("timeSlicing", *by_name[-1:], renameByDefault=True, failRequestsGreaterThanOne=True),
                sharing("mps", *by_name),
                GOOD["devices by index"],
            ):
                cases.append(AgentCase(hardware(model), mig_devices, config, strategy))
    return cases


def random_nodes(model: models.Model, rng: random.Random, count: int) -> list[AgentCase]:
    """Return random nodes with up to four GPUs, each with its own layout or without MIG, and any config."""
    known = [*placement.all_layouts(geometry_of(model)), {}]
    cases = []
    for _number in range(count):
        gpus = rng.randint(1, 4)
        layouts = rng.sample(known, min(rng.randint(1, 2), len(known)))
        mig_devices = {gpu: devices(model, rng.choice(layouts)) for gpu in range(gpus) if rng.random() < 0.8}
        config = rng.choice([*GOOD.values(), *GOOD.values(), *SILENT.values(), *BAD.values()])
        cases.append(AgentCase(hardware(model, gpus), mig_devices, config, rng.choice(("", *STRATEGIES))))
    return cases


def vgpu_guests(model: models.Model) -> list[AgentCase]:
    """Return virtual machines with a vGPU of a model."""
    vgpu = {"host_driver": "580.159.01", "host_branch": "r580_00"}
    named: tuple[dict[str, str], ...] = ({}, {"profile": "A100D-10C"}, {"profile": "A16-4Q"})
    machines = [
        describe(model, 1, DRIVER, vgpu={**vgpu, **profile}, machine=machine)
        for profile, machine in itertools.product(named, ("VMware Virtual Platform", "KVM"))
    ]
    return [
        AgentCase(machine, config=config, strategy=strategy)
        for machine in machines
        for config in GOOD.values()
        for strategy in STRATEGIES
    ]


def all_cases(model: models.Model, rng: random.Random) -> list[AgentCase]:
    """Return all cases of a model."""
    cases = unpartitioned(model)
    if model.vgpu:
        cases += vgpu_guests(model)
    if model.mig_capable:
        cases += partitioned(model) + random_nodes(model, rng, 100)
    return cases
