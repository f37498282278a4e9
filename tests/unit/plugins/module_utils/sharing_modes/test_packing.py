# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packing of a demand: which GPUs change, what is kept, what is missing, and that no other packing is better."""

from __future__ import annotations

import random
import time
import typing as t
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import all_layouts, fits
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig_packing import PackedGpu, PackingResult, pack
from tests.helpers.mig import GEOMETRIES, geometry_of
from tests.helpers.packings import cost, exhaustive, first_fit_decreasing

A100 = geometry_of("A100-SXM4-40GB")
Case = tuple[list[PackedGpu], dict[str, int]]


def gpu(index: int, now: dict[str, int] | None = None, used: bool = False, node: str = "a") -> PackedGpu:
    return PackedGpu(node, index, now, used, A100)


def test_whole_gpus_are_cut_and_no_more_than_needed() -> None:
    packed = pack([gpu(index) for index in range(4)], {"1g.5gb": 8, "3g.20gb": 2})
    half = {"1g.5gb": 4, "3g.20gb": 1}
    assert packed == PackingResult({("a", 0): half, ("a", 1): half}, (("a", 0), ("a", 1)), {})


def test_a_demand_that_is_met_touches_nothing_and_leaves_what_is_more() -> None:
    layouts = {("a", 0): {"1g.5gb": 7}, ("a", 1): {"3g.20gb": 2}, ("a", 3): {}}
    gpus = [gpu(0, {"1g.5gb": 7}), gpu(1, {"3g.20gb": 2}, used=True), gpu(2), gpu(3, {})]
    assert pack(gpus, {"1g.5gb": 6, "3g.20gb": 2}) == PackingResult(layouts, (), {})
    assert pack(gpus, {}) == PackingResult(layouts, (), {})


def test_unused_gpus_are_touched_first() -> None:
    gpus = [gpu(0, {"1g.5gb": 7}, used=True), gpu(1, {"3g.20gb": 2})]
    packed = pack(gpus, {"7g.40gb": 1})
    assert packed == PackingResult({("a", 0): {"1g.5gb": 7}, ("a", 1): {"7g.40gb": 1}}, (("a", 1),), {})


def test_two_unused_gpus_rather_than_one_that_is_used() -> None:
    gpus = [gpu(0, {"2g.10gb": 1}, used=True), gpu(1, {"4g.20gb": 1}), gpu(2, {"4g.20gb": 1})]
    packed = pack(gpus, {"4g.20gb": 1, "2g.10gb": 1, "7g.40gb": 1})
    assert packed.touched == (("a", 1),)
    packed = pack(gpus, {"7g.40gb": 1, "3g.20gb": 2})
    assert packed.touched == (("a", 1), ("a", 2))


def test_what_a_touched_gpu_served_is_placed_again() -> None:
    gpus = [gpu(0, {"3g.20gb": 1, "1g.5gb": 1})]
    packed = pack(gpus, {"3g.20gb": 1, "1g.5gb": 1, "2g.10gb": 1})
    assert packed.layouts == {("a", 0): {"1g.5gb": 1, "2g.10gb": 1, "3g.20gb": 1}}


