# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as a drawing: its GPUs, what they are shared into, and what of that is held, free or missing (pure).

Kubernetes says how many shares of a node a pod holds, never of which GPU. So a GPU is drawn with its own shares only where
that follows: the node has one GPU, or all of its shares are in the same state. Else one bar is the node's shares, and the
GPUs stand above it as a row of empty frames.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from .cuts import Cut, slices
from .html import Html, join, tag
from .shapes import BEYOND, FREE, HELD, MISSING, UNKNOWN, Cell, Place, cell, grid, level, rect, row, short, stack

if t.TYPE_CHECKING:
    from .facts import Count, NodeFacts

HEIGHT = 28
# No drawing is wider than this; GPUs share the width, and one or two of them do not fill it.
_WIDTH, _WIDEST_GPU = 150, 36
_GAP, _INSET, _STRIP, _LEAST_CELL = 2, 2, 6, 5
# Beyond these numbers nothing is drawn one by one.
_MOST_GPUS = 16
_MOST_SHARES = 16
_MOST_CELLS = 64
_WHOLE = "gpu"


@dataclass
class Drawings:
    """The drawings of a page. Nodes that look the same refer to one drawing."""

    kept: dict[t.Hashable, tuple[str, str, Html]] = field(default_factory=dict)

    def of(self, node: NodeFacts, title: str) -> Html:
        """The drawing of a node, which readers of any kind know by its title."""
        looks = (node.gpus, node.replicas, node.counts, node.cuts)
        if looks not in self.kept:
            self.kept[looks] = (f"d{len(self.kept)}", *draw(node))
        key, width, dummy = self.kept[looks]
        inside = (tag("title", title), tag("use", href=f"#{key}"))
        return tag("svg", *inside, role="img", viewBox=f"0 0 {width} {HEIGHT}", width=width, height=HEIGHT)

    def definitions(self) -> Html:
        """What the nodes refer to; by itself it shows nothing."""
        inside = tag("defs", *(tag("g", body, id=key) for key, dummy, body in self.kept.values()))
        return tag("svg", inside, width=0, height=0, aria_hidden="true", class_="defs")


def draw(node: NodeFacts) -> tuple[str, Html]:
    """The width of a node's drawing, and what is in it."""
    gpus = min(node.gpus, _MOST_GPUS)
    width = _width(gpus)
    boxes = per_gpu(node)
    if boxes:
        placed = zip(_side_by_side(gpus, width, HEIGHT), boxes, strict=True)
        merged = gpus == 1 and is_crowded(node)
        return short(width), join(_box(place, cells, merged) for place, cells in placed)
    if not node.counts:
        places = _side_by_side(gpus, width, HEIGHT)
        return short(width), join(
            _bare(place, cut) for place, cut in zip(places, node.cuts or [()] * gpus, strict=False)
        )
    bars = cells_of(node)
    width = max(width, min(_WIDTH, _LEAST_CELL * sum(len(cells) for dummy, cells in bars)))
    # Where each unit is a whole GPU, the bar shows the GPUs already.
    if not gpus or [node.gpus] == [count.total for count in node.counts if not is_cut(count)]:
        return short(width), _bars(bars, Place(0, 0, width, HEIGHT), is_crowded(node))
    places = _side_by_side(gpus, width, _STRIP)
    strip = [_bare(place, cut) for place, cut in zip(places, node.cuts or [()] * gpus, strict=False)]
    below = Place(0, _STRIP + _GAP, width, HEIGHT - _STRIP - _GAP)
    return short(width), join([*strip, _bars(bars, below, is_crowded(node))])


def per_gpu(node: NodeFacts) -> list[list[Cell]]:
    """The cells of each GPU where they are known for each; else nothing."""
    if not node.counts or not 0 < node.gpus <= _MOST_GPUS:
        return []
    if node.gpus == 1:
        return [[cell for dummy, cells in cells_of(node) for cell in cells]]
    states = [states_of(count) for count in node.counts]
    if any(len(found) > 1 for found in states):
        return []
    alike = {count.resource: found[0][0] for count, found in zip(node.counts, states, strict=True)}
    if node.cuts:
        return _cut_gpus(node, alike)
    shares = max(1, node.replicas)
    if len(node.counts) > 1 or is_cut(node.counts[0]) or node.counts[0].total != node.gpus * shares:
        return []  # MIG may cut every GPU of a node in another way
    return [[(states[0][0][0], 1)] * min(shares, _MOST_SHARES)] * node.gpus


def _cut_gpus(node: NodeFacts, alike: t.Mapping[str, str]) -> list[list[Cell]]:
    """The MIG devices of each GPU, each in the state in which all of its kind are."""
    found: list[list[Cell]] = []
    for cut in node.cuts:
        cells: list[Cell] = []
        for profile, number in cut or ((_WHOLE, 1),):
            kind = f"nvidia.com/mig-{profile}"
            names = (kind, f"{kind}.shared", "nvidia.com/gpu", "nvidia.com/gpu.shared")
            state = next((alike[name] for name in names if name in alike), None)
            if state is None:
                return []
            cells += [(state, slices(profile) or 1)] * number
        found.append(cells)
    return found


