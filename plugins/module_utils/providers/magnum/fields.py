# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the settings of a Magnum node group, and the format of the values in Magnum's API (pure)."""

from __future__ import annotations

from ...schema import validators
from ...schema.providers import MAGNUM
from ...schema.types import Text
from ..fields import NodeGroupField, node_labels_field, node_taints_field
from ..nodegroup_module import NodeGroupFields
from .clusters import magnum_labels

# The request that changes bounds, labels and taints.
PATCH = ("PATCH", "")
# The first microversion that supports node labels and taints (Magnum 23.0).
_NODE_METADATA = (1, 14)


FIELDS = NodeGroupFields(
    MAGNUM,
    (
        NodeGroupField("flavor", "flavor_id", type=Text()),
        NodeGroupField("image", "image_id"),
        NodeGroupField("role", "role"),
        NodeGroupField(
            "labels",
            "labels",
            # Values of any type are accepted.
            check=lambda dummy: iter(()),
            normalize=magnum_labels,
            decode=magnum_labels,
        ),
        NodeGroupField("docker_volume_size", "docker_volume_size"),
        node_labels_field("node_labels", PATCH, validators.kubelet_label, since=_NODE_METADATA),
        node_taints_field("node_taints", PATCH, since=_NODE_METADATA),
    ),
    creation_options={"merge_labels": True},
)
