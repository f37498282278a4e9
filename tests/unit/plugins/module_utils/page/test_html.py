# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text never becomes markup, and names are shortened without becoming alike."""

from __future__ import annotations

import html as library

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.page.html import Html, html, join, tag
from ansible_collections.accel.gpu.plugins.module_utils.page.naming import LONG, domain, shown, stem
from tests.helpers.html import parse

# Lone surrogates too: JSON can hold them.
anything = st.text(st.characters(codec=None, categories=None), max_size=40)


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (tag("p", "a < b"), "<p>a &lt; b</p>"),
        (tag("p", Html("<b>"), "<b>"), "<p><b>&lt;b&gt;</p>"),
        (tag("p", class_="x y", hidden=True, title=None, open=False), '<p class="x y" hidden></p>'),
        (tag("th", "A", aria_label='it\'s "so"'), '<th aria-label="it&#39;s &quot;so&quot;">A</th>'),
        (tag("rect", x=1, rx=0.5), '<rect x="1" rx="0.5"/>'),
        (tag("br"), "<br>"),
        (join(["a", tag("b", 1)], " & "), "a &amp; <b>1</b>"),
        (html("{{ lookup('pipe', 'id') }}"), "&#123;&#123; lookup(&#39;pipe&#39;, &#39;id&#39;) &#125;&#125;"),
        (html("a\tb\nc"), "a b c"),
        (html("\u202egpj.exe\x00\ud800"), "\ufffdgpj.exe\ufffd\ufffd"),
    ],
)
def test_markup(made: Html, text: str) -> None:
    assert made == text


@given(anything)
def test_any_text_is_text_inside_and_in_attributes(text: str) -> None:
    root = parse(tag("p", text, title=text))
    (element,) = list(root.walk())[1:]
    assert element.name == "p"
    assert element.text == element.attributes["title"] == library.unescape(html(text))
    html(text).encode()


@given(st.text(max_size=40))
def test_what_is_fit_to_be_shown_is_shown_as_it_is(text: str) -> None:
    fit = "".join(char for char in text if char.isprintable())
    assert library.unescape(html(fit)) == fit


@given(anything)
def test_markup_stays_what_it_is(text: str) -> None:
    assert html(html(text)) == html(text)


@pytest.mark.parametrize(
    ("names", "begins", "ends"),
    [
        (["t4-1", "t4-2"], "", ""),
        (["prod-worker-gpu-h100-7xk2p", "prod-worker-gpu-h100-b9z4q"], "prod-worker-gpu-h100-", ""),
        (
            ["ip-10-0-1-7.eu-west-1.compute.internal", "ip-10-0-1-9.eu-west-1.compute.internal"],
            "",
            ".eu-west-1.compute.internal",
        ),
        (["10.0.0.5", "11.0.0.5"], "", ""),
        (["a.example", "b.other"], "", ""),
        (["only-one-with-a-long-name.example"], "", ""),
        (["alike-and-quite-long-1x", "alike-and-quite-long-1y"], "alike-and-quite-long-", ""),
        (["different-and-quite-long", "another-and-quite-long"], "", ""),
    ],
)
def test_what_names_have_in_common(names: list[str], begins: str, ends: str) -> None:
    assert domain(names) == ends
    assert stem([name.removesuffix(ends) for name in names]) == begins


@given(st.lists(st.text("ab1-.", min_size=1, max_size=30), unique=True, min_size=1, max_size=6))
def test_shortened_names_stay_different(names: list[str]) -> None:
    ends = domain(names)
    begins = stem([name.removesuffix(ends) for name in names])
    short = [shown(name, begins, ends) for name in names]
    assert len(set(short)) == len(names)
    assert all(len(one) <= max(LONG, len(name)) for one, name in zip(short, names, strict=True))
