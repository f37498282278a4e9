# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the desired spec and the actual state of a node group. Both use the names of the options, so that they can be compared (pure).

`fields` contains the options that only one provider has; names in these options are resolved to the values that the cloud stores. Maps are compared and
changed key by key: keys that the spec does not contain stay unchanged, and a key with the value None is removed. Taints are also a map, from
"key:Effect" to the value. Every other field is compared as a whole.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass

from ..pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, NODE_TAINTS


@dataclass(frozen=True)
class NodeGroupSpec:
    """The desired node group. An attribute that is None and a field that is missing are not declared.

    autoscaled: an autoscaler chooses the number of nodes between min_count and max_count. no_range: the group's range is removed.
    external_range: another object contains the range, so the range is not compared. recreate: the group may be replaced to change an immutable field.
    """

    name: str
    present: bool = True
    count: int | None = None
    min_count: int | None = None
    max_count: int | None = None
    autoscaled: bool = False
    no_range: bool = False
    external_range: bool = False
    recreate: bool = False
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def desired_count(self, current: int | None) -> int | None:
        """The desired number of nodes for a group that has `current` nodes (None if the group does not exist); None if the spec declares no number."""
        if not self.autoscaled:
            return self.count
        start = current if current is not None else (self.count if self.count is not None else self.min_count or 0)
        at_least = max(start, self.min_count or 0)
        return min(at_least, self.max_count) if self.max_count is not None else at_least


@dataclass(frozen=True)
class NodeGroupState:
    """The actual node group.

    settled: no operation is in progress. failed: the last operation failed for the given `reason`. max_count: None without a limit.
    owner: the declared name of the node group that this group belongs to according to a valid mark, or empty.
    marked: whether a valid mark shows that the collection has created or adopted the group.
    claims: evidence of an owner that a copy also carries: for each label or annotation, the declared name that it contains.
    adopted: the nodes that do not register with the label of their pool, because they are older than the group's declaration.
    addresses and machines: the addresses and the cloud's names of its nodes, as far as the cloud returns them. without_node: the number of machines
    without a node, which a scale-down removes first. outdated: the machines whose settings differ from those of new machines of the group.
    """

    id: str
    name: str
    status: str
    settled: bool
    failed: bool
    count: int
    reason: str = ""
    min_count: int = 0
    max_count: int | None = None
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    without_node: int = 0
    outdated: tuple[str, ...] = ()
    owner: str = ""
    marked: bool = False
    claims: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    adopted: tuple[str, ...] = ()

    @property
    def deleting(self) -> bool:
        """Whether the cloud is deleting the group."""
        return not self.settled and self.status.startswith("DELET")

    @property
    def values(self) -> dict[str, t.Any]:
        """All values that can be compared, by option."""
        return {
            NODE_COUNT: self.count,
            MIN_NODE_COUNT: self.min_count,
            MAX_NODE_COUNT: self.max_count,
            **{key: self.fields[key] for key in sorted(self.fields)},
        }

    def to_result(self) -> dict[str, t.Any]:
        """The group in the format that modules return."""
        outdated = {"outdated": list(self.outdated)} if self.outdated else {}
        return as_options({"name": self.name, **self.values, **outdated})


def as_options(values: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The values in the format of the options, in which taints are a list."""
    taints = values.get(NODE_TAINTS)
    return {**values, NODE_TAINTS: taint_list(taints)} if isinstance(taints, t.Mapping) else dict(values)


def label_text(value: t.Any) -> str:
    """A label's value as a string; a boolean has the form that YAML uses."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def label_map(labels: t.Mapping[str, t.Any]) -> dict[str, str | None]:
    """Labels with their values as strings; None removes a label."""
    return {str(key): None if value is None else label_text(value) for key, value in labels.items()}


def taint_map(taints: t.Iterable[t.Mapping[str, t.Any]] | None) -> dict[str, str | None]:
    """Taints as a map from `key:Effect` to the value; None for a taint with the state absent."""
    return {
        f"{taint['key']}:{taint['effect']}": None if taint.get("state") == "absent" else str(taint.get("value") or "")
        for taint in taints or ()
    }


def taint_list(taints: t.Mapping[str, t.Any]) -> list[dict[str, str]]:
    """Taints as the list that Kubernetes and the clouds' APIs use; empty values are omitted."""
    split = [(key.rpartition(":"), value) for key, value in sorted(taints.items()) if value is not None]
    return [
        {"key": key, **({"value": value} if value else {}), "effect": effect} for (key, dummy, effect), value in split
    ]
