# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cloud with its own clock that is late, busy, loses requests and responses, at random."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import ServiceError
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import CloudRequest, ListedGroup
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.spec import NodeGroupSpec, NodeGroupState
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node


class Time:
    """A clock that only sleep() moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)


class SlowCloud:
    """Carries requests out late or loses them; refuses while busy; loses responses.

    A group with an operation in progress loses further requests, as in Magnum. `creations` are those carried out, `lists` the number of lists.
    """

    immutable_fields = frozenset({"flavor"})
    machine_fields: frozenset[str] = frozenset()
    max_name_length = 20
    can_choose_nodes = True
    patience = 5.0
    takes_requests_anytime = False
    in_cluster = False

    def __init__(self, chance: random.Random, time: Time, states: Sequence[NodeGroupState] = ()) -> None:
        self._chance, self._time = chance, time
        self.groups = {group.name: group for group in states}
        self.creations: list[str] = []
        self.lists = 0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def read(self, expected: Callable[[str], bool]) -> list[NodeGroupState]:
        self._advance()
        return [group for name, group in sorted(self.groups.items()) if expected(name)]

    def check(self, specs: object) -> list[str]:
        return []

    def list_groups(self) -> list[ListedGroup]:
        self._overloaded()
        self.lists += 1
        return [ListedGroup(group.id, group.name, group.status, group.settled) for group in self.groups.values()]

    def get(self, group_id: str) -> NodeGroupState | None:
        self._overloaded()
        return next((group for group in self.groups.values() if group.id == group_id), None)

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        self._refuse()
        if name in self.groups:
            raise ServiceError("exists", status=409)

        def appear() -> None:
            self.creations.append(name)
            fields = {**spec.fields}
            made = NodeGroupState(
                f"{name} {len(self.creations)}",
                name,
                "CREATE_IN_PROGRESS",
                False,
                False,
                count or 1,
                "",
                spec.min_count or 0,
                spec.max_count,
                fields,
                owner=spec.name,
            )
            self.groups[name] = made
            self._later(lambda: self._settle(name))

        self._later(appear, most=self.patience / 2)
        self._answer()

    def requests(self, group: NodeGroupState, spec: NodeGroupSpec, leaving: Sequence[Node]) -> list[CloudRequest]:
        count = spec.desired_count(group.count)
        if count is None or count == group.count:
            return []
        return [
            CloudRequest(f"resize to {count}", lambda: self._resize(group.name, count), lambda now: now.count == count)
        ]

    def stop_autoscaling(self, group: NodeGroupState) -> None:
        """No autoscaler scales its groups."""

    def delete(self, group: NodeGroupState) -> None:
        self._refuse()
        if group.name in self.groups:

            def begin() -> None:
                self._begin(group.name, "DELETE_IN_PROGRESS")
                self._later(lambda: self._end(group.name))

            self._later(begin, most=self.patience / 2)
        self._answer()

    def members(self, group: NodeGroupState, nodes: Sequence[Node]) -> list[Node]:
        return [node for node in nodes if node.labels["group"] == group.name]

    def is_busy(self, error: ServiceError) -> bool:
        return error.status == 423

    def events(self, group: NodeGroupState) -> list[str]:
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
        """Change an existing group that is not being deleted."""
        if name in self.groups and not self.groups[name].deleting:
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
