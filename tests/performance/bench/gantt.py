# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draws a rolling update as SVG: one bar per node, one lane per node that can change at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from .schedule import RolloutResult, Span, lanes

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE, _BAR, _FOOT = 960, 16, 16, 46, 20, 14, 40
_TICKS = 8
# Text and lines are legible on light and dark pages; the media query selects the colors.
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .bound { stroke: #9a3412; stroke-width: 2; stroke-dasharray: 5 4 }
  .label { fill: #9a3412 }
  .slow { fill: #1f5fa8 }
  .even { fill: #3b82c4 }
  .quick { fill: #7fb2e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .grid { stroke: #3d444d }
    .bound { stroke: #f0a070 }
    .label { fill: #f0a070 }
    .slow { fill: #4b8fdc }
    .even { fill: #6aa9ec }
    .quick { fill: #a9cff5 }
  }
"""


def gantt(spans: Sequence[Span], result: RolloutResult) -> str:
    """Return an SVG, the same one for the same spans. The dashed line is the lower bound of the makespan."""
    begin = min(span.begin for span in spans)
    total = max(result.makespan, result.bound)
    rows = lanes(spans)
    height = _TOP + _LANE * len(rows) + _FOOT
    bottom = _TOP + _LANE * len(rows)

    def place(seconds: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / total, 1)

    title = (
        f"{result.nodes} nodes, {result.window} at a time: {result.makespan:.1f} s, "
        f"{result.ratio:.2f} of the best schedule ({result.bound:.1f} s)"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label={quoteattr(title)}>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="20">{escape(title)}</text>',
    ]
    for second in ticks(total):
        x = place(second)
        parts.append(f'<line class="grid" x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{bottom}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{second:g} s</text>')
    classes = bar_classes(spans)
    for number, lane in enumerate(rows):
        y = _TOP + _LANE * number + (_LANE - _BAR) // 2
        for span in lane:
            x = place(span.begin - begin)
            width = max(0.5, round(place(span.end - begin) - x - 1, 1))
            tooltip = f"{span.node}: {span.seconds:.1f} s, from {span.begin - begin:.1f} to {span.end - begin:.1f}"
            parts.append(
                f'<rect class="{classes[span.node]}" x="{x}" y="{y}" width="{width}" height="{_BAR}" rx="2">'
                f"<title>{escape(tooltip)}</title></rect>"
            )
    x = place(result.bound)
    parts.append(f'<line class="bound" x1="{x}" y1="{_TOP - 10}" x2="{x}" y2="{bottom + 2}"/>')
    parts.append(f'<text class="label" x="{x - 4}" y="{_TOP - 12}" text-anchor="end">best {result.bound:.1f} s</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def ticks(total: float) -> list[float]:
    """Return about eight round numbers of seconds, from 0."""
    step = 10.0 ** math.floor(math.log10(total / _TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if total / (step * factor) <= _TICKS)
    return [round(number * step, 6) for number in range(math.floor(total / step) + 1)]


def bar_classes(spans: Sequence[Span]) -> dict[str, str]:
    """Return the CSS class of each node's bar: a darker color for each third of the nodes that takes longer."""
    ordered = sorted(spans, key=lambda span: (span.seconds, span.node))
    classes = ("quick", "even", "slow")
    return {span.node: classes[min(2, 3 * number // len(ordered))] for number, span in enumerate(ordered)}
