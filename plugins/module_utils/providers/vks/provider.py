# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node groups of one VKS cluster, as the engine of node groups asks for them."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...common.errors import InvalidOptions, ServiceError
from ...common.parallel import run_bounded
from ...nodegroups.names import is_of
from ...nodegroups.plan import Edits, field_edits
from ...nodegroups.provider import CloudRequest, ClusterNode, ListedGroup
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from . import checks, encode
from .clusters import VksCluster, detailed
from .decode import UNCHANGEABLE, WORDS, group_id, listed_of, live_of
from .errors import VksError
from .name_resolver import Resolver
from .paging import PAGE_SIZE, Row, rows_of
from .specs import LONGEST_NAME, Options, problems_of, spec_of
from .transport import VKS, VksTransport
from .updates import GroupUpdates, ends_range
from .vserver import VServer

_EVENTS = 5
_RANGE = (WORDS.low, WORDS.high)


class VksProvider:
    """Implements the engine's protocol Cloud; safe to be used by many threads."""

    words = WORDS
    unchangeable = UNCHANGEABLE
    longest_name = LONGEST_NAME
    # PUT takes a number; which node goes is the service's choice.
    removes_chosen = False

    def __init__(self, transport: VksTransport, vserver: VServer, cluster: VksCluster, *, patience: float) -> None:
        """Ask for nothing yet; `patience` as in Cloud, in seconds."""
        self.patience = patience
        self._transport = transport
        self._cluster = cluster
        self._resolver = Resolver(vserver, functools.partial(detailed, transport, cluster))
        self._groups = f"{cluster.path}/node-groups"
        self._listed: list[Row] | None = None
        self._surveyed: dict[str, NodeGroupState] = {}
        self._updates = GroupUpdates(transport, self._detail)

    def wishes(self, asked: t.Sequence[Options]) -> list[NodeGroupSpec]:
        """The options as wishes; raises InvalidOptions with all that is wrong in all of them, before anything is sent."""
        problems = [problem for options in asked for problem in problems_of(options)]
        if problems:
            raise InvalidOptions(problems, "These node groups cannot be as they are declared:")
        names = [options["name"] for options in asked]
        lives = self.survey(lambda group: any(is_of(group, name, LONGEST_NAME) for name in names))
        wishes = []
        for options in asked:
            name = options["name"]
            its = sorted(
                (live for live in lives if is_of(live.name, name, LONGEST_NAME)), key=lambda live: live.name != name
            )
            live = its[0] if its else None
            wish, found = spec_of(options, live, self._resolver)
            wishes.append(self._completed(wish, live))
            problems += found
        if problems:
            raise InvalidOptions(problems, "These node groups cannot be as they are declared:")
        return wishes

    def survey(self, wanted: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose names are wanted, with their details; each is asked for once. Two of one name are refused with both ids."""
        if self._listed is None:
            self._listed = self._transport.items(VKS, self._groups)
        rows = [row for row in self._listed if wanted(str(row.get("name")))]
        _refuse_twins(rows)
        missing = [row for row in rows if group_id(row) not in self._surveyed]
        calls = [(group_id(row), functools.partial(self._detail, group_id(row))) for row in missing]
        for outcome in run_bounded(calls):
            if outcome.error is not None:
                raise outcome.error
            if outcome.value is not None:
                self._surveyed[outcome.name] = self._live(outcome.value)
        return [self._surveyed[group_id(row)] for row in rows if group_id(row) in self._surveyed]

    def check(self, wishes: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """What the account has no room for."""
        quota = self._transport.json(VKS, "GET", "/v1/quota") or {}
        return checks.problems(wishes, self._resolver.cluster, len(self._listed or []), quota, self._resolver)

    def listed(self) -> list[ListedGroup]:
        """By the service's list; two groups of one name are refused, with their ids."""
        rows = self._transport.items(VKS, self._groups)
        _refuse_twins(rows)
        return [listed_of(row) for row in rows]

    def get(self, group: str) -> NodeGroupState | None:
        """The group with its nodes, of which as many as it wants have to be ready before it counts as settled."""
        row = self._detail(group)
        if row is None:
            return None
        live = self._live(row)
        return self._live(row, self.nodes(live)) if live.settled and not live.failed else live

    def create(self, wish: NodeGroupSpec, name: str, count: int | None) -> None:
        """Ask for the group; one that is there already, by a request whose answer was lost, is no error."""
        body = encode.create_body(wish, name, count, self._resolver.default_subnet)
        try:
            self._transport.send(VKS, "POST", self._groups, body=body)
        except VksError as error:
            if error.status not in (400, 409, 422) or all(group.name != name for group in self.listed()):
                raise

    def steps(self, live: NodeGroupState, wish: NodeGroupSpec, leaving: t.Sequence[ClusterNode]) -> list[CloudRequest]:
        """Metadata first, so that nodes which come by the next request are born with it; a roll to another version last."""
        found = field_edits(self._completed(wish, live), live, WORDS)
        path = self._path(live)
        steps = []
        if metadata := _part(found, encode.METADATA):
            steps.append(_step("labels, taints, tags", metadata, lambda: self._updates.metadata(path, live, metadata)))
        if ends_range(found):
            # By itself: while there is a range, a number beside it may be ignored.
            steps.append(_step("no autoscaling", _part(found, _RANGE), lambda: self._updates.unranged(path, live)))
            found = {field: edit for field, edit in found.items() if field not in _RANGE}
        if put := _part(found, encode.PUT_FIELDS):
            steps.append(_step(", ".join(put), put, lambda: self._updates.put(path, live, put)))
        if version := _part(found, (encode.VERSION_FIELD,)):
            body = {"kubernetesVersion": version[encode.VERSION_FIELD][1]}
            steps.append(
                _step(
                    f"upgrade to {body['kubernetesVersion']}",
                    version,
                    lambda: self._transport.send(VKS, "POST", f"{path}/upgrade-version", body=body),
                )
            )
        return steps

    def delete(self, live: NodeGroupState) -> None:
        """Ask for the end; a group that has failed only goes when it is forced."""
        try:
            self._transport.send(VKS, "DELETE", self._path(live), query={"forceDelete": True} if live.failed else None)
        except VksError as error:
            if not error.not_found:
                raise

    def members(self, live: NodeGroupState, machines: t.Sequence[ClusterNode]) -> list[ClusterNode]:
        """By address, or by name: VKS tells both of a group's nodes."""
        nodes = self.nodes(live)
        names = {str(node.get("name")) for node in nodes}
        addresses = {str(node["fixedIp"]) for node in nodes if node.get("fixedIp")}
        return [machine for machine in machines if machine.name in names or addresses & set(machine.addresses)]

    def busy(self, error: ServiceError) -> bool:
        """The group, or its cluster, is being processed."""
        return isinstance(error, VksError) and error.busy

    def events(self, live: NodeGroupState) -> list[str]:
        """The last of the cluster's events; groups have none of their own any more."""
        query = {"page": 0, "pageSize": PAGE_SIZE}
        rows = rows_of(self._transport.json(VKS, "GET", f"{self._cluster.path}/events", query=query))
        its = [row for row in rows if live.name in str(row.get("message")) or live.id in str(row.get("message"))]
        its.sort(key=lambda row: str(row.get("createdAt")))
        parts = ("createdAt", "type", "action", "message")
        return [" ".join(str(row[part]) for part in parts if row.get(part)) for row in its[-_EVENTS:]]

    def nodes(self, live: NodeGroupState) -> list[Row]:
        """The group's nodes as VKS tells them; none when it is gone."""
        try:
            return self._transport.items(VKS, f"{self._path(live)}/nodes")
        except VksError as error:
            if error.not_found:
                return []
            raise

    def _completed(self, wish: NodeGroupSpec, live: NodeGroupState | None) -> NodeGroupSpec:
        """With the security groups that the service itself has put beside those declared; they stay."""
        declared = wish.fields.get("security_groups")
        if live is None or declared is None:
            return wish
        extra = set(live.fields["security_groups"]) - set(declared)
        stay = extra & self._resolver.system_groups() if extra else extra
        if not stay:
            return wish
        return dataclasses.replace(wish, fields={**wish.fields, "security_groups": sorted(stay | set(declared))})

    def _detail(self, group: str) -> Row | None:
        try:
            row: Row | None = self._transport.json(VKS, "GET", f"{self._groups}/{group}")
        except VksError as error:
            if error.not_found:
                return None
            raise
        return row

    def _live(self, row: Row, nodes: t.Sequence[Row] | None = None) -> NodeGroupState:
        # The cluster is read only for a group that does not tell its subnet.
        return live_of(row, None if row.get("subnetId") else self._resolver.default_subnet, nodes)

    def _path(self, live: NodeGroupState) -> str:
        return f"{self._groups}/{live.id}"


def _part(found: Edits, fields: t.Iterable[str]) -> dict[str, tuple[t.Any, t.Any]]:
    return {field: found[field] for field in fields if field in found}


def _step(what: str, found: Edits, send: t.Callable[[], object]) -> CloudRequest:
    return CloudRequest(what, send, functools.partial(encode.is_shown, found))


def _refuse_twins(rows: t.Sequence[Row]) -> None:
    names = [str(row.get("name")) for row in rows]
    problems = [
        f"{names.count(name)} node groups are called {name}: "
        f"{', '.join(group_id(row) for row in rows if row.get('name') == name)}. Delete all but one; a name means one group here."
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise InvalidOptions(problems)
