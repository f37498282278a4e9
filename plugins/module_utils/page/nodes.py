# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes as tiles, grouped by pool; each opens and tells who holds what (pure)."""

from __future__ import annotations

import typing as t
from collections import Counter, defaultdict

from .cuts import DONE
from .drawing import Drawings, per_gpu
from .facts import Count, Fleet, Group, Hold, NodeFacts, added, closed
from .html import NOTHING, Html, join, tag
from .marks import NOTE, WEIGHTS
from .naming import LONG, domain, shown, stem
from .words import badge, marks, memory, mode, name, number, plural, short, verdict

# Up to this many nodes every tile is open; more of them are drawn small, and open one by one.
ROOMY = 40
_FEW_HOLDERS = 10
_MOST_HOLDERS = 64
_MOST_NAMES = 3


def groups(of: Fleet, drawings: Drawings) -> Html:
    """All nodes, pool by pool."""
    ends = domain([node.name for node in of.nodes])
    roomy = len(of.nodes) <= ROOMY
    return join(_group(group, at, of, ends, drawings, roomy) for at, group in enumerate(of.groups) if group.nodes)


def _group(group: Group, at: int, of: Fleet, ends: str, drawings: Drawings, roomy: bool) -> Html:
    told = [plural(len(group.nodes), "node")]
    if of.asked:
        counts = added(group.nodes)
        told += [_free(count, group, len(counts) > 1) for count in counts]
    head = tag("h3", _title(group, of), tag("span", ", ".join(told), class_="muted"))
    usual = _usual(group.nodes)
    begins = "" if roomy else stem([node.name.removesuffix(ends) for node in group.nodes])
    tiles = (_tile(node, shown(node.name, begins, ends), usual, drawings, roomy) for node in group.nodes)
    words = f"{group.name or ''} {' '.join(usual.values())}"
    inside = (head, _common(group, usual, begins, ends), tag("div", *tiles, class_="tiles"))
    return tag("section", *inside, id=f"g{at}", class_="group", data_words=words)


def _title(group: Group, of: Fleet) -> Html:
    if group.declared is not None:
        return join([name(group.name), badge(*verdict(group.declared, of.reachable))])
    if group.name is None:
        return tag("bdi", "In no pool" if of.pools else "GPU nodes")
    return join([name(group.name), badge("not declared", NOTE)]) if of.pools else name(group.name)


def _free(count: Count, group: Group, several: bool) -> str:
    free = number(count.free - closed(group.nodes, count.resource))
    return f"{free} {short(count.resource)} free" if several else f"{free} free"


def _facts(node: NodeFacts) -> dict[str, str]:
    """What there is to say of a node, whatever is on it."""
    mig = node.mig or {}
    devices = ", ".join(f"{count} \u00d7 {profile}" for profile, count in sorted((mig.get("devices") or {}).items()))
    facts = {
        "model": (node.model or "").removeprefix("NVIDIA-"),
        "gpus": f"{plural(node.gpus, 'GPU')} of {memory(node.memory_mib)}" if node.gpus else "",
        "mode": mode({"mode": node.mode, "replicas": node.replicas}) if node.mode and not devices else "",
        "devices": f"MIG devices: {devices}" if devices else "",
        "config": _config(mig) if devices or mig.get("state") not in (None, DONE) else "",
        "driver": f"driver {node.driver}" if node.driver else "",
    }
    return {kind: text for kind, text in facts.items() if text}


def _config(mig: t.Mapping[str, t.Any]) -> str:
    return f"MIG configuration {mig.get('config') or 'none'} ({mig.get('state') or 'no state'})"


def _usual(nodes: t.Sequence[NodeFacts]) -> dict[str, str]:
    """What more than half of the nodes have in common."""
    found: Counter[tuple[str, str]] = Counter(fact for node in nodes for fact in _facts(node).items())
    return {kind: text for (kind, text), count in found.items() if count * 2 > len(nodes)}


def _common(group: Group, usual: t.Mapping[str, str], begins: str, ends: str) -> Html:
    named = [f"names begin with {begins}"] if begins else []
    named += [f"names end with {ends}"] if ends else []
    if not usual and not named:
        return NOTHING
    told = " \u00b7 ".join([*usual.values(), *named])
    all_of_them = all(_facts(node) == usual for node in group.nodes)
    return tag("p", told, "" if all_of_them else ". Where a node differs, it says so.", class_="facts common")


