# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that use GPUs in any way, as in the module gpu_sharing: they lose the driver, and prevent the reset of MIG layouts."""

from __future__ import annotations

import typing as t

from ..cluster_state.gpu_pods import PREFIX
from ..cluster_state.node import Node
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..kube.client import Client
from ..schema.messages import abbreviate, abbreviate_nodes


def driver_warning(client: Client, operator_namespace: str, nodes: t.Iterable[Node]) -> str:
    """The pods that lose the driver when it is removed; empty if there are none. Check mode shows it in advance.

    Pods of nodes without a GPU do not count, and neither do privileged pods of the cluster itself: those run on every node.
    """
    with_gpus = {node.name for node in nodes if node.has_gpu or any(name.startswith(PREFIX) for name in node.capacity)}
    found = {
        name: pods
        for name, pods in pods_by_node(client, pods_on(client), operator_namespace).gpu_pods.items()
        if name in with_gpus
    }
    if not found:
        return ""
    pods = [f"{user.full_name} ({', '.join(user.access)})" for on_node in found.values() for user in on_node]
    count, verb = (f"{len(pods)} pods", "lose") if len(pods) > 1 else ("1 pod", "loses")
    return (
        f"{count} on {abbreviate_nodes(found)} can use GPUs, and {verb} the driver: {abbreviate(pods)}. "
        "Delete these pods, or drain their nodes, first."
    )


def holders_on(client: Client, operator_namespace: str, node: str) -> str:
    """The pods of a node that prevent, or may prevent, the reset of its MIG layout, as text."""
    found = pods_by_node(client, pods_on(client, node), operator_namespace)
    using = [f"{user.full_name} ({', '.join(user.access)})" for user in found.gpu_pods.get(node, ())]
    possible = [
        f"{user.full_name} ({', '.join(user.possible_access)})" for user in found.possible_holders.get(node, ())
    ]
    parts = [
        *([f"pods that use its GPUs: {abbreviate(using)}"] if using else []),
        *([f"pods that may hold one, since they are privileged: {abbreviate(possible)}"] if possible else []),
    ]
    return "; ".join(parts) or "no pod is known to use its GPUs, so a process of the host may hold one"
