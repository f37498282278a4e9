# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders the HTML report as one file that loads no other files and works without its script."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import typing as t
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from ...module_utils.catalog.names import VERSION
from ...module_utils.core.messages import MAX_LISTED
from ...module_utils.report.facts import format_number, plural, short_model, short_resource, verification
from ...module_utils.report.view_model import MAX_IN_TILE, MAX_ROWS, Units, build_page
from .geometry import Place, coordinate

_FOLDER = Path(__file__).parent
_BRACES = str.maketrans({"{": "&#123;", "}": "&#125;"})
_SPACE = re.compile(r"[\t\n\r\f]")
# Control characters and lone surrogates are not valid in HTML. Characters that change the text direction could make one name
# look like another.
_CHARACTERS = "\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffe\uffff\ud800-\udfff"
_UNSAFE = re.compile(f"[{_CHARACTERS}]")
_SPECIAL = re.compile(f"[{{}}{_CHARACTERS}]")


def render(info: t.Mapping[str, t.Any]) -> str:
    """Return the page for the result of gpu_info. The same input always results in the same page."""
    page, style, script = template("page.html.j2"), _read("style.css"), _read("search.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return page.render(page=build_page(info), style=style, script=script, policy=policy, version=VERSION).lstrip()


def sanitize(value: object) -> str:
    """Replace control characters and braces, which autoescape does not replace.

    If the page is used as a template, no text becomes a Jinja expression.
    """
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not _SPECIAL.search(text):
        return text
    return Markup(str(escape(_UNSAFE.sub("\ufffd", _SPACE.sub(" ", text)))).translate(_BRACES))


@functools.cache
def template(name: str) -> Template:
    """Return a template from this folder, with escaping and the filters of the page."""
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        finalize=sanitize,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "coordinate": coordinate,
        "number": format_number,
        "plural": plural,
        "short_model": short_model,
        "short_resource": short_resource,
        "verification": verification,
    }
    environment.globals |= {"Place": Place, "Units": Units}
    environment.globals |= {"MAX_LISTED": MAX_LISTED, "MAX_IN_TILE": MAX_IN_TILE, "MAX_ROWS": MAX_ROWS}
    return environment.get_template(name)


@functools.cache
def _read(name: str) -> Markup:
    return Markup((_FOLDER / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
