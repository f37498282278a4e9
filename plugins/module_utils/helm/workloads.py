# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what a release brought is rolled out, and what its pods say when it is not: pure."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..cluster_state.operand_pods import ContainerFailure, container_failures
from .chart import documents

Document = t.Mapping[str, t.Any]

# Kind -> plural, of the workloads that a chart may bring; what helm's own --wait looks at, hooks and Jobs apart.
WORKLOADS = {"Deployment": "deployments", "DaemonSet": "daemonsets", "StatefulSet": "statefulsets"}
_WORKLOAD = re.compile(rf"^kind:\s*[\"']?({'|'.join(WORKLOADS)})[\"']?\s*$", re.MULTILINE)


@dataclass(frozen=True)
class WorkloadRollout:
    """One workload of the release, as far as its controller has brought it."""

    kind: str
    name: str
    wanted: int
    ready: int
    done: bool
    selector: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.ready} of {self.wanted} pods are ready"


def workloads(manifest: str) -> list[tuple[str, str]]:
    """Kind and name of every workload in a release's manifest."""
    found = [(item["kind"], item["metadata"]["name"]) for item in documents(manifest, _WORKLOAD)]
    return [item for item in found if item[0] in WORKLOADS]


def workload_rollout(kind: str, live: Document) -> WorkloadRollout:
    """The state of a workload by its status, which counts only once it is about the present generation."""
    metadata, spec, status = live["metadata"], live["spec"], live.get("status") or {}
    current = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 0)
    if kind == "DaemonSet":
        wanted = int(status.get("desiredNumberScheduled") or 0)
        updated, ready = int(status.get("updatedNumberScheduled") or 0), int(status.get("numberAvailable") or 0)
    else:
        wanted = int(spec.get("replicas", 1))
        updated = int(status.get("updatedReplicas") or 0)
        ready = int(status.get("availableReplicas", status.get("readyReplicas")) or 0)
    labels = (spec.get("selector") or {}).get("matchLabels") or {}
    return WorkloadRollout(
        kind=kind,
        name=metadata["name"],
        wanted=wanted,
        ready=min(ready, updated) if updated < wanted else ready,
        done=current and updated >= wanted and ready >= wanted,
        selector=",".join(f"{key}={value}" for key, value in sorted(labels.items())),
    )


def missing_workload(kind: str, name: str) -> WorkloadRollout:
    """A workload that the release should have and that is not there."""
    return WorkloadRollout(kind=kind, name=name, wanted=1, ready=0, done=False, selector="")


def pod_failures(pods: t.Iterable[Document], limit: int = 5) -> list[ContainerFailure]:
    """What ails the pods, the most restarted first, one line a pod; those that merely have not started yet count too."""
    listed = list(pods)
    found = [lines[0] for lines in (container_failures([pod]).get(_node(pod)) for pod in listed) if lines]
    named = {ailment.pod for ailment in found}
    found += [
        ContainerFailure(_node(pod), pod["metadata"]["name"], "-", "running, but not ready")
        for pod in listed
        if pod["metadata"]["name"] not in named and not _ready(pod)
    ]
    return sorted(found, key=lambda ailment: -ailment.restarts)[:limit]


def format_rollout(ailment: ContainerFailure) -> str:
    """One pod's trouble in words, with its node."""
    place = f" on node {ailment.node}" if ailment.node else " (on no node)"
    return f"{ailment}{place}"


def _ready(pod: Document) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _node(pod: Document) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")
