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

from ansible_collections.accel.gpu.plugins.module_utils.pools import rules
from ansible_collections.accel.gpu.plugins.module_utils.sharing import device_plugin as plugin

EVERY = [
    plugin.config("none", 1, False, True),
    *(
        plugin.config("time-slicing", replicas, rename, fail)
        for replicas, rename, fail in itertools.product(range(2, 251), (False, True), (False, True))
    ),
]


def test_time_slicing_as_nvidia_writes_it() -> None:
    assert plugin.render(plugin.config("time-slicing", 4, True, False)) == (
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
    assert plugin.render(plugin.config("none", 1, False, True)) == "version: v1\n"


def test_unknown_mode_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="mps"):
        plugin.config("mps", 4, False, True)


def test_names_tell_every_content_apart() -> None:
    names = [plugin.entry_name(content) for content in EVERY]
    assert len(set(names)) == len(EVERY)
    assert all(rules.label_value(name) is None for name in names)


def test_name_says_what_it_is() -> None:
    assert plugin.entry_name(plugin.config("time-slicing", 4, False, True)).startswith("time-slicing-4-")
    assert plugin.entry_name(plugin.config("none", 1, False, True)).startswith("none-")


@pytest.mark.parametrize(
    ("mode", "rename", "resource", "suffix"),
    [
        ("none", False, "nvidia.com/gpu", ""),
        ("none", True, "nvidia.com/gpu", ""),
        ("time-slicing", False, "nvidia.com/gpu", "-SHARED"),
        ("time-slicing", True, "nvidia.com/gpu.shared", ""),
    ],
)
def test_what_nodes_offer(mode: str, rename: bool, resource: str, suffix: str) -> None:
    """As measured on an H200 with gpu-feature-discovery and the device plugin v0.19.0."""
    assert plugin.resource(mode, rename) == resource
    assert plugin.product_suffix(mode, rename) == suffix


words = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)
leaves = st.none() | st.booleans() | st.integers() | words
nested = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(words, nested, min_size=1))
def test_text_is_yaml_of_the_content(content: dict[str, t.Any]) -> None:
    assert yaml.safe_load(plugin.render(content)) == content
