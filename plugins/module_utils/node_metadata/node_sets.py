# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option `sets` of the module nodes: its schema, and which node is in which set (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.names import NFD_PREFIX, POOL_LABEL
from ..cluster_state import label_selector as selector
from ..cluster_state.label_selector import Selector
from ..cluster_state.node import Node
from ..common.errors import InvalidOptions
from ..schema import validators
from ..schema.pool import EFFECTS
from ..schema.types import Boolean, Choice, ListOf, MapOf, Section, Text


def _selector(value: str) -> str | None:
    try:
        selector.parse(value)
    except ValueError as error:
        return str(error)
    return None


def _not_our_note(value: str) -> str | None:
    if value.startswith("accel.gpu/") and value != POOL_LABEL:
        return "is reserved for this collection's own notes"
    return None


_MAP_TEXT = Text(empty=True)
_SETS = ListOf(
    item=Section(
        fields={
            "name": Text(),
            "state": Choice(known=("present", "absent"), default="present"),
            "selector": Text((_selector,), empty=True),
            "names": ListOf(item=Text()),
            "match": Section(
                fields={
                    "model": Text((validators.known_model,)),
                    "pool": Text((validators.dns_label,)),
                    "labels": MapOf(keys=(validators.label_key,), item=Text((validators.label_value,), empty=True)),
                }
            ),
            "labels": MapOf(
                keys=(validators.label_key, _not_our_note), item=Text((validators.label_value,), empty=True)
            ),
            "annotations": MapOf(keys=(validators.label_key, _not_our_note), item=_MAP_TEXT),
            "taints": ListOf(
                item=Section(
                    fields={
                        "key": Text((validators.label_key,), required=True, missing="a taint has a key and an effect"),
                        "value": Text((validators.label_value,), empty=True),
                        "effect": Choice(known=EFFECTS, required=True, missing=f"choose one of {', '.join(EFFECTS)}"),
                    }
                )
            ),
            "purge": Boolean(default=False),
        }
    )
)


@dataclass(frozen=True)
class NodeSet:
    """Some nodes and what they are to carry; None as a value takes ours out."""

    name: str
    selector: Selector | None = None
    names: frozenset[str] | None = None
    model: str | None = None
    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    dropped_taints: tuple[dict[str, str], ...] = ()
    purge: bool = False

    def holds(self, node: Node) -> bool:
        """True when the node is one of the set."""
        if self.names is not None and node.name not in self.names:
            return False
        if self.selector is not None and not self.selector.matches(node.labels):
            return False
        return self.model is None or models.normal(models.bare_product(node.product)) in _products(self.model)

    @property
    def needs_taints(self) -> bool:
        """False when labels and annotations decide everything, so that a list without specs will do."""
        return bool(self.taints or self.dropped_taints or self.purge)


def node_sets(said: t.Sequence[t.Any]) -> list[NodeSet]:
    """The sets; raises InvalidOptions with every mistake in them."""
    problems = list(_SETS.problems(_without_nulls(said), "sets"))
    if not problems:
        problems = [problem for index, entry in enumerate(said) for problem in _contradictions(entry, f"sets[{index}]")]
    if problems:
        raise InvalidOptions(problems, "The option sets has mistakes:")
    return [_set(entry, f"sets[{index}]") for index, entry in enumerate(said)]


def is_discovered(labels: t.Mapping[str, str]) -> bool:
    """True once NFD has told anything about the node."""
    return any(key.startswith(NFD_PREFIX) for key in labels)


def _set(entry: t.Mapping[str, t.Any], place: str) -> NodeSet:
    absent = entry.get("state") == "absent"
    match = entry.get("match") or {}
    names = entry.get("names")
    taints = tuple(dict(taint) for taint in entry.get("taints") or ())
    return NodeSet(
        name=entry.get("name") or place,
        selector=_selector_of(entry, match),
        names=None if names is None else frozenset(names),
        model=match.get("model"),
        labels=_wanted(entry.get("labels"), absent),
        annotations=_wanted(entry.get("annotations"), absent),
        taints=() if absent else taints,
        dropped_taints=taints if absent else (),
        purge=bool(entry.get("purge")),
    )


def _selector_of(entry: t.Mapping[str, t.Any], match: t.Mapping[str, t.Any]) -> Selector | None:
    exact = dict(match.get("labels") or {})
    if match.get("pool"):
        exact[POOL_LABEL] = match["pool"]
    parts = [selector.Requirement(key, False, (value,)) for key, value in exact.items()]
    if entry.get("selector") is None and not parts:
        return None
    return Selector((*selector.parse(entry.get("selector") or "").requirements, *parts))


def _wanted(said: t.Mapping[str, str | None] | None, absent: bool) -> dict[str, str | None]:
    return {key: None if absent else value for key, value in (said or {}).items()}


def _contradictions(entry: t.Mapping[str, t.Any], place: str) -> t.Iterator[str]:
    chosen = [name for name in ("selector", "names", "match") if entry.get(name) is not None]
    if not chosen:
        yield f'{place}: names no nodes; give selector, names or match (selector: "" for all nodes)'
    elif entry.get("match") is not None and not any((entry["match"] or {}).values()):
        yield f'{place}.match: asks for nothing; give model, pool or labels (or selector: "" for all nodes)'
    if not (entry.get("purge") or any(entry.get(name) for name in ("labels", "annotations", "taints"))):
        yield f"{place}: says nothing about its nodes; give labels, annotations, taints or purge"
    if entry.get("purge") and entry.get("state") == "absent":
        yield f"{place}.purge: does not go with state: absent; purge: true alone takes everything out"
    places = [(taint["key"], taint["effect"]) for taint in entry.get("taints") or ()]
    for key, effect in sorted({found for found in places if places.count(found) > 1}):
        yield f"{place}.taints: {key}:{effect} is there more than once; a node has one taint of a key and effect"


def _without_nulls(said: t.Sequence[t.Any]) -> list[t.Any]:
    """For the schema, in which null is no text: here it means that a label or annotation is taken out."""
    return [
        {key: _kept(value) if key in ("labels", "annotations") else value for key, value in entry.items()}
        if isinstance(entry, dict)
        else entry
        for entry in said
    ]


def _kept(value: t.Any) -> t.Any:
    return {key: "" if item is None else item for key, item in value.items()} if isinstance(value, dict) else value


def _products(model: str) -> frozenset[str]:
    known = models.find(model)
    names = (known.key, *known.products) if known else (model,)
    return frozenset(models.normal(name) for name in names)
