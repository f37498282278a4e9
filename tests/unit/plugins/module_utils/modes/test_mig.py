# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG layouts: how they are written, and whether a GPU has room for them."""

from __future__ import annotations

import itertools
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.catalog.mig import MEDIA_BESIDE, Geometry, geometry
from ansible_collections.accel.gpu.plugins.module_utils.catalog.models import MODELS
from ansible_collections.accel.gpu.plugins.module_utils.modes import mig, mig_parted
from ansible_collections.accel.gpu.plugins.module_utils.modes.mig import Part
from ansible_collections.accel.gpu.plugins.module_utils.pools import rules
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import MigPlan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.mig_entries import mig_entries


def _of(model: str) -> Geometry:
    found = geometry(model)
    assert found
    return found


A100, A30 = _of("A100-SXM4-40GB"), _of("A30")
CAPABLE = [(model.key, _of(model.key)) for model in MODELS if model.mig_capable]


@pytest.mark.parametrize(
    ("written", "layout"),
    [
        ({"1g.5gb": 7}, (Part((), {"1g.5gb": 7}),)),
        (["1g.5gb", "3g.20gb", "1g.5gb"], (Part((), {"1g.5gb": 2, "3g.20gb": 1}),)),
        ({0: {"7g.40gb": 1}, 1: ["7g.40gb"], 2: {}}, (Part((0, 1), {"7g.40gb": 1}), Part((2,), {}))),
        ({"0": {"7g.40gb": 1}}, (Part((0,), {"7g.40gb": 1}),)),
        ([{"7g.40gb": 1}, None, ["7g.40gb"]], (Part((0, 2), {"7g.40gb": 1}), Part((1,), {}))),
    ],
)
def test_forms_of_a_layout(written: t.Any, layout: mig.Layout) -> None:
    assert mig.read(written) == layout


def test_each_gpu_has_its_part() -> None:
    layout = mig.read({0: ["7g.40gb"], 1: {}})
    assert [dict(mig.on_gpu(layout, index)) for index in range(3)] == [{"7g.40gb": 1}, {}, {}]
    assert mig.uniform(layout) is None
    assert mig.uniform(mig.read(["1g.5gb"] * 7)) == "1g.5gb"
    assert mig.uniform(mig.read(["1g.5gb", "2g.10gb"])) is None


MAX_Q = "NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition"
SERVER = "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"


# A label has at most 63 characters.
@pytest.mark.parametrize(
    ("layout", "product", "suffix", "strategy"),
    [
        (["1g.5gb"] * 7, "", "", "single"),
        (["1g.5gb"] * 7, "NVIDIA-A100-SXM4-40GB", "-SHARED", "single"),
        (["1g.5gb", "2g.10gb"], "NVIDIA-A100-SXM4-40GB", "", "mixed"),
        (["1g.24gb"] * 4, MAX_Q, "", "mixed"),
        (["1g.24gb"] * 4, SERVER, "-SHARED", "single"),
        (["1g.24gb+gfx"] * 4, SERVER, "-SHARED", "mixed"),
    ],
)
def test_the_strategy_that_a_layout_needs(layout: list[str], product: str, suffix: str, strategy: str) -> None:
    assert mig.strategy_for(mig.read(layout), product, suffix) == strategy


