# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a Magnum node group, the specs that its options declare, the request that creates it, and its next size (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ...nodegroups.spec import NodeGroupSpec
from ...pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT
from ...schema import validators
from ...schema.providers import MAGNUM
from ...schema.types import Text
from ..fields import NodeGroupField, node_labels_field, node_taints_field
from ..nodegroups import NodeGroupFields

Options = t.Mapping[str, t.Any]

# The request that changes labels and taints of the nodes.
PATCH = ("PATCH", "")
# This label of the cluster or the group says whether an autoscaler is at work.
AUTOSCALING_LABEL = "auto_scaling_enabled"


def magnum_label(value: t.Any) -> str:
    """A label of Magnum as it is compared and sent: text; a boolean as `true`, which Magnum itself would turn into `True`."""
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def magnum_labels(labels: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels with their values as text; None removes a label."""
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
            # The module accepts values of any type.
            check=lambda dummy: iter(()),
            normalize=magnum_labels,
            decode=magnum_labels,
        ),
        NodeGroupField("docker_volume_size", "docker_volume_size"),
        node_labels_field("node_labels", PATCH, validators.kubelet_label),
        node_taints_field("node_taints", PATCH),
    ),
    switches={"merge_labels": True},
)
# Magnum has them from microversion 1.14 on.
NODE_METADATA = FIELDS.changed_by(PATCH)


@dataclass(frozen=True)
class MagnumSpec(NodeGroupSpec):
    """A spec with what only the request to create the group needs."""

    merge_labels: bool = True


def patch_value(value: t.Any) -> str:
    """A map or a list in a patch: Magnum accepts text only, and reads it as a Python literal.

    JSON of maps, lists and texts is such a literal, except for its escapes of characters beyond Unicode's first plane.
    """
    return json.dumps(value, ensure_ascii=False)


def problems_of(group: Options) -> t.Iterator[str]:
    """The mistakes in a group's options that are visible without the cloud."""
    low, high = group.get(MIN_NODE_COUNT), group.get(MAX_NODE_COUNT)
    if not group["name"]:
        yield "name is empty; a node group needs a name"
    if high is not None and high < 1:
        yield f"max_node_count is {high}, which Magnum reads as no limit; give 1 or more, or leave it out"
    if group.get("autoscaling") and (low is None or high is None):
        yield "autoscaling needs min_node_count and max_node_count"
    yield from FIELDS.problems(group)


def spec_of(group: Options, *, cluster_labels: t.Mapping[str, str], node_metadata: bool) -> MagnumSpec:
    """The spec of one group's options.

    cluster_labels: the cluster's own, which say whether its autoscaler is on. node_metadata: whether this Magnum has node labels and taints.
    """
    if not node_metadata:
        group = {**group, **dict.fromkeys(NODE_METADATA)}
    return MagnumSpec(
        **FIELDS.spec_arguments(group),
        autoscaled=_autoscaled(group, cluster_labels),
        merge_labels=bool(group.get("merge_labels", True)),
    )


def _autoscaled(group: Options, cluster_labels: t.Mapping[str, str]) -> bool:
    """As declared, else by the label of a cluster or group whose minimum and maximum differ."""
    if group.get("autoscaling") is not None:
        return bool(group["autoscaling"])
    low, high = group.get(MIN_NODE_COUNT), group.get(MAX_NODE_COUNT)
    labels = {**cluster_labels, **(group.get("labels") or {})}
    return magnum_label(labels.get(AUTOSCALING_LABEL)) == "true" and None not in (low, high) and low != high


def create_body(spec: MagnumSpec, name: str, count: int | None) -> dict[str, t.Any]:
    """The body of the request that creates the group under this name with `count` nodes."""
    settings = FIELDS.creation_body(spec.fields)
    body = {
        "name": name,
        "node_count": count,
        MIN_NODE_COUNT: spec.min_count,
        MAX_NODE_COUNT: spec.max_count,
        "merge_labels": spec.merge_labels if "labels" in settings else None,
    }
    return settings | {key: value for key, value in body.items() if value is not None}


@dataclass(frozen=True)
class Size:
    """The number of nodes of a group and its bounds; high: None without a limit."""

    count: int
    low: int
    high: int | None


def next_size(current: Size, desired: Size) -> Size:
    """The size after the next request: other bounds, or another count, never both; `current` when nothing remains.

    Magnum refuses a patch after which min <= count <= max does not hold for the current count, and a resize to a number outside of the current
    bounds; and one request changes either the bounds or the count. Both must be legal. Bounds that exclude the desired count are widened first, then the count is changed, then the bounds get their
    final values.
    """
    if current.count == desired.count:
        return desired
    if current.low <= desired.count and (current.high is None or desired.count <= current.high):
        return Size(desired.count, current.low, current.high)
    high = None if current.high is None or desired.high is None else max(current.high, desired.high)
    return Size(current.count, min(current.low, desired.low), high)
