# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Implements nodegroups.provider.NodeGroupProvider for the node groups of one Magnum cluster."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t

from ...catalog.names import MAGNUM_NODEGROUP_MARK
from ...cluster_state.node import Node
from ...common.errors import InvalidOptions, ServiceError
from ...nodegroups.group_changes import field_differences, groups_of_spec, merge_field
from ...nodegroups.provider import CloudRequest, ListedGroup
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, claimed_owner, marked_owner
from ...schema.providers import MAGNUM, MAGNUM_NODEGROUP_LABEL
from .checks import MagnumChecks
from .client import Magnum
from .encoding import PATCH_FIELDS, SENT_FIELDS, Size, create_body, next_size, patch_body
from .errors import OpenStackError
from .fields import FIELDS
from .nova_glance import Glance, Nova
from .specs import MagnumSpec

Object = dict[str, t.Any]

# Node labels that contain the name of the node's group: the label that Heat's drivers and the cluster autoscaler's
# provider use, and the label that magnum-capi-helm uses.
GROUP_LABELS = (MAGNUM_NODEGROUP_LABEL, "capi.stackhpc.com/node-group")
# With these drivers, Cluster API chooses the nodes to remove and drains them itself.
_CLUSTER_API_DRIVERS = ("capi", "cluster_api")
_SERVER_PREFIX = "openstack://"
# What names of nodes cannot contain; the driver of Cluster API replaces it.
_NO_NAME = re.compile(r"[^a-z0-9]+")

_Spec = t.TypeVar("_Spec", bound=NodeGroupSpec)


