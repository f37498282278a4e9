# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations of the device plugin: content, text and names."""

from __future__ import annotations

import itertools
import typing as t

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core import yaml_text
from ansible_collections.accel.gpu.plugins.module_utils.schema import validators
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes import mig, modes
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing

EVERY = [
    Sharing(),
    *(
        Sharing("time-slicing", replicas, rename=rename, fail_requests_greater_than_one=fail)
        for replicas, rename, fail in itertools.product(range(2, 251), (False, True), (False, True))
    ),
    *(Sharing("mps", replicas, rename=rename) for replicas, rename in itertools.product(range(2, 49), (False, True))),
    *(
        Sharing("mig", replicas, mig.parse_layout(layout), strategy, rename=rename)
        for layout, strategy in (
            ({"1g.5gb": 7}, "single"),
            ({"1g.5gb": 7}, "mixed"),
            ({"1g.5gb+me": 1, "2g.10gb": 3}, "mixed"),
        )
        for replicas, rename in ((1, False), (2, False), (2, True))
    ),
]


def test_time_slicing_as_nvidia_writes_it() -> None:
    assert yaml_text.render_yaml(
        modes.device_plugin_config(Sharing("time-slicing", 4, rename=True, fail_requests_greater_than_one=False))
    ) == (
        "version: v1\n"
        "sharing:\n"
        "  timeSlicing:\n"
        "    renameByDefault: true\n"
        "    failRequestsGreaterThanOne: false\n"
        "    resources:\n"
        "      - name: nvidia.com/gpu\n"
        "        replicas: 4\n"
    )


def test_exclusive_shares_nothing() -> None:
    assert yaml_text.render_yaml(modes.device_plugin_config(Sharing())) == "version: v1\n"


def test_mig_as_nvidia_writes_it() -> None:
    sharing = Sharing("mig", 2, mig.parse_layout({"3g.20gb": 1, "1g.5gb+me": 1}), "mixed", rename=True)
    assert yaml.safe_load(yaml_text.render_yaml(modes.device_plugin_config(sharing))) == {
        "version": "v1",
        "flags": {"migStrategy": "mixed"},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": True,
                "resources": [
                    {"name": "nvidia.com/mig-1g.5gb.me", "replicas": 2},
                    {"name": "nvidia.com/mig-3g.20gb", "replicas": 2},
                ],
            }
        },
    }


def test_mps_as_nvidia_writes_it() -> None:
    content = modes.device_plugin_config(Sharing("mps", 4))
    assert content["sharing"]["mps"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]


def test_names_tell_every_content_apart() -> None:
    contents = {modes.plugin_entry_name(sharing): modes.device_plugin_config(sharing) for sharing in EVERY}
    names = list(contents)
    assert len(names) == len({str(modes.device_plugin_config(sharing)) for sharing in EVERY})
    assert all(contents[modes.plugin_entry_name(sharing)] == modes.device_plugin_config(sharing) for sharing in EVERY)
    assert all(validators.label_value(name) is None for name in names)
    assert all(map(modes.mode_of, names))


@pytest.mark.parametrize(
    "name", ["", "any", "none", "mig-1", "time-slicing-4", "a100-40gb-0a1b2c3d", "mps-4-0a1b2c3d9"]
)
def test_other_names_are_not_the_collections(name: str) -> None:
    assert modes.mode_of(name) is None


def test_name_says_what_it_is() -> None:
    assert modes.plugin_entry_name(Sharing("time-slicing", 4)).startswith("time-slicing-4-")
    assert modes.plugin_entry_name(Sharing()).startswith("none-")


CUT = {"1g.5gb": 2, "3g.20gb": 1}


@pytest.mark.parametrize(
    ("sharing", "gpus", "offers"),
    [
        (Sharing(), 8, {"nvidia.com/gpu": 8}),
        (Sharing("none", 1, rename=True), 1, {"nvidia.com/gpu": 1}),
        (Sharing("time-slicing", 4), 2, {"nvidia.com/gpu": 8}),
        (Sharing("time-slicing", 4, rename=True), 2, {"nvidia.com/gpu.shared": 8}),
        (Sharing("mps", 4), 2, {"nvidia.com/gpu": 8}),
        (Sharing("mps", 4, rename=True), 2, {"nvidia.com/gpu.shared": 8}),
        (Sharing("mig", layout=mig.parse_layout({"1g.5gb": 7}), strategy="single"), 2, {"nvidia.com/gpu": 14}),
        (Sharing("mig", layout=mig.parse_layout({"1g.5gb": 7}), strategy="mixed"), 2, {"nvidia.com/mig-1g.5gb": 14}),
        (Sharing("mig", 3, layout=mig.parse_layout({"1g.5gb": 7}), strategy="single"), 1, {"nvidia.com/gpu": 21}),
        (
            Sharing("mig", layout=mig.parse_layout(CUT), strategy="mixed"),
            2,
            {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 2},
        ),
        (
            Sharing("mig", 2, rename=True, layout=mig.parse_layout({0: CUT, 2: {}}), strategy="mixed"),
            3,
            {"nvidia.com/mig-1g.5gb.shared": 4, "nvidia.com/mig-3g.20gb.shared": 2, "nvidia.com/gpu": 2},
        ),
        (
            Sharing("mig", layout=mig.parse_layout({"1g.5gb+me": 1}), strategy="mixed"),
            1,
            {"nvidia.com/mig-1g.5gb.me": 1},
        ),
        (
            Sharing(
                "mig", layout=mig.parse_layout({"1g.5gb+me": 1, "1g.5gb": 6}), strategy="mixed", extras_named=False
            ),
            2,
            {"nvidia.com/mig-1g.5gb": 14},
        ),
    ],
)
def test_what_nodes_offer(sharing: Sharing, gpus: int, offers: dict[str, int]) -> None:
    """Whole GPUs as measured on an H200 with gpu-feature-discovery and the device plugin v0.19.0."""
    assert sharing.offers(gpus) == offers
    assert set(sharing.resources) == set(offers)


words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | words
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(words, nested, min_size=1))
def test_text_is_yaml_of_the_content(content: dict[str, t.Any]) -> None:
    assert yaml.safe_load(yaml_text.render_yaml(content)) == content


def test_up_to_v0_19_devices_with_extras_are_shared_by_the_plain_name_and_labeled_by_their_own() -> None:
    sharing = Sharing("mig", 2, layout=mig.parse_layout({"1g.5gb+me": 1}), strategy="mixed", extras_named=False)
    assert sharing.resources == ("nvidia.com/mig-1g.5gb",)
    names = [entry["name"] for entry in modes.device_plugin_config(sharing)["sharing"]["timeSlicing"]["resources"]]
    assert names == ["nvidia.com/mig-1g.5gb", "nvidia.com/mig-1g.5gb.me"]
