# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditions of a pool's `match`, converted from all its notations to one form."""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog import models, names


@dataclasses.dataclass(frozen=True)
class Match:
    """The conditions under which existing nodes belong to a pool; `model` is a catalog key, `products` contains GFD's bare product names."""

    model: str | None
    product: str | None
    products: tuple[str, ...]
    labels: dict[str, str]

    @property
    def pins_only(self) -> bool:
        """Whether only nodes with the pool's own label belong to it."""
        return not self.products and not self.labels


def resolve_match(match: t.Mapping[str, t.Any]) -> Match:
    """The conditions of a valid `match`; `model` is None if the catalog does not contain it.

    A model that is not in the catalog is matched by GFD's product label. Sharing adds suffixes to this label; they are ignored, as for a
    model of the catalog.
    """
    labels = dict(match.get("labels") or {})
    name = match.get("model") or labels.pop(names.PRODUCT_LABEL, None)
    model = models.find(name) if name else None
    if model:
        return Match(model=model.key, product=model.product, products=model.products, labels=labels)
    bare = models.bare_product(name) if name else None
    return Match(model=None, product=bare, products=(bare,) if bare else (), labels=labels)


class MatchTerms(t.NamedTuple):
    """The conditions of a match, in a form that can be compared with another match."""

    products: frozenset[str]
    labels: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, match: Match) -> MatchTerms:
        """The terms of a match, with one spelling for each product."""
        return cls(frozenset(map(models.normalized, match.products)), frozenset(match.labels.items()))

    def implies(self, other: MatchTerms) -> bool:
        """Whether every node that meets these conditions also meets the other conditions."""
        products = not other.products or (bool(self.products) and self.products <= other.products)
        return products and other.labels <= self.labels