def states_of(count: Count) -> list[tuple[str, int]]:
    """How many units are in which state, those that there are."""
    free = FREE if count.asked else UNKNOWN
    numbers = [(HELD, count.used), (BEYOND, count.beyond), (free, count.free), (MISSING, count.missing)]
    return [(state, number) for state, number in numbers if number]


def cells_of(node: NodeFacts) -> list[tuple[Count, list[Cell]]]:
    """One cell for each unit, as wide as it has slices; of too many units, one for each state."""
    return [(count, _cells(count, merged=is_crowded(node))) for count in node.counts]


def is_crowded(node: NodeFacts) -> bool:
    """Whether a node has more units than can be drawn one by one."""
    return sum(count.total for count in node.counts) > _MOST_CELLS


def _cells(count: Count, merged: bool) -> list[Cell]:
    width = slices(count.resource) or 1
    if merged:
        return [(state, number * width) for state, number in states_of(count)]
    return [(state, width) for state, number in states_of(count) for dummy in range(number)]


def is_cut(count: Count) -> bool:
    """Whether a resource is MIG devices."""
    return slices(count.resource) > 0


def meter(count: Count) -> Html:
    """A resource of many nodes as one bar as wide as its place; the words beside it say the same."""
    meter = level(Place(0, 0, 400, 12), states_of(count), least=4)
    return tag("svg", meter, viewBox="0 0 400 12", preserveAspectRatio="none", class_="meter", aria_hidden="true")


def sample(state: str) -> Html:
    """One cell, for the legend."""
    drawn = cell(state, Place(1, 1, 12, 12))
    return tag("svg", drawn, viewBox="0 0 14 14", width=14, height=14, aria_hidden="true")


def sample_of_gpu() -> Html:
    """A GPU with shares of its own, for the legend."""
    drawn = _box(Place(0, 0, 14, 18), [(HELD, 1), (HELD, 1), (FREE, 1)])
    return tag("svg", drawn, viewBox="0 0 14 18", width=14, height=18, aria_hidden="true")


def sample_of_node() -> Html:
    """GPUs above the shares of their node, for the legend."""
    strip = (_bare(place, ()) for place in _side_by_side(2, 34, _STRIP))
    below = Place(0, _STRIP + _GAP, 34, 18 - _STRIP - _GAP)
    drawn = join([*strip, rect(below, "gpu", 2), row(below.within(_INSET), [(HELD, 1)] * 3 + [(FREE, 1)] * 3)])
    return tag("svg", drawn, viewBox="0 0 34 18", width=34, height=18, aria_hidden="true")


def _width(gpus: int) -> float:
    return min(_WIDTH, max(1, gpus) * (_WIDEST_GPU + _GAP) - _GAP)


def _side_by_side(gpus: int, width: float, height: float) -> t.Iterator[Place]:
    each = (width + _GAP) / max(1, gpus) - _GAP
    return (Place(at * (each + _GAP), 0, each, height) for at in range(gpus))


def _bare(place: Place, cut: Cut) -> Html:
    """An empty frame for a GPU, with lines between its MIG devices where they are known."""
    widths = [slices(profile) or 1 for profile, number in cut for dummy in range(min(number, _MOST_SHARES))]
    inside, done, lines = place.within(0.5), 0, []
    for width in widths[:-1]:
        done += width
        lines.append(f"M{short(inside.x + inside.width * done / sum(widths))} {short(inside.y)}v{short(inside.height)}")
    frame = rect(inside, "bare", 1.5)
    return join([frame, tag("path", class_="bare", d="".join(lines))]) if lines else frame


def _box(place: Place, cells: t.Sequence[Cell], merged: bool = False) -> Html:
    """One GPU with its shares: one below the other, in columns, or as a level when there are too many."""
    inside = place.within(_INSET)
    if merged or len(cells) > _MOST_SHARES:
        sums: dict[str, float] = {}
        for state, width in cells:
            sums[state] = sums.get(state, 0) + width
        shares = level(inside, list(sums.items()), least=2, upright=True)
    elif len({width for dummy, width in cells}) > 1 or len(cells) <= 4:
        shares = stack(inside, cells)
    else:
        shares = grid(inside, cells, columns=2 if len(cells) <= 8 else 4)
    return join([rect(place, "gpu", 2), shares])


def _bars(bars: t.Sequence[tuple[Count, list[Cell]]], place: Place, merged: bool) -> Html:
    """One bar for each resource, side by side, as wide as its cells are together."""
    gap, least = min(4.0, place.width / len(bars) / 8), min(6.0, place.width / len(bars) / 4)
    left, drawn = place.x, []
    total = sum(width for dummy, cells in bars for dummy2, width in cells)
    room = place.width - gap * (len(bars) - 1) - least * len(bars)
    for dummy, cells in bars:
        frame = Place(left, place.y, least + room * sum(width for dummy, width in cells) / total, place.height)
        drawn.append(rect(frame, "gpu", 2))
        inside = frame.within(_INSET)
        drawn.append(level(inside, cells, least=2) if merged else row(inside, cells))
        left += frame.width + gap
    return join(drawn)
