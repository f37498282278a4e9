# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Describes the changes that a run with the exported variables makes to the nodes (pure)."""

from __future__ import annotations

import typing as t

from ..catalog.names import POOL_LABEL
from ..cluster_state.expected_state import is_gpu_resource
from ..cluster_state.impact import PLUGIN, Transition
from ..common.errors import ReleaseRefused
from ..schema.messages import abbreviate, abbreviate_nodes

if t.TYPE_CHECKING:
    from ..cluster_state.node import Node


def require_no_release(released: t.Collection[str]) -> None:
    """Raise ReleaseRefused if a run would release nodes, for example a pool's node that has lost its pool label."""
    if released:
        raise ReleaseRefused(
            f"No exported pool contains {abbreviate_nodes(released)}, so a run with the exported variables would remove what this collection has "
            "set there. Nothing was written. Set the pool's label and export again: "
            f"kubectl label --overwrite nodes NODE {POOL_LABEL}=POOL"
        )


def effect_remarks(
    nodes: t.Iterable[Node],
    transitions: t.Mapping[str, Transition],
    postponed: t.Collection[str],
    pools_without_sharing: t.Iterable[str],
) -> list[str]:
    """The remarks about the nodes that a run edits (`transitions`: the effect of each edit), and about the nodes that it postpones to another run.

    If there are `pools_without_sharing`, a run fails before any change, so the only remark lists these pools.
    """
    refused = sorted(pools_without_sharing)
    if refused:
        return [
            f"site and gpu_sharing reject these variables and change no nodes until sharing.mode is set for: {abbreviate(refused)}."
        ]
    by_name = {node.name: node for node in nodes}
    disturbed = {name for name, change in transitions.items() if _disturbs(by_name[name], change)} | set(postponed)
    undisturbed = len(transitions.keys() - disturbed)
    remarks = []
    if undisturbed:
        remarks.append(
            f"{undisturbed} node(s) will get the labels that make them members of their pools; their allocatable resources do not change. "
            "See accel.gpu.plan."
        )
    if disturbed:
        remarks.append(
            f"{len(disturbed)} node(s) will get different allocatable resources, or lose the pods that use their GPUs: "
            f"{abbreviate(sorted(disturbed))}. See accel.gpu.plan."
        )
    return remarks


def _disturbs(node: Node, change: Transition) -> bool:
    if change.repartitions or change.evicts_all:
        return True
    advertised = {name: count for name, count in node.capacity.items() if count and is_gpu_resource(name)}
    return change.kind == PLUGIN and advertised != {name: count for name, count in change.offers.items() if count}
