# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains the GPUs of a cordoned node: evicts the pods that use them, or waits until they terminate, and stops DaemonSets that are GPU clients."""

from __future__ import annotations

import typing as t

from ..catalog.names import CLIENT_LABEL, PAUSED_FOR_MIG
from ..cluster_state.eviction_rules import ROLLOUT_OPTIONS, pods_to_await
from .eviction import await_termination, evict_and_await

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode
    from ..kube.client import Client
    from ..pools.drain_options import DrainOptions

# The MIG manager waits equally long for the pods of these DaemonSets (mig-parted v0.15 pkg/mig/reconfigure).
_CLIENTS_TIMEOUT = 300.0


class PodsToDrain(t.Protocol):
    """The pods of one node that are affected by a drain of its GPUs; none of them blocks the drain."""

    @property
    def displaced(self) -> tuple[PodOnNode, ...]:
        """The pods that cannot keep their GPUs."""

    @property
    def pods_to_evict(self) -> tuple[PodOnNode, ...]:
        """The pods that are evicted."""

    @property
    def pods_to_pause(self) -> tuple[PodOnNode, ...]:
        """The DaemonSet pods that terminate when the node's label nvidia.com/gpu.deploy.client is changed."""


def drain_gpu_pods(
    client: Client,
    node: str,
    pods: PodsToDrain,
    options: DrainOptions,
    check_lease: t.Callable[[], None],
    report: t.Callable[[str], None],
    *,
    list_pods: t.Callable[[], t.Iterable[PodOnNode]],
    pause_clients: t.Callable[[], bool],
    evicted: list[str] | None = None,
) -> None:
    """Evict, await or pause the pods, and return once none of them uses the GPUs; raises the errors of evict_pods() and await_termination().

    `list_pods` lists the pods that use the node's GPUs; `pause_clients` changes the label of the node, and returns whether the node exists.
    The pods whose eviction was accepted are added to `evicted`.
    """
    evict_and_await(
        client,
        node,
        pods.pods_to_evict,
        pods_to_await(pods.displaced, options),
        options,
        ROLLOUT_OPTIONS,
        check_lease,
        report,
        list_pods=list_pods,
        evicted=evicted,
    )
    if pods.pods_to_pause and pause_clients():
        await_termination(
            list_pods,
            {pod.uid for pod in pods.pods_to_pause},
            _CLIENTS_TIMEOUT,
            check_lease,
            f"The node's label {CLIENT_LABEL} is {PAUSED_FOR_MIG}, which should terminate them: check their DaemonSet.",
        )
