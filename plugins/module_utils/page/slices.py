# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the GPUs of a pool are cut into: each layout as a bar of memory slices with a field for each MIG device (pure)."""

from __future__ import annotations

import typing as t

from .html import NOTHING, Html, join, tag
from .shapes import Place, rect, short
from .words import plural

Document = t.Mapping[str, t.Any]

# Of the whole bar, in the units of the drawing; one letter is about so wide.
_WIDTH, _HEIGHT, _LETTER = 340, 22, 5.2


def bars(cuts: t.Sequence[Document]) -> Html:
    """The layouts of a pool, with the GPUs that have each; nothing where no GPU is cut."""
    if not any(cut["devices"] for cut in cuts):
        return NOTHING
    return tag("div", *(_of_layout(cut) for cut in cuts), class_="slices")


def _of_layout(cut: Document) -> Html:
    devices: t.Sequence[Document] = cut["devices"]
    gpus = "Each GPU" if cut["gpus"] is None else plural(cut["gpus"], "GPU")
    if not devices:
        return tag("p", f"{gpus} whole", class_="facts")
    each = _WIDTH / cut["slices"]
    drawn = [_free(at * each, each) for at in range(cut["slices"])]
    drawn += [_device(of, each) for of in devices]
    said = ", ".join(f"{of['profile']} on slices {of['start']} to {of['start'] + of['size'] - 1}" for of in devices)
    title = tag("title", f"{cut['slices']} memory slices: {said}")
    drawing = tag("svg", title, *drawn, role="img", viewBox=f"0 0 {_WIDTH} {_HEIGHT}")
    return join([tag("p", f"{gpus}", class_="facts"), drawing])


def _device(of: Document, each: float) -> Html:
    place = Place(of["start"] * each, 0, of["size"] * each, _HEIGHT).within(0.75)
    name = str(of["profile"])
    if len(name) * _LETTER > place.width:
        name = name.replace("gb", "")
    label = tag("text", name, x=short(place.x + place.width / 2), y=short(_HEIGHT / 2 + 3), text_anchor="middle")
    return join([rect(place, "device", 2), label])


def _free(left: float, width: float) -> Html:
    return rect(Place(left, 0, width, _HEIGHT).within(0.75), "bare", 2)
