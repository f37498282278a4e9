# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until the workloads of a Helm release are rolled out, and reports why their pods are not ready."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

from ..cluster_state.operand_pods import ContainerFailure, container_failures, is_ready, node_of, with_meaning
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..kube.errors import ApiError
from ..kube.paths import NAMESPACES, NODES
from ..schema.messages import abbreviate
from .chart import matching_documents

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The plural of each kind of workload that helm's own --wait waits for, except hooks and Jobs.
WORKLOADS = {"Deployment": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}
_WORKLOAD = re.compile(rf"^kind:\s*[\"']?({'|'.join(WORKLOADS)})[\"']?\s*$", re.MULTILINE)
_LOG_LINES = 3


@dataclass(frozen=True)
class WorkloadRollout:
    """The state of one workload's rollout."""

    kind: str
    name: str
    desired: int
    ready: int
    done: bool
    selector: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.ready} of {self.desired} pods are ready"


@dataclass(frozen=True)
class _ReleaseRollout:
    rollouts: tuple[WorkloadRollout, ...]
    # The nodes without the annotation and the number of nodes with it. The number is None if no annotation is required, or
    # if it was not counted because pods are missing.
    unannotated: tuple[str, ...] = ()
    annotated: int | None = None

    @property
    def missing_annotations(self) -> int:
        """The number of nodes that still lack the annotation.

        The expected number of nodes with the annotation is the number of nodes on which a DaemonSet runs.
        """
        served = max((item.desired for item in self.rollouts if item.kind == "DaemonSet"), default=0)
        return 0 if self.annotated is None else max(0, served - self.annotated)

    @property
    def done(self) -> bool:
        return all(item.done for item in self.rollouts) and not self.missing_annotations

    @property
    def pods(self) -> dict[str, str]:
        return {f"{item.kind} {item.name}": f"{item.ready}/{item.desired}" for item in self.rollouts}

    def unfinished(self, annotation: str | None) -> list[str]:
        lines = [str(item) for item in self.rollouts if not item.done]
        if not lines and self.missing_annotations:
            nodes = abbreviate(sorted(self.unannotated))
            lines.append(f"{self.missing_annotations} node(s) without annotation {annotation}: {nodes}")
        return lines


def workloads(manifest: str) -> list[tuple[str, str]]:
    """The kind and the name of every workload in a release's manifest."""
    documents = matching_documents(manifest, _WORKLOAD)
    return [(item["kind"], item["metadata"]["name"]) for item in documents if item["kind"] in WORKLOADS]


def workload_rollout(kind: str, live: Document) -> WorkloadRollout:
    """The state of a workload's rollout; the rollout is `done` only if the status is for the current generation."""
    metadata, spec, status = live["metadata"], live["spec"], live.get("status") or {}
    current = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
    if kind == "DaemonSet":
        desired = int(status.get("desiredNumberScheduled") or 0)
        updated, ready = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    else:
        desired = int(spec.get("replicas", 1))
        updated = int(status.get("updatedReplicas") or 0)
        ready = int(status.get("availableReplicas", status.get("readyReplicas")) or 0)
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return WorkloadRollout(
        kind=kind,
        name=metadata["name"],
        desired=desired,
        ready=min(ready, updated) if updated < desired else ready,
        done=current and updated >= desired and ready >= desired,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    )


def await_workloads(
    client: Client, namespace: str, name: str, manifest: str, annotation: str | None, waiting: WaitOptions
) -> dict[str, str]:
    """Wait for the rollout of a Helm release. Returns the numbers of pods as "ready/desired" by workload; raises WaitTimeout."""
    expected = workloads(manifest)
    if annotation is None and not expected:
        return {}
    return await_rollout(
        client, (f"Helm release {namespace}/{name}", name, "helm_release"), namespace, expected, annotation, waiting
    )