class MagnumProvider:
    """The node group provider for one Magnum cluster."""

    immutable_fields = FIELDS.immutable_fields
    machine_fields: frozenset[str] = frozenset()
    max_name_length = MAGNUM.max_name_length
    # A driver stores a request only after it has forwarded the request to Heat or Helm, which takes a few seconds.
    patience = 20.0
    takes_requests_anytime = False
    in_cluster = False

    def __init__(
        self, magnum: Magnum, nova: Nova, glance: Glance, cluster: Object, specs: t.Sequence[MagnumSpec]
    ) -> None:
        """Store the arguments without sending a request. `cluster` is Magnum's response."""
        self._magnum = magnum
        self._nova = nova
        self._glance = glance
        self._cluster = cluster
        self._specs = {spec.name: spec for spec in specs}
        self._checks = MagnumChecks(magnum, nova, glance, cluster)
        self._states: list[NodeGroupState] = []
        # The names of all groups of the cluster.
        self._names: frozenset[str] = frozenset()
        # The ids of groups that had failed before this run. The failed operation of each group is retried once.
        self._retryable: set[str] = set()

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return str(self._cluster["uuid"])

    @property
    def defaults(self) -> frozenset[str]:
        """The names of the groups that were created together with the cluster, as far as they have been read."""
        return self._checks.defaults

    @functools.cached_property
    def can_choose_nodes(self) -> bool:
        """Whether the cluster's driver removes the nodes that a request specifies."""
        driver = str((self._checks.template or {}).get("driver") or "")
        return not any(name in driver for name in _CLUSTER_API_DRIVERS)

    def read(self, selects: t.Callable[[str], bool]) -> list[NodeGroupState]:
        """All groups whose name `selects` accepts. Each group is read separately, because the list contains wrong bounds and no labels."""
        ids = [group["uuid"] for group in self._rows() if selects(group["name"])]
        groups = self._magnum.complete_nodegroups(self.cluster_id, ids)
        defaults = [group["name"] for group in groups if group.get("is_default")]
        self._checks.defaults = frozenset(defaults)
        undeletable = [name for name in defaults if name in self._specs and not self._specs[name].present]
        if undeletable:
            raise InvalidOptions([self._checks.undeletable(name) for name in undeletable])
        self._states = [self._state(group) for group in groups]
        self._retryable = {state.id for state in self._states if state.failed}
        return self._states

    def check(self, specs: t.Sequence[tuple[NodeGroupSpec, NodeGroupState | None]]) -> list[str]:
        """The problems that MagnumChecks finds in these specs."""
        return self._checks.problems([(spec if state else self._complete(spec), state) for spec, state in specs])

    def list_groups(self) -> list[ListedGroup]:
        """The groups in Magnum's list, which contains the correct statuses."""
        return [ListedGroup(row["uuid"], row["name"], _status(row), _is_settled(row)) for row in self._rows()]

    def get(self, group: str) -> NodeGroupState | None:
        """The group's current state."""
        row = self._magnum.nodegroup(self.cluster_id, group)
        return self._state(row) if row else None

    def create(self, spec: NodeGroupSpec, name: str, count: int | None) -> None:
        """Request the creation of a group. A replacement inherits undeclared settings from the old group."""
        complete = self._complete(t.cast("MagnumSpec", spec))
        body = create_body(complete, name, complete.count if count is None else count, self.cluster_id)
        self._magnum.create_nodegroup(self.cluster_id, body)

    def requests(self, state: NodeGroupState, spec: NodeGroupSpec, leaving: t.Sequence[Node]) -> list[CloudRequest]:
        """A list with only the next request, because all later requests depend on its effect."""
        desired = {field: after for field, (dummy, after) in field_differences(spec, state).items()}
        FIELDS.require_sent(desired, SENT_FIELDS)
        current = Size(state.count, state.min_count, state.max_count)
        size = next_size(
            current,
            Size(
                desired.get(NODE_COUNT, state.count),
                desired.get(MIN_NODE_COUNT, state.min_count),
                desired.get(MAX_NODE_COUNT, state.max_count),
            ),
        )
        fields = {field: desired[field] for field in PATCH_FIELDS if field in desired}
        if size.count != current.count:
            return [self._resize(state, size.count, leaving)]
        if size != current or fields:
            return [self._patch(state, current, size, fields)]
        if state.id in self._retryable and state.failed and state.fields.get("role") != "master":
            # A resize makes every driver run a complete update, which retries a failed operation.
            return [self._resize(state, state.count, ())]
        return []

    def stop_autoscaling(self, state: NodeGroupState) -> None:
        """Do nothing, because the cloud's autoscaler ignores a group once its deletion has been requested."""

    def delete(self, state: NodeGroupState) -> None:
        """Request the deletion of a group."""
        self._magnum.delete_nodegroup(self.cluster_id, state.id)

    def members(self, state: NodeGroupState, nodes: t.Sequence[Node]) -> list[Node]:
        """The nodes that belong to the group: those with an address that Magnum returns, and those whose label and name both contain the group's name.

        Anyone can set the label on a node, so it does not count alone. Magnum's Heat drivers return the addresses; Cluster API puts the name of the group
        into the names of its nodes. The names of the cluster and of another group may contain the group's name, too; the longest name counts.
        """
        addresses, part, cluster = set(state.addresses), _name_part(state.name), _name_part(str(self._cluster["name"]))
        longer = [other for name in self._names if part in (other := _name_part(name)) and other != part]

        def is_named_after_group(node: Node) -> bool:
            name = f"-{node.name}".removeprefix(cluster[:-1])
            return part in name and not any(other in name for other in longer)

        return [
            node
            for node in nodes
            if addresses & set(node.addresses)
            or (any(node.labels.get(key) == state.name for key in GROUP_LABELS) and is_named_after_group(node))
        ]

    def is_busy(self, error: ServiceError) -> bool:
        """Whether another operation is in progress, or the cluster is still being created and its API server does not have an address yet."""
        return isinstance(error, OpenStackError) and (error.no_address_yet or error.in_progress)

    def events(self, state: NodeGroupState) -> list[str]:
        """The cluster's faults and status."""
        cluster = self._magnum.find_cluster(self.cluster_id) or {}
        faults = [f"{name}: {text}" for name, text in sorted((cluster.get("faults") or {}).items())]
        reason = str(cluster.get("status_reason") or "")
        status = f"The cluster is {cluster.get('status')}"
        return [*faults, f"{status}: {reason}" if reason else status]

    def _rows(self) -> list[Object]:
        """Magnum's list of the groups."""
        rows = self._magnum.nodegroups(self.cluster_id)
        self._names = frozenset(str(row["name"]) for row in rows)
        return rows

    def _complete(self, spec: _Spec) -> _Spec:
        """The spec. If the group exists, undeclared settings get the values of the existing group."""
        existing = groups_of_spec(spec.name, self._states)
        if not existing:
            return spec
        old = existing[0]
        fields = {name: value for name, value in old.fields.items() if value is not None}
        for name, value in spec.fields.items():
            fields[name] = merge_field(fields.get(name) or {}, value) if isinstance(value, t.Mapping) else value
        return dataclasses.replace(
            spec,
            count=old.count if spec.count is None else spec.count,
            min_count=old.min_count if spec.min_count is None else spec.min_count,
            max_count=old.max_count if spec.max_count is None else spec.max_count,
            fields=fields,
        )

    def _resize(self, state: NodeGroupState, count: int, leaving: t.Sequence[Node]) -> CloudRequest:
        servers = [
            node.provider_id.rpartition("/")[2] for node in leaving if node.provider_id.startswith(_SERVER_PREFIX)
        ]
        resizing = f"resize from {state.count} to {count} nodes"

        def send() -> None:
            self._retryable.discard(state.id)
            self._magnum.resize(self.cluster_id, state.id, count, servers)

        return CloudRequest(
            resizing if count != state.count else f"retry after {state.status}",
            send,
            lambda now: now.count == count and not now.failed,
        )

    def _patch(self, state: NodeGroupState, current: Size, size: Size, fields: t.Mapping[str, t.Any]) -> CloudRequest:
        patch = patch_body(current, size, fields)
        return CloudRequest(
            f"change {', '.join(part['path'][1:] for part in patch)}",
            lambda: self._magnum.patch_nodegroup(self.cluster_id, state.id, patch),
            lambda now: (
                (now.min_count, now.max_count) == (size.low, size.high)
                and all(now.fields.get(name) == value for name, value in fields.items())
            ),
        )

    def _state(self, group: Object) -> NodeGroupState:
        status = _status(group)
        unsupported = FIELDS.newer_than(self._magnum.version)
        fields = {name: value for name, value in FIELDS.decode(group).items() if name not in unsupported}
        mark = (group.get("labels") or {}).get(MAGNUM_NODEGROUP_MARK)
        owner = marked_owner(str(mark) if mark else None, self.cluster_id, str(group["name"]))
        for kind in ("flavor", "image"):
            fields[kind] = self._as_declared(kind, owner or str(group["name"]), fields[kind])
        return NodeGroupState(
            id=str(group["uuid"]),
            name=str(group["name"]),
            status=status,
            settled=_is_settled(group),
            failed=status.endswith("_FAILED"),
            count=int(group.get("node_count") or 0),
            reason=str(group.get("status_reason") or ""),
            min_count=int(group.get("min_node_count") or 0),
            # 0 is also used for no limit.
            max_count=group.get("max_node_count") or None,
            fields=fields,
            addresses=tuple(group.get("node_addresses") or ()),
            owner=owner,
            marked=bool(owner),
            claims={f"label {MAGNUM_NODEGROUP_MARK}": claimed_owner(str(mark) if mark else None)},
        )

    def _as_declared(self, kind: str, group: str, stored: str | None) -> str | None:
        """The declared name or id of a flavor or image if the stored one refers to the same object, or else the stored one.

        Magnum stores the name or id exactly as the request contained it.
        """
        spec = self._specs.get(group)
        declared = spec.fields.get(kind) if spec else None
        if declared in (None, stored) or stored is None:
            return stored
        return declared if self._ids_of(kind, stored) & self._ids_of(kind, str(declared)) else stored

    def _ids_of(self, kind: str, name: str) -> set[t.Any]:
        flavor = self._nova.flavor(name) if kind == "flavor" else None
        ids = self._glance.named(name) if kind == "image" else [flavor] if flavor else []
        return {item["id"] for item in ids}


def _name_part(name: str) -> str:
    """How the names of nodes contain the name of a group or cluster."""
    return f"-{_NO_NAME.sub('-', name.lower()).strip('-')}-"


def _status(group: Object) -> str:
    return str(group.get("status") or "CREATE_IN_PROGRESS")


def _is_settled(group: Object) -> bool:
    return not _status(group).endswith("_IN_PROGRESS")
