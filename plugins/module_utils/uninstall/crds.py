# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRDs of our Helm releases: which can be deleted, and which foreign objects keep the others (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..schema.messages import abbreviate
from .ownership_marks import spec_managers

Document = t.Mapping[str, t.Any]

NODE_FEATURE = "NodeFeature"
_NODE_OF_FEATURE = "nfd.node.kubernetes.io/node-name"
# gpu-feature-discovery's own NodeFeature of a node (k8s-device-plugin internal/lm/output.go).
_GFD = "nvidia-features-for-"
_MAX_OBJECTS = 3


@dataclass(frozen=True)
class Definition:
    """One kind and its CustomResourceDefinition."""

    api_version: str
    kind: str

    @property
    def plural(self) -> str:
        """The plural, as Kubernetes, NVIDIA and NFD form it."""
        lower = self.kind.lower()
        return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"

    @property
    def name(self) -> str:
        """The name of the CustomResourceDefinition."""
        return f"{self.plural}.{self.api_version.partition('/')[0]}"

    @property
    def objects(self) -> str:
        """The path of the kind's objects in all namespaces."""
        return f"/apis/{self.api_version}/{self.plural}"


@dataclass(frozen=True)
class CrdDecision:
    """Whether a CRD is deleted (`reason` is empty) or kept. `own_objects` are objects of our agents, which are deleted in any case."""

    definition: Definition
    reason: str
    own_objects: tuple[Document, ...] = ()


def decide_crd(
    definition: Definition, live: Document, objects: t.Iterable[Document], is_own: t.Callable[[Document], bool]
) -> CrdDecision:
    """A CRD is deleted unless it has foreign objects, or another manager or OLM manages it."""
    own: list[Document] = []
    foreign: list[str] = []
    for item in objects:
        if is_own(item) or (definition.kind == NODE_FEATURE and is_agent_feature(item)):
            own.append(item)
        else:
            metadata = item["metadata"]
            path = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
            foreign.append(f"{definition.kind} {path}")
    managers = [name for name in spec_managers(live) if name != FIELD_MANAGER]
    olm = sorted(
        key for key in (live["metadata"].get("labels") or {}) if key.startswith(("olm.", "operators.coreos.com/"))
    )
    reason = ""
    if foreign:
        reason = f"foreign objects need it: {abbreviate(foreign, _MAX_OBJECTS)}"
    elif managers:
        reason = f"{' and '.join(managers)} has written it, too"
    elif olm:
        reason = f"OLM manages it (label {olm[0]})"
    return CrdDecision(definition, reason, tuple(own))


def is_agent_feature(feature: Document) -> bool:
    """Whether NFD's worker or gpu-feature-discovery has written this NodeFeature of its node."""
    metadata = feature["metadata"]
    node = (metadata.get("labels") or {}).get(_NODE_OF_FEATURE)
    return bool(node) and metadata["name"] in (node, f"{_GFD}{node}")
