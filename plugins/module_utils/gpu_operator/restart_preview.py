# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts which operands restart when the planned changes are made to the ClusterPolicy; changes nothing.

The chart is not read: an upgrade is recognized by comparing versions, and the chart's own values are not considered.
"""

from __future__ import annotations

import typing as t
from collections import Counter
from dataclasses import replace

from ..catalog import operands
from ..catalog.releases import restarts_in_place
from ..nodes.impact import OperandRestart
from ..schema.variables import EFFECTS, enabled_value, runs
from .cluster_policy import (
    SWITCH,
    DesiredPolicy,
    DriverRollout,
    Path,
    PolicyChange,
    UpgradePolicies,
    UpgradePolicy,
    differing_fields,
    driver_fields,
    follows_own_policies,
    format_change,
    is_in_place,
    plan_change,
    planned_upgrade,
    policy_version,
    with_planned_values,
)
from .cluster_policy_client import ClusterPolicyClient
from .driver_objects import DriverObjects, value_changes
from .installation import operand_runs
from .readiness import is_driver

if t.TYPE_CHECKING:
    from ..core.values import Document
    from ..kube.client import Client
    from ..pools.plan import Plan

# The only driver value of the chart that has a different name in the ClusterPolicy.
_RENAMED = ("driver", "nvidiaDriverCRD")


class RestartPreview(t.NamedTuple):
    """The predicted restarts; `reasons` explains a restart of the driver, and `versions` contains the installed and the planned version if they differ.

    `driver_paths` contains the fields of the policy that change the driver's DaemonSet.
    """

    restart: OperandRestart = OperandRestart()
    reasons: tuple[str, ...] = ()
    upgrade_policy: UpgradePolicy = UpgradePolicy(automatic=False)
    versions: tuple[str, str] | None = None
    driver_paths: tuple[Path, ...] = ()
    # The parts of the operands that the operator's values disable.
    disabled: tuple[str, ...] = ()
    # Pairs of a number of nodes and the upgrade policy that their NVIDIADriver sets.
    parts: tuple[tuple[int, UpgradePolicy], ...] = ()

    def as_dict(self, counts: t.Mapping[str, int], *, allowed: bool = False) -> dict[str, t.Any]:
        """The preview, formatted for a module's result. `counts` is the total impact on all pools; `allowed` is true if the driver may be restarted."""
        drivers = counts["driver_restarts"]
        rollout = DriverRollout(drivers, self.upgrade_policy, self.reasons, parts=self.parts)
        return {
            **counts,
            "max_parallel": rollout.max_parallel,
            "at_once": rollout.at_once,
            "reasons": list(self.reasons) if drivers else [],
            "in_place": bool(drivers) and self.restart.in_place,
            # An upgrade is a single step and is rejected as a whole.
            "held_back": bool(drivers) and self.versions is None and not self.restart.in_place and not allowed,
            "allowed": allowed,
            "disabled": [{"field": f"spec.{part}.enabled", "effect": EFFECTS[part]} for part in self.disabled],
            "release": {"installed": self.versions[0], "desired": self.versions[1]} if self.versions else None,
        }


def preview_restarts(
    client: Client,
    plan: Plan,
    live: t.Mapping[str, t.Any] | None,
    objects: DriverObjects | None = None,
) -> RestartPreview:
    """Compare the ClusterPolicy with the plan; without a policy or without pools, nothing restarts.

    `objects` contains the NVIDIADriver objects with the changes that the pools require.
    """
    if live is None or not plan.pools:
        return RestartPreview()
    cluster = ClusterPolicyClient(client, plan.operator.namespace)
    seeded = cluster.is_seeded(dict(live), plan.operator)
    preview = predict_restarts(live, plan, plan_change(live, DesiredPolicy.derive(plan, live), seeded=seeded))
    version = policy_version(live)
    if preview.versions is None and preview.restart.driver and restarts_in_place(version):
        daemonsets = list(filter(is_driver, cluster.daemonsets()))
        in_place = is_in_place(preview.driver_paths, version, preview.upgrade_policy, daemonsets)
        preview = preview._replace(restart=replace(preview.restart, in_place=in_place))
    return with_driver_objects(preview, live, plan, objects or DriverObjects())


def with_driver_objects(preview: RestartPreview, live: Document, plan: Plan, objects: DriverObjects) -> RestartPreview:
    """Add to the preview the changes to NVIDIADriver objects that result from the Helm values and from the pools (pure)."""
    if preview.versions is not None:
        # The new operator replaces the driver.
        objects = replace(objects, own_policies=follows_own_policies((), preview.versions[1]))
    changed = value_changes(plan, objects.live)
    owners = objects.owners
    rolled = frozenset(name for name, owner in owners.items() if owner in changed) | objects.rolled_nodes
    of_values = [reason for name in sorted(changed) for reason in changed[name]]
    reasons = (*preview.reasons, *of_values, *objects.reasons)
    if SWITCH in preview.driver_paths:
        switch = objects.switch(live.get("spec") or {}, 0, reasons)
        return preview._replace(upgrade_policy=switch.upgrade_policy, parts=switch.parts)
    counted = owners if preview.restart.driver else rolled
    nodes = Counter(owners.get(name, "") for name in counted)
    policies = UpgradePolicies.read(live.get("spec") or {}, objects.live, own=objects.own_policies)
    return preview._replace(
        restart=replace(preview.restart, driver_nodes=rolled),
        reasons=reasons,
        parts=policies.rollout(nodes, ()).parts,
    )


def predict_restarts(live: Document, plan: Plan, change: PolicyChange) -> RestartPreview:
    """Predict the effect of the planned Helm release, and of the `change` to the policy that the pools require (pure)."""
    spec, versions = live.get("spec") or {}, planned_upgrade(live, plan)
    outcome = with_planned_values(live, plan).get("spec") or {}
    by_values = [path for path in driver_fields(spec, outcome) if path[:2] != _RENAMED]
    by_pools = [path for path in change.driver_paths if path not in by_values]
    reasons = ["operator {} becomes {}".format(*versions)] if versions else []
    reasons += [format_change(spec, outcome, path) for path in by_values]
    reasons += [".".join(path) for path in by_pools]
    apps = restarted_operands(change, by_values)
    if not by_values and not change.driver_paths:
        # Some parts of the policy affect all operands except a driver that an NVIDIADriver describes.
        apps -= {operands.DRIVER}
    return RestartPreview(
        # An upgrade restarts all operands, because every pod has a label with the chart's version.
        OperandRestart(apps=apps, every=versions is not None),
        tuple(reasons),
        UpgradePolicy.from_spec(outcome),
        versions,
        (*by_values, *by_pools),
        disabled=tuple(_disabled_operands(live, plan)),
    )


def _disabled_operands(live: Document, plan: Plan) -> t.Iterator[str]:
    """The parts of the operands that run now and that the planned values disable."""
    for part in EFFECTS:
        declared = enabled_value(plan.operator.values, part)
        if declared is False and runs(live.get("spec"), part) and not operand_runs(live, plan, part, managed=True):
            yield part


def restarted_operands(change: PolicyChange, reaching_driver: t.Iterable[Path] = ()) -> frozenset[str]:
    """The apps of the operands whose templates change because of this change, or because of changed values at these paths."""
    before, after = change.before.get("spec") or {}, change.after.get("spec") or {}
    paths = list(reaching_driver)
    for part in {*before, *after}:
        if before.get(part) != after.get(part):
            paths += differing_fields(before.get(part), after.get(part), (part,)) or [(part,)]
    return frozenset().union(*map(operands.restarted_apps, paths))
