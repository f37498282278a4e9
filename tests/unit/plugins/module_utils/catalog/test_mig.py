# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG tables agree with what NVIDIA publishes, and with themselves."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig, models
from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import Geometry, Profile

MIG_MODELS = [model for model in models.MODELS if model.mig_capable]
MIG_KEYS = [model.key for model in MIG_MODELS]
PROFILES = [(key, profile) for key in MIG_KEYS for profile in mig._GEOMETRIES[key].profiles]

# As the MIG user guide and the operator's default configurations have it: name x how many.
PUBLISHED = {
    "A30": "1g.6gb x4, 1g.6gb+me x1, 2g.12gb x2, 2g.12gb+me x1, 4g.24gb x1",
    "A100-SXM4-40GB": "1g.5gb x7, 1g.5gb+me x1, 1g.10gb x4, 2g.10gb x3, 3g.20gb x2, 4g.20gb x1, 7g.40gb x1",
    "A100-80GB-PCIe": "1g.10gb x7, 1g.10gb+me x1, 1g.20gb x4, 2g.20gb x3, 3g.40gb x2, 4g.40gb x1, 7g.80gb x1",
    "H100-80GB-HBM3": "1g.10gb x7, 1g.10gb+me x1, 1g.20gb x4, 2g.20gb x3, 3g.40gb x2, 4g.40gb x1, 7g.80gb x1",
    "H100-NVL": "1g.12gb x7, 1g.12gb+me x1, 1g.24gb x4, 2g.24gb x3, 3g.47gb x2, 4g.47gb x1, 7g.94gb x1",
    "GH200-480GB": "1g.12gb x7, 1g.12gb+me x1, 1g.24gb x4, 2g.24gb x3, 3g.48gb x2, 4g.48gb x1, 7g.96gb x1",
    "GH200-144GB": "1g.18gb x7, 1g.18gb+me x1, 1g.36gb x4, 2g.36gb x3, 3g.72gb x2, 4g.72gb x1, 7g.144gb x1",
    "H200": "1g.18gb x7, 1g.18gb+me x1, 1g.35gb x4, 2g.35gb x3, 3g.71gb x2, 4g.71gb x1, 7g.141gb x1",
    "B200": "1g.23gb x7, 1g.23gb+me x1, 1g.45gb x4, 2g.45gb x3, 3g.90gb x2, 4g.90gb x1, 7g.180gb x1",
    "GB200": "1g.23gb x7, 1g.23gb+me x1, 1g.47gb x4, 2g.47gb x3, 3g.93gb x2, 4g.93gb x1, 7g.186gb x1",
    "B300": "1g.34gb x7, 1g.34gb+me x1, 1g.67gb x4, 2g.67gb x3, 3g.135gb x2, 4g.135gb x1, 7g.269gb x1",
    "GB300": "1g.35gb x7, 1g.35gb+me x1, 1g.70gb x4, 2g.70gb x3, 3g.139gb x2, 4g.139gb x1, 7g.278gb x1",
    "RTX-PRO-6000-Server": "1g.24gb x4, 1g.24gb+me x1, 1g.24gb+gfx x4, 1g.24gb+me.all x1, 1g.24gb-me x4, 2g.48gb x2, "
    "2g.48gb+gfx x2, 2g.48gb+me.all x1, 2g.48gb-me x2, 4g.96gb x1, 4g.96gb+gfx x1",
    "RTX-PRO-5000": "1g.24gb x2, 1g.24gb+me x1, 1g.24gb+gfx x2, 1g.24gb+me.all x1, 1g.24gb-me x2, 2g.48gb x1, "
    "2g.48gb+gfx x1",
    "RTX-PRO-4500": "1g.16gb x2, 1g.16gb+gfx x2, 1g.16gb+me.all x1, 1g.16gb-me x2, 2g.32gb x1, 2g.32gb+gfx x1",
}

# nvidia-smi mig -lgip and -lgipp on an H200, driver 580.159.04: id, name, how many, starts : size.
MEASURED_H200 = [
    (19, "1g.18gb", 7, (0, 1, 2, 3, 4, 5, 6), 1),
    (20, "1g.18gb+me", 1, (0, 1, 2, 3, 4, 5, 6), 1),
    (15, "1g.35gb", 4, (0, 2, 4, 6), 2),
    (14, "2g.35gb", 3, (0, 2, 4), 2),
    (9, "3g.71gb", 2, (0, 4), 4),
    (5, "4g.71gb", 1, (0,), 4),
    (0, "7g.141gb", 1, (0,), 8),
]


