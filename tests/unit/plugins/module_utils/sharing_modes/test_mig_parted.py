# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entries of mig-parted's file: one for each layout, and whose they are."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import MigPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema import validators
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import mig_entries
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig, mig_parted
from tests.helpers.mig import GEOMETRIES, geometry_of


@st.composite
def layouts(draw: st.DrawFn) -> mig.Layout:
    geometry = draw(st.sampled_from(list(GEOMETRIES.values())))
    names = st.sampled_from([profile.name for profile in geometry.profiles])
    of_gpu = st.dictionaries(names, st.integers(1, 7), max_size=3)
    return mig.parse_layout(
        draw(of_gpu.filter(bool) | st.dictionaries(st.integers(0, 7), of_gpu, min_size=1, max_size=4))
    )


@given(layouts())
def test_an_entry_has_a_name_for_a_label_and_reads_back(layout: mig.Layout) -> None:
    content = mig_parted.entry(layout)
    name = mig_parted.entry_name(content)
    assert validators.label_value(name) is None
    assert mig_parted.is_managed(name)
    text = mig_parted.render_configuration({name: content})
    assert yaml.safe_load(text) == {"version": "v1", "mig-configs": {name: content}}
    assert mig_parted.parse_configmap({"data": {mig_parted.KEY: text}}) == {name: content}


@given(layouts(), layouts())
def test_names_tell_contents_apart(one: mig.Layout, other: mig.Layout) -> None:
    first, second = mig_parted.entry(one), mig_parted.entry(other)
    assert (mig_parted.entry_name(first) == mig_parted.entry_name(second)) is (first == second)


def test_gpus_that_a_layout_by_index_does_not_name_stay_whole() -> None:
    assert mig_parted.entry(mig.parse_layout({1: ["7g.40gb"], 2: None}), 4) == [
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


def test_the_pci_id_distinguishes_two_counts_of_one_profile_name() -> None:
    usual = mig_parted.default_entries(
        [(("20b0",), geometry_of("A100-SXM4-40GB")), (("20b2",), geometry_of("A100-SXM4-80GB"))]
    )
    assert usual["all-1g.10gb"] == [
        {"device-filter": ["0x20B010DE"], "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 4}},
        {"device-filter": ["0x20B210DE"], "devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
    ]
    assert usual["all-1g.5gb"] == [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}]
    assert usual["all-disabled"] == [{"devices": "all", "mig-enabled": False}]


MANAGED = mig_parted.entry(mig.parse_layout({"1g.5gb": 7}))
NAME = mig_parted.entry_name(MANAGED)
PLAN = MigPlan("accel-gpu-mig-parted", "gpu-operator", {NAME: MANAGED}, mig_parted.default_entries([]))
NONE = MigPlan("accel-gpu-mig-parted", "gpu-operator", {}, {})


def _configmap(**entries: t.Any) -> dict[str, t.Any]:
    return {
        "data": {
            mig_parted.KEY: mig_parted.render_configuration(
                {name.replace("_", "-"): entry for name, entry in entries.items()}
            )
        }
    }


def test_entries_are_added_and_others_stay() -> None:
    theirs = [{"devices": [0], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}}]
    changes = mig_entries(PLAN, [NAME], _configmap(theirs=theirs, all_disabled=theirs))
    assert changes.added == tuple(sorted(["all-enabled", NAME]))
    assert changes.after["theirs"] == changes.after["all-disabled"] == theirs
    again = mig_entries(PLAN, [NAME], {"data": {mig_parted.KEY: mig_parted.render_configuration(changes.after)}})
    assert not again.changed


def test_an_entry_goes_when_no_node_names_it_any_more() -> None:
    live = {"data": {mig_parted.KEY: mig_parted.render_configuration({NAME: MANAGED, "theirs": MANAGED})}}
    assert mig_entries(NONE, [NAME], live).removed == ()
    assert mig_entries(NONE, [], live).removed == (NAME,)
    assert mig_entries(NONE, [], live).after == {"theirs": MANAGED}


def test_without_mig_there_is_nothing_to_do() -> None:
    assert not mig_entries(NONE, ["all-disabled"], None).changed


@pytest.mark.parametrize("data", [None, {}, {"config.yaml": ": ["}, {"config.yaml": "5"}, {"config.yaml": "a: b"}])
def test_a_file_that_cannot_be_read_has_no_entries(data: t.Any) -> None:
    assert mig_parted.parse_configmap({"data": data}) == {}
