# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waits until NVIDIA's DaemonSets and pods are gone, and until no other pod needs a managed ConfigMap."""

from __future__ import annotations

import typing as t

from ..cluster_state.operand_pods import daemonset_status
from ..common.wait import WaitOptions
from ..kube.client import Client
from ..schema.messages import abbreviate

Document = t.Mapping[str, t.Any]


def await_operands(
    client: Client,
    namespaces: t.Collection[str],
    deleted: set[str],
    configmaps: t.Collection[str],
    waiting: WaitOptions,
) -> None:
    """Wait until the DaemonSets and pods of the deleted objects (given by uid) are gone, and no other pod needs the ConfigMaps; raises WaitTimeout."""

    def read() -> list[str]:
        lines: list[str] = []
        for namespace in sorted(namespaces):
            daemonsets = list(client.list(f"/apis/apps/v1/namespaces/{namespace}/daemonsets"))
            remaining = [item for item in daemonsets if _owners(item, "uid") & deleted]
            lines += [f"DaemonSet {item['metadata']['name']} still exists" for item in remaining]
            others = [item for item in daemonsets if item not in remaining and "ClusterPolicy" in _owners(item, "kind")]
            lines += unfinished_daemonsets(others, configmaps)
            if deleted and not remaining:
                lines += _orphaned_pods(client, namespace, {str(item["metadata"]["uid"]) for item in daemonsets})
        return lines

    waiting.until(
        read,
        lambda lines: not lines,
        describe=lambda lines: f"The operator's pods are not removed or updated yet: {abbreviate(lines)}.",
        progress_text=lambda lines: f"waiting for {len(lines)} of the operator's objects: {lines[0]}" if lines else "",
    )


def await_no_pods(client: Client, namespace: str, selector: str, waiting: WaitOptions) -> None:
    """Wait until all selected pods, which could write to nodes, are gone; raises WaitTimeout."""
    waiting.until(
        lambda: [
            pod["metadata"]["name"]
            for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", label_selector=selector, metadata_only=True)
        ],
        lambda names: not names,
        describe=lambda names: f"Pods in namespace {namespace} still exist: {abbreviate(names)}.",
        progress_text=lambda names: f"waiting for {len(names)} pods in namespace {namespace} to terminate",
    )


def unfinished_daemonsets(daemonsets: t.Iterable[Document], configmaps: t.Collection[str]) -> list[str]:
    """The messages about DaemonSets whose pods may still need one of these ConfigMaps.

    The driver's DaemonSets (update strategy OnDelete) are skipped: they mount no managed ConfigMap, and the operator decides when their pods restart.
    """
    lines = []
    for daemonset in daemonsets:
        if (daemonset["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            continue
        name, status = daemonset["metadata"]["name"], daemonset_status(daemonset)
        volumes = daemonset["spec"]["template"]["spec"].get("volumes") or []
        mounted = sorted({str((volume.get("configMap") or {}).get("name")) for volume in volumes} & set(configmaps))
        if mounted:
            lines.append(f"DaemonSet {name} still mounts {', '.join(mounted)}")
        elif status.is_outdated or not status.current:
            lines.append(f"DaemonSet {name}: {status.updated} of {status.desired} pods are updated")
    return lines


def _orphaned_pods(client: Client, namespace: str, daemonsets: set[str]) -> list[str]:
    """The messages about pods whose DaemonSet was deleted."""
    return [
        f"pod {pod['metadata']['name']} still exists"
        for pod in client.list(f"/api/v1/namespaces/{namespace}/pods", metadata_only=True)
        if any(
            owner.get("kind") == "DaemonSet" and owner.get("uid") not in daemonsets
            for owner in pod["metadata"].get("ownerReferences") or []
        )
    ]


def _owners(item: Document, key: str) -> set[str]:
    """The uids (or kinds) of an object's owners."""
    return {str(owner.get(key)) for owner in item["metadata"].get("ownerReferences") or ()}
