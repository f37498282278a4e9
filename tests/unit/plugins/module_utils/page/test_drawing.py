# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of a node: nothing is told of single GPUs that does not follow, and all of it is within its frame."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.page.cuts import Cut
from ansible_collections.accel.gpu.plugins.module_utils.page.drawing import (
    HEIGHT,
    Drawings,
    draw,
    is_crowded,
    meter,
    per_gpu,
)
from ansible_collections.accel.gpu.plugins.module_utils.page.facts import Count, NodeFacts
from ansible_collections.accel.gpu.plugins.module_utils.page.html import Html
from tests.helpers.html import Element, parse

GPU = "nvidia.com/gpu"
STATES = ("held", "free", "beyond", "missing", "unknown")


def node(gpus: int, *counts: Count, replicas: int = 1, cuts: tuple[Cut, ...] = ()) -> NodeFacts:
    return NodeFacts("n0", "n", None, "H100", gpus, 1, None, None, replicas, True, counts, (), None, cuts, ())


def count(used: int, free: int, beyond: int = 0, missing: int = 0, resource: str = GPU, asked: bool = True) -> Count:
    return Count(resource, used, free, beyond, missing, asked)


def mig(profile: str, used: int, free: int) -> Count:
    return count(used, free, resource=f"nvidia.com/mig-{profile}")


def rects(drawn: Html) -> list[Element]:
    return parse(drawn).find("rect")


def kinds(drawn: Html) -> dict[str | None, int]:
    return dict(Counter(rect.attributes["class"] for rect in rects(drawn)))


CUT: tuple[Cut, ...] = ((("3g.40gb", 1), ("1g.10gb", 1)),) * 2

PER_GPU: list[tuple[str, NodeFacts, list[str]]] = [
    ("one GPU", node(1, count(1, 3), replicas=4), ["held free free free"]),
    ("one GPU, MIG", node(1, mig("1g.10gb", 1, 2), mig("3g.40gb", 1, 0)), ["held free free held"]),
    ("one GPU, partly gone", node(1, count(0, 0, 1, 3)), ["beyond missing missing missing"]),
    ("all free", node(2, count(0, 4), replicas=2), ["free free", "free free"]),
    ("all held", node(2, count(4, 0), replicas=2), ["held held", "held held"]),
    ("nobody asked", node(2, count(0, 4, asked=False), replicas=2), ["unknown unknown", "unknown unknown"]),
    ("some held", node(2, count(1, 3), replicas=2), []),
    ("one missing", node(2, count(0, 1, 0, 1)), []),
    ("other shares than GFD says", node(2, count(0, 5), replicas=2), []),
    ("two resources", node(2, count(0, 2), count(0, 2, resource="nvidia.com/gpu.shared")), []),
    ("MIG devices of several GPUs", node(2, mig("3g.40gb", 0, 2)), []),
    ("MIG, each known", node(2, mig("3g.40gb", 0, 2), mig("1g.10gb", 2, 0), cuts=CUT), ["free held", "free held"]),
    (
        "MIG, time-sliced",
        node(2, mig("3g.40gb.shared", 0, 4), mig("1g.10gb.shared", 4, 0), cuts=CUT),
        ["free held"] * 2,
    ),
    ("MIG, some held", node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 2, 0), cuts=CUT), []),
    ("MIG of one kind", node(2, count(0, 4), cuts=((("3g.40gb", 2),),) * 2), ["free free", "free free"]),
    (
        "MIG beside a whole GPU",
        node(2, count(1, 0), mig("3g.40gb", 0, 2), cuts=((("3g.40gb", 2),), ())),
        ["free free", "held"],
    ),
    ("MIG that is not offered", node(2, mig("1g.10gb", 2, 0), cuts=CUT), []),
    ("nothing offered", node(2), []),
    ("not discovered", node(0, count(0, 4)), []),
    ("too many GPUs", node(17, count(0, 17)), []),
]


@pytest.mark.parametrize(("of", "boxes"), [case[1:] for case in PER_GPU], ids=[case[0] for case in PER_GPU])
def test_shares_of_a_single_gpu_are_told_only_where_they_follow(of: NodeFacts, boxes: list[str]) -> None:
    assert [" ".join(state for state, _width in cells) for cells in per_gpu(of)] == boxes


