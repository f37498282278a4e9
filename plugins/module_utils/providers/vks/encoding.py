# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts node groups between VKS's API and the reconciler: responses to states, and specs to request bodies (pure)."""

from __future__ import annotations

import typing as t

from ...catalog.names import NODEGROUP_MARK
from ...nodegroups.group_changes import Differences
from ...nodegroups.provider import ListedGroup
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from ...pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT, NODE_COUNT, claimed_owner, group_mark, marked_owner
from .catalog import number, text
from .fields import FIELDS, METADATA, UPDATE, UPGRADE
from .transport import Row

RANGE = (MIN_NODE_COUNT, MAX_NODE_COUNT)
# The fields that each request changes.
REQUEST_FIELDS = {
    METADATA: FIELDS.changed_by(METADATA),
    UPDATE: (NODE_COUNT, *RANGE, *FIELDS.changed_by(UPDATE)),
    UPGRADE: FIELDS.changed_by(UPGRADE),
}
_SETTLED, _FAILED = ("ACTIVE",), ("ERROR", "FAILED")


def state_of(
    row: Row, subnet: str | None = None, nodes: t.Sequence[Row] | None = None, cluster: str = ""
) -> NodeGroupState:
    """The state of a group, derived from the group's details. `subnet` is the cluster's subnet, which is used if the group does not have a subnet.

    cluster: the cluster's id, which is a part of the mark of a replacement.

    If `nodes` is given, the group counts as settled only when the desired number of nodes is ready, because the status may be outdated for a
    while after a change. A group with an unknown status counts as having an operation in progress.
    """
    listed = listed_of(row)
    failed = listed.status in _FAILED
    count = number(row.get("numNodes"))
    scaling = row.get("autoScaleConfig")
    mark = text((row.get("labels") or {}).get(NODEGROUP_MARK))
    owner = marked_owner(mark, cluster, listed.name)
    all_ready = nodes is None or sum(node.get("ready") is not False for node in nodes) >= count
    return NodeGroupState(
        id=listed.id,
        name=listed.name,
        status=listed.status,
        settled=listed.settled and (failed or all_ready),
        failed=failed,
        count=count,
        min_count=number(scaling.get("minSize")) if scaling else 0,
        max_count=number(scaling.get("maxSize")) if scaling else None,
        fields=FIELDS.decode({**row, "subnetId": row.get("subnetId") or subnet}),
        addresses=tuple(str(node["fixedIp"]) for node in nodes or () if node.get("fixedIp")),
        machines=tuple(str(node["name"]) for node in nodes or () if node.get("name")),
        owner=owner,
        marked=bool(owner),
        claims={f"label {NODEGROUP_MARK}": claimed_owner(mark)},
    )


def listed_of(row: Row) -> ListedGroup:
    """The group in a row of the list."""
    status = text(row.get("status"))
    return ListedGroup(text(row.get("id")), text(row.get("name")), status, status in (*_SETTLED, *_FAILED))


def create_body(spec: NodeGroupSpec, name: str, count: int | None, subnet: str | None, cluster: str = "") -> Row:
    """The body of POST .../node-groups. All names are already resolved. `subnet` is the cluster's subnet, which is used if the spec does not have a subnet.

    The group gets its mark as a label.
    """
    # A new group always gets the cluster's version.
    fields = {name: value for name, value in spec.fields.items() if name not in REQUEST_FIELDS[UPGRADE]}
    settings = FIELDS.creation_body({**fields, "subnet": fields.get("subnet") or subnet})
    body: Row = {"name": name, "numNodes": 1 if count is None else count, **settings}
    body["labels"] = {**(body.get("labels") or {}), NODEGROUP_MARK: group_mark(cluster, spec.name, name)}
    if spec.max_count is not None:
        body["autoScaleConfig"] = {"minSize": spec.min_count or 0, "maxSize": spec.max_count}
    optional = ("secondarySubnets", "labels", "taints", "tags")
    return {key: value for key, value in body.items() if value or key not in optional}


def change_body(differences: Differences, state: NodeGroupState) -> Row:
    """The body of a request that changes a group. It contains the changed fields. Maps and sets are written as a whole.

    If `autoScaleConfig` is null, autoscaling is disabled. If it is missing, autoscaling is not changed (vngcloud/greennode-mcp, models.py).
    """
    desired = {field: after for field, (dummy, after) in differences.items()}
    body: Row = FIELDS.encode({field: after for field, after in desired.items() if field in FIELDS.fields})
    if NODE_COUNT in desired:
        body["numNodes"] = desired[NODE_COUNT]
    if desired.keys() & set(RANGE):
        high = desired.get(MAX_NODE_COUNT, state.max_count)
        low = desired.get(MIN_NODE_COUNT, state.min_count)
        body["autoScaleConfig"] = None if high is None else {"minSize": low, "maxSize": high}
    return body


def disables_autoscaling(differences: Differences) -> bool:
    """Whether the differences include the removal of the group's range."""
    return MAX_NODE_COUNT in differences and differences[MAX_NODE_COUNT][1] is None


def is_shown(differences: Differences, state: NodeGroupState) -> bool:
    """Whether the group's state shows the changes. In a map, only the changed entries are compared, because the service adds its own entries."""
    return all(_is_shown(difference, state.values.get(field)) for field, difference in differences.items())


def _is_shown(difference: tuple[t.Any, t.Any], current: t.Any) -> bool:
    before, desired = difference
    if not isinstance(desired, t.Mapping):
        return bool(current == desired)
    old, now = before or {}, current or {}
    return all(now.get(key) == desired.get(key) for key in {*old, *desired} if old.get(key) != desired.get(key))
