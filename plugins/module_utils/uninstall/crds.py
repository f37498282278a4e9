# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides which CRDs of the collection's Helm releases can be deleted, and which are kept because of foreign objects or managers (pure)."""

from __future__ import annotations

import typing as t

from ..kube.paths import Kind
from ..schema.messages import abbreviate
from .ownership_marks import spec_managers

Document = t.Mapping[str, t.Any]

_NODE_FEATURE = "NodeFeature"
_NODE_OF_FEATURE = "nfd.node.kubernetes.io/node-name"
# The prefix of the NodeFeature that gpu-feature-discovery writes for a node (k8s-device-plugin internal/lm/output.go).
_GFD = "nvidia-features-for-"


def custom_kind(api_version: str, kind: str) -> Kind:
    """A kind with its plural, which is formed in the same way as for the kinds of NVIDIA and NFD."""
    lower = kind.lower()
    plural = f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"
    return Kind(api_version, kind, plural, namespaced=True)


def crd_name(kind: Kind) -> str:
    """The name of the kind's CustomResourceDefinition."""
    return f"{kind.plural}.{kind.api_version.partition('/')[0]}"


def keep_reason(kind: Kind, live: Document, foreign: t.Iterable[Document]) -> str:
    """The reason why a CRD is kept (`foreign` objects, another manager, or OLM); empty if it is deleted."""
    metadata = [item["metadata"] for item in foreign]
    if metadata:
        paths = ["/".join(filter(None, (entry.get("namespace"), entry["name"]))) for entry in metadata]
        return f"foreign objects need it: {abbreviate([f'{kind.kind} {path}' for path in paths])}"
    managers = spec_managers(live)
    if managers:
        return f"{' and '.join(managers)} has also written it"
    labels = live["metadata"].get("labels") or {}
    olm = sorted(key for key in labels if key.startswith(("olm.", "operators.coreos.com/")))
    return f"OLM manages it (label {olm[0]})" if olm else ""


def is_agent_feature(kind: str, item: Document) -> bool:
    """Whether the object is a NodeFeature that NFD's worker or gpu-feature-discovery has written for its node."""
    metadata = item["metadata"]
    node = (metadata.get("labels") or {}).get(_NODE_OF_FEATURE)
    return kind == _NODE_FEATURE and bool(node) and metadata["name"] in (node, f"{_GFD}{node}")
