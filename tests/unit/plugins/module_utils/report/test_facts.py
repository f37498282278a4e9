# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One entry in a table of facts is enough to show a fact on the terminal and on the page."""

from __future__ import annotations

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import Column
from ansible_collections.accel.gpu.plugins.module_utils.report import facts
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines
from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import render
from tests.helpers.infos import fleet


def test_a_fact_of_a_pool_is_shown_on_the_terminal_and_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column and the text below the table, and the text on the card."""
    fact = facts.PoolFact(
        column=Column("CORDONED", lambda pool: f"{pool['nodes']}c"),
        detail=lambda pool: "three cordoned",
        page=lambda pool: "3 cordoned nodes",
        observed=True,
    )
    info = fleet(20)
    monkeypatch.setattr(facts, "POOL_FACTS", (*facts.POOL_FACTS, fact))
    text = "\n".join(lines(info, width=200))
    assert "CORDONED" in text
    assert "three cordoned" in text
    assert "3 cordoned nodes" in render(info)


def test_a_fact_of_a_node_is_shown_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for a pool if most of its nodes have it in common."""
    monkeypatch.setitem(facts.NODE_FACTS, "kernel", lambda row: "kernel 6.8.0")
    assert "kernel 6.8.0" in render(fleet(20))


def test_columns_that_need_the_cluster_are_unknown_without_it() -> None:
    """The declared facts are known."""
    columns = {
        column.head: column.value({"mode": "none", "models": []})
        for column in facts.pool_columns("plan", reachable=False)
        if column.head in ("NODES", "MODE")
    }
    assert columns == {"NODES": "?", "MODE": "none"}
