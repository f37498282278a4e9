# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layouts that fit on a GPU and the placements of their devices; all layouts are compared with an enumeration that shares no code with the planner."""

from __future__ import annotations

import functools
import time
import typing as t
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.mig import Counts, fit_error
from tests.helpers.mig import GEOMETRIES, geometry_of

A100, A30 = geometry_of("A100-SXM4-40GB"), geometry_of("A30")
MODELS = pytest.mark.parametrize("key", GEOMETRIES)
Key = frozenset[tuple[str, int]]


def key_of(counts: Counts) -> Key:
    return frozenset((name, count) for name, count in counts.items() if count)


@functools.lru_cache
def enumerated(geometry: Geometry) -> frozenset[Key]:
    """All multisets that can be placed: slice after slice, whatever may begin there, or nothing; judged when it is full."""

    def scan(at: int, names: tuple[str, ...]) -> t.Iterator[tuple[str, ...]]:
        if at == geometry.slices:
            yield names
            return
        yield from scan(at + 1, names)
        for profile in geometry.profiles:
            if at in profile.starts:
                yield from scan(at + profile.size, (*names, profile.name))

    def allowed(counts: Counter[str]) -> bool:
        extended = sum(n for name, n in counts.items() if name.endswith("+me"))
        greedy = sum(n for name, n in counts.items() if name.endswith("+me.all"))
        without = sum(n for name, n in counts.items() if name.endswith("-me"))
        if greedy:
            return greedy == 1 and without == counts.total() - 1
        return extended <= 1 and all(n <= geometry.profile(name).max_count for name, n in counts.items())  # type: ignore[union-attr]

    counted = (Counter(names) for names in scan(0, ()) if names)
    return frozenset(key_of(counts) for counts in counted if allowed(counts))


@MODELS
def test_all_layouts_are_those_that_can_be_placed(key: str) -> None:
    actual = [key_of(counts) for counts in mig.all_layouts(GEOMETRIES[key])]
    assert len(actual) == len(set(actual))
    assert set(actual) == enumerated(GEOMETRIES[key])


@MODELS
def test_maximal_are_those_that_are_part_of_no_other(key: str) -> None:
    existing = [Counter(dict(one)) for one in enumerated(GEOMETRIES[key])]
    largest = {key_of(one) for one in existing if not any(one < other for other in existing)}
    assert {key_of(counts) for counts in mig.maximal(GEOMETRIES[key])} == largest


# Without media extensions: 77 and 28, as enumerated manually from the placements of `nvidia-smi mig -lgipp`.
def test_numbers_of_layouts() -> None:
    plain = [counts for counts in mig.all_layouts(A100) if "1g.5gb+me" not in counts]
    largest = [counts for counts in mig.maximal(A100) if "1g.5gb+me" not in counts]
    assert (len(plain), len(largest)) == (77, 28)
    numbers = {
        geometry.kind: (len(mig.all_layouts(geometry)), len(mig.maximal(geometry))) for geometry in GEOMETRIES.values()
    }
    assert numbers == {"A": (127, 44), "B": (19, 8), "C": (114, 64), "D": (13, 9)}


@MODELS
def test_every_layout_can_be_placed_and_nothing_lies_on_anything(key: str) -> None:
    geometry = GEOMETRIES[key]
    for counts in mig.all_layouts(geometry):
        placed = mig.place(geometry, counts)
        assert placed
        assert Counter(one.profile for one in placed) == Counter(counts)
        slices = [at for one in placed for at in range(one.start, one.start + one.size)]
        assert len(slices) == len(set(slices))
        for one in placed:
            profile = geometry.profile(one.profile)
            assert profile
            assert (one.size, one.start in profile.starts) == (profile.size, True)


@st.composite
def geometries_and_counts(draw: st.DrawFn) -> tuple[Geometry, dict[str, int]]:
    geometry = GEOMETRIES[draw(st.sampled_from(sorted(GEOMETRIES)))]
    names = st.sampled_from([profile.name for profile in geometry.profiles])
    return geometry, draw(st.dictionaries(names, st.integers(0, 8), max_size=4))


@given(geometries_and_counts())
def test_fits_is_what_was_enumerated(geometry_and_counts: tuple[Geometry, dict[str, int]]) -> None:
    geometry, counts = geometry_and_counts
    assert mig.fits(geometry, counts) is (not key_of(counts) or key_of(counts) in enumerated(geometry))


@given(geometries_and_counts())
def test_a_part_of_what_fits_fits(geometry_and_counts: tuple[Geometry, dict[str, int]]) -> None:
    """Also with media extensions: what is taken out leaves no other without them."""
    geometry, counts = geometry_and_counts
    if mig.fits(geometry, counts):
        assert all(mig.fits(geometry, {**counts, name: count - 1}) for name, count in counts.items() if count)


@MODELS
def test_nothing_fits_beside_a_maximal_layout(key: str) -> None:
    geometry = GEOMETRIES[key]
    for counts in mig.maximal(geometry):
        for profile in geometry.profiles:
            assert not mig.fits(geometry, {**counts, profile.name: counts.get(profile.name, 0) + 1})


