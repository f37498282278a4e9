# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drawing of a node: single GPUs are drawn only if their shares are certain, and all shapes are within the frame."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.report.facts import GpuLayout
from ansible_collections.accel.gpu.plugins.module_utils.report.view_model import (
    GpuNode,
    Page,
    PoolView,
    ResourceUsage,
    cells_per_gpu,
    is_crowded,
    node_drawing,
)
from ansible_collections.accel.gpu.plugins.plugin_utils.report_page.render import template
from tests.helpers.html import Element, parse

GPU = "nvidia.com/gpu"
STATES = ("used", "free", "lost", "missing", "unknown")


def node(gpus: int, *usage: ResourceUsage, replicas: int = 1, layouts: tuple[GpuLayout, ...] = ()) -> GpuNode:
    return GpuNode("n0", "n", None, {}, gpus, replicas, True, usage, (), layouts, ())


def count(
    used: int, free: int, lost: int = 0, missing: int = 0, resource: str = GPU, known: bool = True
) -> ResourceUsage:
    return ResourceUsage(resource, used, free, lost, missing, known)


def mig(profile: str, used: int, free: int) -> ResourceUsage:
    return count(used, free, resource=f"nvidia.com/mig-{profile}")


def draw(node: GpuNode) -> Element:
    """The elements of the drawing of a node."""
    return parse(str(template("drawing.html.j2").module.node(node_drawing(node))))  # type: ignore[attr-defined]


def number(rect: Element, name: str) -> float:
    return float(rect.attributes[name] or "")


def kinds(drawing: Element) -> dict[str, int]:
    return dict(Counter(str(rect.attributes["class"]) for rect in drawing.find("rect")))


LAYOUTS: tuple[GpuLayout, ...] = ((("3g.40gb", 1), ("1g.10gb", 1)),) * 2

PER_GPU: list[tuple[str, GpuNode, list[str]]] = [
    ("one GPU", node(1, count(1, 3), replicas=4), ["used free free free"]),
    ("one GPU, MIG", node(1, mig("1g.10gb", 1, 2), mig("3g.40gb", 1, 0)), ["used free free used"]),
    ("one GPU, partly gone", node(1, count(0, 0, 1, 3)), ["lost missing missing missing"]),
    ("all free", node(2, count(0, 4), replicas=2), ["free free", "free free"]),
    ("all used", node(2, count(4, 0), replicas=2), ["used used", "used used"]),
    ("pods not read", node(2, count(0, 4, known=False), replicas=2), ["unknown unknown", "unknown unknown"]),
    ("some used", node(2, count(1, 3), replicas=2), []),
    ("one missing", node(2, count(0, 1, 0, 1)), []),
    ("other shares than GFD says", node(2, count(0, 5), replicas=2), []),
    ("two resources", node(2, count(0, 2), count(0, 2, resource="nvidia.com/gpu.shared")), []),
    ("MIG devices of several GPUs", node(2, mig("3g.40gb", 0, 2)), []),
    (
        "MIG, each known",
        node(2, mig("3g.40gb", 0, 2), mig("1g.10gb", 2, 0), layouts=LAYOUTS),
        ["free used", "free used"],
    ),
    (
        "MIG, time-sliced",
        node(2, mig("3g.40gb.shared", 0, 4), mig("1g.10gb.shared", 4, 0), layouts=LAYOUTS),
        ["free used"] * 2,
    ),
    ("MIG, some used", node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 2, 0), layouts=LAYOUTS), []),
    ("MIG of one kind", node(2, count(0, 4), layouts=((("3g.40gb", 2),),) * 2), ["free free", "free free"]),
    (
        "MIG beside a whole GPU",
        node(2, count(1, 0), mig("3g.40gb", 0, 2), layouts=((("3g.40gb", 2),), ())),
        ["free free", "used"],
    ),
    ("MIG that is not allocatable", node(2, mig("1g.10gb", 2, 0), layouts=LAYOUTS), []),
    ("nothing allocatable", node(2), []),
    ("not discovered", node(0, count(0, 4)), []),
    ("too many GPUs", node(17, count(0, 17)), []),
]


@pytest.mark.parametrize(("node", "boxes"), [case[1:] for case in PER_GPU], ids=[case[0] for case in PER_GPU])
def test_a_gpu_has_its_own_shares_only_if_they_are_certain(node: GpuNode, boxes: list[str]) -> None:
    assert [" ".join(state for state, _width in cells) for cells in cells_per_gpu(node)] == boxes


