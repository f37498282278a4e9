# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates specs from the options of magnum_nodegroup, and finds the problems that can be detected without a cloud (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...nodegroups.spec import NodeGroupSpec
from ...pools.nodegroup_names import MAX_NODE_COUNT, MIN_NODE_COUNT
from .clusters import magnum_label
from .fields import FIELDS

Options = t.Mapping[str, t.Any]

# This label of the cluster or the group shows whether an autoscaler is active.
AUTOSCALING_LABEL = "auto_scaling_enabled"


@dataclass(frozen=True)
class MagnumSpec(NodeGroupSpec):
    """A spec with additional data for the request that creates the group."""

    merge_labels: bool = True


def option_problems(group: Options) -> t.Iterator[str]:
    """Yields the problems in a group's options that can be detected without the cloud."""
    if not group["name"]:
        yield "name is empty; a node group needs a name"
    yield from FIELDS.problems(group)


def spec_of(group: Options, *, cluster_labels: t.Mapping[str, str], version: tuple[int, int]) -> MagnumSpec:
    """The spec for the options of one group.

    cluster_labels: the labels of the cluster, which show whether its autoscaler is enabled.
    version: the microversion in use. Settings that need a newer microversion are ignored.
    """
    group = {**group, **dict.fromkeys(FIELDS.newer_than(version))}
    return MagnumSpec(
        **FIELDS.spec_arguments(group),
        autoscaled=_autoscaled(group, cluster_labels),
        merge_labels=bool(group.get("merge_labels", True)),
    )


def _autoscaled(group: Options, cluster_labels: t.Mapping[str, str]) -> bool:
    """Whether the group is autoscaled according to the option `autoscaling`.

    If the option is not set, a group is autoscaled if a label of the cluster or the group enables autoscaling, and the minimum and the maximum are set
    and differ.
    """
    if group.get("autoscaling") is not None:
        return bool(group["autoscaling"])
    low, high = group.get(MIN_NODE_COUNT), group.get(MAX_NODE_COUNT)
    labels = {**cluster_labels, **(group.get("labels") or {})}
    return magnum_label(labels.get(AUTOSCALING_LABEL)) == "true" and None not in (low, high) and low != high