def of(key: str) -> Geometry:
    geometry = mig.geometry(key)
    assert geometry is not None
    return geometry


def fits(expected: tuple[Profile, ...], taken: frozenset[int] = frozenset()) -> bool:
    """Whether every profile finds a start without a slice in common, by trying all of them."""
    if not expected:
        return True
    first, *rest = expected
    places = (frozenset(range(start, start + first.size)) for start in first.starts)
    return any(fits(tuple(rest), taken | place) for place in places if not place & taken)


def layouts(geometry: Geometry) -> set[tuple[int, ...]]:
    """Every layout without media extensions that fits on a GPU, as counts in the order of its profiles."""
    plain = [profile for profile in geometry.profiles if profile.media == "share"]
    actual = set()
    for counts in itertools.product(*(range(profile.max_count + 1) for profile in plain)):
        expected = tuple(profile for profile, count in zip(plain, counts, strict=True) for dummy in range(count))
        if expected and sum(profile.size for profile in expected) <= geometry.slices and fits(expected[::-1]):
            actual.add(counts)
    return actual


@pytest.mark.parametrize(("key", "published"), PUBLISHED.items())
def test_profiles_are_the_published_ones(key: str, published: str) -> None:
    assert ", ".join(f"{profile.name} x{profile.max_count}" for profile in of(key).profiles) == published


def test_h200_is_as_measured() -> None:
    seen = [(item.id, item.name, item.max_count, item.starts, item.size) for item in of("H200").profiles]
    assert seen == MEASURED_H200


@pytest.mark.parametrize(
    "key", ["T4", "V100-SXM2-16GB", "A10", "A16", "A2", "A40", "L4", "L40S", "RTX-6000-Ada", "none", ""]
)
def test_no_geometry(key: str) -> None:
    assert mig.geometry(key) is None


def test_geometries_are_those_of_known_models() -> None:
    assert set(mig._GEOMETRIES) == set(MIG_KEYS)
    assert sum(len(named.models) for named in mig._NAMES) == len(MIG_KEYS)


@pytest.mark.parametrize(("key", "profile"), PROFILES, ids=lambda value: getattr(value, "name", value))
def test_profile(key: str, profile: Profile) -> None:
    parsed = re.fullmatch(r"([1-7])g\.([1-9]\d*)gb(?:\+(me|me\.all|gfx)|-(me))?", profile.name)
    assert parsed
    assert int(parsed[1]) == profile.compute
    assert profile.media == {"me": "one", "me.all": "all"}.get(parsed[3], "none" if parsed[4] else "share")
    assert profile.graphics == (parsed[3] == "gfx")
    assert list(profile.starts) == sorted(set(profile.starts))
    assert all(start >= 0 and start + profile.size <= of(key).slices for start in profile.starts)
    assert 1 <= profile.max_count <= len(profile.starts)
    assert fits((profile,) * profile.max_count)
    assert profile.media not in ("one", "all") or profile.max_count == 1
    assert re.fullmatch(r"nvidia\.com/mig-[1-7]g\.\d+gb([.-][a-z.]+)?", profile.resource)
    assert len(profile.resource) <= 63


@pytest.mark.parametrize(
    ("key", "name", "resource"),
    [
        ("A100-SXM4-40GB", "3g.20gb", "nvidia.com/mig-3g.20gb"),
        ("A100-SXM4-40GB", "1g.5gb+me", "nvidia.com/mig-1g.5gb.me"),
        ("RTX-PRO-6000-Server", "1g.24gb+me.all", "nvidia.com/mig-1g.24gb.me.all"),
        ("RTX-PRO-6000-Server", "1g.24gb-me", "nvidia.com/mig-1g.24gb-me"),
    ],
)
def test_resource(key: str, name: str, resource: str) -> None:
    profile = of(key).profile(name)
    assert profile is not None
    assert profile.resource == resource


