# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's own code creates the expected resources from the configurations that are rendered for a pool."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core import yaml_text
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig as written
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted, modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing
from lab.agents import AgentCase, run_nvidia, run_simulator
from plugins.module_utils.catalog import models
from plugins.module_utils.sharing_modes import mig
from tests.integration.agents import agent_cases

GPUS = 2
# The value for the device plugin that the lab pins, v0.19 (catalog/releases.py).
EXTRAS_NAMED = False
CAPABLE = [model for model in models.MODELS if model.mig_capable]
SHARED = [
    Sharing(),
    *(
        Sharing("time-slicing", replicas, rename=rename, fail_requests_greater_than_one=fail)
        for replicas, rename, fail in itertools.product((2, 48, 250), (False, True), (False, True))
    ),
    *(Sharing("mps", replicas, rename=rename) for replicas, rename in itertools.product((2, 48), (False, True))),
]


def node(model: models.Model, sharing: Sharing) -> AgentCase:
    """Return a case that applies the configurations of a pool with this sharing."""
    machine = agent_cases.hardware(model, GPUS)
    config = yaml_text.render_yaml(modes.device_plugin_config(sharing))
    if not sharing.layout:
        return AgentCase(machine, config=config)
    content = mig_parted.entry(sharing.layout, GPUS)
    name = mig_parted.entry_name(content)
    return AgentCase(machine, config=config, parted=mig_parted.render_configuration({name: content}), apply=(name,))


def check(model: models.Model, expected: list[Sharing]) -> None:
    cases = [node(model, sharing) for sharing in expected]
    for sharing, simulator, nvidia in zip(expected, run_simulator(cases), run_nvidia(cases), strict=True):
        for output in (simulator, nvidia):
            assert (output.labels_error, output.resources_error) == ("", ""), sharing
            # Resources with 0 are expected only if the node had them before.
            desired = {name: count for name, count in sharing.offers(GPUS).items() if count}
            assert {name: len(devices) for name, devices in output.resources.items()} == desired, sharing
            if sharing.mode != "mig":
                assert output.labels["nvidia.com/gpu.product"] == model.product + sharing.suffix
        assert simulator.labels == nvidia.labels


def test_sharing_without_mig() -> None:
    model = models.find("L40S")
    assert model is not None
    check(model, SHARED)


@pytest.mark.usual(8)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", CAPABLE, ids=lambda model: model.key)
def test_mig(model: models.Model, rng: random.Random) -> None:
    """All GPUs with the same layout, only one GPU with a layout, or different layouts; with and without sharing."""
    known = [dict(counts) for counts in mig.all_layouts(agent_cases.geometry_of(model))]
    uniform = [counts for counts in known if len(counts) == 1]
    layouts: list[tuple[Any, str]] = [(rng.choice(uniform), "single") for _number in range(3)]
    layouts += [(rng.choice(known), "mixed") for _number in range(3)]
    layouts += [({"0": rng.choice(known), "1": rng.choice(known)}, "mixed"), ({"1": rng.choice(known)}, "mixed")]
    check(
        model,
        [
            Sharing(
                "mig",
                replicas,
                written.parse_layout(layout),
                strategy,
                rename=replicas > 1 and rng.random() < 0.5,
                extras_named=EXTRAS_NAMED,
            )
            for layout, strategy in layouts
            for replicas in (1, 4)
        ],
    )
