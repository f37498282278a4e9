# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the benchmark makes of its numbers: medians, ratios, limits, and the page that says them."""

from __future__ import annotations

import pytest

from tests.performance.bench.page import Setting, page
from tests.performance.bench.rows import Limit, Row, Run, ratios, seconds, spelled

SETTING = Setting("2026-01-01 10:00 UTC", "2 x CPU, 8 GiB", "accel.gpu 1", (("All", "make bench"),), ("Words.",))
OURS = [[Run(2.0, 1.0, 60.0, 12, 1, 3), Run(4.0, 1.5, 70.0, 12, 1, 3)], [Run(3.0, 1.2, 65.0, 13, 1, 3, 0.8)]]
OTHERS = [[Run(4.0), Run(4.0)], [Run(1.5)]]


def test_medians_and_ratios_are_of_pairs() -> None:
    assert seconds(OURS) == 3.0
    assert ratios(OURS, OTHERS) == (0.75, 2.0)


def test_pairs_are_complete() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios(OURS, [[Run(4.0)], [Run(1.5)]])


@pytest.mark.parametrize(("found", "kept"), [(2.0, True), (2.001, False), (float("nan"), False), (0, True)])
def test_a_limit_is_kept_up_to_itself(found: float, kept: bool) -> None:
    assert Limit("seconds", found, 2.0).kept is kept


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (5000, "5,000"), (1234.5, "1,234"), (0.756, "0.76"), (12.34, "12.3")]
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert spelled(number) == text


def test_the_page_says_all_of_it() -> None:
    kept = Row("profile change", 100, OURS, "kubectl label", OTHERS, (Limit("seconds", 3, 4),), ratios=(0.75, 2.0))
    text = page(SETTING, [kept])
    (line,) = [line for line in text.splitlines() if line.startswith("| profile change")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "profile change",
        "100 nodes",
        "3 (2 to 4)",
        "1.20",
        "70",
        "0.80",
        "13 (3)",
        "kubectl label: 4 (1.50 to 4)",
        "0.75, 2.00",
        "seconds ≤ 4",
    ]
    for said in ("2026-01-01", "2 x CPU", "accel.gpu 1", "$ make bench", "Words.", "All 1 limits are kept"):
        assert said in text


def test_a_miss_is_said_at_the_top_and_in_its_row() -> None:
    missed = Row("nothing to change", 5000, OURS, limits=(Limit("seconds", 3, 2), Limit("writes", 0, 0)))
    text = page(SETTING, [missed])
    assert missed.missed == (Limit("seconds", 3, 2),)
    assert "**1 of 2 limits are missed:**" in text
    assert text.count("**MISSED** seconds ≤ 2: 3") == 2
