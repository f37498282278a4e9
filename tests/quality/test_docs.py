# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation names what there is: every key of the pools' schema, with its default where that is a single value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.fields import CLUSTER, POOL
from ansible_collections.accel.gpu.plugins.module_utils.pools.schema import Field, ListOf, Section
from tests.programs import REPO

DOCS = REPO / "docs"
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def keys(field: Field, path: str = "") -> Iterator[tuple[str, Any]]:
    """The path of every key, as the tables write it, and its default."""
    if isinstance(field, ListOf):
        yield from keys(field.item, f"{path}[]")
    if isinstance(field, Section):
        for name, inner in field.fields.items():
            below = f"{path}.{name}" if path else name
            yield below, inner.default
            yield from keys(inner, below)


def rows(heading: str) -> dict[str, str]:
    """The rows of a heading's table by the keys that stand in their first cells."""
    section = (DOCS / "pools.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    tables = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {key: "|".join(cells[1:]) for cells in tables for key in re.findall(r"`([^`]+)`", cells[0])}


@pytest.mark.parametrize(("heading", "document"), [("gpu_cluster", CLUSTER), ("gpu_pools", POOL)])
def test_every_key_of_a_document_is_in_its_table(heading: str, document: Section) -> None:
    told, there = rows(heading), dict(keys(document))
    assert set(told) == set(there)
    # A default of another type is told in words.
    wrong = {key: default for key, default in there.items() if isinstance(default, str) and default not in told[key]}
    assert not wrong


def anchors(text: str) -> set[str]:
    """The fragments under which headings can be reached."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [REPO / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Any) -> None:
    for target, fragment in LINK.findall(page.read_text(encoding="utf-8")):
        found = (page.parent / target) if target else page
        assert found.exists(), target
        assert not fragment or fragment in anchors(found.read_text(encoding="utf-8")), f"{target}#{fragment}"