def await_rollout(
    client: Client,
    names: tuple[str, str, str],
    namespace: str,
    expected: t.Sequence[tuple[str, str]],
    annotation: str | None,
    waiting: WaitOptions,
) -> dict[str, str]:
    """Wait for these workloads (kind and name), and for the annotation on as many nodes as a DaemonSet runs on; raises WaitTimeout.

    `names` contains the owner of the workloads in messages, the owner's name in progress reports, and the key of the partial result.
    """
    title, short, key = names

    def read() -> _ReleaseRollout:
        live: dict[tuple[str, str], Object] = {}
        for kind in dict.fromkeys(kind for kind, dummy in expected):
            path = f"/apis/apps/v1/namespaces/{namespace}/{WORKLOADS[kind]}"
            live.update({(kind, item["metadata"]["name"]): item for item in client.list(path)})
        rollouts = tuple(
            workload_rollout(kind, live[kind, workload])
            if (kind, workload) in live
            else WorkloadRollout(kind, workload, desired=1, ready=0, done=False, selector="")
            for kind, workload in expected
        )
        if annotation is None or not all(item.done for item in rollouts):
            return _ReleaseRollout(rollouts)
        nodes = [item["metadata"] for item in client.list(NODES, metadata_only=True)]
        unannotated = tuple(node["name"] for node in nodes if annotation not in (node.get("annotations") or {}))
        return _ReleaseRollout(rollouts, unannotated, len(nodes) - len(unannotated))

    def message(state: _ReleaseRollout) -> str:
        selectors = [item.selector for item in state.rollouts if not item.done and item.selector]
        lines = state.unfinished(annotation)
        lines += [format_failure(failure) for failure in diagnose_pods(client, namespace, selectors)]
        lines += _annotation_advice(state, namespace)
        return f"{title}: " + "; ".join(lines) + "."

    state = waiting.until(
        read,
        lambda state: state.done,
        describe=message,
        partial=lambda state: {key: {"workloads": state.pods}},
        progress_text=lambda state: f"{short}: " + ("; ".join(state.unfinished(annotation)) or "ready"),
    )
    return state.pods


def _annotation_advice(state: _ReleaseRollout, namespace: str) -> list[str]:
    if not (state.missing_annotations and state.unannotated):
        return []
    node = min(state.unannotated)
    return [
        "all pods are running, so either the worker on that node publishes nothing, or the master does not read it: check "
        f"kubectl -n {namespace} get nodefeature {node}, and the log of the worker on it "
        f"(kubectl -n {namespace} get pods --field-selector spec.nodeName={node}) or of the master"
    ]


def diagnose_pods(
    client: Client, namespace: str, selectors: t.Iterable[str], last_nodes: t.Collection[str] = ()
) -> list[ContainerFailure]:
    """The failures of the selected pods that are not ready; the first failure includes the end of the container's log, if the log can be read.

    The pods of `last_nodes` are listed after the pods of other nodes.
    """
    pods = [
        pod for selector in selectors for pod in client.list(f"{NAMESPACES}/{namespace}/pods", label_selector=selector)
    ]
    failures = pod_failures(pods, last_nodes=last_nodes)
    return [_with_log(client, namespace, failure) for failure in failures[:1]] + failures[1:]


def pod_failures(
    pods: t.Iterable[Document], limit: int = 5, last_nodes: t.Collection[str] = ()
) -> list[ContainerFailure]:
    """The failures of up to `limit` pods that are not ready, with the most restarts first; pods on `last_nodes` come last."""
    listed = list(pods)
    failures = [lines[0] for pod in listed if (lines := container_failures([pod]).get(node_of(pod)))]
    failed = {failure.pod for failure in failures}
    failures += [
        ContainerFailure(node_of(pod), pod["metadata"]["name"], *_unready_container(pod))
        for pod in listed
        if pod["metadata"]["name"] not in failed and not is_ready(pod)
    ]
    return sorted(failures, key=lambda failure: (failure.node in last_nodes, -failure.restarts))[:limit]


def _unready_container(pod: Document) -> tuple[str, str]:
    """The name and state of the container that a pod without a failure waits for; "-" if no single container is the cause."""
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    if all((item.get("state") or {}).get("waiting") for item in containers):
        # Only the last running init container counts, because earlier ones that still run are sidecars.
        for item in reversed(status.get("initContainerStatuses") or ()):
            if "running" in (item.get("state") or {}):
                return item["name"], "the init container is running"
    return "-", "running, but not ready"


def format_failure(failure: ContainerFailure) -> str:
    """The description of a pod's failure, with the pod's node."""
    return with_meaning(f"{failure} on node {failure.node}" if failure.node else f"{failure} (on no node)")


def _with_log(client: Client, namespace: str, failure: ContainerFailure) -> ContainerFailure:
    if failure.container == "-":
        return failure
    query: dict[str, t.Any] = {"container": failure.container, "tailLines": _LOG_LINES}
    if failure.restarts:
        query["previous"] = "true"
    try:
        text = client.text(f"{NAMESPACES}/{namespace}/pods/{failure.pod}/log", query)
    except ApiError:
        return failure
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or lines[-1] in failure.reason:
        return failure
    return replace(failure, reason=f"{failure.reason}; log: {lines[-1][:300]}")
