# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cordons and drains a node, and restarts the driver. When the driver starts, it reads the token from the mounted Secret.

An annotation records which driver pod is restarted, so after a killed run, the next run can determine whether that pod was already deleted. A driver
pod is deleted only while no pod uses the GPUs, including pods that tolerate the cordon, because a driver is not unloaded while a process has a device
file open.
"""

from __future__ import annotations

import contextlib
import time
import typing as t
from dataclasses import dataclass

from ..catalog.operands import PLUGIN
from ..cluster_state.cordon import (
    Patch,
    cordon_for_driver_restart,
    driver_pod_to_restart,
    end_driver_restart,
    pause_clients,
    unfinished_run_message,
)
from ..cluster_state.eviction_rules import BlockingPod, blocked_message, blocking_gpu_pods, gpu_pods_to_evict
from ..cluster_state.node import Node, parse_node
from ..cluster_state.node_check import not_ready_message
from ..cluster_state.operand_pods import unready_operands
from ..cluster_state.ownership import NodeEdit
from ..common.errors import ModuleFailure, ServiceError
from ..common.wait import WaitTimeout
from ..drain.gpu_drain import drain_gpu_pods
from ..drain.operand_diagnosis import operand_pods
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..kube.errors import ApiError
from ..kube.lease import LeaseLost
from ..kube.node_patcher import patch_node
from ..kube.paths import NODES
from ..schema.messages import abbreviate, as_sentence
from .node_reads import NODE_LEFT, CommandFailed
from .option_names import NODE_NAMES_OPTION

if t.TYPE_CHECKING:
    from ..cluster_state.gpu_pods import PodOnNode, PodsByNode
    from ..common.progress import Progress
    from ..kube.client import Client
    from ..kube.lease import Lease
    from ..pools.plan import RolloutPlan
    from .driver_pods import DriverPod

# The seconds within which the replacement of a removed pod is scheduled if it tolerates the cordon (the scheduler's first backoff is 1 second).
_RETURN_TIME = 5.0
_RETURNED = "A pod that tolerates the cordon is scheduled to the node again. Remove its toleration or nodeSelector, or scale its workload down."


class RestartBlocked(ModuleFailure):
    """The drivers of some nodes cannot be restarted."""

    code = "blocked"


@dataclass(frozen=True)
class NodeDrain:
    """The drain of one node before a restart of its driver. All pods that use the node's GPUs lose access to them."""

    displaced: tuple[PodOnNode, ...]
    pods_to_evict: tuple[PodOnNode, ...]
    pods_to_pause: tuple[PodOnNode, ...]
    blocking_pods: tuple[BlockingPod, ...]

    @classmethod
    def of_node(cls, name: str, pods: PodsByNode, rollout: RolloutPlan) -> NodeDrain:
        """The drain of a node; `rollout` contains its drain settings."""
        displaced = tuple(pods.gpu_pods.get(name, ()))
        return cls(
            displaced,
            gpu_pods_to_evict(displaced, pods.other_pods.get(name, ()), rollout),
            tuple(pod for pod in displaced if pod.pausable),
            tuple(blocking_gpu_pods(displaced, rollout, device_files=True)),
        )


def restart_problem(node: Node, drain: NodeDrain) -> str:
    """Why the driver of a node cannot be restarted, as a sentence with the remedy; empty if it can."""
    unfinished = unfinished_run_message(node)
    if unfinished and driver_pod_to_restart(node) is None:
        return f"{as_sentence(f'The node {unfinished}')} Run the playbook of that run again first."
    if not node.ready:
        return f"{not_ready_message('The node')}. Repair it first."
    return as_sentence(blocked_message(drain.blocking_pods)) if drain.blocking_pods else ""


