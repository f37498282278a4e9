# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requirements of objects, and the changes that were made to them (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..common.errors import InvalidOptions
from .diff import Object

Action = t.Literal["created", "updated", "unchanged", "deleted"]


class InvalidObjects(InvalidOptions):
    """Objects that the cluster cannot have: an unknown kind, or a namespace that does not exist."""


@dataclass(frozen=True)
class ExpectedObjects:
    """Namespaces and kinds (apiVersion, kind) that this run creates before the objects are applied."""

    namespaces: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def from_dict(cls, option: t.Mapping[str, t.Any] | None) -> ExpectedObjects:
        """From `{namespaces: [..], kinds: [{api_version, kind}]}`."""
        given = option or {}
        return cls(
            frozenset(given.get("namespaces") or ()),
            frozenset((kind["api_version"], kind["kind"]) for kind in given.get("kinds") or ()),
        )


@dataclass(frozen=True)
class ObjectChange:
    """The change of one object, or the one that check mode predicts."""

    api_version: str
    kind: str
    name: str
    namespace: str | None
    action: Action
    before: Object = field(default_factory=dict)
    after: Object = field(default_factory=dict)
    note: str | None = None

    @property
    def changed(self) -> bool:
        """Anything but unchanged."""
        return self.action != "unchanged"

    @property
    def label(self) -> str:
        """kind namespace/name, for messages."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    def summary(self) -> dict[str, t.Any]:
        """The change without its objects, for a result."""
        summary = {
            "api_version": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "action": self.action,
        }
        return {**summary, "note": self.note} if self.note else summary


def objects_created_by(wanted: t.Sequence[Object]) -> ExpectedObjects:
    """Namespaces and kinds that the list itself creates."""
    namespaces: set[str] = set()
    kinds: set[tuple[str, str]] = set()
    for body in wanted:
        if malformed_definitions(body):
            continue
        if body["kind"] == "Namespace":
            namespaces.add(body["metadata"]["name"])
        elif body["kind"] == "CustomResourceDefinition":
            spec = body.get("spec") or {}
            kind = str((spec.get("names") or {}).get("kind"))
            kinds.update((f"{spec.get('group')}/{version.get('name')}", kind) for version in spec.get("versions") or [])
    return ExpectedObjects(frozenset(namespaces), frozenset(kinds))


def malformed_definitions(body: t.Any) -> str | None:
    """Why a definition is not an object, or None."""
    if not isinstance(body, dict):
        return "is not an object"
    for name in ("apiVersion", "kind"):
        if not isinstance(body.get(name), str) or not body[name]:
            return f"{name} is missing"
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return "metadata.name is missing"
    return None
