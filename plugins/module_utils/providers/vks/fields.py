# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the settings of a VKS node group, and the format of the values in VKS's API (pure)."""

from __future__ import annotations

import functools
import typing as t

from ...nodegroups.group_changes import merge_field
from ...nodegroups.spec import label_map, taint_list
from ...schema.providers import VKS
from ...schema.types import Text
from ..fields import NodeGroupField, node_labels_field, node_taints_field, text_map
from ..nodegroup_module import NodeGroupFields
from .catalog import number, text

# The prefixes of the service's own tags. In requests, the service ignores tags with these prefixes (docs, release notes of June 2026).
_RESERVED_TAGS = ("vng.vks.", "vng.vpc.", "vng.billing.", "vks-", "vks-mgmt-")
# The requests that change a group. If any other field changes, the vendor's Terraform provider replaces the group (ForceNew).
METADATA, UPDATE, UPGRADE = ("PATCH", "/metadata"), ("PUT", ""), ("POST", "/upgrade-version")
_STRATEGY = {"max_surge": 1, "max_unavailable": 0}


def _sorted(values: t.Iterable[t.Any] | None) -> list[str]:
    return sorted(map(str, values or ()))


def _system(image: t.Any) -> str:
    """The value of the option `os` for an image's operating system such as Ubuntu 22.04 or Container-Optimized OS."""
    word = text(image).lower().partition(" ")[0]
    return "linux" if word.startswith("container") else word or "ubuntu"


def _tag_problems(tags: t.Iterable[t.Any]) -> t.Iterator[str]:
    for tag in tags:
        if str(tag).startswith(_RESERVED_TAGS):
            yield f"tags: {tag!r} has a prefix of the service's own tags, which the service ignores in requests; choose another key"


def _without_reserved(tags: t.Mapping[str, str]) -> dict[str, str]:
    return {tag: value for tag, value in tags.items() if not tag.startswith(_RESERVED_TAGS)}


def _decoded_strategy(upgrade: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    upgrade = upgrade or {}
    return {
        "max_surge": number(upgrade.get("maxSurge", 1)),
        "max_unavailable": number(upgrade.get("maxUnavailable", 0)),
    }


def _encoded_strategy(strategy: t.Mapping[str, int]) -> dict[str, t.Any]:
    return {"strategy": "SURGE", "maxSurge": strategy["max_surge"], "maxUnavailable": strategy["max_unavailable"]}


# New groups have the same defaults as groups that the vendor's own client creates (GreenNodeHub/greennode-cli, go/cmd/vks).
FIELDS = NodeGroupFields(
    VKS,
    (
        NodeGroupField("flavor", "flavorId", type=Text(), decode=text),
        NodeGroupField("os", "os", default="ubuntu", decode=_system, api_answer="imageOS"),
        NodeGroupField("disk_size", "diskSize", default=100, decode=number),
        NodeGroupField("disk_type", "diskType", decode=text),
        NodeGroupField("ssh_key", "sshKeyId", decode=text, option={"no_log": False}),
        NodeGroupField("subnet", "subnetId", decode=text),
        NodeGroupField("secondary_subnets", "secondarySubnets", normalize=sorted, decode=_sorted),
        NodeGroupField("security_groups", "securityGroups", UPDATE, default=[], decode=_sorted),
        NodeGroupField("private_nodes", "enablePrivateNodes", default=False, decode=bool),
        NodeGroupField("encrypted_volume", "enabledEncryptionVolume", default=False, decode=bool),
        node_labels_field("labels", METADATA),
        # Like the vendor's client, the collection sends an empty list of taints as null.
        node_taints_field("taints", METADATA, lambda taints: taint_list(taints) or None),
        NodeGroupField(
            "tags",
            "tags",
            METADATA,
            check=_tag_problems,
            normalize=label_map,
            decode=text_map,
            encode=_without_reserved,
        ),
        NodeGroupField(
            "upgrade_strategy",
            "upgradeConfig",
            UPDATE,
            default=_STRATEGY,
            normalize=functools.partial(merge_field, {}),
            decode=_decoded_strategy,
            encode=_encoded_strategy,
        ),
        NodeGroupField(
            "kubernetes_version",
            "kubernetesVersion",
            UPGRADE,
            decode=lambda version: text(version) or None,
        ),
    ),
    # The aliases are the names in VKS's own API.
    aliases={
        "node_count": "num_nodes",
        "min_node_count": "min_size",
        "max_node_count": "max_size",
        "node_labels": "labels",
        "node_taints": "taints",
    },
)
