# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands before and after the nodes: the fleet in numbers, what needs a look, who holds what, and what differs (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict

from .facts import Fleet, NodeFacts, added, closed
from .html import NOTHING, Html, html, join, tag
from .marks import DIFFERS, NOTE, WARN, WEIGHTS
from .words import badge, changes, code, listed, name, number, plural, verdict

_MOST_NAMESPACES = 200
_MOST_NAMES = 5


def lede(of: Fleet) -> str:
    """The whole report in a sentence or two."""
    if not of.reachable:
        return f"The cluster was not reached: {of.info.get('reason') or 'no reason is known'}"
    pools = [group.declared or {} for group in of.pools]
    if not pools:
        return "No pools are declared."
    good = sum(1 for pool in pools if pool.get("as_declared"))
    empty = sum(1 for pool in pools if not pool.get("nodes"))
    if good == len(pools):
        return "Its pool is as declared." if good == 1 else f"All {good} pools are as declared."
    told = [f"{good} of {plural(len(pools), 'pool')} {'is' if good == 1 else 'are'} as declared"]
    if len(pools) - good - empty:
        told.append(f"{len(pools) - good - empty} differ{'s' if len(pools) - good - empty == 1 else ''}")
    if empty:
        told.append(f"{empty} {'has' if empty == 1 else 'have'} no nodes")
    return "; ".join(told) + "."


def overview(of: Fleet) -> Html:
    """Resources, models, and what needs a look."""
    if not of.reachable:
        return NOTHING
    return tag("div", _resources(of), _models(of), _attention(of), class_="overview")


def holders(of: Fleet) -> Html:
    """Namespaces, and how much of each resource they hold."""
    held: dict[str, Counter[str]] = defaultdict(Counter)
    pods: dict[str, set[str]] = defaultdict(set)
    nodes: dict[str, set[str]] = defaultdict(set)
    for node in of.nodes:
        for hold in node.holds or ():
            held[hold.namespace][hold.resource] += hold.count
            pods[hold.namespace].add(hold.pod)
            nodes[hold.namespace].add(node.name)
    if not held:
        return tag("p", "Nobody holds any of it." if of.asked else "It was not asked which pods hold what.")
    resources = sorted({resource for of_one in held.values() for resource in of_one})
    ordered = sorted(held, key=lambda namespace: (-sum(held[namespace].values()), namespace))
    rows = (
        (
            name(namespace),
            number(len(pods[namespace])),
            number(len(nodes[namespace])),
            *(number(held[namespace][resource]) if held[namespace][resource] else "" for resource in resources),
        )
        for namespace in ordered[:_MOST_NAMESPACES]
    )
    told = _table(("Namespace", "Pods", "Nodes", *map(code, resources)), rows)
    rest = ordered[_MOST_NAMESPACES:]
    return join([told, tag("p", f"{plural(len(rest), 'more namespace')} hold less.", class_="facts")]) if rest else told


def differs(of: Fleet) -> Html:
    """Every pool that is not as declared, and every node that the pools do not agree about, with the reasons."""
    told = [
        _pool(group.name, group.declared or {}, of)
        for group in of.pools
        if not (group.declared or {}).get("as_declared")
    ]
    for title, names in _lists(of):
        told.append(tag("article", tag("h3", title), tag("p", names, class_="long"), class_="card"))
    if not told:
        return tag("p", "Nothing: every pool is as declared." if of.pools else "Nothing is declared to differ from.")
    return tag("div", *told, class_="stories")


def _pool(title: str | None, pool: t.Mapping[str, t.Any], of: Fleet) -> Html:
    stories = [*map(str, pool.get("differs") or ()), *changes(pool)]
    if of.reachable and not pool.get("nodes"):
        stories.append("no node of the cluster belongs to it")
    more = (pool.get("differing_nodes") or 0) - len(pool.get("differs") or ())
    if more > 0 and pool.get("differs"):
        stories.append(f"and {plural(more, 'more node')}")
    head = tag("h3", name(title), " ", badge(*verdict(pool, of.reachable)))
    shown = tag("ul", *(tag("li", _linked(text, of)) for text in stories)) if stories else NOTHING
    return tag("article", head, shown, class_="card")


def _linked(text: str, of: Fleet) -> Html:
    """A story, in which the node that it begins with leads to its tile."""
    node, between, rest = text.partition(" (pool ")
    return join([_links([node], of, 1), name(between + rest)]) if node in of.keys_of else name(text)


def _links(nodes: t.Sequence[str], of: Fleet, limit: int) -> Html:
    """Names of nodes that lead to their tiles."""
    found = of.keys_of
    shown = [tag("a", name(node), href=f"#{found[node]}") if node in found else name(node) for node in nodes[:limit]]
    more = len(nodes) - limit
    return join([join(shown, ", "), f" and {number(more)} more" if more > 0 else ""])


