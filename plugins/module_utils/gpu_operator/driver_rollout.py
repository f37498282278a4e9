# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which fields of a ClusterPolicy reach the template of the driver's DaemonSet, and how the driver then rolls: pure.

Source: gpu-operator v25.10.1 controllers/object_controls.go (TransformDriver, applyCommonDaemonsetMetadata and -Config) and
controllers/upgrade_controller.go. That DaemonSet is updated OnDelete: whatever changes its template is an upgrade to the
operator, which goes from node to node.
"""

from __future__ import annotations

import math
import typing as t
from dataclasses import dataclass

Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]

# How the operator goes about an upgrade, and what it leaves to other DaemonSets.
_NOT_IN_TEMPLATE: frozenset[Path] = frozenset(
    {("driver", "upgradePolicy"), ("daemonsets", "updateStrategy"), ("daemonsets", "rollingUpdate")}
)
PARTS = ("driver", "daemonsets", "gds", "gdrcopy", "hostPaths")
# Sidecars, of which nothing is in the template unless they are enabled.
_SIDECARS = frozenset({"gds", "gdrcopy"})


def driver_fields(before: Document, after: Document) -> list[Path]:
    """The paths, below spec, at which two policies differ and the driver's DaemonSet with them."""
    found: list[Path] = []
    for part in PARTS:
        old, new = before.get(part), after.get(part)
        if part in _SIDECARS and not (_enabled(old) or _enabled(new)):
            continue
        found += [path for path in differing_fields(old, new, (part,)) if path[:2] not in _NOT_IN_TEMPLATE]
    return found


def differing_fields(before: t.Any, after: t.Any, path: Path = ()) -> list[Path]:
    """Where two documents differ; a list is one value, and what is empty is as good as absent."""
    if isinstance(before, dict) or isinstance(after, dict):
        old, new = (value if isinstance(value, dict) else {} for value in (before, after))
        return [
            found
            for key in sorted({*old, *new})
            for found in differing_fields(old.get(key), new.get(key), (*path, key))
        ]
    return [] if before == after or (is_empty(before) and is_empty(after)) else [path]


def is_empty(value: t.Any) -> bool:
    """Whether a value says nothing; False and 0 say something."""
    return value is None or (isinstance(value, (str, list, dict)) and not value)


@dataclass(frozen=True)
class UpgradePolicy:
    """How the operator replaces driver pods: by itself, or only those that somebody deletes."""

    by_itself: bool
    parallel: int = 1
    unavailable: str = "25%"

    @classmethod
    def of(cls, spec: Document) -> UpgradePolicy:
        """From a ClusterPolicy's spec; without an upgradePolicy the operator leaves driver pods alone."""
        said = (spec.get("driver") or {}).get("upgradePolicy") or {}
        sandbox = (spec.get("sandboxWorkloads") or {}).get("enabled")
        return cls(
            by_itself=bool(said.get("autoUpgrade")) and not sandbox,
            parallel=int(_or(said.get("maxParallelUpgrades"), 1)),
            unavailable=str(_or(said.get("maxUnavailable"), "25%")),
        )

    def at_most(self, nodes: int) -> int:
        """How many of so many nodes are at work at a time; a share of the nodes is rounded up, as the operator does it."""
        limit = nodes
        if self.unavailable.endswith("%"):
            limit = math.ceil(nodes * int(self.unavailable[:-1]) / 100)
        elif self.unavailable.isdigit():
            limit = int(self.unavailable)
        return min(nodes, limit, self.parallel or nodes)


@dataclass(frozen=True)
class DriverRollout:
    """A change that the driver has to follow: on how many nodes, how fast, and why."""

    nodes: int
    pacing: UpgradePolicy
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        why = "; ".join(self.reasons)
        if not self.pacing.by_itself:
            return (
                f"the driver is out of date on {self.nodes} nodes: {why}. The ClusterPolicy's driver.upgradePolicy.autoUpgrade "
                "is off, so on each node it changes when somebody deletes its driver pod"
            )
        return f"the driver rolls on {self.nodes} nodes, at most {self.at_most} at a time: {why}"

    @property
    def at_most(self) -> int:
        """How many nodes are at work at a time; 0 where driver pods are left to somebody to delete."""
        return self.pacing.at_most(self.nodes) if self.pacing.by_itself else 0

    @property
    def announcement(self) -> str:
        """A sentence for whoever runs the change."""
        text = str(self)
        return f"{text[0].upper()}{text[1:]}. GPU pods are evicted from each node first."

    def as_dict(self) -> dict[str, t.Any]:
        """For a result."""
        return {
            "nodes": self.nodes,
            "at_most": self.at_most,
            "reasons": list(self.reasons),
        }


def _or(value: t.Any, default: t.Any) -> t.Any:
    """The CRD's own default where nothing is said; 0 says something."""
    return default if value is None else value


def _enabled(part: t.Any) -> bool:
    return bool(isinstance(part, dict) and part.get("enabled"))
