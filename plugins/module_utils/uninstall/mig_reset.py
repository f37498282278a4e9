# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until MIG managers have reset MIG layouts; failed MIG managers are restarted once, because they do not retry."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import operands
from ..catalog.names import MIG_STATE_LABEL
from ..cluster_state import operand_pods
from ..cluster_state.node import Node
from ..cluster_state.node_check import FAILED
from ..common.errors import PartialFailure
from ..common.wait import StateTimer, WaitOptions
from ..drain import operand_diagnosis
from ..drain.pods_on_nodes import pods_by_node, pods_on
from ..kube.client import Client
from ..kube.errors import ApiError
from ..schema.messages import MAX_NAMED, abbreviate, abbreviate_nodes
from .node_cleanup import restore_node
from .stage import read_nodes

KEEP_PARTITIONED = "reset_mig: false, gpu_uninstall_reset_mig=false"
_ADVICE = (
    "These nodes keep the labels and taints of their pools until then. Delete these pods, or drain the nodes, and run the playbook again; "
    f"or keep the GPUs partitioned ({KEEP_PARTITIONED})."
)

_Nodes = dict[str, Node]


@dataclass
class MigReset:
    """The reset of the collection's layouts on the `partitioned` nodes by the MIG managers in a namespace.

    `restart` restarts the MIG managers of the given nodes, and returns once each of them has read its node's label again.
    """

    client: Client
    partitioned: t.Sequence[str]
    namespace: str
    restart: t.Callable[[t.Sequence[Node]], None]
    waiting: WaitOptions
    restarted: set[str] = field(default_factory=set)
    timer: StateTimer = field(default_factory=StateTimer)

    def wait(self) -> list[Node]:
        """Wait until the layouts are reset; returns the new state of all nodes.

        Raises WaitTimeout, and PartialFailure as soon as a MIG manager has failed again after its restart.
        """
        nodes = self.waiting.until(
            self.read,
            lambda nodes: not self.states(nodes),
            describe=self.timeout_message,
            progress_text=self.progress_text,
        )
        return list(nodes.values())

    def read(self) -> _Nodes:
        """Read all nodes, and restart the MIG managers that failed for the first time."""
        nodes = self._nodes()
        failed = self._failed(nodes)
        to_restart = [name for name in failed if name not in self.restarted]
        if to_restart:
            self.waiting.progress.report(
                f"restarting the MIG manager of {abbreviate_nodes(to_restart)}, which has failed"
            )
            self.restart([nodes[name] for name in to_restart])
            self.restarted.update(to_restart)
            nodes = self._nodes()
            failed = self._failed(nodes)
        final = [name for name in failed if name in self.restarted]
        if final:
            raise PartialFailure(
                f"The MIG manager has failed to reset the layout of {abbreviate_nodes(final)}, even after a restart. "
                f"{self._reasons(final)}. {_ADVICE}"
            )
        return nodes

    def states(self, nodes: t.Mapping[str, Node]) -> dict[str, str]:
        """The state that the MIG manager reports for each node whose layout is not reset yet."""
        waiting = [
            nodes[name]
            for name in self.partitioned
            if name in nodes and restore_node(nodes[name], reset_mig=True).partitioned
        ]
        return {node.name: node.labels.get(MIG_STATE_LABEL) or "no state yet" for node in waiting}

    def progress_text(self, nodes: t.Mapping[str, Node]) -> str:
        """The progress of the reset, as text."""
        states = self.states(nodes)
        for name, state in states.items():
            self.timer.seconds(name, state)
        return f"{len(self.partitioned) - len(states)}/{len(self.partitioned)} MIG layouts are reset"

    def timeout_message(self, nodes: t.Mapping[str, Node]) -> str:
        """The message about the remaining nodes, with their states, the duration of these states, and the reasons."""
        states = self.states(nodes)
        lines = [f"{name}: {state} for {self.timer.seconds(name, state):.0f} s" for name, state in states.items()]
        return (
            f"The MIG manager has not reset the layouts of {len(states)} node(s): {abbreviate(lines)}. "
            f"{self._reasons(list(states))}. {_ADVICE}"
        )

    def _nodes(self) -> _Nodes:
        return {node.name: node for node in read_nodes(self.client)}

    def _failed(self, nodes: t.Mapping[str, Node]) -> list[str]:
        return [name for name, state in self.states(nodes).items() if state == FAILED]

    def _reasons(self, names: t.Sequence[str]) -> str:
        """The pods that hold GPUs and the end of the MIG manager's log, for the first few nodes."""
        return ". ".join(f"On node {name}: {self._reason(name)}" for name in names[:MAX_NAMED])

    def _reason(self, name: str) -> str:
        try:
            log = self._log(name)
            held = _holders_on(self.client, self.namespace, name)
        except ApiError as error:
            # This error must not hide the original failure.
            return f"the pods that hold its GPUs cannot be read ({error})"
        return f"{held}; the MIG manager's log ends: {log}" if log else held

    def _log(self, name: str) -> str:
        pods = operand_diagnosis.operand_pods(self.client, self.namespace, [name])
        pod = operand_pods.pod_of(pods, operands.MIG_MANAGER, name)
        if pod is None:
            return "(no MIG manager runs there)"
        return operand_diagnosis.log_end(self.client, self.namespace, pod, operands.MIG_MANAGER, previous=False)


def _holders_on(client: Client, operator_namespace: str, node: str) -> str:
    """A description of the pods that prevent, or may prevent, the reset of a node's MIG layout."""
    pods_on_node = pods_by_node(client, pods_on(client, node), operator_namespace)
    using = [f"{pod.full_name} ({', '.join(pod.access)})" for pod in pods_on_node.gpu_pods.get(node, ())]
    possible = [
        f"{pod.full_name} ({', '.join(pod.possible_access)})" for pod in pods_on_node.possible_holders.get(node, ())
    ]
    titles = {
        "pods that use its GPUs": using,
        "pods that may hold one, since they are privileged": possible,
    }
    parts = [f"{title}: {abbreviate(pods)}" for title, pods in titles.items() if pods]
    return "; ".join(parts) or "no pod is known to use its GPUs, so a host process may hold one"