def _tile(node: NodeFacts, called: str, usual: t.Mapping[str, str], drawings: Drawings, roomy: bool) -> Html:
    cut = called != node.name or len(called) > LONG
    title = tag("span", name(called), class_="name", title=node.name if cut else None)
    picture = tag("span", drawings.of(node, story(node)), _who(node), class_="picture")
    summary = tag("summary", title, _room(node), picture, marks(node.marks))
    kinds = ["node", *(["room"] if node.room else [])]
    if node.marks:
        kinds += ["marked", min((mark.weight for mark in node.marks), key=WEIGHTS.index)]
    few = roomy and len(node.holds or ()) <= _FEW_HOLDERS
    return tag("details", summary, _more(node, usual), class_=" ".join(kinds), id=node.key, open=few)


def _who(node: NodeFacts) -> Html:
    """The namespaces that hold most here; who opens the node reads all."""
    held: Counter[str] = Counter()
    for hold in node.holds or ():
        held[hold.namespace] += hold.count
    if not held:
        return NOTHING
    ordered = sorted(held, key=lambda namespace: (-held[namespace], namespace))
    told = [tag("span", name(namespace), f"\u00a0{number(held[namespace])}") for namespace in ordered[:_MOST_NAMES]]
    more = len(ordered) - len(told)
    return tag("span", join(told, ", "), f" and {more} more" if more else "", class_="who")


def story(node: NodeFacts) -> str:
    """What the drawing shows, in words."""
    told = [plural(node.gpus, "GPU")] if node.gpus else []
    for count in node.counts:
        parts = [f"{count.offered} {count.resource} offered"]
        if count.asked:
            parts += [f"{count.held} held", f"{count.free} free"]
        if count.missing:
            parts.append(f"{count.missing} not offered")
        if count.beyond:
            parts.append(f"{count.beyond} held that are not offered any more")
        told.append(", ".join(parts))
    if not node.counts:
        told.append("nothing is offered")
    elif node.gpus > 1 and not per_gpu(node):
        told.append("not known on which GPU")
    return f"{node.name}: {'; '.join(told)}"


def _room(node: NodeFacts) -> Html:
    free, offered = sum(count.free for count in node.counts), sum(count.offered for count in node.counts)
    if not offered or not node.counts[0].asked:
        told: object = f"{number(offered)} offered"
    elif not free:
        told = "full"
    else:
        told = join([number(free), " free " if node.takes_pods else " closed ", tag("small", f"of {number(offered)}")])
    return tag("span", told, class_="free")


def _more(node: NodeFacts, usual: t.Mapping[str, str]) -> Html:
    facts = [text for kind, text in _facts(node).items() if usual.get(kind) != text]
    told = [tag("p", join(facts, " \u00b7 "), class_="facts")] if facts else []
    stories = [mark.story for mark in node.marks if mark.story]
    if stories:
        told.append(tag("p", join(stories, "; ")))
    return tag("div", *told, _holders(node), class_="more")


def _holders(node: NodeFacts) -> Html:
    """Namespaces and their pods, those that hold most first."""
    if node.holds is None:
        return NOTHING
    if not node.holds:
        return tag("p", "Held by nobody.", class_="facts") if node.counts else NOTHING
    plain = len({hold.resource for hold in node.holds} | {count.resource for count in node.counts}) == 1
    by_namespace: dict[str, list[Hold]] = defaultdict(list)
    ordered = sorted(node.holds, key=lambda hold: (-hold.count, hold.namespace, hold.pod, hold.resource))
    for hold in ordered[:_MOST_HOLDERS]:
        by_namespace[hold.namespace].append(hold)
    entries: list[Html] = []
    for namespace, holds in sorted(by_namespace.items()):
        entries += [tag("dt", name(namespace)), tag("dd", join((_hold(hold, plain) for hold in holds), ", "))]
    told = tag("dl", *entries, class_="holders")
    rest = ordered[_MOST_HOLDERS:]
    if not rest:
        return told
    more = f"{plural(len(rest), 'more pod')} hold {number(sum(hold.count for hold in rest))}."
    return join([told, tag("p", more, class_="facts")])


def _hold(hold: Hold, plain: bool) -> Html:
    what = "" if plain else short(hold.resource).removeprefix("mig-")
    told = [f"\u00d7{number(hold.count)}"] if hold.count != 1 else []
    more = "\u00a0".join([*told, *([what] if what else [])])
    return tag("span", name(hold.pod), tag("i", f"\u00a0{more}")) if more else name(hold.pod)
