# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which taints keep a pod away, and which of them NVIDIA's pods tolerate (pure)."""

from __future__ import annotations

import typing as t

Document = t.Mapping[str, t.Any]

# PreferNoSchedule keeps nothing away.
_EFFECTS = ("NoSchedule", "NoExecute")


def singleton(policies: t.Iterable[Document]) -> Document | None:
    """The ClusterPolicy that the operator follows: the oldest, by name where two are equally old."""
    return min(
        policies, key=lambda found: (found["metadata"]["creationTimestamp"], found["metadata"]["name"]), default=None
    )


def of_policy(policy: Document) -> list[dict[str, t.Any]]:
    """What a ClusterPolicy has its DaemonSets tolerate."""
    return list(((policy.get("spec") or {}).get("daemonsets") or {}).get("tolerations") or [])


def untolerated(tolerations: t.Sequence[Document], taints: t.Iterable[Document]) -> list[Document]:
    """The taints that keep a pod with these tolerations away (kubernetes v1.36 component-helpers scheduling/corev1)."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in _EFFECTS and not any(_tolerates(item, taint) for item in tolerations)
    ]


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    if toleration["key"] != taint.get("key"):
        return False
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")
