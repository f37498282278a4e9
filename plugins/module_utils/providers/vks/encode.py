# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is sent to VKS for a node group: its creation, and the three requests that changes are made of; pure."""

from __future__ import annotations

import typing as t

from ...nodegroups.plan import Edits, merge_field
from ...nodegroups.spec import NodeGroupSpec, NodeGroupState
from .decode import WORDS, is_reserved, taints_of
from .paging import Row

# What a group gets that is not told more: as the vendor's own client makes it (GreenNodeHub/greennode-cli, go/cmd/vks).
DISK_SIZE = 100
NUM_NODES = 1
OS = "ubuntu"
STRATEGY = {"max_surge": 1, "max_unavailable": 0}

METADATA = ("labels", "taints", "tags")
# Which request changes what: PATCH .../metadata, PUT, POST .../upgrade-version.
PUT_FIELDS = (WORDS.count, WORDS.low, WORDS.high, "security_groups", "upgrade_strategy")
VERSION_FIELD = "kubernetes_version"


def create_body(wish: NodeGroupSpec, name: str, count: int | None, subnet: str | None) -> Row:
    """The body of POST .../node-groups; ids are resolved already, `subnet` is the cluster's where the wish names none."""
    fields = wish.fields
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
    if wish.high is not None:
        body["autoScaleConfig"] = {"minSize": wish.low or 0, "maxSize": wish.high}
    for field in METADATA:
        entries = merge_field({}, fields.get(field) or {})
        if entries:
            body[field] = taints_of(entries) if field == "taints" else entries
    return body


def put_body(edits: Edits, live: NodeGroupState) -> Row:
    """The body of PUT .../node-groups/ID, empty where it has nothing to change; a set or a strategy is written whole.

    `autoScaleConfig` that is null takes autoscaling away, one that is missing leaves it (vngcloud/greennode-mcp, models.py).
    """
    body: Row = {}
    if WORDS.count in edits:
        body["numNodes"] = edits[WORDS.count][1]
    if WORDS.low in edits or WORDS.high in edits:
        low = edits[WORDS.low][1] if WORDS.low in edits else live.low
        high = edits[WORDS.high][1] if WORDS.high in edits else live.high
        body["autoScaleConfig"] = None if high is None else {"minSize": low, "maxSize": high}
    if "security_groups" in edits:
        body["securityGroups"] = list(edits["security_groups"][1])
    if "upgrade_strategy" in edits:
        body["upgradeConfig"] = _strategy(edits["upgrade_strategy"][1])
    return body


def full_put_body(body: Row, row: Row) -> Row:
    """The same with what an older service demands in each PUT, as the group has it: its image, its sets, its strategy."""
    kept = ("imageId", "numNodes", "securityGroups", "upgradeConfig")
    return {**{name: row[name] for name in kept if row.get(name) is not None}, **body}


def metadata_body(edits: Edits, explicit: bool = False) -> Row:
    """The body of PATCH .../node-groups/ID/metadata: each map that changes, whole, so that replacing and merging come to the same.

    Where the service merges, what is left out stays. Then `explicit` names what is to go with null. An empty list of taints is
    null in the vendor's client, and [] when that was not understood.
    """
    body: Row = {}
    for field in METADATA:
        if field not in edits:
            continue
        after = edits[field][1]
        if field == "taints":
            body[field] = taints_of(after) or ([] if explicit else None)
            continue
        gone = dict.fromkeys(removed(edits[field])) if explicit else {}
        body[field] = {
            key: value for key, value in {**after, **gone}.items() if field != "tags" or not is_reserved(key)
        }
    return body


def old_metadata_body(edits: Edits) -> Row:
    """The body of PUT .../node-groups/ID that changed labels and taints before there was a request of their own; tags it never did."""
    found = {field: edits[field][1] for field in ("labels", "taints") if field in edits}
    return {field: taints_of(after) if field == "taints" else dict(after) for field, after in found.items()}


def removed(edit: tuple[t.Any, t.Any]) -> list[str]:
    """What is to go from a map."""
    before, after = edit
    return sorted((before or {}).keys() - after.keys())


def is_shown(edits: Edits, now: NodeGroupState) -> bool:
    """Whether the group shows what was asked for; of a map, only what was to change, since the service has entries of its own."""
    shown = now.told(WORDS)
    return all(_is_shown(edit, shown.get(field)) for field, edit in edits.items())


def _is_shown(edit: tuple[t.Any, t.Any], shown: t.Any) -> bool:
    before, after = edit
    if not isinstance(after, t.Mapping):
        return bool(shown == after)
    have, told = before or {}, shown or {}
    return all(told.get(key) == after.get(key) for key in {*have, *after} if have.get(key) != after.get(key))


def _strategy(strategy: t.Mapping[str, t.Any]) -> Row:
    return {"strategy": "SURGE", "maxSurge": strategy["max_surge"], "maxUnavailable": strategy["max_unavailable"]}
