# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""mig-parted accepts the generated configurations and creates the planned MIG devices."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig as written
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig_parted
from lab.agents import AgentCase, AgentOutput, run_nvidia, run_simulator
from lab.api import Object
from plugins.module_utils.catalog import models
from plugins.module_utils.sharing_modes import mig
from plugins.module_utils.sharing_modes.mig import Counts
from tests.helpers.mig import GEOMETRIES
from tests.integration.agents import agent_cases

CAPABLE = [model for model in models.MODELS if model.mig_capable]


def applied(machine: Object, counts: Counts, **options: Any) -> AgentCase:
    """Return a case that applies the entry of a pool with this layout."""
    content = mig_parted.entry(written.parse_layout(dict(counts)), machine["gpus"])
    name = mig_parted.entry_name(content)
    return AgentCase(
        machine, parted=mig_parted.render_configuration({name: content}), apply=(name,), agents=False, **options
    )


def profiles(output: AgentOutput) -> dict[int, Counter[str]]:
    """Return the number of devices of each profile on each GPU with MIG enabled."""
    return {gpu: Counter(device.partition("@")[0] for device in devices) for gpu, devices in output.mig.items()}


def same(case: AgentCase, simulator: AgentOutput, nvidia: AgentOutput) -> bool:
    """Return whether both have the same error and devices; the driver can choose the positions of the devices.

    The simulator's error starts with NVIDIA's last line and ends with the reason, which NVIDIA logs before that line.
    """
    ends = zip(simulator.applied, nvidia.applied, strict=True)
    alike = all(bool(one) == bool(other) and one.lower().startswith(other.lower()) for one, other in ends)
    return (
        alike
        and profiles(simulator) == profiles(nvidia)
        and all(_valid_positions(case, output) for output in (simulator, nvidia))
    )


def _valid_positions(case: AgentCase, output: AgentOutput) -> bool:
    """Return whether each device has a valid position for its profile, and no devices overlap."""
    known = {profile["name"]: profile for profile in case.hardware["mig"]["profiles"]} if case.hardware["mig"] else {}
    for devices in output.mig.values():
        taken = 0
        for device in devices:
            name, _at, start = device.partition("@")
            mask = mig.mask(int(start), known[name]["size"])
            if int(start) not in known[name]["starts"] or taken & mask:
                return False
            taken |= mask
    return True


def compare(cases: list[AgentCase]) -> list[AgentOutput]:
    simulator, nvidia = run_simulator(cases), run_nvidia(cases)
    wrong = [
        f"{case.hardware['product']} {dict(case.mig)} {case.parted}\n  simulator {one.applied} {dict(one.mig)}\n"
        f"  NVIDIA {other.applied} {dict(other.mig)}"
        for case, one, other in zip(cases, simulator, nvidia, strict=True)
        if not same(case, one, other)
    ]
    assert not wrong, "\n".join(wrong[:5])
    return nvidia


def check_maximal_layouts(model: models.Model) -> None:
    """mig-parted creates every maximal layout, for both strategies by which the driver chooses positions."""
    every = mig.maximal(agent_cases.geometry_of(model))
    cases = [
        applied(agent_cases.hardware(model), counts, first_fit=first_fit)
        for counts, first_fit in itertools.product(every, (False, True))
    ]
    desired = [counts for counts in every for _first_fit in (False, True)]
    for counts, output in zip(desired, compare(cases), strict=True):
        assert profiles(output) == {0: Counter(counts)}, counts


@pytest.mark.soak
@pytest.mark.parametrize("model", CAPABLE, ids=lambda model: model.key)
def test_every_maximal_layout(model: models.Model) -> None:
    check_maximal_layouts(model)


@pytest.mark.usual(3)
def test_maximal_layouts_of_an_a30() -> None:
    model = models.find("A30")
    assert model is not None
    check_maximal_layouts(model)


@pytest.mark.usual(8)
@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", CAPABLE, ids=lambda model: model.key)
def test_random_layouts(model: models.Model, rng: random.Random) -> None:
    """Planner, simulator and NVIDIA agree on layouts that fit or do not fit, with and without existing devices."""
    geometry = agent_cases.geometry_of(model)
    known = mig.all_layouts(geometry)
    demands, cases = [], []
    for _number in range(12):
        demand = Counter(rng.choice(known))
        demand[rng.choice(geometry.profiles).name] += rng.choice((0, 1, 1))
        # mig-parted tries every order of devices that do not fit, which takes minutes with many devices.
        if demand.total() > 6 and not mig.fits(geometry, demand):
            continue
        before = {0: agent_cases.devices(model, rng.choice(known))} if rng.random() < 0.5 else {}
        demands.append(demand)
        cases.append(applied(agent_cases.hardware(model), +demand, mig=before))
    for demand, output in zip(demands, compare(cases), strict=True):
        assert (output.applied == ("",)) == mig.fits(geometry, demand), demand


