# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the page writes numbers, names and verdicts (pure)."""

from __future__ import annotations

import re
import typing as t

from ..report.text import answers
from .facts import Count, Document
from .html import NOTHING, Html, html, join, tag
from .marks import BAD, NOTE, WARN, Mark

# A form beside the colour, so that a verdict is seen without colours too.
_SIGNS = {"ok": "\u2713", WARN: "\u25b2", BAD: "\u25cf", NOTE: "\u25cb"}

_MODES = {"none": "whole GPUs", "mig": "MIG", "undiscovered": "not discovered"}


def plural(count: int, word: str) -> str:
    """1 node, 2 nodes."""
    return f"{number(count)} {word}" if count == 1 else f"{number(count)} {word}s"


def number(count: int) -> str:
    """A number with a thin space between thousands."""
    return f"{count:,}".replace(",", "\u202f")


def memory(mib: int | None) -> str:
    """Memory in GiB."""
    return f"{mib / 1024:.1f}\u00a0GiB" if mib else "?"


def short(resource: t.Any) -> str:
    """A resource without NVIDIA's prefix."""
    return str(resource or "?").removeprefix("nvidia.com/")


def name(text: t.Any) -> Html:
    """A name of the cluster's; the direction of its writing ends where it ends."""
    return tag("bdi", text)


def code(text: t.Any) -> Html:
    """A name that is written in other documents just so."""
    return tag("code", name(text))


def mode(document: Document) -> str:
    """How GPUs are shared."""
    way, replicas = str(document.get("mode") or "?"), document.get("replicas") or 1
    shown = _MODES.get(way, way)
    return f"{shown} \u00d7{replicas}" if isinstance(replicas, int) and replicas > 1 else shown


def badge(word: str, weight: str, title: str | None = None) -> Html:
    """A verdict in a word or two."""
    sign = tag("span", _SIGNS[weight], aria_hidden="true")
    return tag("span", sign, " ", word, class_=f"verdict {weight}", title=title or None)


def marks(of_node: t.Sequence[Mark]) -> Html:
    """Why a node needs a look."""
    if not of_node:
        return NOTHING
    return tag("span", *(badge(mark.word, mark.weight, mark.story) for mark in of_node), class_="marks")


def verdict(pool: Document, reachable: bool) -> tuple[str, str]:
    """A pool's verdict: word and weight."""
    if not reachable:
        return "not reached", NOTE
    if not pool.get("nodes"):
        return "no nodes", WARN
    return ("as declared", "ok") if pool.get("as_declared") else ("differs", WARN)


def proof(pool: Document) -> str:
    """What workloads have proven of a pool."""
    told = pool.get("proof")
    if not told:
        return "Not proven by workloads yet."
    devices = told.get("devices") or {}
    found = (
        f"{plural(sum(devices.values()), 'pod')} on {told.get('node')} ran together on {plural(len(devices), 'device')}"
        + answers(told)
    )
    return f"Proven: {found}." if told.get("current") else f"Proven before it last changed: {found}."


def changes(pool: Document) -> list[str]:
    """What a run would change on the pool's nodes."""
    found: Document = pool.get("changes") or {}
    if not found:
        return []
    wanted = mode(pool)
    told = [
        f"{plural(count, 'node')} to switch from {_switched(way)} to {wanted}"
        for way, count in (found.get("switched_from") or {}).items()
    ]
    if found.get("joining"):
        told.append(f"{plural(found['joining'], 'node')} to join the pool")
    told += [f"{what} to set: {', '.join(map(str, found[what]))}" for what in ("labels", "taints") if found.get(what)]
    return told or [f"{plural(found.get('nodes') or 0, 'node')} to note as ours"]


def free(count: Count, shut: int) -> Html:
    """What is free, and how much of that no new pod can reach."""
    shown = html(number(count.free - shut))
    return join([shown, " ", tag("small", f"+{number(shut)} closed")]) if shut else shown


def layout(pool: Document) -> str:
    """Into which MIG devices a pool's GPUs are cut, or which they have together."""
    demand = ", ".join(f"{count} \u00d7 {profile}" for profile, count in (pool.get("demand") or {}).items())
    told = [f"{demand} in all"] if demand else []
    for part in pool.get("layout") or ():
        cut = (
            ", ".join(f"{count} \u00d7 {profile}" for profile, count in (part.get("profiles") or {}).items())
            or "not cut"
        )
        devices = ", ".join(map(str, part.get("devices") or ()))
        told.append(f"GPU {devices}: {cut}" if devices else cut)
    return "; ".join(told)


def _switched(way: t.Any) -> str:
    return _MODES.get(way) or re.sub(r" x([0-9]+)$", " \u00d7\\1", str(way))


def listed(names: t.Sequence[t.Any], limit: int = 20) -> Html:
    """Names, not more than fit."""
    more = len(names) - limit
    shown = join((name(entry) for entry in names[:limit]), ", ")
    return join([shown, f" and {number(more)} more"]) if more > 0 else shown
