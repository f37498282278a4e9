# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node group as somebody declares it, and as a cloud shows it; in one vocabulary, so that they can be compared (pure).

`fields` are in the words of the cloud's module, with names resolved to what the cloud stores. A field that is a map is compared and
changed key by key: what a wish does not name stays as it is, and a key that it gives as None is to be absent. (Taints are such a map,
from "key:Effect" to the value.) Every other field is compared as a whole.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass


@dataclass(frozen=True)
class FieldNames:
    """What a cloud's module calls the three numbers of a group."""

    count: str
    low: str
    high: str


@dataclass(frozen=True)
class NodeGroupSpec:
    """What is declared of one group; what is None, or not among the fields, is not declared.

    low, high: the range in which the number of nodes may lie. autoscaled: within it the number is the autoscaler's.
    unranged: there is to be no range; the one that the group has is taken away.
    recreate: a field that the cloud cannot change may be changed by another group in this one's place.
    """

    name: str
    present: bool = True
    count: int | None = None
    low: int | None = None
    high: int | None = None
    autoscaled: bool = False
    unranged: bool = False
    recreate: bool = False
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)

    def count_of(self, now: int | None) -> int | None:
        """How many nodes the group is to have that has so many now (None: there is no group yet); None: as many as it has."""
        if not self.autoscaled:
            return self.count
        start = now if now is not None else (self.count if self.count is not None else self.low or 0)
        floored = max(start, self.low or 0)
        return min(floored, self.high) if self.high is not None else floored


@dataclass(frozen=True)
class NodeGroupState:
    """What a cloud says of one group.

    settled: nothing is under way in it. failed: the last thing that was, failed, for `reason`. high: None where there is no limit.
    addresses and machines (names as the cloud knows them) are those of its nodes, as far as the cloud tells.
    """

    id: str
    name: str
    status: str
    settled: bool
    failed: bool
    count: int
    reason: str = ""
    low: int = 0
    high: int | None = None
    fields: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()

    @property
    def going(self) -> bool:
        """Whether the cloud is deleting it."""
        return not self.settled and self.status.startswith("DELET")

    def told(self, words: FieldNames) -> dict[str, t.Any]:
        """For a result or a diff."""
        return {
            "name": self.name,
            words.count: self.count,
            words.low: self.low,
            words.high: self.high,
            **{key: self.fields[key] for key in sorted(self.fields)},
        }
