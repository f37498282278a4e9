# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The geometry of the page's drawings; the template turns the shapes into SVG (pure).

Kubernetes reports how many shares of a node a pod requests, never on which GPU. So a GPU is drawn with its own shares only
if they are certain: the node has one GPU, or all units of each resource are in the same state. Otherwise one bar shows the
node's shares, below a row of empty frames for the GPUs.
"""

from __future__ import annotations

import typing as t

from .mig_devices import compute_slices

if t.TYPE_CHECKING:
    from .node_view import GpuNode
    from .usage import ResourceUsage

Document = t.Mapping[str, t.Any]

USED, FREE, MISSING, LOST, UNKNOWN = "used", "free", "missing", "lost", "unknown"
HEIGHT = 28
# No drawing of a node is wider than this; one or two GPUs do not fill it.
_MAX_WIDTH, _MAX_GPU_WIDTH, _MIN_CELL_WIDTH = 150, 36, 5
_GAP, _INSET, _STRIP_HEIGHT = 2, 2, 6
# Above these numbers, the units are not drawn one by one.
_MAX_GPUS, _MAX_SHARES, _MAX_CELLS, _MAX_STROKES = 16, 16, 64, 12
# A bar of memory slices; a letter is about this wide.
_BAR_WIDTH, _BAR_HEIGHT, _LETTER_WIDTH = 340, 22, 5.2

# The state of a unit and its width; for merged units their number.
Cell = tuple[str, float]


class Place(t.NamedTuple):
    """A rectangle in the units of the drawing."""

    x: float
    y: float
    width: float
    height: float

    def inset(self, amount: float) -> Place:
        """The place inside a frame; the frame takes at most half of it."""
        across, down = min(amount, self.width / 4), min(amount, self.height / 4)
        return Place(self.x + across, self.y + down, self.width - 2 * across, self.height - 2 * down)


class Rect(t.NamedTuple):
    """A rectangle; the style sheet knows its kind."""

    kind: str
    place: Place
    radius: float


class Path(t.NamedTuple):
    """A line; the style sheet knows its kind."""

    kind: str
    d: str


class Label(t.NamedTuple):
    """Text centered on x."""

    text: str
    x: float
    y: float


Shape: t.TypeAlias = "Rect | Path | Label"


class Drawing(t.NamedTuple):
    """Shapes within a frame."""

    width: float
    height: float
    shapes: list[Shape]


def draw_node(node: GpuNode) -> Drawing:
    """The GPUs of a node and the states of their shares."""
    gpus = min(node.gpus, _MAX_GPUS)
    width = min(_MAX_WIDTH, max(1, gpus) * (_MAX_GPU_WIDTH + _GAP) - _GAP)
    boxes = cells_per_gpu(node)
    if boxes:
        merged = gpus == 1 and is_crowded(node)
        places = _divide(Place(0, 0, width, HEIGHT), [1] * gpus, gap=_GAP)
        shapes = [shape for place, cells in zip(places, boxes, strict=True) for shape in _gpu(place, cells, merged)]
        return Drawing(width, HEIGHT, shapes)
    if not node.usage:
        return Drawing(width, HEIGHT, _frames(node, gpus, Place(0, 0, width, HEIGHT)))
    bars = _cells_per_resource(node)
    width = max(width, min(_MAX_WIDTH, _MIN_CELL_WIDTH * sum(map(len, bars))))
    # If each unit is a whole GPU, the bar already shows the GPUs.
    if not gpus or [node.gpus] == [usage.total for usage in node.usage if not compute_slices(usage.resource)]:
        return Drawing(width, HEIGHT, _bars(bars, Place(0, 0, width, HEIGHT), is_crowded(node)))
    strip = _frames(node, gpus, Place(0, 0, width, _STRIP_HEIGHT))
    below = Place(0, _STRIP_HEIGHT + _GAP, width, HEIGHT - _STRIP_HEIGHT - _GAP)
    return Drawing(width, HEIGHT, strip + _bars(bars, below, is_crowded(node)))


def cells_per_gpu(node: GpuNode) -> list[list[Cell]]:
    """The cells of each GPU if they are certain for every GPU, otherwise an empty list."""
    if not node.usage or not 0 < node.gpus <= _MAX_GPUS:
        return []
    if node.gpus == 1:
        return [[cell for cells in _cells_per_resource(node) for cell in cells]]
    states = [states_of(usage) for usage in node.usage]
    if any(len(of_resource) > 1 for of_resource in states):
        return []
    state_of = {usage.resource: of_resource[0][0] for usage, of_resource in zip(node.usage, states, strict=True)}
    if node.gpu_layouts:
        return _cells_of_mig_gpus(node, state_of)
    shares, (usage, *others) = max(1, node.replicas), node.usage
    if others or compute_slices(usage.resource) or usage.total != node.gpus * shares:
        return []  # MIG may partition every GPU of a node differently
    return [[(states[0][0][0], 1)] * min(shares, _MAX_SHARES)] * node.gpus


def states_of(usage: ResourceUsage) -> list[tuple[str, int]]:
    """The number of units in each state that occurs."""
    free = FREE if usage.known else UNKNOWN
    numbers = [(USED, usage.used), (LOST, usage.lost), (free, usage.free), (MISSING, usage.missing)]
    return [(state, count) for state, count in numbers if count]


def is_crowded(node: GpuNode) -> bool:
    """Whether a node has too many units to draw them one by one."""
    return sum(usage.total for usage in node.usage) > _MAX_CELLS


def draw_meter(usage: ResourceUsage) -> Drawing:
    """The states of a resource of many nodes as one bar."""
    return Drawing(400, 12, _row(Place(0, 0, 400, 12), states_of(usage), least=4, gap=0))


def draw_mig_layout(layout: Document) -> Drawing:
    """The memory slices of a GPU with its MIG devices."""
    slices: int = layout["slices"]
    places = _divide(Place(0, 0, _BAR_WIDTH, _BAR_HEIGHT), [1] * slices)
    shapes: list[Shape] = [_rect("outline", place.inset(0.75), 2) for place in places]
    for device in layout["devices"]:
        each, name = _BAR_WIDTH / slices, str(device["profile"])
        place = Place(device["start"] * each, 0, device["size"] * each, _BAR_HEIGHT).inset(0.75)
        if len(name) * _LETTER_WIDTH > place.width:
            name = name.replace("gb", "")
        shapes += [_rect("device", place, 2), Label(name, place.x + place.width / 2, _BAR_HEIGHT / 2 + 3)]
    return Drawing(_BAR_WIDTH, _BAR_HEIGHT, shapes)


def legend_drawing(kind: str) -> Drawing:
    """A state, one gpu with its own shares, or the shares of a node below its GPUs."""
    if kind == "gpu":
        return Drawing(14, 18, _gpu(Place(0, 0, 14, 18), [(USED, 1), (USED, 1), (FREE, 1)]))
    if kind == "node":
        frames = [_rect("outline", place.inset(0.5), 1.5) for place in _divide(Place(0, 0, 34, 6), [1, 1], gap=_GAP)]
        below, cells = Place(0, 8, 34, 10), [(USED, 1.0)] * 3 + [(FREE, 1.0)] * 3
        return Drawing(34, 18, [*frames, _rect("gpu", below, 2), *_row(below.inset(_INSET), cells)])
    return Drawing(14, 14, _cell(kind, Place(1, 1, 12, 12)))


def coordinate(value: float) -> str:
    """A number with at most two decimal places."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _cells_of_mig_gpus(node: GpuNode, state_of: t.Mapping[str, str]) -> list[list[Cell]]:
    """The MIG devices of each GPU; all devices of a profile are in the same state."""
    result: list[list[Cell]] = []
    for layout in node.gpu_layouts:
        cells: list[Cell] = []
        for profile, count in layout or (("gpu", 1),):
            resource = f"nvidia.com/mig-{profile}"
            names = (resource, f"{resource}.shared", "nvidia.com/gpu", "nvidia.com/gpu.shared")
            state = next((state_of[name] for name in names if name in state_of), None)
            if state is None:
                return []
            cells += [(state, compute_slices(profile) or 1)] * count
        result.append(cells)
    return result