@pytest.mark.parametrize("key", MIG_KEYS)
def test_geometry(key: str) -> None:
    geometry = of(key)
    names = Counter(profile.name for profile in geometry.profiles)
    ids = Counter(profile.id for profile in geometry.profiles if profile.id != mig.UNKNOWN_ID)
    assert set(names.values()) == {1}
    assert set(ids.values()) <= {1}
    assert len({profile.resource for profile in geometry.profiles}) == len(names)
    assert all(geometry.profile(profile.name) is profile for profile in geometry.profiles)
    assert any(profile.size == geometry.slices for profile in geometry.profiles)
    assert geometry.verified or geometry.note


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.key)
def test_names_follow_from_the_memory(model: models.Model) -> None:
    """The GB of a name are the memory slices' part of the GPU's memory; they are rounded; what is reserved differs."""
    geometry = of(model.key)
    for profile in geometry.profiles:
        named = int(profile.name.partition(".")[2].partition("gb")[0])
        part = model.memory_mib / 1024 * profile.size / geometry.slices
        assert named == pytest.approx(part, abs=max(1.0, part * 0.06))


@pytest.mark.parametrize("key", MIG_KEYS)
def test_balanced_fills_the_gpu(key: str) -> None:
    geometry = of(key)
    expected = [
        profile for name, count in geometry.balanced for dummy in range(count) if (profile := geometry.profile(name))
    ]
    assert len(expected) == sum(count for dummy, count in geometry.balanced)
    assert fits(tuple(sorted(expected, key=lambda profile: -profile.size)))
    assert bool(expected) == (geometry.kind != "D")
    assert not expected or sum(profile.compute for profile in expected) == max(
        item.compute for item in geometry.profiles
    )


@functools.lru_cache
def layouts_of_kind_a() -> frozenset[tuple[int, ...]]:
    return frozenset(layouts(of("A100-SXM4-40GB")))


def test_kind_a_has_77_layouts_and_28_maximal_ones() -> None:
    actual = layouts_of_kind_a()
    more = {
        counts
        for counts in actual
        if any((*counts[:at], counts[at] + 1, *counts[at + 1 :]) in actual for at in range(len(counts)))
    }
    assert (len(actual), len(actual - more)) == (77, 28)


@pytest.mark.parametrize(
    ("layout", "room"),
    [
        ("4g.20gb 3g.20gb", True),
        ("3g.20gb 2g.10gb 2g.10gb", True),
        ("2g.10gb 2g.10gb 2g.10gb 1g.5gb", True),
        ("2g.10gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb", True),
        ("3g.20gb 1g.10gb 1g.10gb", True),
        ("3g.20gb 2g.10gb 1g.5gb 1g.5gb", True),
        ("4g.20gb 4g.20gb", False),
        ("3g.20gb 3g.20gb 1g.5gb", False),
        ("4g.20gb 3g.20gb 1g.5gb", False),
        ("2g.10gb 2g.10gb 2g.10gb 1g.5gb 1g.5gb", False),
    ],
)
def test_layouts_that_are_well_known(layout: str, room: bool) -> None:
    counts = Counter(layout.split())
    plain = [profile.name for profile in of("A100-SXM4-40GB").profiles if profile.media == "share"]
    assert (tuple(counts[name] for name in plain) in layouts_of_kind_a()) is room


@given(st.data())
def test_what_fits_kind_a_still_fits_with_less(data: st.DataObject) -> None:
    counts = data.draw(st.sampled_from(sorted(layouts_of_kind_a())))
    fewer = tuple(data.draw(st.integers(0, count)) for count in counts)
    assert not any(fewer) or fewer in layouts_of_kind_a()
    # The compute slices need no separate rule: where the memory suffices, they suffice, too.
    plain = [profile for profile in of("A100-SXM4-40GB").profiles if profile.media == "share"]
    assert sum(profile.compute * count for profile, count in zip(plain, counts, strict=True)) <= 7


def test_media_beside_is_mutual() -> None:
    assert all(one in mig.MEDIA_BESIDE[other] for one, others in mig.MEDIA_BESIDE.items() for other in others)
    assert {profile.media for dummy, profile in PROFILES} == set(mig.MEDIA_BESIDE)
    assert "one" not in mig.MEDIA_BESIDE["one"]
    assert mig.MEDIA_BESIDE["all"] == {"none"}
