# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the operator would start anew if the ClusterPolicy became what the documents ask of it; nothing is sent.

This is what can be told without the chart: an upgrade is known by the two versions, and the chart's own values are not.
"""

from __future__ import annotations

import typing as t

from ..cluster_state import operand_pods
from ..cluster_state.impact import OperandRestart
from ..kube.helm_marks import marks_of
from .cluster_policy import DesiredPolicy, PolicyChange, changes, first_contact
from .cluster_policy_client import ClusterPolicyClient
from .driver_rollout import PARTS, DriverRollout, Path, UpgradePolicy, driver_fields
from .upgrade_preview import apply_merge_patch, format_paths, reaching_paths

if t.TYPE_CHECKING:
    from ..kube.client import Client
    from ..pools.plan import Plan

Document = t.Mapping[str, t.Any]

VERSION_LABEL = "app.kubernetes.io/version"
# Whose DaemonSets take a part of the spec into their templates (gpu-operator controllers/object_controls.go,
# handleDevicePluginConfig, applyMIGConfiguration, TransformMIGManager and TransformDriver); every other part reaches them all.
_READERS: dict[str, frozenset[str]] = {
    "devicePlugin": frozenset({operand_pods.PLUGIN, operand_pods.DISCOVERY, operand_pods.MPS_DAEMON}),
    "mig": frozenset({operand_pods.PLUGIN, operand_pods.DISCOVERY, operand_pods.MPS_DAEMON}),
    "migManager": frozenset({operand_pods.MIG_MANAGER}),
    **dict.fromkeys(("driver", "gds", "gdrcopy"), frozenset({operand_pods.DRIVER})),
}
# The one part of the chart's values for the driver that has another name in the ClusterPolicy.
_ELSEWHERE = ("driver", "nvidiaDriverCRD")


class RestartPreview(t.NamedTuple):
    """What rolls; `reasons` why the driver does, if there is one; `release`: the operator's versions, where they differ."""

    roll: OperandRestart = OperandRestart()
    reasons: tuple[str, ...] = ()
    pacing: UpgradePolicy = UpgradePolicy(by_itself=False)
    release: tuple[str, str] | None = None

    def told(self, counts: t.Mapping[str, int]) -> dict[str, t.Any]:
        """The counts of all pools, with what is known of the whole cluster beside them."""
        drivers = counts["drivers"]
        return {
            **counts,
            "at_most": DriverRollout(drivers, self.pacing, self.reasons).at_most,
            "reasons": list(self.reasons) if drivers else [],
            # An upgrade is one step, and refused as a whole.
            "held_back": bool(drivers) and self.release is None,
            "release": {"installed": self.release[0], "wanted": self.release[1]} if self.release else None,
        }


def preview_restarts(client: Client, plan: Plan, live: t.Mapping[str, t.Any] | None) -> RestartPreview:
    """Compare the ClusterPolicy with the plan; without an operator, or without pools, nothing rolls."""
    if live is None or not plan.pools:
        return RestartPreview()
    cluster = ClusterPolicyClient(client, plan.operator.namespace)
    seeded = first_contact(live) and cluster.installed_by_us(plan.operator.name, plan.operator.namespace)
    return predicted_policy(live, plan, changes(live, DesiredPolicy.by(plan, live), seeded=seeded))


def predicted_policy(live: Document, plan: Plan, change: PolicyChange) -> RestartPreview:
    """What follows from the plan's release, and from the `change` that its pools make to the policy: pure."""
    spec, operator = live.get("spec") or {}, plan.operator
    # Only the release that is planned is upgraded, or given values.
    planned = marks_of(live) == (operator.name, operator.namespace)
    installed = (live["metadata"].get("labels") or {}).get(VERSION_LABEL) or ""
    moved = bool(planned and installed) and _bare(installed) != _bare(operator.version)
    values = {part: operator.values[part] for part in PARTS if planned and part in operator.values}
    outcome = t.cast("Document", apply_merge_patch(spec, values))
    by_values = [path for path in driver_fields(spec, outcome) if path[:2] != _ELSEWHERE]
    by_pools = [path for path in reaching_paths(live, change) if path not in by_values]
    reasons = [f"operator {installed} becomes {operator.version}"] if moved else []
    reasons += [format_paths(spec, outcome, path) for path in by_values]
    reasons += [".".join(path) for path in by_pools]
    return RestartPreview(
        # The new chart's version is among the labels of every pod.
        OperandRestart(apps=restarted_operands(change, by_values), every=moved),
        tuple(reasons),
        UpgradePolicy.of(outcome),
        (installed, operator.version) if moved else None,
    )


def restarted_operands(change: PolicyChange, reaching_driver: t.Iterable[Path] = ()) -> frozenset[str]:
    """The apps whose DaemonSets get another template by this change, and by values at these paths."""
    before, after = change.before.get("spec") or {}, change.after.get("spec") or {}
    parts = {part for part in {*before, *after} if before.get(part) != after.get(part)}
    parts |= {path[0] for path in reaching_driver}
    return frozenset().union(*(_READERS.get(part, frozenset(operand_pods.OPERANDS)) for part in parts))


def _bare(version: str) -> str:
    return version.removeprefix("v")