DRAWN: list[tuple[str, GpuNode, dict[str, int]]] = [
    ("boxes", node(2, count(0, 4), replicas=2), {"gpu": 2, "free": 4}),
    ("a bar below GPUs", node(2, count(1, 3), replicas=2), {"outline": 2, "gpu": 1, "used": 1, "free": 3}),
    ("a bar of GPUs", node(8, count(3, 5)), {"gpu": 1, "used": 3, "free": 5}),
    ("MIG", node(2, mig("1g.10gb", 3, 5), mig("3g.40gb", 1, 1)), {"outline": 2, "gpu": 2, "used": 4, "free": 6}),
    (
        "MIG that is known",
        node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 0, 2), layouts=LAYOUTS),
        {"outline": 2, "gpu": 2, "used": 1, "free": 3},
    ),
    ("nothing allocatable", node(4), {"outline": 4}),
    ("nothing at all", node(0), {}),
    ("too many to count", node(8, count(100, 300, 0, 1)), {"outline": 8, "gpu": 1, "used": 1, "free": 1, "missing": 1}),
    ("too many on one GPU", node(1, count(10, 38), replicas=48), {"gpu": 1, "used": 1, "free": 1}),
]


@pytest.mark.parametrize(("node", "expected"), [case[1:] for case in DRAWN], ids=[case[0] for case in DRAWN])
def test_drawn(node: GpuNode, expected: dict[str, int]) -> None:
    assert kinds(draw(node)) == expected


def test_devices_are_as_wide_as_their_slices() -> None:
    drawing = draw(node(2, mig("1g.10gb", 1, 0), mig("3g.40gb", 1, 0)))
    small, large = (number(rect, "width") for rect in drawing.find("rect", class_="used"))
    assert large > 2 * small


units = st.integers(0, 9) | st.integers(0, 10**30)
resources = st.sampled_from([GPU, "nvidia.com/gpu.shared"]) | st.integers(0, 99).map("nvidia.com/mig-{}g.5gb".format)
counts = st.builds(count, units, units, units, units, resources, st.booleans()).filter(lambda made: made.total > 0)
nodes = st.builds(
    lambda gpus, usage, replicas: node(gpus, *usage, replicas=replicas),
    st.integers(0, 20) | st.integers(0, 10**30),
    st.lists(counts, max_size=12),
    st.integers(0, 60) | st.integers(0, 10**30),
)


@given(nodes)
def test_all_shapes_are_within_the_frame_and_visible(node: GpuNode) -> None:
    drawing, width = draw(node), node_drawing(node).width
    assert 0 < width <= 150
    for rect in drawing.find("rect"):
        x, y = number(rect, "x"), number(rect, "y")
        assert min(x, y) >= 0
        assert min(number(rect, "width"), number(rect, "height")) > 0
        assert x + number(rect, "width") <= width + 0.01
        assert y + number(rect, "height") <= 28 + 0.01
    assert len(list(drawing.walk())) < 500


@given(nodes)
def test_each_present_state_has_a_cell(node: GpuNode) -> None:
    drawn = kinds(draw(node))
    present: Counter[str] = Counter()
    for one in node.usage:
        present.update(used=one.used, lost=one.lost, missing=one.missing)
        present.update({"free" if one.known else "unknown": one.free})
    assert {state for state in STATES if drawn.get(state)} == {state for state in STATES if present[state]}
    if node.gpus > 1 and not cells_per_gpu(node) and not is_crowded(node):
        assert {state: drawn.get(state, 0) for state in STATES} == {state: present[state] for state in STATES}


def test_lines_divide_a_gpu_into_its_slices() -> None:
    drawing = draw(node(2, mig("3g.40gb", 1, 1), mig("1g.10gb", 0, 2), layouts=LAYOUTS))
    line, *_others = drawing.find("path")
    assert line.attributes == {"class": "outline", "d": "M26.75 0.5v5"}


def test_nodes_of_the_same_appearance_share_a_drawing() -> None:
    nodes = tuple(node(8, count(used, 8 - used)) for used in (3, 4, 3))
    page = Page("prod", True, {}, (PoolView("g0", None, None, True, nodes),), True)
    assert [page.drawings[one.appearance][0] for one in nodes] == ["d0", "d1", "d0"]
    assert len(page.drawings) == 2


def test_a_meter_shows_the_smallest_part() -> None:
    meter = parse(str(template("drawing.html.j2").module.meter(count(99_999, 99_999, 0, 1).states)))  # type: ignore[attr-defined]
    widths = {rect.attributes["class"]: number(rect, "width") for rect in meter.find("rect")}
    assert set(widths) == {"used", "free", "missing"}
    assert widths["missing"] >= 3
    assert abs(widths["used"] - widths["free"]) < 2
