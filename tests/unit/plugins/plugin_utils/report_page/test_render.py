# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text never becomes markup."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from markupsafe import Markup

from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import sanitize
from tests.helpers.html import parse

ELEMENT = Environment(autoescape=True, finalize=sanitize).from_string('<p title="{{ text }}">{{ text }}</p>')
# Including lone surrogates, because JSON can contain them.
anything = st.text(st.characters(codec=None, categories=None), max_size=40)


def shown(value: object) -> str:
    return ELEMENT.render(text=value).removeprefix('<p title="').partition('">')[0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a < b & c", "a &lt; b &amp; c"),
        ('it\'s "so"', "it&#39;s &#34;so&#34;"),
        (Markup("a<br>b"), "a<br>b"),
        (1, "1"),
        (None, "None"),
        ("{{ lookup('pipe', 'id') }}", "&#123;&#123; lookup(&#39;pipe&#39;, &#39;id&#39;) &#125;&#125;"),
        ("<{>", "&lt;&#123;&gt;"),
        ("a\tb\nc", "a b c"),
        ("\u202egpj.exe\x00\ud800", "\ufffdgpj.exe\ufffd\ufffd"),
    ],
)
def test_values(value: object, text: str) -> None:
    assert shown(value) == text


@given(anything)
def test_any_text_is_text_in_elements_and_in_attributes(text: str) -> None:
    page = ELEMENT.render(text=text)
    page.encode()
    (element,) = parse(page).find("p")
    assert element.text == element.attributes["title"] == html.unescape(shown(text))


@given(st.text(max_size=40))
def test_printable_text_is_unchanged(text: str) -> None:
    printable = "".join(char for char in text if char.isprintable())
    assert html.unescape(shown(printable)) == printable
