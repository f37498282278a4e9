# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who goes when a node is emptied, who is in the way of that, and which nodes can best be done without (pure)."""

from __future__ import annotations

import typing as t

from .cordon import is_cordoned_for_removal

if t.TYPE_CHECKING:
    from .gpu_pods import PodOnNode
    from .node import Node


def pods_to_evict(users: t.Iterable[PodOnNode], *, force: bool) -> tuple[PodOnNode, ...]:
    """Those of the pods that a drain evicts, by namespace and name.

    Pods of DaemonSets and static ones are left alone: they would be there again at once, and end with their node. One that no
    controller makes again goes only by force.
    """
    found = [user for user in users if not user.kept and (force or not user.bare)]
    return tuple(sorted(found, key=lambda user: (user.namespace, user.name)))


def blocking_pods(users: t.Iterable[PodOnNode], *, force: bool) -> list[str]:
    """The pods that a drain leaves alone although they end with the node, each with the reason."""
    return [
        f"{user.shown} (no controller makes it again)" for user in users if user.bare and not user.kept and not force
    ]


def scale_down_candidates(
    nodes: t.Iterable[Node], present: t.Mapping[str, t.Sequence[PodOnNode]], count: int, *, force: bool
) -> list[Node]:
    """So many of the nodes whose end costs least, the cheapest first.

    `present` are all pods by node (cluster_state.gpu_pods.everybody). A node with a pod that may not go comes after all others. Those that an
    earlier run has begun to empty come first, then those whose GPUs nobody uses, then those whose least dispensable user
    of a GPU has the lowest priority (as the scheduler chooses whom to preempt), the fewest users, the fewest pods, the youngest.
    """

    def price(node: Node) -> tuple[t.Any, ...]:
        pods = [user for user in present.get(node.name, ()) if not user.kept]
        using = [user for user in pods if user.ways]
        return (
            bool(blocking_pods(pods, force=force)),
            not is_cordoned_for_removal(node),
            bool(using),
            max((user.priority for user in using), default=0),
            len(using),
            len(pods),
        )

    youngest = sorted(nodes, key=lambda node: (node.created, node.name), reverse=True)
    return sorted(youngest, key=price)[: max(0, count)]
