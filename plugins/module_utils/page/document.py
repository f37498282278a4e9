# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fleet as one HTML page that stands alone: it asks nobody for anything and works without its script (pure)."""

from __future__ import annotations

from ..catalog.names import VERSION
from .drawing import Drawings, sample, sample_of_gpu, sample_of_node
from .facts import Document, Fleet, fleet
from .html import NOTHING, Html, html, join, tag
from .nodes import ROOMY, groups
from .pools import cards
from .sections import differs, holders, lede, overview
from .shapes import BEYOND, FREE, HELD, MISSING, UNKNOWN
from .style import ICON, POLICY, SCRIPT, STYLE
from .words import name, number

_LEGEND = {
    HELD: "held by a pod",
    FREE: "free",
    MISSING: "there, but not offered",
    BEYOND: "held, but not offered any more",
    UNKNOWN: "not known who holds it",
}
_KNOWS = (
    "Kubernetes tells how many shares of a node a pod holds, not which GPU they are on. A GPU is drawn with shares of its own "
    "where that follows: when it is the only one, or all shares of the node are in the same state. Closed is what is free on "
    "a node that is not ready or cordoned, where no new pod can go."
)


def page(info: Document) -> str:
    """What gpu_info returned as a page; the same input gives the same page."""
    of = fleet(info)
    drawings = Drawings()
    nodes = groups(of, drawings)
    parts = [
        _head(of),
        tag("header", tag("p", "GPU report", class_="eyebrow"), tag("h1", name(of.cluster)), _intro(of), overview(of)),
        tag("main", drawings.definitions(), *_body(of, nodes)),
        tag(
            "footer", tag("p", f"Written by accel.gpu {VERSION} from what the module gpu_info returned. {_source(of)}")
        ),
        tag("script", Html(SCRIPT)) if of.nodes else NOTHING,
    ]
    body = tag("body", *parts[1:], class_=None if len(of.nodes) <= ROOMY else "dense")
    return str(join([Html("<!doctype html>\n"), tag("html", parts[0], body, lang="en"), "\n"]))


def _head(of: Fleet) -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{of.cluster}: GPU report"),
        tag("link", rel="icon", href=ICON),
        tag("style", Html(STYLE)),
    )


def _intro(of: Fleet) -> Html:
    links = [("pools", "Pools"), ("nodes", "Nodes"), ("holders", "Who holds what"), ("differs", "What differs")]
    menu = tag("nav", *(tag("a", text, href=f"#{key}") for key, text in links), aria_label="Parts of this page")
    return join([tag("p", lede(of), class_="lede"), menu if of.nodes else NOTHING])


def _body(of: Fleet, nodes: Html) -> list[Html]:
    told = [_section("pools", "Pools", cards(of))]
    if of.nodes:
        told += [
            _section("nodes", "Nodes", _controls(of), _legend(of), nodes),
            _section("holders", "Who holds what", tag("div", holders(of), class_="card")),
        ]
    if of.reachable:
        told.append(_section("differs", "What differs", differs(of)))
    return told


def _section(key: str, title: str, *inside: Html) -> Html:
    return tag("section", tag("h2", title, id=f"{key}-title"), *inside, id=key, aria_labelledby=f"{key}-title")


def _controls(of: Fleet) -> Html:
    """Radio buttons that the style sheet obeys, and a search that is there when its script runs."""
    numbers = {
        "all": ("all nodes", len(of.nodes)),
        "room": ("with room", sum(1 for node in of.nodes if node.room)),
        "marked": ("that need a look", sum(1 for node in of.nodes if node.marks)),
    }
    buttons = (
        tag(
            "label",
            tag("input", type="radio", name="show", id=f"show-{key}", checked=key == "all"),
            f" {text} ({number(count)})",
        )
        for key, (text, count) in numbers.items()
        if key != "room" or of.asked
    )
    field = tag(
        "input", type="search", id="words", placeholder="node, pool, model, namespace or pod", autocomplete="off"
    )
    search = tag(
        "div", tag("label", "Find ", field), " ", tag("span", id="found", role="status"), id="search", hidden=True
    )
    return tag("div", tag("fieldset", tag("legend", "Which nodes to show"), *buttons), search, class_="controls")


def _legend(of: Fleet) -> Html:
    states = [HELD, FREE] if of.asked else [UNKNOWN]
    counts = [count for node in of.nodes for count in node.counts]
    states += [MISSING] if any(count.missing for count in counts) else []
    states += [BEYOND] if any(count.beyond for count in counts) else []
    items = [tag("li", sample(state), _LEGEND[state]) for state in states]
    items.append(tag("li", sample_of_gpu(), "the shares of one GPU"))
    items.append(tag("li", sample_of_node(), "GPUs, and the shares of their node: not known on which GPU"))
    return join([tag("ul", *items, class_="legend"), tag("p", _KNOWS, class_="knows")])


def _source(of: Fleet) -> Html:
    if of.nodes and not of.asked:
        return html("Which pods hold what was not asked (option workloads).")
    return NOTHING
