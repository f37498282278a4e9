# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the schema of the option `sets` of the module node_metadata, and assigns nodes to sets (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.names import OWN_PREFIX, POOL_LABEL
from ..catalog.taints import TAINT_EFFECTS, Taint, plain_taint, taint_identity
from ..cluster_state.label_selector import Requirement, parse_selector
from ..cluster_state.node import Node
from ..common.errors import InvalidOptions
from ..pools.metadata import Entries
from ..schema import coercion, validators
from ..schema.types import Boolean, Choice, ListOf, MapOf, Section, Text

V = t.TypeVar("V")


def _invalid_selector(value: str) -> str | None:
    try:
        parse_selector(value)
    except ValueError as error:
        return str(error)
    return None


def _reserved_key(value: str) -> str | None:
    if value.startswith(OWN_PREFIX) and value != POOL_LABEL:
        return "is reserved for this collection's own records"
    return None


class _TextOrNull(Text):
    """Accepts text, or null to remove the entry."""

    def problems(self, value: t.Any, path: str) -> t.Iterator[str]:
        return iter(()) if value is None else super().problems(value, path)


_SETS = ListOf(
    item=Section(
        fields={
            "name": Text(),
            "state": Choice(known=("present", "absent"), default="present"),
            "label_selectors": ListOf(item=Text((_invalid_selector,))),
            "names": ListOf(item=Text()),
            "match": Section(
                fields={
                    "model": Text((validators.known_model,)),
                    "pool": Text((validators.dns_label,)),
                    "labels": MapOf(keys=(validators.label_key,), item=Text((validators.label_value,), empty=True)),
                }
            ),
            "labels": MapOf(
                keys=(validators.label_key, _reserved_key), item=_TextOrNull((validators.label_value,), empty=True)
            ),
            "annotations": MapOf(keys=(validators.label_key, _reserved_key), item=_TextOrNull(empty=True)),
            "taints": ListOf(
                item=Section(
                    fields={
                        "key": Text((validators.label_key,), required=True, missing="a taint has a key and an effect"),
                        "value": Text((validators.label_value,), empty=True),
                        "effect": Choice(
                            known=TAINT_EFFECTS, required=True, missing=f"choose one of {', '.join(TAINT_EFFECTS)}"
                        ),
                    }
                )
            ),
            "purge": Boolean(default=False),
        }
    )
)


@dataclass(frozen=True)
class NodeSet:
    """A selection of nodes and their desired metadata (taints by key and effect); None as a value removes a managed entry.

    `products` contains the normalized product names of a GPU model; if it is empty, nodes of any model and nodes without GPUs are included.
    """

    name: str
    requirements: tuple[Requirement, ...]
    names: frozenset[str] | None = None
    products: frozenset[str] = frozenset()
    labels: Entries = field(default_factory=dict)
    annotations: Entries = field(default_factory=dict)
    taints: t.Mapping[str, Taint | None] = field(default_factory=dict)
    purge: bool = False

    def contains(self, node: Node) -> bool:
        """Whether the node is in the set."""
        if self.names is not None and node.name not in self.names:
            return False
        if not all(requirement.is_met(node.labels) for requirement in self.requirements):
            return False
        return not self.products or models.normalized(models.bare_product(node.product)) in self.products

    @property
    def needs_taints(self) -> bool:
        """Whether the nodes' specs, which contain the taints, must be read in addition to their metadata."""
        return bool(self.taints or self.purge)


def node_sets(entries: t.Sequence[t.Any]) -> list[NodeSet]:
    """Parse the option `sets`; raises InvalidOptions with all problems."""
    problems: list[str] = []
    normalized = [_normalize(entry, f"sets[{index}]", problems) for index, entry in enumerate(entries)]
    problems += _SETS.problems(normalized, "sets")
    if not problems:
        problems = [problem for index, entry in enumerate(normalized) for problem in _problems(entry, f"sets[{index}]")]
    if problems:
        raise InvalidOptions(problems, "The option sets is invalid:")
    return [_node_set(entry, f"sets[{index}]") for index, entry in enumerate(normalized)]


def _node_set(entry: t.Mapping[str, t.Any], path: str) -> NodeSet:
    absent = entry.get("state") == "absent"
    match = entry.get("match") or {}
    names = entry.get("names")
    model = models.find(match["model"]) if match.get("model") else None
    exact = {**(match.get("labels") or {}), **({POOL_LABEL: match["pool"]} if match.get("pool") else {})}
    requirements = [Requirement(key, False, (value,)) for key, value in exact.items()]
    for text in entry.get("label_selectors") or ():
        requirements += parse_selector(text)
    taints: dict[str, Taint] = {
        ":".join(taint_identity(taint)): plain_taint(taint) for taint in entry.get("taints") or ()
    }

    def unless_absent(entries: t.Mapping[str, V]) -> dict[str, V | None]:
        return {key: None if absent else value for key, value in entries.items()}

    return NodeSet(
        name=entry.get("name") or path,
        requirements=tuple(requirements),
        names=None if names is None else frozenset(names),
        products=frozenset(map(models.normalized, (model.key, *model.products))) if model else frozenset(),
        labels=unless_absent(entry.get("labels") or {}),
        annotations=unless_absent(entry.get("annotations") or {}),
        taints=unless_absent(taints),
        purge=bool(entry.get("purge")),
    )


def _problems(entry: t.Mapping[str, t.Any], path: str) -> t.Iterator[str]:
    """Yield the problems that concern several fields of a set."""
    if all(entry.get(name) is None for name in ("label_selectors", "names", "match")):
        yield f"{path}: selects no nodes; set label_selectors, names or match (label_selectors: [] for all nodes)"
    elif entry.get("match") is not None and not any((entry["match"] or {}).values()):
        yield f"{path}.match: is empty; set model, pool or labels (or label_selectors: [] for all nodes)"
    if not (entry.get("purge") or any(entry.get(name) for name in ("labels", "annotations", "taints"))):
        yield f"{path}: changes nothing; set labels, annotations, taints or purge"
    if entry.get("purge") and entry.get("state") == "absent":
        yield f"{path}.purge: cannot be combined with state: absent; purge: true alone removes everything"
    identities = [(taint["key"], taint["effect"]) for taint in entry.get("taints") or ()]
    for key, effect in sorted({identity for identity in identities if identities.count(identity) > 1}):
        yield f"{path}.taints: {key}:{effect} is listed more than once; a node can have only one taint with this key and effect"


def _normalize(entry: t.Any, path: str, problems: list[str]) -> t.Any:
    """Parse label_selectors in the same way as list options of other modules: a string is split at commas outside brackets."""
    if not isinstance(entry, dict) or entry.get("label_selectors") is None:
        return entry
    given = entry["label_selectors"]
    try:
        selectors = coercion.names(given)
    except ValueError as error:
        problems.append(f"{path}.label_selectors: {error}")
        return {**entry, "label_selectors": None}
    # Only an explicit empty list selects all nodes: a template that renders to an empty value must not select the whole
    # cluster.
    blank = isinstance(given, list) and any(coercion.is_blank(item) or item is None for item in given)
    if given != [] and (blank or not selectors):
        problems.append(f"{path}.label_selectors: contains an empty selector; write [] to select all nodes")
    return {**entry, "label_selectors": selectors}
