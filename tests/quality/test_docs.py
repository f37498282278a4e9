# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation names what there is: each key of the pools' schema with its default, what was measured, what is derived."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.catalog import benchmarks as cost
from ansible_collections.accel.gpu.plugins.module_utils.catalog import mig
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.pool import CLUSTER, POOL
from ansible_collections.accel.gpu.plugins.module_utils.schema.types import Field, ListOf, Section
from tests.pages import mig_layouts
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


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    body = (DOCS / page).read_text(encoding="utf-8").partition(f"\n| {head}")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body.splitlines()[2:]]


def test_the_measured_tables_are_the_catalogs() -> None:
    busy = [[row.mode, row.load, f"{row.pods}", f"{row.share:.3f}", f"{row.share * row.pods:.3f}"] for row in cost.BUSY]
    shown = table("modes.md", "mode | load")
    assert [row[:5] for row in shown] == busy
    assert [row[5] for row in shown] == [f"{row.fairness:.3f}" for row in cost.BUSY]
    waiting = [[row.mode, f"{row.busy}", f"{row.median_ms:.2f}", f"{row.p99_ms:.2f}"] for row in cost.WAITING]
    assert table("modes.md", "mode | busy") == waiting
    losses = [[row.step, list(row.per_cent)] for row in (*cost.WEBINAR_TIME_SLICING, cost.WEBINAR_MIG)]
    assert [[step, [*map(float, text.split(", "))]] for step, text in table("modes.md", "step")] == losses
    geometry = mig.geometry("H200")
    assert geometry is not None
    profiles = [p for p in sorted(geometry.profiles, key=lambda p: (p.compute, p.size)) if p.media == "share"]
    devices = [[p.name, f"{cost.SMS['H200'][1][p.id]}", f"{cost.H200_MIB[p.id]}"] for p in profiles]
    assert table("modes.md", "profile | SMs") == devices


def test_the_names_of_each_mode_are_those_that_are_derived() -> None:
    for sharing, *told in table("modes.md", "`sharing` | resource"):
        document = {"name": "p", "match": {"model": "A100-SXM4-40GB"}, "sharing": yaml.safe_load(sharing.strip("`"))}
        [pool] = derive({"name": "c"}, {}, [document]).pools
        derived = [*map(ticked, (pool.resources, pool.quota_keys)), f"{pool.shares_per_gpu}", f"`{pool.accelerator}`"]
        assert told == derived


def ticked(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def test_the_page_of_mig_layouts_is_what_the_catalog_makes_it() -> None:
    assert mig_layouts.PAGE.read_text(encoding="utf-8") == mig_layouts.page(), "make docs writes it anew"
