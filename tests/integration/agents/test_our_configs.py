# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What we promise of a pool is what NVIDIA's own code makes of the configurations that we render for it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.mig import layout as written
from ansible_collections.accel.gpu.plugins.module_utils.nvidia_config import device_plugin, mig_parted, yaml_text
from ansible_collections.accel.gpu.plugins.module_utils.nvidia_config.device_plugin import Sharing
from lab.agents import AgentCase, run_nvidia, run_simulator
from plugins.module_utils.catalog import models
from plugins.module_utils.mig import enumerate
from tests.integration.agents import cases as made

GPUS = 2
# By the device plugin of the lab's pin, v0.19 (catalog/operator_releases.py).
EXTRAS_NAMED = False
CAPABLE = [model for model in models.MODELS if model.mig_capable]
SHARED = [
    Sharing(),
    *(
        Sharing("time-slicing", replicas, rename, fail)
        for replicas, rename, fail in itertools.product((2, 48, 250), (False, True), (False, True))
    ),
    *(Sharing("mps", replicas, rename) for replicas, rename in itertools.product((2, 48), (False, True))),
]


def node(model: models.Model, sharing: Sharing) -> AgentCase:
    """A node on which everything is applied that a pool with this sharing renders."""
    machine = made.hardware(model, GPUS)
    config = yaml_text.render(device_plugin.config(sharing))
    if not sharing.layout:
        return AgentCase(machine, config=config)
    content = mig_parted.entry(sharing.layout, GPUS)
    name = mig_parted.entry_name(content)
    return AgentCase(machine, config=config, parted=mig_parted.document({name: content}), apply=(name,))


def kept(model: models.Model, promised: list[Sharing]) -> None:
    cases = [node(model, sharing) for sharing in promised]
    for sharing, ours, theirs in zip(promised, run_simulator(cases), run_nvidia(cases), strict=True):
        for said in (ours, theirs):
            assert (said.labels_error, said.resources_error) == ("", ""), sharing
            # A resource of which we promise 0 is one that the node may have had before.
            wanted = {name: count for name, count in sharing.offers(GPUS).items() if count}
            assert {name: len(devices) for name, devices in said.resources.items()} == wanted, sharing
            if sharing.mode != "mig":
                assert said.labels["nvidia.com/gpu.product"] == model.product + sharing.suffix
        assert ours.labels == theirs.labels


def test_gpus_shared_as_a_whole() -> None:
    model = models.find("L40S")
    assert model is not None
    kept(model, SHARED)


@pytest.mark.usual(8)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", CAPABLE, ids=lambda model: model.key)
def test_mig(model: models.Model, rng: random.Random) -> None:
    """GPUs cut alike, or one of them, or each otherwise; the devices shared or not."""
    known = [dict(counts) for counts in enumerate.all_layouts(made.geometry_of(model))]
    alike = [counts for counts in known if len(counts) == 1]
    wishes: list[tuple[Any, str]] = [(rng.choice(alike), "single") for _number in range(3)]
    wishes += [(rng.choice(known), "mixed") for _number in range(3)]
    wishes += [({"0": rng.choice(known), "1": rng.choice(known)}, "mixed"), ({"1": rng.choice(known)}, "mixed")]
    kept(
        model,
        [
            Sharing(
                "mig",
                replicas,
                replicas > 1 and rng.random() < 0.5,
                True,
                written.read(wish),
                strategy,
                extras_named=EXTRAS_NAMED,
            )
            for wish, strategy in wishes
            for replicas in (1, 4)
        ],
    )
