# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulator has the same labels, resources and errors as NVIDIA's gpu-feature-discovery and device plugin."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from lab import toolchains
from lab.agents import AgentCase, AgentOutput, run_nvidia, run_simulator
from lab.layout import LAB
from plugins.module_utils.catalog import models
from tests.integration.agents import agent_cases
from tests.integration.agents.compare import differences, summary
from tests.programs import run

SAMPLE = 200


def seeded(request: pytest.FixtureRequest, name: str) -> random.Random:
    """Return a random generator from the printed seed."""
    return random.Random(f"{request.config.getoption('--hypothesis-seed')} {name}")


def show(request: pytest.FixtureRequest, text: str) -> None:
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{text}", flush=True)


@pytest.fixture(scope="module")
def sample(request: pytest.FixtureRequest) -> tuple[list[AgentCase], list[AgentOutput]]:
    """Return configs on an H200 and a sample of the cases of all models, with NVIDIA's results."""
    h200 = models.find("H200")
    assert h200 is not None
    rng = seeded(request, "sample")
    every = [case for model in models.MODELS for case in agent_cases.all_cases(model, rng)]
    chosen = [*agent_cases.unpartitioned(h200)[::4], *rng.sample(every, SAMPLE)]
    return chosen, run_nvidia(chosen)


@pytest.mark.usual(40)
def test_a_sample_of_all_cases(
    sample: tuple[list[AgentCase], list[AgentOutput]], request: pytest.FixtureRequest
) -> None:
    chosen, nvidia = sample
    actual = differences(chosen, run_simulator(chosen), nvidia)
    show(request, f"{len(chosen)} cases compared with NVIDIA's agents: {len(actual)} differ")
    assert not actual, summary(actual)


@pytest.mark.soak
@pytest.mark.parametrize("model", models.MODELS, ids=lambda model: model.key)
def test_every_case(model: models.Model, request: pytest.FixtureRequest) -> None:
    every = agent_cases.all_cases(model, seeded(request, model.key))
    actual = differences(every, run_simulator(every), run_nvidia(every))
    show(request, f"{len(every)} cases of {model.key} compared with NVIDIA's agents: {len(actual)} differ")
    assert not actual, summary(actual)


@pytest.mark.usual(20)
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("file", "rule", "wrong"),
    [
        ("labels.go", "if !renamed {", "if renamed {"),
        ("labels_mig.go", "len(profiles) != 1", "len(profiles) > 2"),
        ("devices.go", "replicas = max(replicas, r.Replicas)", "replicas = r.Replicas"),
        ("plugin.go", "return c.MPS() || c.Sharing", "return c.Sharing"),
    ],
)
def test_a_wrong_rule_is_detected(
    sample: tuple[list[AgentCase], list[AgentOutput]], tmp_path: Path, file: str, rule: str, wrong: str
) -> None:
    """A simulator with one wrong line differs from NVIDIA's agents."""
    shutil.copytree(LAB / "sim", tmp_path / "sim")
    source = tmp_path / "sim" / "rules" / file
    text = source.read_text()
    assert text.count(rule) == 1
    source.write_text(text.replace(rule, wrong))
    go = toolchains.find_go().program
    run(
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-o",
        tmp_path / "wrong",
        ".",
        cwd=tmp_path / "sim",
        env=toolchains.go_environment(),
    )
    chosen, nvidia = sample
    assert differences(chosen, run_simulator(chosen, tmp_path / "wrong"), nvidia)
