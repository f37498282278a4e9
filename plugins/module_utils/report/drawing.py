# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the content of a node's drawing: the GPUs, and the states of their shares (pure).

Kubernetes reports how many of a node's shares a pod requests, but not on which GPU these shares are. A GPU is therefore drawn with its own
shares only if their states are certain: the node has one GPU, or all units of each resource are in the same state. Otherwise, one bar for each
resource shows the node's shares, below a row of empty frames for the GPUs.
"""

from __future__ import annotations

import typing as t
from collections import defaultdict

from .mig_devices import compute_slices

if t.TYPE_CHECKING:
    from .node_view import GpuNode

# The maximum widths of a node's drawing and of a GPU, and the minimum width of a cell. Because of the second value, one or two GPUs do not fill a drawing.
_MAX_WIDTH, _MAX_GPU_WIDTH, _MIN_CELL_WIDTH = 150, 36, 5
_GAP = 2
# Above these numbers, units are not drawn individually.
_MAX_GPUS, _MAX_SHARES, _MAX_CELLS = 16, 16, 64

# The state of a unit and its width; for merged units, the sum of their widths.
Cell = tuple[str, float]


class Units(t.NamedTuple):
    """The units of a GPU or of a resource. If they are `merged`, each cell represents all units in one state."""

    cells: list[Cell]
    merged: bool = False

    @property
    def width(self) -> float:
        """The width of all cells together."""
        return sum(width for dummy, width in self.cells)

    @property
    def is_uniform(self) -> bool:
        """Whether all cells have the same width."""
        return len({width for dummy, width in self.cells}) == 1


class NodeDrawing(t.NamedTuple):
    """The drawing of a node. `gpus` contains the GPUs with their own shares. If it is empty, `frames` contains the GPUs with the widths of their MIG devices,
    and `bars` contains the resources.
    """

    width: float
    gpus: t.Sequence[Units] = ()
    frames: t.Sequence[t.Sequence[int]] = ()
    bars: t.Sequence[Units] = ()


def node_drawing(node: GpuNode) -> NodeDrawing:
    """The GPUs of a node and the states of their shares."""
    gpus = min(node.gpus, _MAX_GPUS)
    width = min(_MAX_WIDTH, max(1, gpus) * (_MAX_GPU_WIDTH + _GAP) - _GAP)
    per_gpu = cells_per_gpu(node)
    if per_gpu:
        crowded = gpus == 1 and is_crowded(node)
        return NodeDrawing(width, gpus=[_gpu_units(cells, crowded) for cells in per_gpu])
    bars = _cells_per_resource(node)
    width = max(width, min(_MAX_WIDTH, _MIN_CELL_WIDTH * sum(map(len, bars))))
    frames = [
        [compute_slices(name) or 1 for name, count in layout for dummy in range(min(count, _MAX_SHARES))]
        for layout in (node.gpu_layouts or [()] * gpus)[:gpus]
    ]
    # If each unit is a whole GPU, the bar already shows the GPUs.
    if [node.gpus] == [usage.total for usage in node.usage if not compute_slices(usage.resource)]:
        frames = []
    return NodeDrawing(width, frames=frames, bars=[Units(cells, is_crowded(node)) for cells in bars])


def _gpu_units(cells: list[Cell], crowded: bool) -> Units:
    if not crowded and len(cells) <= _MAX_SHARES:
        return Units(cells)
    widths: dict[str, float] = defaultdict(float)
    for state, width in cells:
        widths[state] += width
    return Units(list(widths.items()), merged=True)


def cells_per_gpu(node: GpuNode) -> list[list[Cell]]:
    """The cells of each GPU if they are certain for every GPU; otherwise, an empty list."""
    if not node.usage or not 0 < node.gpus <= _MAX_GPUS:
        return []
    if node.gpus == 1:
        return [[cell for cells in _cells_per_resource(node) for cell in cells]]
    states = [usage.states for usage in node.usage]
    if any(len(of_resource) > 1 for of_resource in states):
        return []
    state_of = {usage.resource: of_resource[0][0] for usage, of_resource in zip(node.usage, states, strict=True)}
    if node.gpu_layouts:
        return _cells_of_mig_gpus(node, state_of)
    shares, (usage, *others) = max(1, node.replicas), node.usage
    if others or compute_slices(usage.resource) or usage.total != node.gpus * shares:
        return []  # MIG may partition each GPU of a node differently
    return [[(states[0][0][0], 1)] * min(shares, _MAX_SHARES)] * node.gpus


def is_crowded(node: GpuNode) -> bool:
    """Whether a node has too many units to draw them individually."""
    return sum(usage.total for usage in node.usage) > _MAX_CELLS


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
    """One cell for each unit, as wide as its compute slices; on a crowded node, one cell for each state."""
    merged = is_crowded(node)
    result: list[list[Cell]] = []
    for usage in node.usage:
        width = compute_slices(usage.resource) or 1
        if merged:
            result.append([(state, count * width) for state, count in usage.states])
        else:
            result.append([(state, width) for state, count in usage.states for dummy in range(count)])
    return result
