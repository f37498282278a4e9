# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements nodegroups.provider.NodeGroupProvider for the node groups of one VKS cluster."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ...cluster_state.node import Node
from ...common.errors import InvalidOptions, ServiceError
from ...common.parallel import call_all
from ...nodegroups.group_changes import Differences, field_differences, groups_of_spec
from ...nodegroups.provider import CloudRequest, ListedGroup
from ...nodegroups.reconciler import INVALID_GROUPS
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...pools.nodegroup_names import may_be_replacement
from ...schema.messages import MAX_NAMED
from ...schema.providers import VKS as DEFINITION
from ..nodegroup_module import require_valid
from . import checks, encoding
from .clusters import VksCluster, detailed
from .encoding import listed_of, state_of
from .errors import VksError
from .fields import FIELDS, METADATA, UPDATE, UPGRADE
from .name_resolver import NameResolver
from .specs import Options, option_problems, spec_of
from .transport import PAGE_SIZE, VKS, Row, VksTransport, rows_of
from .vserver import VServer


class VksProvider:
    """The node group provider for one VKS cluster. It is thread-safe."""

    immutable_fields = FIELDS.immutable_fields
    machine_fields: frozenset[str] = frozenset()
    max_name_length = DEFINITION.max_name_length
    # A PUT request contains only the number of nodes, and the service chooses the nodes to remove.
    can_choose_nodes = False
    takes_requests_anytime = False
    in_cluster = False

    def __init__(self, transport: VksTransport, vserver: VServer, cluster: VksCluster, *, patience: float) -> None:
        """Store the arguments without sending a request. patience: the number of seconds that NodeGroupProvider describes."""
        self.patience = patience
        self._transport = transport
        self._cluster = cluster
        self._resolver = NameResolver(vserver, functools.partial(detailed, transport, cluster))
        self._groups = f"{cluster.path}/node-groups"
        self._states: dict[str, NodeGroupState] = {}

    def specs_of(self, groups: t.Sequence[Options]) -> list[NodeGroupSpec]:
        """The specs that the options declare. Raises InvalidOptions with all problems."""
        require_valid(groups, option_problems)
        longest, names = self.max_name_length, [options["name"] for options in groups]
        states = self.read(lambda group: any(may_be_replacement(group, name, longest) for name in names))
        specs: list[NodeGroupSpec] = []
        problems: list[str] = []
        for options in groups:
            state = next(iter(groups_of_spec(options["name"], states)), None)
            spec, new_problems = spec_of(options, state, self._resolver)
            specs.append(self._with_system_groups(spec, state))
            problems += new_problems
        if problems:
            raise InvalidOptions(problems, INVALID_GROUPS)
        return specs

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose name `selects` accepts, with their details. Each group is read only once.

        Raises InvalidOptions if two groups have the same name.
        """
        rows = [row for row in self._rows if selects(str(row.get("name")))]
        _refuse_duplicates(rows)
        return self._details(rows)

    def read_all(self) -> list[NodeGroupState]:
        """All groups with their details, regardless of their names."""
        return self._details(self._rows)

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """The problems that checks.py finds in these specs."""
        quota = self._transport.get(VKS, "/v1/quota") or {}
        return checks.problems(specs, self._resolver.cluster, len(self._rows), quota, self._resolver)

    def list_groups(self) -> list[ListedGroup]:
        """The groups in the service's list. Raises InvalidOptions if two groups have the same name."""
        rows = self._transport.items(self._groups)
        _refuse_duplicates(rows)
        return [listed_of(row) for row in rows]

    def get(self, group: str) -> NodeGroupState | None:
        """The state of the group, including its nodes. The group counts as settled only when the desired number of nodes is ready."""
        row = self._detail(group)
        if row is None:
            return None
        state = self._state(row)
        return self._state(row, self.nodes(state)) if state.settled and not state.failed else state

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request the creation of a group. It is not an error if an earlier request, whose response was lost, has created the group."""
        body = encoding.create_body(spec, name, count, self._resolver.default_subnet, self._cluster.id)
        try:
            self._transport.send(VKS, "POST", self._groups, body=body)
        except VksError as error:
            if error.status not in (400, 409, 422) or all(group.name != name for group in self.list_groups()):
                raise

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """The requests in order. Metadata is changed first, so that new nodes register with it, and an upgrade is requested last."""
        differences = dict(field_differences(self._with_system_groups(spec, state), state))
        steps = [(request, encoding.REQUEST_FIELDS[request]) for request in (METADATA, UPDATE, UPGRADE)]
        if encoding.disables_autoscaling(differences):
            # The range is removed in a separate request, because the service may ignore a number of nodes while the
            # group has a range.
            steps.insert(1, (UPDATE, encoding.RANGE))
        requests = []
        for request, fields in steps:
            part = {field: differences.pop(field) for field in fields if field in differences}
            if part:
                requests.append(self._request(state, request, part))
        FIELDS.require_sent(differences, ())
        return requests

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Do nothing, because the cloud's autoscaler ignores a group once its deletion has been requested."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group. A failed group can be deleted only by force."""
        query = {"forceDelete": True} if state.failed else None
        try:
            self._transport.send(VKS, "DELETE", self._path(state), query=query)
        except VksError as error:
            if not error.not_found:
                raise

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The group's nodes, which are matched by address or name. VKS returns both."""
        rows = self.nodes(state)
        names = {str(row.get("name")) for row in rows}
        addresses = {str(row["fixedIp"]) for row in rows if row.get("fixedIp")}
        return [node for node in nodes if node.name in names or addresses & set(node.addresses)]

    def is_busy(self, error: ServiceError) -> bool:
        """Whether the group or its cluster is being processed."""
        return isinstance(error, VksError) and error.busy

    def events(self, state: NodeGroupState) -> list[str]:
        """The cluster's latest events that mention the group. Groups do not have events of their own."""
        query = {"page": 0, "pageSize": PAGE_SIZE}
        rows = rows_of(self._transport.get(VKS, f"{self._cluster.path}/events", query=query))
        matching = [row for row in rows if state.name in str(row.get("message")) or state.id in str(row.get("message"))]
        matching.sort(key=lambda row: str(row.get("createdAt")))
        parts = ("createdAt", "type", "action", "message")
        return [" ".join(str(row[part]) for part in parts if row.get(part)) for row in matching[-MAX_NAMED:]]

    def nodes(self, state: NodeGroupState) -> list[Row]:
        """The group's nodes in VKS, or an empty list if the group no longer exists."""
        try:
            return self._transport.items(f"{self._path(state)}/nodes")
        except VksError as error:
            if error.not_found:
                return []
            raise

    def _request(self, state: NodeGroupState, request: tuple[str, str], differences: Differences) -> CloudRequest:
        method, path = request
        body = encoding.change_body(differences, state)
        return CloudRequest(
            f"change {', '.join(differences)}",
            lambda: self._transport.send(VKS, method, self._path(state) + path, body=body),
            functools.partial(encoding.is_shown, differences),
        )

    def _with_system_groups(self, spec: NodeGroupSpec, state: NodeGroupState | None) -> NodeGroupSpec:
        """The spec with the declared security groups and those that the service itself has added."""
        declared = spec.fields.get("security_groups")
        if state is None or declared is None:
            return spec
        undeclared = set(state.fields["security_groups"]) - set(declared)
        kept = undeclared & self._resolver.system_groups() if undeclared else undeclared
        if not kept:
            return spec
        return dataclasses.replace(spec, fields={**spec.fields, "security_groups": sorted(kept | set(declared))})

    @functools.cached_property
    def _rows(self) -> list[Row]:
        return self._transport.items(self._groups)

    def _details(self, rows: t.Sequence[Row]) -> list[NodeGroupState]:
        ids = [str(row.get("id")) for row in rows]
        unread = [(group, functools.partial(self._detail, group)) for group in ids if group not in self._states]
        for state in map(self._state, filter(None, call_all(unread))):
            self._states[state.id] = state
        return [self._states[group] for group in ids if group in self._states]

    def _detail(self, group: str) -> Row | None:
        return t.cast("Row | None", self._transport.find(VKS, f"{self._groups}/{group}"))

    def _state(self, row: Row, nodes: t.Sequence[Row] | None = None) -> NodeGroupState:
        # The cluster is only read for a group without a subnet.
        subnet = None if row.get("subnetId") else self._resolver.default_subnet
        return state_of(row, subnet, nodes, self._cluster.id)

    def _path(self, state: NodeGroupState) -> str:
        return f"{self._groups}/{state.id}"


def _refuse_duplicates(rows: t.Sequence[Row]) -> None:
    names = [str(row.get("name")) for row in rows]
    problems = [
        f"{names.count(name)} node groups are called {name}: "
        f"{', '.join(str(row.get('id')) for row in rows if row.get('name') == name)}. Delete all but one; names must be unique."
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    if problems:
        raise InvalidOptions(problems)