def _lists(of: Fleet) -> t.Iterator[tuple[str, Html]]:
    info = of.info
    for node, claiming in sorted((info.get("overlaps") or {}).items()):
        yield (
            "Matches several pools",
            join([_links([node], of, 1), ": ", listed(list(claiming)), ". It is left as it is."]),
        )
    for entry in (info.get("unusual_nodes") or [])[:100]:
        yield "Not waited for", join([_links([entry["name"]], of, 1), ": ", entry["reason"]])
    for key, title in (
        ("undiscovered", "Not labelled by gpu-feature-discovery yet"),
        ("released", "Belongs to no pool any more and gives its labels back"),
        ("unclaimed", "GPU nodes that no pool wants"),
    ):
        if info.get(key):
            yield title, _links(list(info[key]), of, 100)


def _resources(of: Fleet) -> Html:
    totals: t.Mapping[str, t.Any] = of.info.get("totals") or {}
    gpus = f"{plural(totals.get('gpus') or 0, 'GPU')} in {totals.get('gpu_nodes') or 0} of {plural(totals.get('nodes') or 0, 'node')}"
    rows: list[list[Html]] = []
    counts = [(count, closed(of.nodes, count.resource)) for count in added(of.nodes)]
    heads = ["Resource", "Offered", *(("Held", "Free") if of.asked else ())]
    heads += ["Closed"] if of.asked and any(shut for dummy, shut in counts) else []
    for count, shut in counts:
        numbers = (count.offered, count.held, count.free - shut, shut)
        rows.append([code(count.resource), *(html(number(entry)) for entry in numbers[: len(heads) - 1])])
    if not of.nodes:
        offers: t.Mapping[str, int] = totals.get("allocatable") or {}
        rows = [[code(resource), html(number(offered))] for resource, offered in offers.items() if offered]
    return tag("section", tag("h2", gpus), _table(heads, rows), class_="card")


def _models(of: Fleet) -> Html:
    models: t.Mapping[str, t.Any] = of.info.get("models") or {}
    rows = (
        (
            name(str(model or "not discovered").removeprefix("NVIDIA-")),
            number(told.get("nodes") or 0),
            number(told.get("gpus") or 0),
            listed(told.get("drivers") or ["?"], 3),
        )
        for model, told in models.items()
    )
    title = plural(len(models), "model")
    return tag("section", tag("h2", title), _table(("Model", "Nodes", "GPUs", "Driver"), rows, words=1), class_="card")


def _attention(of: Fleet) -> Html:
    """How many nodes have which mark, and what is beyond this page."""
    told: list[Html] = []
    marked: dict[tuple[str, str], list[NodeFacts]] = defaultdict(list)
    for node in of.nodes:
        for mark in node.marks:
            marked[mark.word, mark.weight].append(node)
    for (word, weight), nodes in sorted(marked.items(), key=lambda entry: (WEIGHTS.index(entry[0][1]), entry[0][0])):
        told.append(join([badge(word, weight), " ", _links([node.name for node in nodes], of, _MOST_NAMES)]))
    for group in of.pools:
        pool = group.declared or {}
        named = sum(1 for node in group.nodes for mark in node.marks if mark.word == DIFFERS)
        unnamed = (pool.get("differing_nodes") or 0) - named
        if unnamed > 0:
            told.append(join([badge(DIFFERS, WARN), " ", plural(unnamed, "more node"), " of ", name(group.name)]))
        if not pool.get("nodes"):
            told.append(join([badge("no nodes", WARN), " ", name(group.name)]))
    unclaimed = of.info.get("unclaimed") or ()
    if unclaimed:
        told.append(join([badge("in no pool", NOTE), " ", _links(list(unclaimed), of, _MOST_NAMES)]))
    hidden = of.info.get("nodes_not_shown") or 0
    if hidden:
        told.append(html(f"{plural(hidden, 'more GPU node')} not on this page (option limit of gpu_info)"))
    if not told:
        return NOTHING
    return tag(
        "section", tag("h2", "Needs a look"), tag("ul", *(tag("li", line) for line in told)), class_="card attention"
    )


def _table(heads: t.Sequence[object], rows: t.Iterable[t.Sequence[object]], words: int = 0) -> Html:
    """A table whose first column names the row, and whose others are numbers, except the last ones if they are words."""
    last = len(heads) - words

    def kind(at: int) -> str | None:
        return "n" if 0 < at < last else None

    head = tag("tr", *(tag("th", text, scope="col", class_=kind(at)) for at, text in enumerate(heads)))
    body = (
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", value, class_=kind(at)) for at, value in enumerate(row[1:], 1)),
        )
        for row in rows
    )
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll")
