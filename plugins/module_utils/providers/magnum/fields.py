# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Defines the settings of a Magnum node group, and the format of the values in Magnum's API (pure)."""

from __future__ import annotations

import typing as t

from ...schema import validators
from ...schema.providers import MAGNUM
from ...schema.types import Text
from ..fields import NodeGroupField, node_labels_field, node_taints_field
from ..nodegroup_module import NodeGroupFields

# The request that changes bounds, labels and taints.
PATCH = ("PATCH", "")
# The first microversion that supports node labels and taints (Magnum 23.0).
_NODE_METADATA = (1, 14)


def magnum_label(value: t.Any) -> str:
    """The value of a Magnum label as a string, for comparisons and requests.

    Booleans become `true` and `false`, whereas Magnum itself would convert them to `True` and `False`.
    """
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def magnum_labels(labels: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels with their values as strings. The value None removes a label."""
    return {str(key): None if value is None else magnum_label(value) for key, value in (labels or {}).items()}


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