@dataclass(frozen=True)
class DriverRestarts:
    """Restarts drivers in one cluster. `rollouts` contains the drain settings of each node."""

    client: Client
    namespace: str
    rollouts: t.Mapping[str, RolloutPlan]
    lease: Lease
    progress: Progress

    def pods_to_evict(self, nodes: t.Sequence[Node]) -> dict[str, list[str]]:
        """The pods that a drain of these nodes would evict now, by node; raises RestartBlocked if a node cannot be drained."""
        if not nodes:
            return {}
        pods = pods_by_node(self.client, pods_on(self.client), self.namespace)
        drains = {node.name: NodeDrain.of_node(node.name, pods, self.rollouts[node.name]) for node in nodes}
        if problems := {node.name: text for node in nodes if (text := restart_problem(node, drains[node.name]))}:
            lines = [f"node {name}: {text}" for name, text in problems.items()]
            listed = abbreviate(lines, separator="\n")
            raise RestartBlocked(
                f"Drivers cannot be restarted. No node was changed. Correct the causes, or select other nodes with {NODE_NAMES_OPTION}.\n{listed}"
            )
        return {name: [pod.full_name for pod in drain.pods_to_evict] for name, drain in drains.items()}

    def begin(self, pod: DriverPod, evicted: list[str]) -> None:
        """Cordon the node of a driver pod, evict the pods that use its GPUs, and delete the driver pod, which its DaemonSet replaces.

        The evicted pods are added to `evicted`, even if an error is raised. If the driver pod was not deleted, the node is uncordoned.
        """
        self._patch(pod.node, lambda node: cordon_for_driver_restart(node, pod.name))
        try:
            self._drain_and_delete(pod, evicted)
        except LeaseLost as error:
            error.args = (f"{as_sentence(str(error))} The node stays cordoned.",)
            raise

    def drain_again(self, pod: DriverPod, evicted: list[str]) -> None:
        """Cordon a node with an unfinished restart, if it is no longer cordoned, and evict the pods that were scheduled to it since its drain.

        The evicted pods are added to `evicted`, even if an error is raised.
        """
        self._patch(pod.node, lambda node: cordon_for_driver_restart(node, driver_pod_to_restart(node) or pod.name))
        self._drain(pod.node, evicted)

    def gpu_users_text(self, name: str) -> str:
        """A sentence that lists the pods that use the GPUs of a node, with the remedy; empty if there are none, or if they cannot be listed."""
        try:
            names = [pod.full_name for pod in self._gpu_pods(name)]
        except ServiceError:
            return ""
        return (
            f"These pods use the node's GPUs, so the driver may not start: {abbreviate(names)}. {_RETURNED}"
            if names
            else ""
        )

    def _drain_and_delete(self, pod: DriverPod, evicted: list[str]) -> None:
        name = pod.node
        try:
            displaced = self._drain(name, evicted)
            self._require_no_gpu_pods(name, _RETURN_TIME if displaced else 0)
            self._delete(pod)
        except (WaitTimeout, CommandFailed, ApiError) as error:
            uncordoned = False
            if not (isinstance(error, ApiError) and error.outcome_unknown):
                with contextlib.suppress(CommandFailed, ServiceError):
                    uncordoned = self.finish(name)
            effect = "was uncordoned again" if uncordoned else "stays cordoned"
            raise CommandFailed(f"{as_sentence(str(error))} The node {effect}.") from error

    def _drain(self, name: str, evicted: list[str]) -> bool:
        """Drain the node, and wait until all pods that used its GPUs are gone; returns whether there were any."""
        node = self._read(name)
        drain = NodeDrain.of_node(name, self._pods(name), self.rollouts[name])
        if problem := restart_problem(node, drain):
            raise CommandFailed(problem)
        drain_gpu_pods(
            self.client,
            name,
            drain,
            self.rollouts[name].drain_options,
            self.lease.check,
            self.progress.report,
            list_pods=lambda: self._gpu_pods(name),
            pause_clients=lambda: self._pause_clients(name),
            evicted=evicted,
        )
        return bool(drain.displaced)

    def _require_no_gpu_pods(self, name: str, seconds: float) -> None:
        """Raise CommandFailed if pods use the GPUs of a drained node now, or within the given number of seconds."""
        end = time.monotonic() + seconds
        while True:
            self.lease.check()
            if names := [pod.full_name for pod in self._gpu_pods(name)]:
                raise CommandFailed(
                    f"The driver was not restarted, because these pods were scheduled to the node during the drain: {abbreviate(names)}. {_RETURNED}"
                )
            if time.monotonic() >= end:
                return
            time.sleep(1)

    def _delete(self, pod: DriverPod) -> None:
        """Delete the driver pod, unless a pod with a different UID has replaced it."""
        self.lease.check()
        try:
            self.client.delete(pod.path, body={"preconditions": {"uid": pod.uid}})
        except ApiError as error:
            if not error.conflict:
                raise

    def device_plugin_ready(self, name: str) -> bool:
        """Whether the device plugin, which waits for the driver, is ready on a node; True for a node without a device plugin."""
        return PLUGIN not in unready_operands(operand_pods(self.client, self.namespace, [name]), [name])

    def finish(self, name: str) -> bool:
        """Undo the cordon and the label that begin() has set; returns whether a cordon was removed. Other cordons remain."""
        return "spec" in self._patch(name, end_driver_restart)

    def _pause_clients(self, name: str) -> bool:
        self._patch(name, pause_clients)
        return True

    def _gpu_pods(self, name: str) -> t.Sequence[PodOnNode]:
        return self._pods(name).gpu_pods.get(name, ())

    def _pods(self, name: str) -> PodsByNode:
        return pods_by_node(self.client, pods_on(self.client, name), self.namespace)

    def _read(self, name: str) -> Node:
        node = self.client.get(f"{NODES}/{name}")
        if node is None:
            raise CommandFailed(NODE_LEFT)
        return parse_node(node)

    def _patch(self, name: str, make_patch: t.Callable[[Node], Patch | None]) -> Patch:
        """Send the patch that `make_patch` returns for the node, if any. Returns the patch that was applied; empty if the node was not changed."""

        def make_edit(node: Node) -> NodeEdit | None:
            patch = make_patch(node)
            return NodeEdit(name, patch) if patch is not None else None

        edit = make_edit(self._read(name))
        if edit is None:
            return {}
        result = patch_node(self.client, edit, lambda raw: make_edit(parse_node(raw)), self.lease.check)
        if result.status == "gone":
            raise CommandFailed(NODE_LEFT)
        return result.edit.patch if result.status == "changed" else {}
