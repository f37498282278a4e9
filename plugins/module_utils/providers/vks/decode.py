# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups in VKS's responses, as the reconciler compares them (pure)."""

from __future__ import annotations

import typing as t

from ...nodegroups.provider import ListedGroup
from ...nodegroups.spec import NODE_LABELS, NODE_TAINTS, NodeGroupState, taint_map
from .paging import Row

# The vendor's Terraform provider replaces a group for each of these (ForceNew).
IMMUTABLE_FIELDS = frozenset(
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
# Prefixes of the service's own tags, which it ignores in requests (docs, release notes of June 2026).
_RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")

_SETTLED, _FAILED = ("ACTIVE",), ("ERROR", "FAILED")


def state_of(row: Row, subnet: str | None = None, nodes: t.Sequence[Row] | None = None) -> NodeGroupState:
    """A group's details. `subnet` is the cluster's, for a group that has none.

    With its `nodes` it counts as settled only when as many as desired are ready: after a change the status is the old one for a while.
    An unknown status means that an operation is in progress.
    """
    status = str(row.get("status") or "")
    count = _number(row.get("numNodes"))
    scaling = row.get("autoScaleConfig")
    settled = status in _SETTLED and (nodes is None or sum(node.get("ready") is not False for node in nodes) >= count)
    return NodeGroupState(
        id=str(row.get("id") or ""),
        name=str(row.get("name") or ""),
        status=status,
        settled=settled or status in _FAILED,
        failed=status in _FAILED,
        count=count,
        min_count=_number(scaling.get("minSize")) if scaling else 0,
        max_count=_number(scaling.get("maxSize")) if scaling else None,
        fields=_fields(row, subnet),
        addresses=tuple(str(node["fixedIp"]) for node in nodes or () if node.get("fixedIp")),
        machines=tuple(str(node["name"]) for node in nodes or () if node.get("name")),
    )


def listed_of(row: Row) -> ListedGroup:
    """A row of the list."""
    status = str(row.get("status") or "")
    return ListedGroup(str(row.get("id")), str(row.get("name") or ""), status, status in (*_SETTLED, *_FAILED))


def is_reserved(tag: str) -> bool:
    """Whether only the service may set this tag."""
    return tag.startswith(_RESERVED_TAGS)


def _fields(row: Row, subnet: str | None) -> dict[str, t.Any]:
    upgrade = row.get("upgradeConfig") or {}
    return {
        "flavor": _text(row.get("flavorId")),
        "os": _system(_text(row.get("imageOS"))),
        "disk_size": _number(row.get("diskSize")),
        "disk_type": _text(row.get("diskType")),
        "ssh_key": _text(row.get("sshKeyId")),
        "subnet": _text(row.get("subnetId") or subnet),
        "secondary_subnets": sorted(map(str, row.get("secondarySubnets") or [])),
        "security_groups": sorted(map(str, row.get("securityGroups") or [])),
        "private_nodes": bool(row.get("enablePrivateNodes")),
        "encrypted_volume": bool(row.get("enabledEncryptionVolume")),
        NODE_LABELS: {str(key): str(value) for key, value in (row.get("labels") or {}).items()},
        NODE_TAINTS: taint_map(row.get("taints")),
        "tags": {str(key): str(value) for key, value in (row.get("tags") or {}).items()},
        "upgrade_strategy": {
            "max_surge": _number(upgrade.get("maxSurge", 1)),
            "max_unavailable": _number(upgrade.get("maxUnavailable", 0)),
        },
        "kubernetes_version": _text(row.get("kubernetesVersion")) or None,
    }


def _system(image: str) -> str:
    """The option `os` of an image's operating system (Ubuntu 22.04, Container-Optimized OS)."""
    word = image.lower().partition(" ")[0]
    return "linux" if word.startswith("container") else word or "ubuntu"


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)


def _number(value: t.Any) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
