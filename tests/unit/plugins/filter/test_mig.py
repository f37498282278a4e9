# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters about MIG give plain data, and refuse what is no layout or no model with MIG."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.accel.gpu.plugins.filter.mig_fit import FilterModule as MigFit
from ansible_collections.accel.gpu.plugins.filter.mig_fit import mig_fit
from ansible_collections.accel.gpu.plugins.filter.mig_layouts import FilterModule as MigLayouts
from ansible_collections.accel.gpu.plugins.filter.mig_layouts import mig_layouts
from tests.helpers.mig import GEOMETRIES

A100 = "A100-SXM4-80GB"


def test_names() -> None:
    assert MigFit().filters() == {"mig_fit": mig_fit}
    assert MigLayouts().filters() == {"mig_layouts": mig_layouts}


@pytest.mark.parametrize("profiles", [["3g.40gb", "2g.20gb"], {"2g.20gb": 1, "3g.40gb": 1}, ("2g.20gb", "3g.40gb")])
def test_what_fits(profiles: t.Any) -> None:
    assert mig_fit(profiles, A100) == {
        "fits": True,
        "placements": [{"profile": "3g.40gb", "start": 0, "size": 4}, {"profile": "2g.20gb", "start": 4, "size": 2}],
        "unused": {"compute": 2, "memory": 2, "media": True},
        "alternatives": [],
        "reason": "",
    }


def test_what_does_not_fit() -> None:
    actual = mig_fit({"3g.40gb": 2, "1g.10gb": 1}, "NVIDIA-A100-SXM4-80GB")
    alternatives = [["3g.40gb", "3g.40gb"], ["1g.10gb", "2g.20gb", "3g.40gb"], ["1g.10gb", "1g.20gb", "3g.40gb"]]
    assert actual == {
        "fits": False,
        "placements": [],
        "unused": None,
        "alternatives": alternatives,
        "reason": "has no room for 1 x 1g.10gb + 2 x 3g.40gb together: 3g.40gb on 0-3 and 3g.40gb on 4-7 (memory slices) leave "
        "no place for 1g.10gb, which needs one of 0 to 6; the nearest layouts that fit: 2 x 3g.40gb; 1 x 1g.10gb + 1 x 2g.20gb "
        "+ 1 x 3g.40gb; 1 x 1g.10gb + 1 x 1g.20gb + 1 x 3g.40gb",
    }


def test_profiles_of_another_model_stand_for_those_most_like_them() -> None:
    actual = mig_fit(["3g.20gb", "3g.20gb"], A100)
    assert actual["reason"].startswith("has no profile 3g.20gb; it has 1g.10gb, ")
    assert actual["alternatives"][0] == ["3g.40gb", "3g.40gb"]


def test_nothing_fits_everywhere() -> None:
    assert mig_fit([], A100)["fits"]
    assert mig_fit({"3g.40gb": 0}, A100)["unused"] == {"compute": 7, "memory": 8, "media": True}


@pytest.mark.parametrize("model", sorted(GEOMETRIES))
def test_every_layout_of_a_model_fits(model: str) -> None:
    actual = mig_layouts(model)
    assert all(layout == sorted(layout) and mig_fit(layout, model)["fits"] for layout in actual)
    assert len({tuple(layout) for layout in actual}) == len(actual)
    assert json.loads(json.dumps(actual)) == actual


def test_layouts_begin_with_the_largest_devices() -> None:
    actual = mig_layouts("a100-sxm4-80gb")
    assert actual[:3] == [["7g.80gb"], ["3g.40gb", "4g.40gb"], ["1g.20gb", "2g.20gb", "4g.40gb"]]
    assert actual[-1] == ["1g.10gb"] * 6 + ["1g.10gb+me"]


def test_what_ansible_has_read_leaves_no_tagged_value() -> None:
    written = DataLoader().load("{3g.40gb: 2, 1g.10gb: 1}", "/group_vars/all.yml")
    actual = mig_fit(written, A100)
    texts = [*(text for layout in actual["alternatives"] for text in layout), actual["reason"]]
    assert {text.__class__ for text in texts} == {str}


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("A100", "did you mean A100-SXM4-40GB, A100-SXM4-80GB, "),
        ("H2OO", "did you mean H20, H200?"),
        ("Tesla-T4", "T4 does not support MIG; models with MIG: A30, A100-SXM4-40GB"),
        (None, "None is not a GPU model in the catalog; models with MIG: A30,"),
        ("a toaster", "'a toaster' is not a GPU model in the catalog; models with MIG"),
    ],
)
def test_models_without_a_geometry(model: t.Any, text: str) -> None:
    for refused in (lambda: mig_fit(["1g.10gb"], model), lambda: mig_layouts(model)):
        with pytest.raises(AnsibleFilterError, match=r"accel\.gpu\.mig_") as raised:
            refused()
        assert text in str(raised.value)


@pytest.mark.parametrize(
    ("profiles", "text"),
    [
        (3, "profiles: 3 is a number, not a list"),
        ("half", '"half" is not a MIG profile'),
        (None, "profiles: is nothing, not a list"),
        (["3g"], 'profiles[0]: "3g" is not a MIG profile'),
        ([{"3g.40gb": 1}], "profiles[0]: is a map, not a string"),
        ({"3g.40gb": "two"}, "profiles['3g.40gb']: \"two\" is a string, not a whole number"),
        ({"3g.40gb": 10**6000}, "a number of more than 60 digits is not allowed"),
        ({"3g.40gb": True}, "true is a boolean, not a whole number"),
        ({"3g.40gb": -1}, "-1 is not allowed: use 0 or more"),
    ],
)
def test_what_is_no_layout(profiles: t.Any, text: str) -> None:
    with pytest.raises(AnsibleFilterError) as raised:
        mig_fit(profiles, A100)
    assert text in str(raised.value)
