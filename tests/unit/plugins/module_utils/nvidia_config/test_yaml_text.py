# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Written YAML has the same content for every reader of YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.nvidia_config.yaml_text import render

texts = st.text(st.characters(exclude_categories=["Cs"]))
# The key of a line is at most 1024 characters long (YAML 1.1, 7.4.2), also with escapes.
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=90)
scalars = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@given(st.dictionaries(keys, values, min_size=1, max_size=3))
def test_the_content_is_read_back(content: dict[str, Any]) -> None:
    assert yaml.safe_load(render(content)) == content


@pytest.mark.parametrize("text", ["ML 🚀", "é", "\x7f", "\u2028", "\\ud83d\\ude80", "a\nb"])
def test_libyaml_reads_every_character(text: str) -> None:
    assert yaml.load(render({"name": text}), Loader=yaml.CSafeLoader) == {"name": text}