def test_a_touched_gpu_keeps_what_it_can() -> None:
    gpus = [gpu(0, {"3g.20gb": 1}), gpu(1, {"4g.20gb": 1})]
    packed = pack(gpus, {"4g.20gb": 2, "3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1})
    assert packed.missing == {}
    assert packed.layouts[("a", 0)] == {"3g.20gb": 1, "4g.20gb": 1}
    assert packed.layouts[("a", 1)] == {"1g.5gb": 1, "2g.10gb": 1, "4g.20gb": 1}


def test_gpus_of_one_node_rather_than_of_two() -> None:
    gpus = [gpu(0, node="a"), gpu(0, {"1g.5gb": 1}, node="b"), gpu(1, {"1g.5gb": 1}, node="b")]
    assert pack(gpus, {"7g.40gb": 2}).touched == (("b", 0), ("b", 1))


def test_what_finds_no_room_is_missing() -> None:
    packed = pack([gpu(0)], {"7g.40gb": 2, "9g.99gb": 1})
    assert packed == PackingResult({("a", 0): {"7g.40gb": 1}}, (("a", 0),), {"7g.40gb": 1, "9g.99gb": 1})


def test_of_what_finds_no_room_the_memory_counts() -> None:
    packed = pack([gpu(0)], {"4g.20gb": 1, "7g.40gb": 1})
    assert packed.missing == {"4g.20gb": 1}


def test_without_gpus_all_is_missing() -> None:
    assert pack([], {"1g.5gb": 2}) == PackingResult({}, (), {"1g.5gb": 2})


def test_profiles_go_to_the_models_that_have_them() -> None:
    a30 = PackedGpu("b", 0, None, False, geometry_of("A30"))
    packed = pack([gpu(0), a30], {"2g.12gb": 2, "2g.10gb": 3})
    assert packed.layouts == {("a", 0): {"2g.10gb": 3}, ("b", 0): {"2g.12gb": 2}}


@st.composite
def cases(draw: st.DrawFn, models: t.Sequence[tuple[str, ...]], most: int) -> Case:
    """GPUs of some models, whole or cut in any way, and a demand that may be too much."""
    keys = draw(st.sampled_from(models))
    per_node, gpus = draw(st.integers(1, 3)), []
    for number in range(draw(st.integers(1, most))):
        geometry = GEOMETRIES[draw(st.sampled_from(keys))]
        now = draw(st.none() | st.sampled_from(all_layouts(geometry)))
        gpus.append(PackedGpu(f"node-{number // per_node}", number % per_node, now, draw(st.booleans()), geometry))
    names = sorted({profile.name for key in keys for profile in GEOMETRIES[key].profiles})
    return gpus, draw(st.dictionaries(st.sampled_from(names), st.integers(1, 2 * most), min_size=1, max_size=4))


SMALL = [("A30",), ("RTX-PRO-4500",), ("RTX-PRO-5000",), ("A30", "RTX-PRO-4500")]
ANY = [("A100-SXM4-80GB",), ("A30",), ("RTX-PRO-6000-Server",), ("A100-SXM4-40GB", "A100-SXM4-80GB"), ("H200", "A30")]


def after(gpus: t.Sequence[PackedGpu], packed: PackingResult) -> list[PackedGpu]:
    return [PackedGpu(g.node, g.index, packed.layouts.get((g.node, g.index)), g.used, g.geometry) for g in gpus]


@pytest.mark.usual(15)
@settings(max_examples=80, deadline=None)
@given(case=cases(SMALL, 3))
def test_no_way_is_better_on_small_gpus(case: Case) -> None:
    gpus, demand = case
    assert cost(gpus, demand, pack(gpus, demand).layouts) == exhaustive(gpus, demand)


@pytest.mark.usual(15)
@settings(max_examples=25, deadline=None)
@given(case=cases([("A100-SXM4-40GB",), ("A100-SXM4-40GB", "A100-SXM4-80GB")], 2))
def test_no_way_is_better_on_large_gpus(case: Case) -> None:
    gpus, demand = case
    assert cost(gpus, demand, pack(gpus, demand).layouts) == exhaustive(gpus, demand)


@pytest.mark.usual(20)
@settings(max_examples=60, deadline=None)
@given(case=cases(ANY, 10), order=st.randoms(use_true_random=False))
def test_laws(case: Case, order: random.Random) -> None:
    gpus, demand = case
    packed = pack(gpus, demand)
    assert cost(gpus, demand, packed.layouts)[:4] <= first_fit_decreasing(gpus, demand)[:4]
    shuffled = order.sample(gpus, len(gpus))
    assert pack(shuffled, demand) == packed
    again = pack(after(gpus, packed), demand)
    assert again == PackingResult(packed.layouts, (), packed.missing)
    offered = sum((Counter(dict(counts)) for counts in packed.layouts.values()), Counter[str]())
    assert packed.missing == Counter(demand) - offered
    for one in gpus:
        key = one.node, one.index
        assert (packed.layouts.get(key) != one.now) is (key in packed.touched)
        if key in packed.touched:
            assert packed.layouts[key]
            assert set(packed.layouts[key]) <= set(demand)
            assert fits(one.geometry, packed.layouts[key])
    # Nothing that is new is more than is demanded.
    new = sum((Counter(dict(packed.layouts[key])) for key in packed.touched), Counter[str]())
    assert all(offered[name] <= demand[name] for name in new)


def fleet(models: t.Sequence[str], gpus: int, seed: int) -> list[PackedGpu]:
    """Nodes of 8 GPUs, cut in every way, a third of them whole and two fifths in use."""
    chance = random.Random(seed)
    actual = []
    for number in range(gpus):
        geometry = GEOMETRIES[models[number // 8 % len(models)]]
        now = None if chance.random() < 0.33 else chance.choice(all_layouts(geometry))
        actual.append(PackedGpu(f"node-{number // 8:03}", number % 8, now, chance.random() < 0.4, geometry))
    return actual


HEAVY: list[tuple[tuple[str, ...], dict[str, int]]] = [
    (("A100-SXM4-80GB",), {"1g.10gb": 1500, "3g.40gb": 300, "2g.20gb": 400}),
    (("A100-SXM4-80GB",), {profile.name: 120 for profile in GEOMETRIES["A100-SXM4-80GB"].profiles}),
    (("RTX-PRO-6000-Server",), {profile.name: 150 for profile in GEOMETRIES["RTX-PRO-6000-Server"].profiles}),
    (("A100-SXM4-40GB", "A100-SXM4-80GB"), {"1g.5gb": 900, "1g.10gb": 900, "3g.40gb": 500, "7g.40gb": 700}),
]


@pytest.mark.usual(12)
@pytest.mark.parametrize(("models", "demand"), HEAVY, ids=["three", "all", "media", "mixed"])
def test_a_thousand_gpus(models: tuple[str, ...], demand: dict[str, int]) -> None:
    gpus = fleet(models, 1000, seed=7)
    began = time.process_time()
    packed = pack(gpus, demand)
    # Under a second on an idle machine; what this measures may be three times as slow.
    assert time.process_time() - began < 3
    assert pack(after(gpus, packed), demand).touched == ()


def test_whole_gpus_are_filled() -> None:
    """1,000 + 1,800 + 1,800 compute slices need 658 GPUs of 7 at least."""
    gpus = [gpu(number % 8, node=f"node-{number // 8:03}") for number in range(1000)]
    packed = pack(gpus, {"1g.5gb": 1000, "3g.20gb": 600, "2g.10gb": 900})
    assert (len(packed.touched), packed.missing) == (658, {})


@pytest.mark.usual(6)
@pytest.mark.parametrize("seed", range(4))
def test_large_fleets_are_never_worse_than_first_fit_decreasing(seed: int) -> None:
    models, demand = HEAVY[seed % len(HEAVY)]
    gpus = fleet(models, 48, seed)
    less = {name: max(1, count * 48 // 1000) for name, count in demand.items()}
    packed = pack(gpus, less)
    assert cost(gpus, less, packed.layouts)[:4] <= first_fit_decreasing(gpus, less)[:4]


def test_a_search_that_is_broken_off_is_not_worse_either() -> None:
    """It finds that two GPUs less can be touched, but not that none of them needs to be a used one."""
    gpus = [replace(one, now=None) for one in fleet(("A100-SXM4-40GB", "A100-SXM4-80GB"), 32, 1179)]
    demand = {"1g.10gb": 20, "3g.40gb": 20, "7g.40gb": 3}
    packed = pack(gpus, demand)
    assert cost(gpus, demand, packed.layouts)[:3] == (0, 0, 18)
    assert cost(gpus, demand, packed.layouts)[:4] <= first_fit_decreasing(gpus, demand)[:4]
