# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rolling updates of DaemonSets that do not go on because of nodes on which a pod never becomes ready: pure.

A DaemonSet replaces a ready pod only while fewer than maxUnavailable of its pods are not ready, and those of broken nodes count
(kubernetes pkg/controller/daemon/update.go, rollingUpdate). One broken node is enough to keep all others on the old template.
"""

from __future__ import annotations

import typing as t

from ..cluster_state.operand_pods import is_ready, node_of
from .cluster_policy import is_driver

Document = t.Mapping[str, t.Any]

# Both are kept up to date by the controller of DaemonSets.
_TEMPLATE, _OF_POD = "deprecated.daemonset.template.generation", "pod-template-generation"


def is_stalled(daemonset: Document, unready: t.Collection[str]) -> bool:
    """Whether all pods that are not ready are on the nodes of `unready`, and use up what may be unavailable."""
    status, spec = daemonset.get("status") or {}, daemonset.get("spec") or {}
    if is_driver(daemonset) or (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
        return False
    desired = int(status.get("desiredNumberScheduled") or 0)
    current = int(status.get("observedGeneration") or 0) >= int(daemonset["metadata"].get("generation") or 0)
    outdated = int(status.get("updatedNumberScheduled") or 0) < desired
    available = int(status.get("numberAvailable") or 0)
    return bool(unready) and current and outdated and desired - available <= len(unready)


def next_pod(daemonset: Document, pods: t.Iterable[Document], set_aside: t.Collection[str]) -> Document | None:
    """The pod to replace next: a ready one of an older template, as long as every other node that works has a ready one."""
    generation = (daemonset["metadata"].get("annotations") or {}).get(_TEMPLATE)
    found = []
    for pod in sorted(pods, key=node_of):
        if node_of(pod) in set_aside:
            continue
        if not is_ready(pod) or pod["metadata"].get("deletionTimestamp"):
            return None
        if generation and (pod["metadata"].get("labels") or {}).get(_OF_POD) != generation:
            found.append(pod)
    return found[0] if found else None
