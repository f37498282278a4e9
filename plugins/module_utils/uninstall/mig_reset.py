# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until the MIG manager has made GPUs whole again; one that fails is restarted once, since it does not retry."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog.names import MIG_STATE_LABEL
from ..cluster_state import operand_pods
from ..cluster_state.node import Node
from ..cluster_state.node_check import FAILED
from ..common.errors import PartialFailure
from ..common.wait import StateTimer, wait_until
from ..drain.operand_diagnosis import log_end
from ..kube.client import Client
from ..kube.errors import ApiError
from ..schema.messages import abbreviate_nodes
from .gpu_pods import holders_on
from .node_cleanup import restore
from .node_patches import read_nodes
from .operands import OperandWait

_TOLD = 3
_ADVICE = (
    "These nodes keep the labels and taints of their pools until then. Delete these pods, or drain the nodes, and run again; "
    "or leave the GPUs cut (undo_mig: false, gpu_uninstall_reset_mig=false)."
)

_Nodes = dict[str, Node]


@dataclass(frozen=True)
class MigManagers:
    """Where they run, and how those of some nodes are restarted; that returns when each has looked at its node's label again."""

    namespace: str
    restart: t.Callable[[t.Sequence[Node]], None]


def await_whole_gpus(client: Client, cut: t.Sequence[str], managers: MigManagers, waiting: OperandWait) -> list[Node]:
    """Until our layouts on these nodes are undone; all nodes as they are then.

    Raises SomeFailed as soon as a MIG manager has failed twice, also where a run before this one has seen the first time, and
    TimeoutStory when the time is over.
    """
    undo = _MigReset(client, cut, managers, waiting)
    nodes = wait_until(
        undo.read,
        lambda nodes: not undo.states(nodes),
        timeout=waiting.timeout,
        interval=waiting.interval,
        describe=undo.story,
        progress_text=undo.say,
        progress=waiting.progress,
    )
    return list(nodes.values())


@dataclass
class _MigReset:
    client: Client
    cut: t.Sequence[str]
    managers: MigManagers
    waiting: OperandWait
    restarted: set[str] = field(default_factory=set)
    since: StateTimer = field(default_factory=StateTimer)

    def read(self) -> _Nodes:
        """All nodes, once those that failed were given their second try."""
        nodes = self._nodes()
        failed = self._failed(nodes)
        again = [name for name in failed if name not in self.restarted]
        if again:
            self.waiting.progress.report(f"restarting the MIG manager of {abbreviate_nodes(again)}, which has failed")
            self.managers.restart([nodes[name] for name in again])
            self.restarted.update(again)
            nodes = self._nodes()
            failed = self._failed(nodes)
        final = [name for name in failed if name in self.restarted]
        if final:
            raise PartialFailure(
                f"The MIG manager has failed to make the GPUs of {abbreviate_nodes(final)} whole, also after it was restarted. "
                f"{self._reasons(final)}. {_ADVICE}"
            )
        return nodes

    def states(self, nodes: t.Mapping[str, Node]) -> dict[str, str]:
        """What the MIG manager says of the nodes whose GPUs are not whole yet."""
        found = [nodes[name] for name in self.cut if name in nodes and restore(nodes[name], undo_mig=True).cut]
        return {node.name: node.labels.get(MIG_STATE_LABEL) or "no state yet" for node in found}

    def say(self, nodes: t.Mapping[str, Node]) -> str:
        """How far it is."""
        states = self.states(nodes)
        for name, state in states.items():
            self.since.seconds(name, state)
        return f"{len(self.cut) - len(states)}/{len(self.cut)} nodes have whole GPUs again"

    def story(self, nodes: t.Mapping[str, Node]) -> str:
        """Which nodes are not ready, in which state, since when, and why."""
        states = self.states(nodes)
        lines = [f"{name}: {state} for {self.since.seconds(name, state):.0f} s" for name, state in states.items()]
        more = f" and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
        return (
            f"The MIG manager has not made the GPUs of {len(states)} node(s) whole: {'; '.join(lines[:_TOLD])}{more}. "
            f"{self._reasons(list(states))}. {_ADVICE}"
        )

    def _nodes(self) -> _Nodes:
        return {node.name: node for node in read_nodes(self.client)}

    def _failed(self, nodes: t.Mapping[str, Node]) -> list[str]:
        return [name for name, state in self.states(nodes).items() if state == FAILED]

    def _reasons(self, names: t.Sequence[str]) -> str:
        """Of the first few nodes: the pods that hold GPUs, and the end of the MIG manager's log."""
        return ". ".join(f"On node {name}: {self._reason(name)}" for name in names[:_TOLD])

    def _reason(self, name: str) -> str:
        try:
            log = self._log(name)
            held = holders_on(self.client, self.managers.namespace, name)
        except ApiError as error:
            # The explanation must not hide what it explains.
            return f"what holds its GPUs cannot be read ({error})"
        return f"{held}; the MIG manager's log ends: {log}" if log else held

    def _log(self, name: str) -> str:
        pods = f"/api/v1/namespaces/{self.managers.namespace}/pods"
        found = self.client.list(
            pods, label_selector=f"app={operand_pods.MIG_MANAGER}", field_selector=f"spec.nodeName={name}"
        )
        pod = operand_pods.pod_of(found, operand_pods.MIG_MANAGER, name)
        if pod is None:
            return "(no MIG manager runs there)"
        return log_end(self.client, self.managers.namespace, pod, operand_pods.MIG_MANAGER, previous=False)
