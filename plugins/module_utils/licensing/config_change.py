# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes the licensingConfig of the ClusterPolicy, and determines which drivers this restarts."""

from __future__ import annotations

import dataclasses
import typing as t

from ..catalog.names import LICENSING_MANAGER
from ..gpu_operator.daemonsets import driver_nodes, driver_object_of, is_driver
from ..gpu_operator.driver_rollout import DriverRollout, UpgradePolicy, changed_fields, is_in_place
from ..kube.objects import write_or_dry_run
from ..kube.paths import CLUSTER_POLICIES, collection_path
from .targets import LicenseTarget, LicensingConfigDiff, plan_licensing_config

if t.TYPE_CHECKING:
    from ..kube.plan_module import PlanModule
    from ..pools.plan import Plan
    from .cluster import LicenseCluster


@dataclasses.dataclass(frozen=True)
class LicensingConfigChange:
    """A change to the ClusterPolicy. `config` is None if the policy does not describe the driver. `rollout` is None if no driver restarts."""

    name: str
    config: LicensingConfigDiff | None
    rollout: DriverRollout | None
    held_back: bool = False

    @property
    def applied(self) -> bool:
        """Whether the change is sent."""
        return self.config is not None and self.config.changed and not self.held_back

    @property
    def held_back_fields(self) -> list[str]:
        """The fields whose change is not sent, because it would restart the driver."""
        return self.config.fields if self.config is not None and self.held_back else []


NO_CONFIG_CHANGE = LicensingConfigChange("", None, None)


def config_change(
    module: PlanModule, plan: Plan, cluster: LicenseCluster, target: LicenseTarget, version: str
) -> LicensingConfigChange:
    """Return the change to the ClusterPolicy, and the driver restarts that it causes."""
    config = plan_licensing_config(plan, cluster.policy, target)
    if config is None or cluster.policy is None:
        return LicensingConfigChange("", None, None)
    name = cluster.policy["metadata"]["name"]
    if not config.changed:
        return LicensingConfigChange(name, config, None)
    listed = module.client.list(collection_path("apps/v1", "DaemonSet", cluster.namespace))
    drivers = [item for item in listed if is_driver(item) and not driver_object_of(item)]
    nodes = driver_nodes(drivers).get("", 0)
    if not nodes:
        return LicensingConfigChange(name, config, None)
    upgrade_policy = UpgradePolicy.from_spec(cluster.policy.get("spec") or {})
    reasons = tuple(changed_fields(config.fields))
    in_place = is_in_place(config.paths, version, upgrade_policy, drivers)
    rollout = DriverRollout(nodes, upgrade_policy, reasons, in_place=in_place)
    return LicensingConfigChange(name, config, rollout, not (in_place or module.params["allow_driver_rollout"]))


def apply_config(module: PlanModule, change: LicensingConfigChange) -> str | None:
    """Send the change; in check mode, returns the reason why the server did not validate it."""
    body = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": change.name},
        "spec": {"driver": {"licensingConfig": dict(change.config.after if change.config else {})}},
    }
    path = f"{CLUSTER_POLICIES}/{change.name}"
    check = module.check_mode
    return write_or_dry_run(
        lambda: module.client.apply(path, body, dry_run=check, field_validation="Strict", manager=LICENSING_MANAGER),
        check=check,
    )
