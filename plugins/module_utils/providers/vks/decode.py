# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node group as VKS tells it, in whichever of the API's generations, in the words of the module's options; pure."""

from __future__ import annotations

import typing as t

from ...nodegroups.provider import ListedGroup
from ...nodegroups.spec import FieldNames, NodeGroupState
from .paging import Row

WORDS = FieldNames(count="num_nodes", low="min_size", high="max_size")
# No request changes these: the vendor's Terraform provider makes another group for each of them (ForceNew).
UNCHANGEABLE = frozenset(
    {
        "flavor",
        "os",
        "disk_size",
        "disk_type",
        "ssh_key",
        "subnet",
        "secondary_subnets",
        "private_nodes",
        "encrypted_volume",
    }
)
# The service's own: it ignores them when they are sent (docs, release notes of June 2026).
RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")

_SETTLED, _FAILED = ("ACTIVE",), ("ERROR", "FAILED")


def live_of(row: Row, subnet: str | None = None, nodes: t.Sequence[Row] | None = None) -> NodeGroupState:
    """A group's details as the engine compares them. `subnet` is the cluster's, where the group tells none.

    With its `nodes` it counts as settled only when as many as it wants are ready: after a change its status is the old one for a while.
    A status that is not known is one of something under way.
    """
    status = str(row.get("status") or "")
    count = _number(_first(row, "numNodes", "nodeCount"))
    scaling = _first(row, "autoScaleConfig", "autoscale") or {}
    settled = status in _SETTLED and (nodes is None or sum(node.get("ready") is not False for node in nodes) >= count)
    return NodeGroupState(
        id=group_id(row),
        name=str(row.get("name") or ""),
        status=status,
        settled=settled or status in _FAILED,
        failed=status in _FAILED,
        count=count,
        reason=str(_first(row, "statusReason", "message") or ""),
        low=_number(scaling.get("minSize")) if scaling else 0,
        high=_number(scaling.get("maxSize")) if scaling else None,
        fields=_fields(row, subnet),
        addresses=tuple(str(node["fixedIp"]) for node in nodes or () if node.get("fixedIp")),
        machines=tuple(str(node["name"]) for node in nodes or () if node.get("name")),
    )


def listed_of(row: Row) -> ListedGroup:
    """The same of a row of the list; where that tells no status, the group itself has to be asked."""
    status = str(row.get("status") or "")
    return ListedGroup(group_id(row), str(row.get("name") or ""), status, status in ("", *_SETTLED, *_FAILED))


def group_id(row: Row) -> str:
    """The id, by its newer or its older name."""
    return str(row.get("id") or row.get("uid") or "")


def taint_key(taint: t.Mapping[str, t.Any]) -> str:
    """What tells a taint from the others of a node."""
    return f"{taint['key']}:{taint['effect']}"


def taints_of(taints: t.Mapping[str, str]) -> list[dict[str, str]]:
    """The list that the API takes, of taints by key:Effect; a value that is empty is left out."""
    found = []
    for name, value in sorted(taints.items()):
        key, dummy, effect = name.rpartition(":")
        found.append({"key": key, **({"value": value} if value else {}), "effect": effect})
    return found


def is_reserved(tag: str) -> bool:
    """True for a tag that only the service sets."""
    return tag.startswith(RESERVED_TAGS)


def _fields(row: Row, subnet: str | None) -> dict[str, t.Any]:
    disk = row.get("disk") or {}
    upgrade = row.get("upgradeConfig") or {}
    return {
        "flavor": _text(_first(row, "flavorId", "flavor")),
        "os": _system(_text(_first(row, "os", "imageOS"))),
        "disk_size": _number(row.get("diskSize") if row.get("diskSize") is not None else disk.get("size")),
        "disk_type": _text(row.get("diskType") or disk.get("type")),
        "ssh_key": _text(_first(row, "sshKeyId", "sshKey")),
        "subnet": _text(row.get("subnetId") or subnet),
        "secondary_subnets": sorted(map(str, row.get("secondarySubnets") or [])),
        "security_groups": sorted(map(str, row.get("securityGroups") or [])),
        "private_nodes": bool(row.get("enablePrivateNodes")),
        "encrypted_volume": bool(row.get("enabledEncryptionVolume")),
        "labels": {str(key): str(value) for key, value in (row.get("labels") or {}).items()},
        "taints": {taint_key(taint): str(taint.get("value") or "") for taint in row.get("taints") or []},
        "tags": {str(key): str(value) for key, value in (row.get("tags") or {}).items()},
        "upgrade_strategy": {
            "max_surge": _number(upgrade.get("maxSurge", 1)),
            "max_unavailable": _number(upgrade.get("maxUnavailable", 0)),
        },
        "kubernetes_version": _text(row.get("kubernetesVersion")) or None,
    }


def _system(told: str) -> str:
    """As it is declared; what is told may be the image's name (Ubuntu 22.04, Container-Optimized OS), or nothing by older services."""
    word = told.lower().partition(" ")[0]
    return "linux" if word.startswith("container") else word or "ubuntu"


def _first(row: Row, *names: str) -> t.Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)


def _number(value: t.Any) -> int:
    return int(value) if isinstance(value, (int, float)) or (isinstance(value, str) and value.isdigit()) else 0
