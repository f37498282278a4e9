# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Medians, ratios and limits of the benchmark, and its page."""

from __future__ import annotations

import pytest

from tests.performance.bench.page import BenchEnvironment, page
from tests.performance.bench.results import Limit, Measurement, Row, format_number, ratios, seconds

ENVIRONMENT = BenchEnvironment(
    "2026-01-01 10:00 UTC", "2 x CPU, 8 GiB", "accel.gpu 1", (("All", "make bench"),), ("A note.",)
)
OWN_RUNS = [
    [Measurement(2.0, 1.0, 60.0, 12, 1, 3), Measurement(4.0, 1.5, 70.0, 12, 1, 3)],
    [Measurement(3.0, 1.2, 65.0, 13, 1, 3, 0.8, modules={"accel.gpu.a": 0.5, "accel.gpu.b": 1.0})],
]
OTHER_RUNS = [[Measurement(4.0), Measurement(4.0)], [Measurement(1.5)]]


def test_medians_and_ratios() -> None:
    assert seconds(OWN_RUNS) == 3.0
    assert ratios(OWN_RUNS, OTHER_RUNS) == (0.75, 2.0)


def test_incomplete_pairs_are_rejected() -> None:
    with pytest.raises(ValueError, match="zip"):
        ratios(OWN_RUNS, [[Measurement(4.0)], [Measurement(1.5)]])


@pytest.mark.parametrize(("actual", "kept"), [(2.0, True), (2.001, False), (float("nan"), False), (0, True)])
def test_limit_includes_its_maximum(actual: float, kept: bool) -> None:
    assert Limit("seconds", actual, 2.0).kept is kept


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (5000, "5,000"), (1234.5, "1,234"), (0.756, "0.76"), (12.34, "12.3")]
)
def test_format_number(number: float, text: str) -> None:
    assert format_number(number) == text


def test_page_contains_all_values() -> None:
    kept = Row(
        "profile change", 100, OWN_RUNS, "kubectl label", OTHER_RUNS, (Limit("seconds", 3, 4),), ratios=(0.75, 2.0)
    )
    text = page(ENVIRONMENT, [kept])
    (line,) = [line for line in text.splitlines() if line.startswith("| profile change")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "profile change",
        "100 nodes",
        "3 (2 to 4)",
        "1.50",
        "1.20",
        "70",
        "0.80",
        "13 (3)",
        "kubectl label: 4 (1.50 to 4)",
        "0.75, 2.00",
        "seconds ≤ 4",
    ]
    for text_part in ("2026-01-01", "2 x CPU", "accel.gpu 1", "$ make bench", "A note.", "All 1 limits are met"):
        assert text_part in text


def test_missed_limit_is_listed_at_the_top_and_in_its_row() -> None:
    missed = Row("nothing to change", 5000, OWN_RUNS, limits=(Limit("seconds", 3, 2), Limit("writes", 0, 0)))
    text = page(ENVIRONMENT, [missed])
    assert missed.missed == (Limit("seconds", 3, 2),)
    assert "**Limits exceeded: 1 of 2**" in text
    assert text.count("**MISSED** seconds ≤ 2: 3") == 2
