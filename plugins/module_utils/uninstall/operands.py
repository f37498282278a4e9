# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until NVIDIA's DaemonSets and pods are gone, and none needs a ConfigMap of ours."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..common.progress import Progress
from ..common.wait import wait_until
from ..kube.client import Client
from .cluster_policy import mounting

Document = t.Mapping[str, t.Any]
_TOLD = 5


@dataclass(frozen=True)
class OperandWait:
    """How long, how often, and where it is told."""

    timeout: float
    interval: float
    progress: Progress


def await_operands(
    client: Client,
    namespaces: t.Collection[str],
    gone: t.Collection[str],
    configmaps: t.Collection[str],
    waiting: OperandWait,
) -> None:
    """Until the DaemonSets and pods of the policies with these uids are gone, and no other pod needs the ConfigMaps."""

    def read() -> list[str]:
        lines: list[str] = []
        for namespace in sorted(namespaces):
            daemonsets = list(client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
            going = [found for found in daemonsets if _owned_by(found, uids=gone)]
            lines += [f"DaemonSet {found['metadata']['name']} is still there" for found in going]
            staying = [found for found in daemonsets if found not in going and _owned_by(found, kind="ClusterPolicy")]
            lines += mounting(staying, configmaps)
            if gone and not going:
                lines += _orphans(client, namespace, {str(found["metadata"]["uid"]) for found in daemonsets})
        return lines

    wait_until(
        read,
        lambda lines: not lines,
        timeout=waiting.timeout,
        interval=waiting.interval,
        describe=lambda lines: f"The operator's pods are not as they should be: {_some(lines)}.",
        progress_text=lambda lines: f"{len(lines)} of the operator's objects to go: {lines[0]}" if lines else "",
        progress=waiting.progress,
    )


def await_no_pods(client: Client, namespace: str, selector: str, waiting: OperandWait) -> None:
    """Until no pod of a release is left that could write on nodes again; raises TimeoutStory."""
    wait_until(
        lambda: [
            pod["metadata"]["name"]
            for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, metadata_only=True)
        ],
        lambda names: not names,
        timeout=waiting.timeout,
        interval=waiting.interval,
        describe=lambda names: f"These pods in namespace {namespace} are not gone: {_some(names)}.",
        progress_text=lambda names: f"{len(names)} pods to go in namespace {namespace}",
        progress=waiting.progress,
    )


def _orphans(client: Client, namespace: str, daemonsets: set[str]) -> list[str]:
    """Pods whose DaemonSet is gone."""
    pods = client.list(f"/api/v1/namespaces/{namespace}/pods", metadata_only=True)
    return [
        f"pod {pod['metadata']['name']} is still there"
        for pod in pods
        if any(
            owner.get("kind") == "DaemonSet" and owner.get("uid") not in daemonsets
            for owner in pod["metadata"].get("ownerReferences") or []
        )
    ]


def _owned_by(found: Document, *, uids: t.Collection[str] = (), kind: str = "") -> bool:
    owners = found["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") in uids or (kind and owner.get("kind") == kind) for owner in owners)


def _some(lines: t.Sequence[str]) -> str:
    more = f" and {len(lines) - _TOLD} more" if len(lines) > _TOLD else ""
    return f"{'; '.join(lines[:_TOLD])}{more}"
