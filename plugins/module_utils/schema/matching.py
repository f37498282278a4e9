# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool's `match` asks of a node, in one form whichever way it was written."""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog import models, names


@dataclasses.dataclass(frozen=True)
class Match:
    """Which existing nodes belong to a pool; `model` is a catalog key, `products` are GFD's bare names."""

    model: str | None
    product: str | None
    products: tuple[str, ...]
    labels: dict[str, str]

    @property
    def pins_only(self) -> bool:
        """True when only nodes that carry the pool's own label belong to it."""
        return not self.products and not self.labels


def resolve_match(match: t.Mapping[str, t.Any]) -> Match:
    """The match of a sound document; an unknown model is None.

    GFD's product label is a way to name a model that the catalog lacks. Sharing changes that label, so it is matched as
    a model is, without suffixes.
    """
    labels = dict(match.get("labels") or {})
    written = match.get("model") or labels.pop(names.PRODUCT_LABEL, None)
    model = models.find(written) if written else None
    if model:
        return Match(model=model.key, product=model.product, products=model.products, labels=labels)
    bare = models.bare_product(written) if written else None
    return Match(model=None, product=bare, products=(bare,) if bare else (), labels=labels)


class MatchTerms(t.NamedTuple):
    """A match that can be compared with another one."""

    products: frozenset[str]
    labels: frozenset[tuple[str, str]]

    @classmethod
    def by(cls, match: Match) -> MatchTerms:
        """What the match asks, with one spelling for each product."""
        return cls(frozenset(map(models.normal, match.products)), frozenset(match.labels.items()))

    def implies(self, other: MatchTerms) -> bool:
        """True when every node that fits this one fits the other as well."""
        products = not other.products or (bool(self.products) and self.products <= other.products)
        return products and other.labels <= self.labels
