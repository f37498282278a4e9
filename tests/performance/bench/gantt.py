# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rolling change as a picture: a bar a node, on as many lanes as the window is wide (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from .schedule import Span, Verdict, lanes

_WIDTH, _LEFT, _RIGHT, _TOP, _LANE, _BAR, _FOOT = 960, 16, 16, 46, 20, 14, 40
_TICKS = 8
# Text and lines are legible on white and on dark pages; the media query follows the reader's choice.
_STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .bound { stroke: #9a3412; stroke-width: 2; stroke-dasharray: 5 4 }
  .said { fill: #9a3412 }
  .slow { fill: #1f5fa8 }
  .even { fill: #3b82c4 }
  .quick { fill: #7fb2e0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .grid { stroke: #3d444d }
    .bound { stroke: #f0a070 }
    .said { fill: #f0a070 }
    .slow { fill: #4b8fdc }
    .even { fill: #6aa9ec }
    .quick { fill: #a9cff5 }
  }
"""


def gantt(spans: Sequence[Span], verdict: Verdict) -> str:
    """An SVG; the same spans give the same picture. The dashed line is where the best schedule would have ended."""
    begin = min(span.begin for span in spans)
    total = max(verdict.makespan, verdict.bound)
    rows = lanes(spans)
    height = _TOP + _LANE * len(rows) + _FOOT
    bottom = _TOP + _LANE * len(rows)

    def place(seconds: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * seconds / total, 1)

    title = (
        f"{verdict.nodes} nodes, {verdict.window} at a time: {verdict.makespan:.1f} s, "
        f"{verdict.ratio:.2f} of the best schedule ({verdict.bound:.1f} s)"
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
    classes = shades(spans)
    for number, lane in enumerate(rows):
        y = _TOP + _LANE * number + (_LANE - _BAR) // 2
        for span in lane:
            x = place(span.begin - begin)
            width = max(0.5, round(place(span.end - begin) - x - 1, 1))
            told = f"{span.node}: {span.seconds:.1f} s, from {span.begin - begin:.1f} to {span.end - begin:.1f}"
            parts.append(
                f'<rect class="{classes[span.node]}" x="{x}" y="{y}" width="{width}" height="{_BAR}" rx="2">'
                f"<title>{escape(told)}</title></rect>"
            )
    x = place(verdict.bound)
    parts.append(f'<line class="bound" x1="{x}" y1="{_TOP - 10}" x2="{x}" y2="{bottom + 2}"/>')
    parts.append(f'<text class="said" x="{x - 4}" y="{_TOP - 12}" text-anchor="end">best {verdict.bound:.1f} s</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def ticks(total: float) -> list[float]:
    """Up to about eight round numbers of seconds, from 0 on."""
    step = 10.0 ** math.floor(math.log10(total / _TICKS))
    step *= next(factor for factor in (1, 2, 5, 10) if total / (step * factor) <= _TICKS)
    return [round(number * step, 6) for number in range(math.floor(total / step) + 1)]


def shades(spans: Sequence[Span]) -> dict[str, str]:
    """How dark each node's bar is: the third of the nodes that take longest are the darkest."""
    ordered = sorted(spans, key=lambda span: (span.seconds, span.node))
    words = ("quick", "even", "slow")
    return {span.node: words[min(2, 3 * number // len(ordered))] for number, span in enumerate(ordered)}
