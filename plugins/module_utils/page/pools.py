# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cards of the pools: what each declares, what it offers, how much of that is held, and its verdict (pure)."""

from __future__ import annotations

import typing as t

from ..schema.messages import abbreviate
from .drawing import meter
from .facts import Count, Document, Fleet, Group, added, closed
from .html import Html, html, join, tag
from .slices import bars
from .words import badge, code, free, layout, memory, mode, name, number, plural, proof, verdict


def cards(of: Fleet) -> Html:
    """One card for each declared pool."""
    shown = [_card(group, of, at) for at, group in enumerate(of.groups) if group.declared is not None]
    if not shown:
        return tag("p", "No pools are declared: nothing is shared, labelled or proven.")
    return tag("div", *shown, class_="pools")


def _card(group: Group, of: Fleet, at: int) -> Html:
    pool = t.cast("Document", group.declared)
    title = tag("a", name(group.name), href=f"#g{at}") if group.nodes else name(group.name)
    head = tag("header", tag("h3", title), badge(*verdict(pool, of.reachable)))
    told: list[Html] = [head, tag("p", _facts(pool, of.reachable), class_="facts")]
    if pool.get("group"):
        told.append(tag("p", _made(pool["group"]), class_="facts"))
    told.append(bars(pool.get("cuts") or ()))
    counts = added(group.nodes)
    told += [_resource(count, closed(group.nodes, count.resource), _wanted(pool, count.resource)) for count in counts]
    if not counts:
        told.append(tag("p", "Requested as ", code(pool.get("resource")), class_="facts"))
    if of.reachable and pool.get("nodes"):
        told.append(tag("p", _proven(pool), class_="facts end"))
    return tag("article", *told, class_="card pool")


def _facts(pool: Document, reachable: bool) -> Html:
    """What the pool is, and below that how large."""
    share, shares = pool.get("memory_mib_per_share"), pool.get("shares_per_gpu")
    facts = [_models(pool), ": ".join(filter(None, [mode(pool), layout(pool)]))]
    if share:
        facts.append(f"{memory(share)} a GPU" if shares == 1 else f"{memory(share)} a share")
    shown = join(facts, " \u00b7 ")
    if not reachable:
        return shown
    nodes, gpus = pool.get("nodes") or 0, pool.get("gpus") or 0
    size = f"{plural(nodes, 'node')} \u00b7 {plural(gpus, 'GPU')}" if nodes else "No node of the cluster belongs to it."
    return join([shown, tag("br"), size])


def _made(group: Document) -> Html:
    """Which node group makes the nodes."""
    return join(
        ["Made by node group ", code(group.get("name")), " of ", code(group.get("flavor")), f": {group.get('size')}"]
    )


def _wanted(pool: Document, resource: str) -> int | None:
    """How much of a resource the pool wants; none of what it does not declare."""
    resources: Document = pool.get("resources") or {pool.get("resource"): pool}
    return (resources.get(resource) or {}).get("wanted")


def _resource(count: Count, shut: int, wanted: int | None) -> Html:
    """One resource: its bar, and the numbers under it."""
    offered = html(number(count.offered))
    if wanted is not None and wanted != count.offered:
        offered = join([offered, " ", tag("small", f"of {number(wanted)} wanted")])
    entries = [("offered", offered)]
    if count.asked:
        entries = [("free", free(count, shut)), ("held", html(number(count.held))), *entries]
    entries += [
        (what, html(number(units)))
        for what, units in (("not offered", count.missing), ("held, not offered", count.beyond))
        if units
    ]
    numbers = (tag("div", tag("dt", what), tag("dd", shown)) for what, shown in entries)
    return tag("div", code(count.resource), meter(count), tag("dl", *numbers, class_="numbers"), class_="resource")


def _proven(pool: Document) -> Html:
    differing = pool.get("differing_nodes") or 0
    if pool.get("as_declared") or not differing:
        return html(proof(pool))
    return join([tag("a", f"Differs on {plural(differing, 'node')}", href="#differs"), ". ", proof(pool)])


def _models(pool: Document) -> str:
    found = [str(model).removeprefix("NVIDIA-") for model in pool.get("models") or [pool.get("model") or "any GPU"]]
    return abbreviate(found, 3)
