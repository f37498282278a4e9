# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The requests for a VKS node group: its creation, and the three requests that change it (pure)."""

from __future__ import annotations

import typing as t

from ...nodegroups.plan import Differences, merge_field
from ...nodegroups.spec import (
    MAX_NODE_COUNT,
    MIN_NODE_COUNT,
    NODE_COUNT,
    NODE_LABELS,
    NODE_TAINTS,
    NodeGroupSpec,
    NodeGroupState,
    taint_list,
)
from .decode import is_reserved
from .paging import Row

# Defaults of a new group: those of the vendor's own client (GreenNodeHub/greennode-cli, go/cmd/vks).
DISK_SIZE = 100
NUM_NODES = 1
OS = "ubuntu"
STRATEGY = {"max_surge": 1, "max_unavailable": 0}

# PATCH .../metadata: the fields, and their names in the API.
METADATA = {NODE_LABELS: "labels", NODE_TAINTS: "taints", "tags": "tags"}
# PUT
RANGE = (MIN_NODE_COUNT, MAX_NODE_COUNT)
PUT_FIELDS = (NODE_COUNT, *RANGE, "security_groups", "upgrade_strategy")
# POST .../upgrade-version
VERSION_FIELD = "kubernetes_version"


def create_body(spec: NodeGroupSpec, name: str, count: int | None, subnet: str | None) -> Row:
    """The body of POST .../node-groups; names are resolved already, `subnet` is the cluster's, for a spec without one."""
    fields = spec.fields
    body: Row = {
        "name": name,
        "numNodes": NUM_NODES if count is None else count,
        "os": fields.get("os") or OS,
        "flavorId": fields["flavor"],
        "diskSize": fields.get("disk_size") or DISK_SIZE,
        "diskType": fields["disk_type"],
        "enablePrivateNodes": bool(fields.get("private_nodes")),
        "securityGroups": list(fields.get("security_groups") or []),
        "sshKeyId": fields["ssh_key"],
        "upgradeConfig": _strategy({**STRATEGY, **(fields.get("upgrade_strategy") or {})}),
        "enabledEncryptionVolume": bool(fields.get("encrypted_volume")),
    }
    if fields.get("subnet") or subnet:
        body["subnetId"] = fields.get("subnet") or subnet
    if fields.get("secondary_subnets"):
        body["secondarySubnets"] = list(fields["secondary_subnets"])
    if spec.max_count is not None:
        body["autoScaleConfig"] = {"minSize": spec.min_count or 0, "maxSize": spec.max_count}
    for field, key in METADATA.items():
        if entries := merge_field({}, fields.get(field) or {}):
            body[key] = taint_list(entries) if field == NODE_TAINTS else entries
    return body


def put_body(differences: Differences, state: NodeGroupState) -> Row:
    """The body of PUT .../node-groups/ID with what changes; sets and the strategy are written as a whole.

    An `autoScaleConfig` of null disables autoscaling, a missing one keeps it (vngcloud/greennode-mcp, models.py).
    """
    desired = {field: after for field, (dummy, after) in differences.items()}
    body: Row = {}
    if NODE_COUNT in desired:
        body["numNodes"] = desired[NODE_COUNT]
    if desired.keys() & set(RANGE):
        high = desired.get(MAX_NODE_COUNT, state.max_count)
        low = desired.get(MIN_NODE_COUNT, state.min_count)
        body["autoScaleConfig"] = None if high is None else {"minSize": low, "maxSize": high}
    if "security_groups" in desired:
        body["securityGroups"] = list(desired["security_groups"])
    if "upgrade_strategy" in desired:
        body["upgradeConfig"] = _strategy(desired["upgrade_strategy"])
    return body


def metadata_body(differences: Differences) -> Row:
    """The body of PATCH .../node-groups/ID/metadata: each map that changes, as a whole; no taints are null, as in the vendor's client."""
    body: Row = {}
    for field, key in METADATA.items():
        if field not in differences:
            continue
        desired = differences[field][1]
        if field == NODE_TAINTS:
            body[key] = taint_list(desired) or None
        else:
            body[key] = {name: value for name, value in desired.items() if field != "tags" or not is_reserved(name)}
    return body


def upgrade_body(differences: Differences) -> Row:
    """The body of POST .../node-groups/ID/upgrade-version."""
    return {"kubernetesVersion": differences[VERSION_FIELD][1]}


def disables_autoscaling(differences: Differences) -> bool:
    """Whether the group's range is removed."""
    return MAX_NODE_COUNT in differences and differences[MAX_NODE_COUNT][1] is None


def is_shown(differences: Differences, state: NodeGroupState) -> bool:
    """Whether the group shows the changes; of a map, only the entries that change, since the service adds entries of its own."""
    return all(_is_shown(difference, state.values.get(field)) for field, difference in differences.items())


def _is_shown(difference: tuple[t.Any, t.Any], current: t.Any) -> bool:
    before, desired = difference
    if not isinstance(desired, t.Mapping):
        return bool(current == desired)
    old, now = before or {}, current or {}
    return all(now.get(key) == desired.get(key) for key in {*old, *desired} if old.get(key) != desired.get(key))


def _strategy(strategy: t.Mapping[str, t.Any]) -> Row:
    return {"strategy": "SURGE", "maxSurge": strategy["max_surge"], "maxUnavailable": strategy["max_unavailable"]}
