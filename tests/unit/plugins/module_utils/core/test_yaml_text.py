# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Written YAML has the same content for every reader of YAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.yaml_text import render_yaml

texts = st.text(st.characters(exclude_categories=["Cs"]))
keys = texts | st.builds(lambda text: text * 300, st.text(st.characters(exclude_categories=["Cs"]), max_size=9))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))


@given(st.dictionaries(keys, values, min_size=1, max_size=3))
def test_the_content_is_read_back(content: dict[str, Any]) -> None:
    assert yaml.safe_load(render_yaml(content)) == content


@pytest.mark.parametrize("text", ["ML 🚀", "é", "\x7f", "\u2028", "\\ud83d\\ude80", "a\nb"])
def test_libyaml_reads_every_character(text: str) -> None:
    assert yaml.load(render_yaml({"name": text}), Loader=yaml.CSafeLoader) == {"name": text}


@pytest.mark.parametrize("number", [1e20, 1e-7, 1.5e300, -2e-9, 0.1, float("inf")])
def test_every_number_remains_a_number(number: float) -> None:
    assert yaml.safe_load(render_yaml({"a": number})) == {"a": number}


class _Unsafe(str):
    """A string with the tag !unsafe."""


class _Loader(yaml.SafeLoader):
    """Reads the tag !unsafe as Ansible does."""


_Loader.add_constructor("!unsafe", lambda loader, node: _Unsafe(loader.construct_scalar(node)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "{{ lookup('pipe', 'id') }}",
        "a {% if x %} b",
        "{# a comment",
        "#jinja2:variable_start_string:'[['\n[[ lookup('pipe', 'id') ]]",
        "{{- range .Values.nodes }}{{ . }}{{ end -}}",
        "line one\n{{ 1 }}",
        "{{ x }}" + "long" * 400,
    ],
)
def test_ansible_evaluates_no_key_and_no_value(text: str) -> None:
    content = {text: {"in a list": [text, [text]], text: {}}, "plain": [], "last": text}
    read = yaml.load(render_yaml(content, for_ansible=True), Loader=_Loader)
    assert read == content
    strings = [*read, *read[text], *read[text]["in a list"][:1], *read[text]["in a list"][1], read["last"]]
    assert all(isinstance(string, _Unsafe) for string in strings if string == text)
    assert "!unsafe" not in render_yaml(content)


@pytest.mark.parametrize("text", ["{", "a {b}", "%}", "${HOME}", "jinja2", "# a comment"])
def test_other_text_has_no_tag(text: str) -> None:
    assert yaml.safe_load(render_yaml({text: text}, for_ansible=True)) == {text: text}
