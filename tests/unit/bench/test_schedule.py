# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluation and drawing of a rolling change."""

from __future__ import annotations

import itertools
import random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.performance.bench.gantt import bar_classes, gantt, ticks
from tests.performance.bench.schedule import Span, evaluate, lanes, list_schedule, max_overlap

SVG = "{http://www.w3.org/2000/svg}"
spans = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0.1, 50)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    min_size=1,
    max_size=40,
).map(lambda actual: [Span(f"n{number}", *times) for number, times in enumerate(actual)])


@pytest.mark.parametrize(
    ("actual", "window", "makespan", "bound", "overlap"),
    [
        ([(0, 4), (0, 4), (4, 8), (4, 8)], 2, 8, 8, 2),
        ([(0, 4), (4, 8), (8, 12), (12, 16)], 2, 16, 8, 1),
        ([(5, 15), (5, 6), (6, 7)], 3, 10, 10, 2),
        ([(0, 3), (1, 3), (2, 3)], 2, 3, 3, 3),
    ],
    ids=["perfect", "one-by-one", "one-long", "over-the-window"],
)
def test_evaluate(actual: list[tuple[float, float]], window: int, makespan: float, bound: float, overlap: int) -> None:
    result = evaluate([Span(f"n{number}", *times) for number, times in enumerate(actual)], window)
    assert (result.makespan, result.bound, result.overlap) == (makespan, bound, overlap)
    assert result.ratio == makespan / bound


def test_no_spans_are_an_error() -> None:
    with pytest.raises(ValueError, match="no node"):
        evaluate([], 3)


@given(spans, st.integers(1, 12))
def test_no_schedule_beats_the_bound(actual: list[Span], window: int) -> None:
    result = evaluate(actual, window)
    assert result.bound <= result.scheduled * (1 + 1e-9)
    assert result.scheduled <= result.bound * (2 - 1 / window) * (1 + 1e-9)


def test_sliding_window() -> None:
    rng = random.Random(7)
    lengths = [rng.uniform(2, 12) for dummy in range(100)]
    free, actual = [0.0] * 10, []
    for number, length in enumerate(lengths):
        place = free.index(min(free))
        actual.append(Span(f"n{number}", free[place], free[place] + length))
        free[place] += length
    result = evaluate(actual, 10)
    assert result.makespan == pytest.approx(list_schedule(lengths, 10))
    assert (result.overlap, len(lanes(actual))) == (10, 10)
    assert 1 <= result.ratio < 1.2


@given(spans)
def test_number_of_lanes_is_minimal(actual: list[Span]) -> None:
    rows = lanes(actual)
    assert sorted(span.node for row in rows for span in row) == sorted(span.node for span in actual)
    assert all(first.end <= second.begin for row in rows for first, second in itertools.pairwise(row))
    assert len(rows) == max_overlap(actual)


@given(spans, st.integers(1, 12))
def test_a_bar_for_each_node(actual: list[Span], window: int) -> None:
    drawn = ElementTree.fromstring(gantt(actual, evaluate(actual, window)))
    bars = drawn.findall(f"{SVG}rect")
    assert sorted(drawn_bar.findtext(f"{SVG}title", "").partition(":")[0] for drawn_bar in bars) == sorted(
        span.node for span in actual
    )
    remaining, right = 0.0, float(drawn.attrib["width"])
    for drawn_bar in bars:
        begin = float(drawn_bar.attrib["x"])
        assert remaining <= begin
        assert begin + float(drawn_bar.attrib["width"]) <= right
        assert float(drawn_bar.attrib["y"]) + float(drawn_bar.attrib["height"]) <= float(drawn.attrib["height"])


def test_names_are_escaped() -> None:
    actual = [Span('<b>&"', 0, 1)]
    drawn = ElementTree.fromstring(gantt(actual, evaluate(actual, 1)))
    assert drawn.find(f"{SVG}rect/{SVG}title").text.startswith('<b>&":')  # type: ignore[union-attr]


@pytest.mark.parametrize(("total", "actual"), [(8, 9), (100, 6), (0.5, 6), (61, 7)])
def test_ticks_are_few_and_round(total: float, actual: int) -> None:
    assert len(ticks(total)) == actual
    assert ticks(total)[0] == 0
    assert ticks(total)[-1] <= total


def test_slowest_nodes_are_darkest() -> None:
    actual = [Span(f"n{number}", 0, number + 1) for number in range(9)]
    classes = bar_classes(actual)
    assert [classes[f"n{number}"] for number in (0, 4, 8)] == ["quick", "even", "slow"]
