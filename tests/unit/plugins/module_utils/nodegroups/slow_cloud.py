# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cloud at its worst, in a time of its own: late, busy, forgetful and silent, as chance has it."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.common.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.provider import (
    CloudRequest,
    ClusterNode,
    ListedGroup,
)
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import FieldNames, NodeGroupSpec, NodeGroupState


class Time:
    """A clock that only sleep() moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)


class SlowCloud:
    """Accepts everything, and then does it late, or loses it; refuses while busy; carries requests out and does not answer.

    A group under way loses what else is asked of it, without a word, as Magnum does. `creations` counts those carried out, `lists` the lists that were told.
    """

    words = FieldNames("node_count", "min_node_count", "max_node_count")
    unchangeable = frozenset({"flavor"})
    longest_name = 20
    removes_chosen = True
    patience = 5.0

    def __init__(self, chance: random.Random, time: Time, lives: Sequence[NodeGroupState] = ()) -> None:
        self._chance, self._time = chance, time
        self.groups = {live.name: live for live in lives}
        self.creations: list[str] = []
        self.lists = 0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def survey(self, wanted: Callable[[str], bool]) -> list[NodeGroupState]:
        self._advance()
        return [live for name, live in sorted(self.groups.items()) if wanted(name)]

    def check(self, wishes: object) -> list[str]:
        return []

    def listed(self) -> list[ListedGroup]:
        self._overloaded()
        self.lists += 1
        return [ListedGroup(live.id, live.name, live.status, live.settled) for live in self.groups.values()]

    def get(self, group: str) -> NodeGroupState | None:
        self._overloaded()
        return next((live for live in self.groups.values() if live.id == group), None)

    def create(self, wish: NodeGroupSpec, name: str, count: int | None) -> None:
        self._refuse()
        if name in self.groups:
            raise ServiceError("exists", status=409)

        def appear() -> None:
            self.creations.append(name)
            fields = {**wish.fields}
            made = NodeGroupState(
                f"{name} {len(self.creations)}",
                name,
                "CREATE_IN_PROGRESS",
                False,
                False,
                count or 1,
                "",
                wish.low or 0,
                wish.high,
                fields,
            )
            self.groups[name] = made
            self._later(lambda: self._settle(name))

        self._later(appear, most=self.patience / 2)
        self._answer()

    def steps(self, live: NodeGroupState, wish: NodeGroupSpec, leaving: Sequence[ClusterNode]) -> list[CloudRequest]:
        count = wish.count_of(live.count)
        if count is None or count == live.count:
            return []
        return [
            CloudRequest(f"resize to {count}", lambda: self._resize(live.name, count), lambda now: now.count == count)
        ]

    def delete(self, live: NodeGroupState) -> None:
        self._refuse()
        if live.name in self.groups:

            def begin() -> None:
                self._begin(live.name, "DELETE_IN_PROGRESS")
                self._later(lambda: self._end(live.name))

            self._later(begin, most=self.patience / 2)
        self._answer()

    def members(self, live: NodeGroupState, machines: Sequence[ClusterNode]) -> list[ClusterNode]:
        return [machine for machine in machines if machine.labels["group"] == live.name]

    def busy(self, error: ServiceError) -> bool:
        return error.status == 423

    def events(self, live: NodeGroupState) -> list[str]:
        return []

    def _resize(self, name: str, count: int) -> None:
        self._refuse()
        if name not in self.groups:
            raise ServiceError("there is no such group", status=404)
        if self.groups[name].settled and self._chance.random() < 0.7:

            def begin() -> None:
                self._begin(name, "UPDATE_IN_PROGRESS", count=count)
                self._later(lambda: self._settle(name))

            self._later(begin, most=self.patience / 2)
        self._answer()

    def _begin(self, name: str, status: str, **more: Any) -> None:
        self._put(name, status=status, settled=False, **more)

    def _end(self, name: str) -> None:
        self.groups.pop(name, None)

    def _settle(self, name: str) -> None:
        self._put(name, status="UPDATE_COMPLETE", settled=True)

    def _put(self, name: str, **fields: Any) -> None:
        """Change a group that is there and does not go."""
        if name in self.groups and not self.groups[name].going:
            self.groups[name] = dataclasses.replace(self.groups[name], **fields)

    def _later(self, act: Callable[[], None], most: float = 20.0) -> None:
        self._due.append((self._time.now + self._chance.uniform(0, most), act))

    def _advance(self) -> None:
        while due := sorted((entry for entry in self._due if entry[0] <= self._time.now), key=lambda entry: entry[0])[
            :1
        ]:
            self._due.remove(due[0])
            due[0][1]()

    def _overloaded(self) -> None:
        self._advance()
        if self._chance.random() < 0.05:
            raise ServiceError("overloaded", status=503)

    def _refuse(self) -> None:
        self._advance()
        if self._chance.random() < 0.2:
            raise ServiceError("is being processed", status=423)

    def _answer(self) -> None:
        if self._chance.random() < 0.2:
            raise ServiceError("the connection broke off")
