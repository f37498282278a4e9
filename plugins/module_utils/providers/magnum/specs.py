# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of one node group as the engine's wish, and what is wrong with them before anybody is asked (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...nodegroups.spec import FieldNames, NodeGroupSpec
from . import decode

Options = t.Mapping[str, t.Any]

WORDS = FieldNames("node_count", "min_node_count", "max_node_count")
# No request changes these on a group that exists.
UNCHANGEABLE = frozenset({"flavor", "image", "role", "labels", "docker_volume_size"})
_PLAIN = ("flavor", "image", "role", "docker_volume_size")
# Whoever turns the cloud's autoscaler on says so in this label of the cluster or the group.
AUTOSCALING_LABEL = "auto_scaling_enabled"


@dataclass(frozen=True)
class DeclaredGroup:
    """One declared group: the wish, and what only its creation takes."""

    wish: NodeGroupSpec
    merge_labels: bool = True


def problems(groups: t.Sequence[Options]) -> list[str]:
    """All mistakes that can be told without the cloud, each with the group's name in it."""
    return [f"Node group {group['name']}: {problem}." for group in groups for problem in _problems(group)]


def _problems(group: Options) -> t.Iterator[str]:
    count, low, high = (group.get(word) for word in ("node_count", "min_node_count", "max_node_count"))
    if not group["name"]:
        yield "name is empty; a group needs one"
    for word, number in (("node_count", count), ("min_node_count", low)):
        if number is not None and number < 0:
            yield f"{word} is {number}; it is 0 or more"
    if high is not None and high < 1:
        yield f"max_node_count is {high}, which Magnum takes for no limit at all; declare the most that there may be, or leave it out"
    if group.get("autoscaling") and (low is None or high is None):
        yield "autoscaling needs min_node_count and max_node_count, between which the number of nodes is left alone"
    size = group.get("docker_volume_size")
    if size is not None and size < 1:
        yield f"docker_volume_size is {size}; it is 1 GB or more"
    if group.get("role") == "master":
        yield "role is master, and Magnum makes no further groups of masters; choose worker, or any other word"
    yield from decode.node_label_problems(group.get("node_labels") or {})
    yield from decode.taint_problems(group.get("node_taints") or ())


def declared_group(group: Options, *, cluster_labels: t.Mapping[str, str], node_labels: bool) -> DeclaredGroup:
    """What the options of one group come to.

    cluster_labels: the cluster's own, which say whether its autoscaler is on. node_labels: whether this Magnum has labels and taints of nodes.
    """
    fields: dict[str, t.Any] = {name: group[name] for name in _PLAIN if group.get(name) is not None}
    if group.get("labels") is not None:
        fields["labels"] = decode.labels(group["labels"])
    if node_labels:
        if group.get("node_labels") is not None:
            fields["node_labels"] = {
                key: None if value is None else str(value) for key, value in group["node_labels"].items()
            }
        if group.get("node_taints") is not None:
            fields["node_taints"] = decode.taint_map(group["node_taints"])
    wish = NodeGroupSpec(
        name=group["name"],
        present=group.get("state") != "absent",
        count=group.get("node_count"),
        low=group.get("min_node_count"),
        high=group.get("max_node_count"),
        autoscaled=_autoscaled(group, cluster_labels),
        recreate=bool(group.get("recreate")),
        fields=fields,
    )
    return DeclaredGroup(wish, merge_labels=bool(group.get("merge_labels", True)))


def _autoscaled(group: Options, cluster_labels: t.Mapping[str, str]) -> bool:
    """As it is said, else as the cluster's label says of a group whose bounds leave room."""
    said = group.get("autoscaling")
    if said is not None:
        return bool(said)
    low, high = group.get("min_node_count"), group.get("max_node_count")
    labels = {**cluster_labels, **(group.get("labels") or {})}
    return decode.label_value(labels.get(AUTOSCALING_LABEL)) == "true" and None not in (low, high) and low != high


def body_of(declared_: DeclaredGroup, name: str, count: int | None) -> dict[str, t.Any]:
    """The request that makes the group under this name with so many nodes."""
    wish = declared_.wish
    fields = dict(wish.fields)
    labels = _present(fields.get("labels"))
    taints = fields.get("node_taints")
    body = {
        "name": name,
        "node_count": count,
        "min_node_count": wish.low,
        "max_node_count": wish.high,
        "flavor_id": fields.get("flavor"),
        "image_id": fields.get("image"),
        "role": fields.get("role"),
        "docker_volume_size": fields.get("docker_volume_size"),
        "labels": labels,
        "merge_labels": declared_.merge_labels if labels is not None else None,
        "node_labels": _present(fields.get("node_labels")),
        "node_taints": decode.taint_list(taints) if taints is not None else None,
    }
    return {key: value for key, value in body.items() if value is not None}


def _present(given: t.Mapping[str, t.Any] | None) -> dict[str, t.Any] | None:
    return None if given is None else {key: value for key, value in given.items() if value is not None}


def as_options(told: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """A group as the engine tells it, in the form in which it would be declared: taints as a list."""
    taints = told.get("node_taints")
    return {**told, "node_taints": decode.taint_list(taints)} if isinstance(taints, t.Mapping) else dict(told)
