# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fields of a ClusterPolicy that affect the template of the driver's DaemonSet, and the resulting rollout of the driver (pure).

Source: gpu-operator v25.10.1 controllers/object_controls.go (TransformDriver, applyCommonDaemonsetMetadata and -Config) and
controllers/upgrade_controller.go. This DaemonSet is updated OnDelete, so the operator treats every change of its template as an
upgrade, and upgrades node by node.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

from ..common.nested import get_nested

Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]

# Settings of the upgrade itself, and of other DaemonSets.
_NOT_IN_TEMPLATE: frozenset[Path] = frozenset(
    {("driver", "upgradePolicy"), ("daemonsets", "updateStrategy"), ("daemonsets", "rollingUpdate")}
)
PARTS = ("driver", "daemonsets", "gds", "gdrcopy", "hostPaths")
# Sidecars, which are only in the template while they are enabled.
_SIDECARS = frozenset({"gds", "gdrcopy"})
# Fields whose values may be shown; other fields may be confidential.
_SHOWN = frozenset({"version", "image", "repository", "enabled", "usePrecompiled", "kernelModuleType"})


def driver_fields(before: Document, after: Document) -> list[Path]:
    """The differing paths below the specs of two policies that change the driver's DaemonSet."""
    paths: list[Path] = []
    for part in PARTS:
        old, new = before.get(part), after.get(part)
        if part in _SIDECARS and not any(isinstance(item, dict) and item.get("enabled") for item in (old, new)):
            continue
        paths += [path for path in differing_fields(old, new, (part,)) if path[:2] not in _NOT_IN_TEMPLATE]
    return paths


def differing_fields(before: t.Any, after: t.Any, path: Path = ()) -> list[Path]:
    """The paths at which two documents differ; a list is one value, and an empty value equals a missing one."""
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, after))
        return [
            difference
            for key in sorted({*old, *new})
            for difference in differing_fields(old.get(key), new.get(key), (*path, key))
        ]
    return [] if before == after or (is_empty(before) and is_empty(after)) else [path]


def format_change(before: Document, after: Document, path: Path) -> str:
    """A path at which two specs differ, with both values if they may be shown."""
    name = ".".join(path)
    if path[-1] not in _SHOWN:
        return name
    old, new = (_format_value(get_nested(document, *path)) for document in (before, after))
    return f"{name} {old} becomes {new}"


def is_empty(value: t.Any) -> bool:
    """Whether a value is None or empty; False and 0 are not."""
    return value is None or (isinstance(value, (str, list, dict)) and not value)


def _format_value(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "(not set)" if is_empty(value) else str(value)


@dataclass(frozen=True)
class UpgradePolicy:
    """The replacement of driver pods: automatically by the operator, or only after each pod was deleted manually."""

    automatic: bool
    parallel: int = 1
    unavailable: str = "25%"

    @classmethod
    def from_spec(cls, spec: Document) -> UpgradePolicy:
        """Create from a ClusterPolicy's spec; without an upgradePolicy, the operator does not replace driver pods."""
        policy = (spec.get("driver") or {}).get("upgradePolicy") or {}
        sandbox = (spec.get("sandboxWorkloads") or {}).get("enabled")
        parallel, unavailable = policy.get("maxParallelUpgrades"), policy.get("maxUnavailable")
        # These are the defaults of the CRD; 0 is a valid value.
        return cls(
            automatic=bool(policy.get("autoUpgrade")) and not sandbox,
            parallel=1 if parallel is None else int(parallel),
            unavailable="25%" if unavailable is None else str(unavailable),
        )

    def max_parallel(self, nodes: int) -> int:
        """The number of nodes, out of `nodes`, that are upgraded at a time; a percentage is rounded up, as in the operator."""
        limit = nodes
        if self.unavailable.endswith("%"):
            limit = math.ceil(nodes * int(self.unavailable[:-1]) / 100)
        elif self.unavailable.isdigit():
            limit = int(self.unavailable)
        return min(nodes, limit, self.parallel or nodes)


@dataclass(frozen=True)
class DriverRollout:
    """A change that restarts the driver: the number of nodes, the upgrade policy, and the reasons."""

    nodes: int
    upgrade_policy: UpgradePolicy
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        if not self.upgrade_policy.automatic:
            return (
                f"the driver is out of date on {self.nodes} nodes: {reasons}. The ClusterPolicy's driver.upgradePolicy.autoUpgrade "
                "is off, so each node keeps its driver until its driver pod is deleted"
            )
        return f"the driver rolls on {self.nodes} nodes, at most {self.max_parallel} at a time: {reasons}"

    @property
    def max_parallel(self) -> int:
        """The number of nodes that are upgraded at a time; 0 if driver pods must be deleted manually."""
        return self.upgrade_policy.max_parallel(self.nodes) if self.upgrade_policy.automatic else 0

    @property
    def announcement(self) -> str:
        """A sentence for the warning before the change."""
        text = str(self)
        return f"{text[0].upper()}{text[1:]}. GPU pods are evicted from each node first."

    def as_dict(self) -> dict[str, t.Any]:
        """The rollout in the format of modules' results."""
        return {"nodes": self.nodes, "max_parallel": self.max_parallel, "reasons": list(self.reasons)}
