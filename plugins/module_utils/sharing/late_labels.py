# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Labels of gpu-feature-discovery that do not reach their node: why that happens, and what has them written again."""

from __future__ import annotations

import typing as t

from ..cluster_state import operand_pods
from ..common.parallel import run_bounded
from ..kube.errors import ApiError
from ..kube.paths import object_path

if t.TYPE_CHECKING:
    from ..cluster_state.node_check import Finding
    from ..kube.client import Client
    from ..kube.lease import Lease

# Seconds for which labels alone may differ: the kubelet's copy of a ConfigMap, GFD and NFD take less.
LABELS_LATE = 90.0
RESTARTED = "gpu-feature-discovery was started again, since its labels had not reached the node"


def are_late(finding: Finding, seconds: float) -> bool:
    """Whether a node offers what it should, and only its labels have been of yesterday for too long."""
    return finding.labels_only and seconds >= LABELS_LATE


def restart(client: Client, namespace: str, nodes: t.Collection[str], lease: Lease) -> None:
    """Delete the pods of gpu-feature-discovery on these nodes; their DaemonSet makes new ones.

    GFD gives its labels to NFD's master, which writes them on the node when they change. A master that cannot read the node at this
    moment (the API server restarts) drops the update, and looks again after an hour (NFD v0.19.0, pkg/nfd-master/updater-pool.go:
    an error of getNode() other than "not found" leads to an update of no node at all). A new GFD pod is a change.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [
        pod["metadata"]["name"]
        for pod in client.list(path, label_selector=f"app={operand_pods.DISCOVERY}")
        if operand_pods.node_of(pod) in nodes
    ]

    def deleter(name: str) -> t.Callable[[], t.Any]:
        def delete() -> t.Any:
            lease.check()
            return client.delete(object_path("v1", "Pod", name, namespace))

        return delete

    for outcome in run_bounded([(name, deleter(name)) for name in pods], stop=lease.lost):
        if outcome.error and not (isinstance(outcome.error, ApiError) and outcome.error.not_found):
            raise outcome.error