def test_all_entries_of_the_configuration_are_accepted() -> None:
    """The configuration has the usual entries (instead of NVIDIA's) of all models, and entries of pools."""
    entries = mig_parted.default_entries([(model.pci_ids, GEOMETRIES[model.key]) for model in CAPABLE])
    for model in CAPABLE:
        for counts in mig.maximal(agent_cases.geometry_of(model)):
            content = mig_parted.entry(written.parse_layout(dict(counts)), 8)
            entries[mig_parted.entry_name(content)] = content
    text = mig_parted.render_configuration(entries)
    h200 = models.find("H200")
    assert h200 is not None
    names = [
        "all-disabled",
        "all-enabled",
        *(f"all-{p.name.replace('+', '.')}" for p in agent_cases.geometry_of(h200).profiles),
    ]
    cases = [AgentCase(agent_cases.hardware(h200), parted=text, apply=(name,), agents=False) for name in names]
    for name, output in zip(names, compare(cases), strict=True):
        assert output.applied == ("",), name
    assert profiles(output) == {0: Counter({"7g.141gb": 1})}


def config(*parts: dict[str, Any]) -> str:
    return json.dumps({"version": "v1", "mig-configs": {"wanted": parts}})


def part(devices: Any, profiles: dict[str, int] | None, **options: Any) -> dict[str, Any]:
    enabled = {"mig-enabled": profiles is not None, **({} if profiles is None else {"mig-devices": profiles})}
    return {"devices": devices, **enabled, **options}


@pytest.mark.parametrize(
    ("key", "before", "parted", "busy"),
    [
        # Profiles of other models, modes alone, one GPU of several, entries that contradict each other.
        ("H200", {}, config(part("all", {"1g.5gb": 1})), ()),
        ("H200", {0: ("7g.141gb@0",)}, config(part("all", {"1g.5gb": 1, "1g.18gb": 2})), ()),
        ("H200", {0: ("7g.141gb@0",)}, config(part("all", {})), ()),
        ("H200", {0: ("7g.141gb@0",), 1: ()}, config(part("all", None)), ()),
        ("H200", {}, config(part([0], {"7g.141gb": 1})), ()),
        ("H200", {}, config(part([0], {"7g.141gb": 1}), part([1], None)), ()),
        ("H200", {}, config(part([0], {"7g.141gb": 1}), part("all", None)), ()),
        ("H200", {}, config(part("all", None), part([0], {"7g.141gb": 1})), ()),
        ("H200", {}, config(part("all", {"3g.71gb": 2}), part([1], {"7g.141gb": 1})), ()),
        ("H200", {}, config(part([5], {"7g.141gb": 1})), ()),
        ("H200", {}, config(part("all", {"3g.71gb": 2}, **{"device-filter": "0x233510DE"})), ()),
        ("H200", {}, config(part("all", {"3g.71gb": 2}, **{"device-filter": ["0x20B210DE"]})), ()),
        # GPUs in use.
        ("H200", {}, config(part("all", {"3g.71gb": 2})), (0,)),
        ("H200", {0: ("7g.141gb@0",), 1: ()}, config(part("all", None)), (0,)),
        ("H200", {0: ("7g.141gb@0",), 1: ()}, config(part("all", {"3g.71gb": 2})), (0,)),
        ("A100-SXM4-80GB", {}, config(part("all", {"3g.40gb": 2})), (1,)),
        # A reset resets all GPUs.
        ("A100-SXM4-80GB", {}, config(part("all", {"3g.40gb": 2})), ()),
        ("A100-SXM4-80GB", {0: ("7g.80gb@0",), 1: ()}, config(part("all", None)), ()),
        ("A100-SXM4-80GB", {0: ("7g.80gb@0",)}, config(part([1], {"7g.80gb": 1})), ()),
        # GPUs without MIG.
        ("L4", {}, config(part("all", {"7g.80gb": 1})), ()),
        ("L4", {}, config(part([0], {"7g.80gb": 1})), ()),
        ("L4", {}, config(part([0], None)), ()),
        # Invalid files.
        ("H200", {}, "version: v2", ()),
        ("H200", {}, "mig-configs: {wanted: []}", ()),
        ("H200", {}, "version: v1\nmig-configs: {other: [{devices: all, mig-enabled: false}]}", ()),
        ("H200", {}, config({"devices": "all", "mig-enabled": False, "mig-devices": {"1g.18gb": 1}}), ()),
        ("H200", {}, config({"devices": "all", "mig-enabled": True}), ()),
        ("H200", {}, config({"devices": 0, "mig-enabled": False}), ()),
    ],
)
def test_entries_of_all_kinds(key: str, before: dict[int, tuple[str, ...]], parted: str, busy: tuple[int, ...]) -> None:
    model = models.find(key)
    assert model is not None
    machine = agent_cases.hardware(model, 2)
    compare([AgentCase(machine, before, parted=parted, apply=("wanted",), busy=frozenset(busy), agents=False)])