DRAWN: list[tuple[str, NodeFacts, dict[str, int]]] = [
    ("boxes", node(2, count(0, 4), replicas=2), {"gpu": 2, "free": 4}),
    ("a bar below GPUs", node(2, count(1, 3), replicas=2), {"bare": 2, "gpu": 1, "held": 1, "free": 3}),
    ("a bar of GPUs", node(8, count(3, 5)), {"gpu": 1, "held": 3, "free": 5}),
    ("MIG", node(2, mig("1g.10gb", 3, 5), mig("3g.40gb", 1, 1)), {"bare": 2, "gpu": 2, "held": 4, "free": 6}),
    (
        "MIG that is known",
        node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 0, 2), cuts=CUT),
        {"bare": 2, "gpu": 2, "held": 1, "free": 3},
    ),
    ("nothing offered", node(4), {"bare": 4}),
    ("nothing at all", node(0), {}),
    ("too many to count", node(8, count(100, 300, 0, 1)), {"bare": 8, "gpu": 1, "held": 1, "free": 1, "missing": 1}),
    ("too many on one GPU", node(1, count(10, 38), replicas=48), {"gpu": 1, "held": 1, "free": 1}),
]


@pytest.mark.parametrize(("of", "found"), [case[1:] for case in DRAWN], ids=[case[0] for case in DRAWN])
def test_drawn(of: NodeFacts, found: dict[str, int]) -> None:
    assert kinds(draw(of)[1]) == found


def test_slices_are_as_wide_as_they_are() -> None:
    small, large = (
        rect
        for rect in rects(draw(node(2, mig("1g.10gb", 1, 0), mig("3g.40gb", 1, 0)))[1])
        if rect.attributes["class"] == "held"
    )
    assert float(large.attributes["width"] or 0) > 2 * float(small.attributes["width"] or 0)


units = st.integers(0, 9) | st.integers(0, 10**30)
resources = st.sampled_from([GPU, "nvidia.com/gpu.shared"]) | st.integers(0, 99).map("nvidia.com/mig-{}g.5gb".format)
counts = st.builds(count, units, units, units, units, resources, st.booleans()).filter(lambda made: made.total > 0)
nodes = st.builds(
    lambda gpus, found, replicas: node(gpus, *found, replicas=replicas),
    st.integers(0, 20) | st.integers(0, 10**30),
    st.lists(counts, max_size=12),
    st.integers(0, 60) | st.integers(0, 10**30),
)


@given(nodes)
def test_everything_is_within_the_frame_and_can_be_seen(of: NodeFacts) -> None:
    width, drawn = draw(of)
    assert 0 < float(width) <= 150
    for rect in rects(drawn):
        x, y, wide, high = (float(rect.attributes[key] or -1) for key in ("x", "y", "width", "height"))
        assert min(x, y) >= 0
        assert min(wide, high) > 0
        assert x + wide <= float(width) + 0.05
        assert y + high <= HEIGHT + 0.05
    assert len(drawn) < 30_000


@given(nodes)
def test_every_state_there_is_has_a_cell_and_no_other(of: NodeFacts) -> None:
    found = kinds(draw(of)[1])
    there: Counter[str] = Counter()
    for one in of.counts:
        there.update(held=one.used, beyond=one.beyond, missing=one.missing)
        there.update({"free" if one.asked else "unknown": one.free})
    assert {state for state in STATES if found.get(state)} == {state for state in STATES if there[state]}
    if of.gpus > 1 and not per_gpu(of) and not is_crowded(of):
        assert {state: found.get(state, 0) for state in STATES} == {state: there[state] for state in STATES}


def test_lines_divide_a_gpu_into_its_slices() -> None:
    (line, *_others) = parse(draw(node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 0, 2), cuts=CUT))[1]).find("path")
    assert line.attributes["d"] == "M26.75 0.5v5"


def test_nodes_that_look_the_same_share_a_drawing() -> None:
    drawings = Drawings()
    alike: list[t.Any] = [parse(drawings.of(node(8, count(used, 8 - used)), f"node {used}")) for used in (3, 4, 3)]
    assert [one.find("use")[0].attributes["href"] for one in alike] == ["#d0", "#d1", "#d0"]
    assert [one.find("title")[0].text for one in alike] == ["node 3", "node 4", "node 3"]
    assert {one.attributes["id"] for one in parse(drawings.definitions()).find("g")} == {"d0", "d1"}


def test_a_meter_shows_the_least_part() -> None:
    parts = {
        rect.attributes["class"]: float(rect.attributes["width"] or 0)
        for rect in rects(meter(count(99_999, 99_999, 0, 1)))
    }
    assert set(parts) == {"held", "free", "missing"}
    assert parts["missing"] >= 3
    assert abs(parts["held"] - parts["free"]) < 2
