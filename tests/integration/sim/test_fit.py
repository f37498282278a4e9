# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner and the simulator place MIG devices by code of their own, in two languages, and come to the same."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.mig.enumerate import all_layouts
from ansible_collections.accel.gpu.plugins.module_utils.mig.layout import Counts
from ansible_collections.accel.gpu.plugins.module_utils.mig.placement import place
from lab import build, mig
from plugins.module_utils.catalog import models
from tests.helpers.mig import GEOMETRIES

Wish = dict[str, int]
Answer = list[str] | None
Ask = Callable[[Iterable[tuple[str, Sequence[Wish]]]], list[list[Answer]]]

# So new that it offers every profile.
DRIVER = "595.45.04"


@pytest.fixture(scope="module")
def ask() -> Ask:
    """The simulator's answers for wishes of several models, asked in one go."""
    program = build.ensure(["sim"])["sim"] / "bin" / "sim"

    def asked(questions: Iterable[tuple[str, Sequence[Wish]]]) -> list[list[Answer]]:
        lines = [json.dumps({"geometry": described(key), "counts": wishes}) for key, wishes in questions]
        done = subprocess.run([program, "fit"], input="\n".join(lines), capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return asked


def described(key: str) -> dict[str, object]:
    """The geometry as a simulated node carries it."""
    model = models.find(key)
    assert model
    return mig.describe(model, DRIVER) or {}


def planned(geometry: Geometry, wish: Counts) -> Answer:
    placed = place(geometry, wish)
    return None if placed is None else [f"{one.profile}@{one.start}" for one in placed]


def near_the_border(geometry: Geometry) -> list[Wish]:
    """Every layout, and every layout with one device more."""
    there = [dict(counts) for counts in all_layouts(geometry)]
    names = [profile.name for profile in geometry.profiles]
    more = [{**counts, name: counts.get(name, 0) + 1} for counts in there for name in names]
    return [{}, *there, *more]


@pytest.mark.usual(5)
def test_both_place_every_layout_and_refuse_what_is_one_too_many(ask: Ask) -> None:
    wishes = {key: near_the_border(geometry) for key, geometry in GEOMETRIES.items()}
    assert sum(map(len, wishes.values())) > 20_000
    for (key, wished), answers in zip(wishes.items(), ask(wishes.items()), strict=True):
        for wish, answer in zip(wished, answers, strict=True):
            assert answer == planned(GEOMETRIES[key], wish), (key, wish)


@st.composite
def questions(draw: st.DrawFn) -> list[tuple[str, list[Wish]]]:
    """Wishes of some models, also for profiles that are another's."""
    every = sorted({profile.name for geometry in GEOMETRIES.values() for profile in geometry.profiles})

    def of(key: str) -> st.SearchStrategy[tuple[str, list[Wish]]]:
        own = st.sampled_from([profile.name for profile in GEOMETRIES[key].profiles])
        wish = st.dictionaries(own | st.sampled_from(every), st.integers(0, 8), max_size=5)
        return st.tuples(
            st.just(key), st.lists(wish | st.dictionaries(own, st.integers(1, 2), max_size=4), max_size=40)
        )

    return draw(st.lists(st.sampled_from(sorted(GEOMETRIES)).flatmap(of), min_size=1, max_size=6))


@pytest.mark.usual(8)
@settings(max_examples=40, deadline=None)
@given(asked=questions())
def test_both_answer_whatever_is_wished(ask: Ask, asked: list[tuple[str, list[Wish]]]) -> None:
    for (key, wished), answers in zip(asked, ask(asked), strict=True):
        assert answers == [planned(GEOMETRIES[key], wish) for wish in wished], key