# NVIDIA's MIG user guide, and the pairs that its placements exclude although the slices would add up.
@pytest.mark.parametrize(
    ("of", "counts", "fits"),
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
def test_fits(of: Geometry, counts: dict[str, int], fits: bool) -> None:
    assert mig.fits(of, counts) is fits
    assert (mig.misfit(of, counts) is None) is fits


def _every_placement(of: Geometry) -> set[tuple[tuple[str, int], ...]]:
    """All multisets that can be placed, found by placing: independent of how the code looks for one."""
    found: set[tuple[tuple[str, int], ...]] = set()
    seen: set[tuple[tuple[str, int], ...]] = set()
    queue: list[tuple[tuple[str, int], ...]] = [()]
    while queue:
        placed = queue.pop()
        counts = {name: sum(1 for other, dummy in placed if other == name) for name, dummy in placed}
        found.add(tuple(sorted(counts.items())))
        taken = {unit for name, start in placed for unit in range(start, start + of.profile(name).size)}  # type: ignore[union-attr]
        for profile, start in [(one, start) for one in of.profiles for start in one.starts]:
            free = not taken & set(range(start, start + profile.size))
            beside = all(profile.media in MEDIA_BESIDE[of.profile(name).media] for name, dummy in placed)  # type: ignore[union-attr]
            more = tuple(sorted([*placed, (profile.name, start)]))
            if free and beside and counts.get(profile.name, 0) < profile.most and more not in seen:
                seen.add(more)
                queue.append(more)
    return found


@pytest.mark.parametrize("of", [A100, A30], ids=["A100", "A30"])
def test_fits_exactly_what_can_be_placed(of: Geometry) -> None:
    placeable = _every_placement(of)
    ranges = [range(profile.most + 1) for profile in of.profiles]
    for numbers in itertools.product(*ranges):
        counts = {profile.name: count for profile, count in zip(of.profiles, numbers, strict=True) if count}
        assert mig.fits(of, counts) is (tuple(sorted(counts.items())) in placeable), counts


def test_a_misfit_names_the_largest_part_that_fits() -> None:
    assert mig.misfit(A100, {"3g.20gb": 2, "1g.5gb": 1}) == (
        "has no room for 1 x 1g.5gb + 2 x 3g.20gb together; 2 x 3g.20gb would fit"
    )
    assert str(mig.misfit(A100, {"3g.40gb": 1})).startswith("has no profile 3g.40gb; it has 1g.5gb, ")
    assert mig.misfit(A100, {"1g.5gb": 8}) == "has room for 7 x 1g.5gb, not for 8"


@st.composite
def layouts(draw: st.DrawFn) -> mig.Layout:
    of = draw(st.sampled_from(CAPABLE))[1]
    names = st.sampled_from([profile.name for profile in of.profiles])
    of_gpu = st.dictionaries(names, st.integers(1, 7), max_size=3)
    return mig.read(draw(of_gpu.filter(bool) | st.dictionaries(st.integers(0, 7), of_gpu, min_size=1, max_size=4)))


@given(layouts())
def test_an_entry_has_a_name_for_a_label_and_reads_back(layout: mig.Layout) -> None:
    content = mig_parted.entry(layout)
    name = mig_parted.entry_name(content)
    assert rules.label_value(name) is None
    assert mig_parted.is_ours(name)
    text = mig_parted.document({name: content})
    assert yaml.safe_load(text) == {"version": "v1", "mig-configs": {name: content}}
    assert mig_parted.read({"data": {mig_parted.KEY: text}}) == {name: content}


@given(layouts(), layouts())
def test_names_tell_contents_apart(one: mig.Layout, other: mig.Layout) -> None:
    first, second = mig_parted.entry(one), mig_parted.entry(other)
    assert (mig_parted.entry_name(first) == mig_parted.entry_name(second)) is (first == second)


def test_gpus_that_a_layout_by_index_does_not_name_stay_whole() -> None:
    assert mig_parted.entry(mig.read({1: ["7g.40gb"], 2: None}), 4) == [
        {"devices": [1], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}},
        {"devices": [2], "mig-enabled": False},
        {"devices": [0, 3], "mig-enabled": False},
    ]


@given(layouts(), st.integers(1, 8))
def test_each_gpu_is_named_once(layout: mig.Layout, gpus: int) -> None:
    named = [part["devices"] for part in mig_parted.entry(layout, gpus)]
    if "all" in named:
        assert named == ["all"]
    else:
        indices = [index for devices in named for index in devices]
        assert len(indices) == len(set(indices))
        assert set(range(gpus)) <= set(indices)


def test_one_profile_name_with_two_counts_is_told_apart_by_pci_id() -> None:
    usual = mig_parted.usual([(("20b0",), A100), (("20b2",), _of("A100-SXM4-80GB"))])
    assert usual["all-1g.10gb"] == [
        {"device-filter": ["0x20B010DE"], "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 4}},
        {"device-filter": ["0x20B210DE"], "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
    ]
    assert usual["all-1g.5gb"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    assert usual["all-disabled"] == [{"devices": "all", "mig-enabled": False}]


OURS = mig_parted.entry(mig.read({"1g.5gb": 7}))
NAME = mig_parted.entry_name(OURS)
PLAN = MigPlan("accel-gpu-mig-parted", "gpu-operator", {NAME: OURS}, mig_parted.usual([]))
NONE = MigPlan("accel-gpu-mig-parted", "gpu-operator", {}, {})


def _configmap(**entries: t.Any) -> dict[str, t.Any]:
    return {"data": {mig_parted.KEY: mig_parted.document({name.replace("_", "-"): of for name, of in entries.items()})}}


def test_entries_are_added_and_others_stay() -> None:
    theirs = [{"devices": [0], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}}]
    changes = mig_entries(PLAN, [NAME], _configmap(theirs=theirs, all_disabled=theirs))
    assert changes.added == tuple(sorted(["all-enabled", NAME]))
    assert changes.after["theirs"] == changes.after["all-disabled"] == theirs
    again = mig_entries(PLAN, [NAME], {"data": {mig_parted.KEY: mig_parted.document(changes.after)}})
    assert not again.changed


def test_an_entry_goes_when_no_node_names_it_any_more() -> None:
    live = {"data": {mig_parted.KEY: mig_parted.document({NAME: OURS, "theirs": OURS})}}
    assert mig_entries(NONE, [NAME], live).collected == ()
    assert mig_entries(NONE, [], live).collected == (NAME,)
    assert mig_entries(NONE, [], live).after == {"theirs": OURS}


def test_without_mig_there_is_nothing_to_do() -> None:
    assert not mig_entries(NONE, ["all-disabled"], None).changed


@pytest.mark.parametrize("data", [None, {}, {"config.yaml": ": ["}, {"config.yaml": "5"}, {"config.yaml": "a: b"}])
def test_a_file_that_cannot_be_read_has_no_entries(data: t.Any) -> None:
    assert mig_parted.read({"data": data}) == {}