def _cells_per_resource(node: GpuNode) -> list[list[Cell]]:
    """One cell for each unit, as wide as its compute slices; on a crowded node one for each state."""
    merged = is_crowded(node)
    result: list[list[Cell]] = []
    for usage in node.usage:
        width = compute_slices(usage.resource) or 1
        if merged:
            result.append([(state, count * width) for state, count in states_of(usage)])
        else:
            result.append([(state, width) for state, count in states_of(usage) for dummy in range(count)])
    return result


def _gpu(place: Place, cells: t.Sequence[Cell], merged: bool = False) -> list[Shape]:
    """One GPU with its shares: stacked, in columns, or merged by state if there are too many."""
    inside, frame = place.inset(_INSET), _rect("gpu", place, 2)
    if merged or len(cells) > _MAX_SHARES:
        sums: dict[str, float] = {}
        for state, width in cells:
            sums[state] = sums.get(state, 0) + width
        return [frame, *_row(inside, list(sums.items()), least=2, gap=0, upright=True)]
    if len({width for dummy, width in cells}) > 1 or len(cells) <= 4:
        return [frame, *_row(inside, cells, upright=True)]
    columns = 2 if len(cells) <= 8 else 4
    rows = -(-len(cells) // columns)
    places = (
        place
        for column in _divide(inside, [1] * columns, gap=_gap(inside.width, columns))
        for place in _divide(column, [1] * rows, gap=_gap(inside.height, rows), upright=True)
    )
    return [frame, *(shape for (state, dummy), at in zip(cells, places, strict=False) for shape in _cell(state, at))]


def _bars(bars: t.Sequence[t.Sequence[Cell]], place: Place, merged: bool) -> list[Shape]:
    """One bar for each resource, side by side, as wide as its cells together."""
    gap, least = min(4.0, place.width / len(bars) / 8), min(6.0, place.width / len(bars) / 4)
    widths = [sum(width for dummy, width in cells) for cells in bars]
    shapes: list[Shape] = []
    for cells, frame in zip(bars, _divide(place, widths, gap=gap, least=least), strict=True):
        inside = frame.inset(_INSET)
        shapes += [_rect("gpu", frame, 2), *(_row(inside, cells, least=2, gap=0) if merged else _row(inside, cells))]
    return shapes


def _frames(node: GpuNode, gpus: int, place: Place) -> list[Shape]:
    """An empty frame for each GPU, with lines between its MIG devices where they are known."""
    shapes: list[Shape] = []
    places = _divide(place, [1] * gpus, gap=_GAP)
    for frame, layout in zip(places, node.gpu_layouts or [()] * gpus, strict=False):
        inside = frame.inset(0.5)
        shapes.append(_rect("outline", inside, 1.5))
        widths = [compute_slices(name) or 1 for name, count in layout for dummy in range(min(count, _MAX_SHARES))]
        lines = [
            f"M{coordinate(device.x)} {coordinate(inside.y)}v{coordinate(inside.height)}"
            for device in list(_divide(inside, widths))[1:]
        ]
        shapes += [Path("outline", "".join(lines))] if lines else []
    return shapes


def _row(
    place: Place, cells: t.Sequence[Cell], *, least: float = 0, gap: float | None = None, upright: bool = False
) -> list[Shape]:
    """Cells side by side, or one above the other, none shorter than least if there is space for that."""
    length = place.height if upright else place.width
    places = _divide(
        place,
        [width for dummy, width in cells],
        gap=_gap(length, len(cells)) if gap is None else gap,
        least=min(least, length / len(cells) / 2),
        upright=upright,
    )
    return [shape for (state, dummy), at in zip(cells, places, strict=True) for shape in _cell(state, at)]


def _cell(state: str, place: Place) -> list[Shape]:
    """used is solid, free is hollow, missing is dashed with a cross, lost is solid with a stroke, unknown is dotted."""
    outlined = state in (FREE, MISSING, UNKNOWN)
    shape = _rect(state, place.inset(0.5) if outlined else place, 1)
    if state not in (MISSING, LOST):
        return [shape]
    return [shape, Path(f"stroke {state}", "".join(_strokes(place.inset(1), crossed=state == MISSING)))]


def _strokes(place: Place, crossed: bool) -> t.Iterator[str]:
    """Diagonal strokes or crosses that fill the place."""
    across = max(1, min(_MAX_STROKES, round(place.width / place.height)))
    down = max(1, min(_MAX_STROKES, round(place.height / place.width)))
    for row in _divide(place, [1] * down, upright=True):
        for part in _divide(row, [1] * across):
            left, right = coordinate(part.x), coordinate(part.x + part.width)
            top, bottom = coordinate(part.y), coordinate(part.y + part.height)
            yield f"M{left} {bottom}L{right} {top}" + (f"M{left} {top}L{right} {bottom}" if crossed else "")


def _divide(
    place: Place, sizes: t.Sequence[float], *, gap: float = 0, least: float = 0, upright: bool = False
) -> t.Iterator[Place]:
    """Divide a place in proportion to the sizes, from left to right or from top to bottom."""
    length, total, start = place.height if upright else place.width, sum(sizes), 0.0
    space = length - gap * (len(sizes) - 1) - least * len(sizes)
    for size in sizes:
        each = least + space * size / total
        if upright:
            yield Place(place.x, place.y + start, place.width, each)
        else:
            yield Place(place.x + start, place.y, each, place.height)
        start += each + gap


def _gap(length: float, cells: int) -> float:
    return min(1.0, length / cells / 5)


def _rect(kind: str, place: Place, radius: float) -> Rect:
    return Rect(kind, place, min(radius, place.height / 5, place.width / 5))
