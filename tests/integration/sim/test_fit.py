# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner (Python) and the simulator (Go) place MIG devices independently, with the same results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import Counts, all_layouts, place
from lab import build, mig
from plugins.module_utils.catalog import models
from tests.helpers.mig import GEOMETRIES

Demand = dict[str, int]
Positions = list[str] | None
Fit = Callable[[Iterable[tuple[str, Sequence[Demand]]]], list[list[Positions]]]

# A driver that offers all profiles.
DRIVER = "595.45.04"


@pytest.fixture(scope="module")
def fit() -> Fit:
    """Return a function that runs `sim fit` for demands of several models."""
    program = build.ensure(["sim"])["sim"] / "bin" / "sim"

    def run_fit(questions: Iterable[tuple[str, Sequence[Demand]]]) -> list[list[Positions]]:
        lines = [json.dumps({"geometry": described(key), "counts": demands}) for key, demands in questions]
        done = subprocess.run([program, "fit"], input="\n".join(lines), capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run_fit


def described(key: str) -> dict[str, object]:
    """Return the geometry as in the annotation of a simulated node."""
    model = models.find(key)
    assert model
    return mig.describe(model, DRIVER) or {}


def planned(geometry: Geometry, demand: Counts) -> Positions:
    """Return the planner's positions."""
    placed = place(geometry, demand)
    return None if placed is None else [f"{one.profile}@{one.start}" for one in placed]


def layouts_and_one_more(geometry: Geometry) -> list[Demand]:
    """Return every layout, and every layout with one more device."""
    layouts = [dict(counts) for counts in all_layouts(geometry)]
    names = [profile.name for profile in geometry.profiles]
    more = [{**counts, name: counts.get(name, 0) + 1} for counts in layouts for name in names]
    return [{}, *layouts, *more]


@pytest.mark.usual(5)
def test_same_results_for_all_layouts_and_for_one_device_more(fit: Fit) -> None:
    demands = {key: layouts_and_one_more(geometry) for key, geometry in GEOMETRIES.items()}
    assert sum(map(len, demands.values())) > 20_000
    for (key, desired), answers in zip(demands.items(), fit(demands.items()), strict=True):
        for demand, answer in zip(desired, answers, strict=True):
            assert answer == planned(GEOMETRIES[key], demand), (key, demand)


@st.composite
def questions(draw: st.DrawFn) -> list[tuple[str, list[Demand]]]:
    """Demands for several models, also with profiles of other models."""
    every = sorted({profile.name for geometry in GEOMETRIES.values() for profile in geometry.profiles})

    def of_model(key: str) -> st.SearchStrategy[tuple[str, list[Demand]]]:
        own = st.sampled_from([profile.name for profile in GEOMETRIES[key].profiles])
        demand = st.dictionaries(own | st.sampled_from(every), st.integers(0, 8), max_size=5)
        return st.tuples(
            st.just(key), st.lists(demand | st.dictionaries(own, st.integers(1, 2), max_size=4), max_size=40)
        )

    return draw(st.lists(st.sampled_from(sorted(GEOMETRIES)).flatmap(of_model), min_size=1, max_size=6))


@pytest.mark.usual(8)
@settings(max_examples=40, deadline=None)
@given(requests=questions())
def test_same_results_for_random_demands(fit: Fit, requests: list[tuple[str, list[Demand]]]) -> None:
    for (key, desired), answers in zip(requests, fit(requests), strict=True):
        assert answers == [planned(GEOMETRIES[key], demand) for demand in desired], key
