# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of magnum_nodegroup, the specs that they declare, and the requests that create groups (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ...nodegroups.spec import NODE_LABELS, NODE_TAINTS, NodeGroupSpec, label_map, taint_list, taint_map
from ...schema.providers import MAGNUM
from ...schema.validators import kubelet_label
from ..node_metadata_rules import node_label_problems, node_taint_problems
from ..nodegroup_options import GROUP_OPTIONS, SHARED_OPTIONS, NodeGroupOptions

Options = t.Mapping[str, t.Any]

OPTIONS = NodeGroupOptions(
    {
        **GROUP_OPTIONS,
        "autoscaling": {"type": "bool"},
        "image": {"type": "str"},
        "role": {"type": "str"},
        "labels": {"type": "dict"},
        "docker_volume_size": {"type": "int"},
    },
    {**SHARED_OPTIONS, "merge_labels": {"type": "bool", "default": True}},
)
IMMUTABLE_FIELDS = frozenset({"flavor", "image", "role", "labels", "docker_volume_size"})
_PLAIN_FIELDS = ("flavor", "image", "role", "docker_volume_size")
# This label of the cluster or the group says whether an autoscaler is at work.
AUTOSCALING_LABEL = "auto_scaling_enabled"


@dataclass(frozen=True)
class DeclaredGroup:
    """One declared group: the spec, and what only the request to create it needs."""

    spec: NodeGroupSpec
    merge_labels: bool = True


def magnum_label(value: t.Any) -> str:
    """A label of Magnum as it is compared and sent: text; a boolean as `true`, which Magnum itself would turn into `True`."""
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def magnum_labels(labels: t.Mapping[str, t.Any] | None) -> dict[str, str | None]:
    """Magnum's labels with their values as text; None removes a label."""
    return {str(key): None if value is None else magnum_label(value) for key, value in (labels or {}).items()}


def patch_value(value: t.Any) -> str:
    """A map or a list in a patch: Magnum accepts text only, and reads it as a Python literal.

    JSON of maps, lists and texts is such a literal, except for its escapes of characters beyond Unicode's first plane.
    """
    return json.dumps(value, ensure_ascii=False)


def problems(groups: t.Sequence[Options]) -> list[str]:
    """All mistakes that are visible without the cloud, each with the group's name."""
    return [f"Node group {group['name']}: {problem}." for group in groups for problem in _problems(group)]


def _problems(group: Options) -> t.Iterator[str]:
    low, high = group.get("min_node_count"), group.get("max_node_count")
    if not group["name"]:
        yield "name is empty; a node group needs a name"
    for option in ("node_count", "min_node_count"):
        if (group.get(option) or 0) < 0:
            yield f"{option} is {group[option]}; it must not be negative"
    if high is not None and high < 1:
        yield f"max_node_count is {high}, which Magnum reads as no limit; give 1 or more, or leave it out"
    if group.get("autoscaling") and (low is None or high is None):
        yield "autoscaling needs min_node_count and max_node_count"
    for option in ("docker_volume_size", "role"):
        if group.get(option) is not None:
            yield from MAGNUM.nodes_fields[option].problems(group[option], option)
    yield from node_label_problems(group.get(NODE_LABELS) or {}, kubelet_label)
    yield from node_taint_problems(group.get(NODE_TAINTS) or ())


def declared_group(group: Options, *, cluster_labels: t.Mapping[str, str], node_metadata: bool) -> DeclaredGroup:
    """The spec of one group's options.

    cluster_labels: the cluster's own, which say whether its autoscaler is on. node_metadata: whether this Magnum has node labels and taints.
    """
    fields: dict[str, t.Any] = {name: group[name] for name in _PLAIN_FIELDS if group.get(name) is not None}
    if group.get("labels") is not None:
        fields["labels"] = magnum_labels(group["labels"])
    if node_metadata and group.get(NODE_LABELS) is not None:
        fields[NODE_LABELS] = label_map(group[NODE_LABELS])
    if node_metadata and group.get(NODE_TAINTS) is not None:
        fields[NODE_TAINTS] = taint_map(group[NODE_TAINTS])
    spec = NodeGroupSpec(
        name=group["name"],
        present=group.get("state") != "absent",
        count=group.get("node_count"),
        min_count=group.get("min_node_count"),
        max_count=group.get("max_node_count"),
        autoscaled=_autoscaled(group, cluster_labels),
        recreate=bool(group.get("recreate")),
        fields=fields,
    )
    return DeclaredGroup(spec, merge_labels=bool(group.get("merge_labels", True)))


def _autoscaled(group: Options, cluster_labels: t.Mapping[str, str]) -> bool:
    """As declared, else by the label of a cluster or group whose minimum and maximum differ."""
    if group.get("autoscaling") is not None:
        return bool(group["autoscaling"])
    low, high = group.get("min_node_count"), group.get("max_node_count")
    labels = {**cluster_labels, **(group.get("labels") or {})}
    return magnum_label(labels.get(AUTOSCALING_LABEL)) == "true" and None not in (low, high) and low != high


def create_body(declared: DeclaredGroup, name: str, count: int | None) -> dict[str, t.Any]:
    """The body of the request that creates the group under this name with `count` nodes."""
    spec, fields = declared.spec, declared.spec.fields
    labels, taints = _set_entries(fields.get("labels")), fields.get(NODE_TAINTS)
    body = {
        "name": name,
        "node_count": count,
        "min_node_count": spec.min_count,
        "max_node_count": spec.max_count,
        "flavor_id": fields.get("flavor"),
        "image_id": fields.get("image"),
        "role": fields.get("role"),
        "docker_volume_size": fields.get("docker_volume_size"),
        "labels": labels,
        "merge_labels": declared.merge_labels if labels is not None else None,
        "node_labels": _set_entries(fields.get(NODE_LABELS)),
        "node_taints": taint_list(taints) if taints is not None else None,
    }
    return {key: value for key, value in body.items() if value is not None}


def _set_entries(entries: t.Mapping[str, t.Any] | None) -> dict[str, t.Any] | None:
    return None if entries is None else {key: value for key, value in entries.items() if value is not None}
