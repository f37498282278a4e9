# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The totals of a cluster count physical GPUs, for every sharing mode of every model, from the labels that NVIDIA's agents set."""

from __future__ import annotations

from collections.abc import Iterator

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import GPUS_ANNOTATION
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.report import data
from lab.agents import AgentCase, AgentOutput, run_simulator
from plugins.module_utils.catalog import models
from tests.integration.agents.agent_cases import devices, geometry_of, hardware
from tests.integration.agents.configs import GOOD

GPUS = 3


def modes(model: models.Model) -> Iterator[tuple[str, AgentCase]]:
    """A node of a model in each mode; with MIG, each profile as often as it fits, under either strategy."""
    machine = hardware(model, GPUS)
    for name in ("no file", "time-slicing", "time-slicing renamed", "mps"):
        yield name, AgentCase(machine, config=GOOD[name])
    if not model.mig_capable:
        return
    for profile in geometry_of(model).profiles:
        layout = dict.fromkeys(range(GPUS), devices(model, {profile.name: profile.max_count}))
        for strategy in ("single", "mixed"):
            yield f"{strategy} {profile.name}", AgentCase(machine, layout, strategy=strategy)
        yield f"none {profile.name}", AgentCase(machine, layout, strategy="none")
        yield f"single {profile.name}, shared", AgentCase(machine, layout, GOOD["time-slicing"], "single")


def node(name: str, output: AgentOutput, annotations: dict[str, str]) -> Node:
    offered = {resource: len(ids) for resource, ids in output.resources.items()}
    labels = {"nvidia.com/gpu.present": "true", **output.labels}
    return Node(name, labels=labels, annotations=annotations, allocatable=offered, capacity=offered, ready=True)


def test_totals_are_physical_gpus_in_every_mode_of_every_model() -> None:
    names, cases = zip(
        *((f"{model.key}, {name}", case) for model in models.MODELS for name, case in modes(model)), strict=True
    )
    wrong = []
    for recorded in ({}, {GPUS_ANNOTATION: str(GPUS)}):
        nodes = [node(name, output, recorded) for name, output in zip(names, run_simulator(cases), strict=True)]
        results = [data.node_result(one, None) for one in nodes]
        wrong += [(one["name"], one["gpus"]) for one in results if one["gpus"] != GPUS]
        actual = data.cluster_result(nodes, results)
        if not wrong:
            assert actual["totals"]["gpus"] == GPUS * len(nodes)
            assert sum(model["gpus"] for model in actual["models"].values()) == GPUS * len(nodes)
    assert not wrong, wrong[:10]
    assert len(cases) > 400
