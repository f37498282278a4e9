# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds that came with our releases: which may go, and whose objects keep the others (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..schema.messages import abbreviate
from .ownership_marks import writers

Document = t.Mapping[str, t.Any]

NODE_FEATURE = "NodeFeature"
_NODE_OF_FEATURE = "nfd.node.kubernetes.io/node-name"
# gpu-feature-discovery's own NodeFeature of a node (k8s-device-plugin internal/lm/output.go).
_GFD = "nvidia-features-for-"
_TOLD = 3


@dataclass(frozen=True)
class Definition:
    """One kind and the CustomResourceDefinition that brings it."""

    api_version: str
    kind: str

    @property
    def plural(self) -> str:
        """As Kubernetes forms it, and NVIDIA and NFD too."""
        low = self.kind.lower()
        return f"{low[:-1]}ies" if low.endswith("y") else f"{low}s"

    @property
    def name(self) -> str:
        """Of the CustomResourceDefinition."""
        return f"{self.plural}.{self.api_version.partition('/')[0]}"

    @property
    def objects(self) -> str:
        """The path of the kind's objects, of all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"


@dataclass(frozen=True)
class CrdDecision:
    """What becomes of a kind; `reason` is empty when it goes. `mine` are objects of our agents, which go in any case."""

    definition: Definition
    reason: str
    mine: tuple[Document, ...] = ()


def decide(
    definition: Definition, live: Document, objects: t.Iterable[Document], is_ours: t.Callable[[Document], bool]
) -> CrdDecision:
    """A kind goes when nobody else has an object of it, nor has written it."""
    mine: list[Document] = []
    foreign: list[str] = []
    for found in objects:
        if is_ours(found) or (definition.kind == NODE_FEATURE and by_agent(found)):
            mine.append(found)
        else:
            foreign.append(label(definition.kind, found))
    if foreign:
        return CrdDecision(definition, f"somebody else's objects need it: {abbreviate(foreign, _TOLD)}", tuple(mine))
    others = [name for name in writers(live) if name != FIELD_MANAGER]
    if others:
        return CrdDecision(definition, f"{' and '.join(others)} has written it, too", tuple(mine))
    owners = sorted(
        key for key in (live["metadata"].get("labels") or {}) if key.startswith(("olm.", "operators.coreos.com/"))
    )
    if owners:
        return CrdDecision(definition, f"OLM looks after it (label {owners[0]})", tuple(mine))
    return CrdDecision(definition, "", tuple(mine))


def by_agent(feature: Document) -> bool:
    """Whether a NodeFeature is what NFD's worker or gpu-feature-discovery writes of its node, not somebody's own."""
    metadata = feature["metadata"]
    node = (metadata.get("labels") or {}).get(_NODE_OF_FEATURE)
    return bool(node) and metadata["name"] in (node, f"{_GFD}{node}")


def label(kind: str, found: Document) -> str:
    """An object as a message names it."""
    metadata = found["metadata"]
    return (
        f"{kind} {metadata['namespace']}/{metadata['name']}"
        if metadata.get("namespace")
        else f"{kind} {metadata['name']}"
    )
