# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wait until a release's workloads run, and tell what ails their pods when they do not."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..cluster_state.operand_pods import ContainerFailure
from ..common.wait import wait_until
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, NODES
from ..schema.messages import abbreviate
from .preparation import WaitOptions
from .workloads import (
    WORKLOADS,
    WorkloadRollout,
    format_rollout,
    missing_workload,
    pod_failures,
    workload_rollout,
    workloads,
)

Object = dict[str, t.Any]
_LOG_LINES = 3


@dataclass(frozen=True)
class _State:
    rollouts: tuple[WorkloadRollout, ...]
    unmarked: tuple[str, ...]
    # None: not asked for, or not counted while the pods themselves are missing.
    marked: int | None

    @property
    def missing_marks(self) -> int:
        """How many nodes still lack the annotation; a node that the DaemonSets do not serve may never get it."""
        served = max((item.wanted for item in self.rollouts if item.kind == "DaemonSet"), default=0)
        return 0 if self.marked is None else max(0, served - self.marked)

    @property
    def done(self) -> bool:
        return all(item.done for item in self.rollouts) and not self.missing_marks

    def partial(self) -> dict[str, t.Any]:
        return {"workloads": {f"{item.kind} {item.name}": f"{item.ready}/{item.wanted}" for item in self.rollouts}}


def await_workloads(
    client: Client, namespace: str, name: str, manifest: str, annotation: str | None, waiting: WaitOptions
) -> dict[str, str]:
    """Pods ready and wanted by workload, once all are; raises TimeoutStory."""
    wanted = workloads(manifest)

    def read() -> _State:
        live: dict[tuple[str, str], Object] = {}
        for kind in dict.fromkeys(kind for kind, dummy in wanted):
            path = f"/apis/apps/v1/namespaces/{namespace}/{WORKLOADS[kind]}"
            live.update({(kind, found["metadata"]["name"]): found for found in client.list(path)})
        rollouts = tuple(
            workload_rollout(kind, live[kind, own]) if (kind, own) in live else missing_workload(kind, own)
            for kind, own in wanted
        )
        if annotation is None or not all(item.done for item in rollouts):
            return _State(rollouts, (), None)
        nodes = {found["metadata"]["name"]: found["metadata"] for found in client.list(NODES, metadata_only=True)}
        unmarked = tuple(
            own for own, metadata in nodes.items() if annotation not in (metadata.get("annotations") or {})
        )
        return _State(rollouts, unmarked, len(nodes) - len(unmarked))

    def say(state: _State) -> str:
        return f"{name}: " + ("; ".join(_open(state)) or "ready")

    def story(state: _State) -> str:
        lines = _open(state)
        selectors = [item.selector for item in state.rollouts if not item.done and item.selector]
        lines += [format_rollout(ailment) for ailment in failure_message(client, namespace, selectors)]
        lines += _silent(state, namespace)
        return f"Release {namespace}/{name}: " + "; ".join(lines) + "."

    def _open(state: _State) -> list[str]:
        lines = [str(item) for item in state.rollouts if not item.done]
        if not lines and state.missing_marks:
            lines.append(
                f"{state.missing_marks} node(s) without annotation {annotation}: {abbreviate(sorted(state.unmarked))}"
            )
        return lines

    if annotation is None and not wanted:
        return {}
    state = wait_until(
        read,
        lambda found: found.done,
        timeout=waiting.timeout,
        interval=waiting.interval,
        story=story,
        partial=lambda found: {"helm_release": found.partial()},
        say=say,
        progress=waiting.progress,
    )
    return dict(state.partial()["workloads"])


def _silent(state: _State, namespace: str) -> list[str]:
    """What to do about nodes whose pods run and which nobody labels all the same."""
    if not (state.missing_marks and state.unmarked):
        return []
    node = min(state.unmarked)
    return [
        "all pods run, so either the worker there publishes nothing or the master does not read it: "
        f"kubectl -n {namespace} get nodefeature {node}, and the log of the worker on it "
        f"(kubectl -n {namespace} get pods --field-selector spec.nodeName={node}) or of the master"
    ]


def failure_message(client: Client, namespace: str, selectors: t.Iterable[str]) -> list[ContainerFailure]:
    """What ails the pods behind the selectors, the last words of the worst one's log added; never raises for a log."""
    pods = [
        pod for selector in selectors for pod in client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=selector)
    ]
    found = pod_failures(pods)
    return [_with_log(client, namespace, ailment) if at == 0 else ailment for at, ailment in enumerate(found)]


def _with_log(client: Client, namespace: str, ailment: ContainerFailure) -> ContainerFailure:
    if ailment.container == "-":
        return ailment
    query: dict[str, t.Any] = {"container": ailment.container, "tailLines": _LOG_LINES}
    try:
        text = client.text(
            f"{NAMESPACES}/{namespace}/pods/{ailment.pod}/log",
            {**query, "previous": "true"} if ailment.restarts else query,
        )
    except ApiError:
        return ailment
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or lines[-1] in ailment.reason:
        return ailment
    return ContainerFailure(
        ailment.node, ailment.pod, ailment.container, f"{ailment.reason}; log: {lines[-1][:300]}", ailment.restarts
    )