def apart(one: Counts, other: Counts) -> tuple[int, int]:
    """Numbers of devices that are removed and added between two layouts."""
    first, second = Counter(dict(one)), Counter(dict(other))
    return (first - second).total(), (second - first).total()


@given(geometries_and_counts(), st.integers(1, 6))
def test_no_layout_is_nearer_than_the_nearest(geometry_and_counts: tuple[Geometry, dict[str, int]], limit: int) -> None:
    geometry, counts = geometry_and_counts
    actual = mig.nearest(geometry, counts, limit)
    assert len(actual) == min(limit, len(mig.all_layouts(geometry)))
    assert all(mig.fits(geometry, layout) for layout in actual)
    every = sorted((max(apart(counts, layout)), apart(counts, layout)[0]) for layout in mig.all_layouts(geometry))
    assert [(max(apart(counts, layout)), apart(counts, layout)[0]) for layout in actual] == every[: len(actual)]
    if key_of(counts) and mig.fits(geometry, counts):
        assert key_of(actual[0]) == key_of(counts)


@pytest.mark.parametrize(
    ("counts", "compute", "memory", "media"),
    [
        ({"7g.40gb": 1}, 0, 0, False),
        ({"1g.5gb": 7}, 0, 1, True),
        ({"1g.5gb": 6, "1g.5gb+me": 1}, 0, 1, False),
        ({"3g.20gb": 2}, 1, 0, True),
        ({"1g.10gb": 4}, 3, 0, True),
        ({}, 7, 8, True),
    ],
)
def test_what_is_wasted(counts: dict[str, int], compute: int, memory: int, media: bool) -> None:
    assert mig.unused(A100, counts) == (compute, memory, media)


@MODELS
def test_waste_is_what_is_left_of_the_whole(key: str) -> None:
    geometry = GEOMETRIES[key]
    [whole] = [one for one in mig.maximal(geometry) if list(one) == [geometry.profiles[-1].name]] or [{}]
    assert not whole or mig.unused(geometry, whole) == (0, 0, False)
    assert all(min(mig.unused(geometry, counts)[:2]) >= 0 for counts in mig.all_layouts(geometry))


@MODELS
def test_enumeration_is_quick(key: str) -> None:
    """Counted first: no more states than layouts, each extended once by each profile; then a generous limit of time."""
    geometry = GEOMETRIES[key]
    mig._vectors.cache_clear()
    mig._maximal.cache_clear()
    began = time.process_time()
    assert len(mig.all_layouts(geometry)) * len(geometry.profiles) < 2000
    assert mig.maximal(geometry)
    assert time.process_time() - began < 0.5


# NVIDIA's MIG user guide, and the pairs that its placements exclude although the slices would add up.
@pytest.mark.parametrize(
    ("geometry", "counts", "fits"),
    [
        (A100, {"1g.5gb": 7}, True),
        (A100, {"4g.20gb": 1, "3g.20gb": 1}, True),
        (A100, {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1}, True),
        (A100, {"3g.20gb": 1, "2g.10gb": 2}, True),
        (A100, {"3g.20gb": 2, "1g.5gb": 1}, False),
        (A100, {"2g.10gb": 3, "1g.5gb": 1}, True),
        (A100, {"2g.10gb": 3, "1g.5gb": 2}, False),
        (A100, {"1g.10gb": 4}, True),
        (A100, {"1g.10gb": 5}, False),
        (A100, {"1g.5gb+me": 2}, False),
        (A100, {"7g.40gb": 1, "1g.5gb": 1}, False),
        (A30, {"1g.6gb": 2, "2g.12gb": 1}, True),
        (A30, {"1g.6gb+me": 1, "2g.12gb+me": 1}, False),
        (A30, {"3g.24gb": 1}, False),
    ],
)
def test_fits(geometry: Geometry, counts: dict[str, int], fits: bool) -> None:
    assert mig.fits(geometry, counts) is fits
    assert (fit_error(geometry, counts) is None) is fits


@pytest.mark.parametrize(
    ("counts", "placed"),
    [
        ({"1g.5gb": 1, "4g.20gb": 1, "2g.10gb": 1}, [("4g.20gb", 0, 4), ("2g.10gb", 4, 2), ("1g.5gb", 6, 1)]),
        ({"3g.20gb": 1, "1g.10gb": 2}, [("3g.20gb", 0, 4), ("1g.10gb", 4, 2), ("1g.10gb", 6, 2)]),
        # To the left a 3g would take a place from the 2g, which cannot begin at slice 6.
        ({"3g.20gb": 1, "2g.10gb": 2}, [("3g.20gb", 4, 4), ("2g.10gb", 0, 2), ("2g.10gb", 2, 2)]),
        ({"1g.5gb": 1, "1g.5gb+me": 1}, [("1g.5gb", 0, 1), ("1g.5gb+me", 1, 1)]),
        ({"1g.5gb": 0}, []),
    ],
)
def test_the_largest_device_is_made_first(counts: dict[str, int], placed: list[tuple[str, int, int]]) -> None:
    assert list(mig.place(A100, counts) or ()) == placed
