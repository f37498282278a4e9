# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which object with the token (a Secret or a ConfigMap) a pool's driver pods mount, and how the ClusterPolicy refers to it (pure).

Source: gpu-operator api/nvidia/v1/clusterpolicy_types.go (DriverLicensingConfigSpec) and controllers/object_controls.go (transformDriverContainer) in the
tags v24.9.2 to v26.7.0: secretName has existed since v25.10, and takes precedence over configMapName; the token is mounted only with nlsEnabled.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ..catalog.names import DRIVER_LICENSE_FIELDS, LICENSE_FIELDS, LICENSING_CONFIG, POOL_LABEL
from ..catalog.releases import LICENSING_SECRET_SINCE, release_of
from ..cluster_state.cluster_policy import uses_driver_objects
from ..common.errors import InvalidOptions
from ..common.nested import get_nested
from ..schema.driver import VGPU_TYPE
from ..schema.messages import abbreviate

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PoolPlan

Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
DEFAULT_NAME = "licensing-config"
# The messages for reports and failures.
NO_OPERATOR = (
    "The GPU operator is not installed (no ClusterPolicy exists), so no driver reads a token. Run the playbook site with the token: it installs the operator "
    "and writes the Secret."
)
NO_OBJECT = "Neither an NVIDIADriver nor the ClusterPolicy names a Secret with a licensing token. Run the playbook license with a token."


@dataclass(frozen=True)
class LicenseTarget:
    """One object with a token, and the pools whose driver pods mount it; without pools, all driver pods mount it."""

    kind: str
    name: str
    pools: tuple[str, ...] = ()

    def label(self, namespace: str) -> str:
        """The kind, namespace and name of the object, for messages."""
        return f"{self.kind} {namespace}/{self.name}"

    def is_same_object(self, other: LicenseTarget) -> bool:
        """Whether both are the same object, regardless of their pools."""
        return (self.kind, self.name) == (other.kind, other.name)

    def label_with_pools(self, namespace: str) -> str:
        """The label, followed by the pools, if any."""
        word = "pool" if len(self.pools) == 1 else "pools"
        return f"{self.label(namespace)} ({word} {abbreviate(self.pools)})" if self.pools else self.label(namespace)


@dataclass(frozen=True)
class LicensingConfigDiff:
    """The ClusterPolicy's current licensingConfig, and the fields that make it refer to the desired object."""

    before: Document
    after: Document

    @property
    def changed(self) -> bool:
        """Whether the ClusterPolicy must change."""
        return bool(self.paths)

    @property
    def paths(self) -> list[Path]:
        """The changed fields below spec."""
        return [
            (*LICENSING_CONFIG, key)
            for key, value in sorted(self.after.items())
            if (self.before.get(key) or None) != (value or None)
        ]

    @property
    def fields(self) -> list[str]:
        """The changed fields for messages and results, such as spec.driver.licensingConfig.secretName."""
        return [".".join(("spec", *path)) for path in self.paths]


def has_secret_name(version: str) -> bool:
    """Whether this release of the operator can mount a Secret; true for an unknown (empty) version."""
    return not version or release_of(version) >= LICENSING_SECRET_SINCE


def licensing_of(policy: Document | None) -> Document:
    """The ClusterPolicy's licensingConfig without empty values."""
    given = get_nested(policy, "spec", *LICENSING_CONFIG)
    return {key: value for key, value in given.items() if value not in (None, "")} if isinstance(given, dict) else {}


def live_target(policy: Document | None) -> LicenseTarget | None:
    """The object that the ClusterPolicy refers to; None if it refers to none."""
    return _named_in(licensing_of(policy), LICENSE_FIELDS)


def _named_in(config: t.Any, fields: t.Mapping[str, str]) -> LicenseTarget | None:
    """The object that a licensingConfig refers to; a Secret takes precedence over a ConfigMap."""
    given = config if isinstance(config, dict) else {}
    return next((LicenseTarget(kind, str(given[field])) for kind, field in fields.items() if given.get(field)), None)


def _policy_describes_driver(plan: Plan, policy: Document) -> bool:
    """Whether the ClusterPolicy describes the driver; False if NVIDIADriver objects do, or if the operator does not install the driver."""
    spec = policy.get("spec") or {}
    enabled = get_nested(spec, "driver", "enabled") is not False
    return enabled and not plan.declares_drivers and not uses_driver_objects(spec)


def declares_vgpu(plan: Plan, policy: Document | None, drivers: t.Iterable[Document]) -> bool:
    """Whether a pool, an NVIDIADriver or the ClusterPolicy (by a token or by the name of the driver image) declares the vGPU driver."""
    if vgpu_pools(plan):
        return True
    spec = (policy or {}).get("spec") or plan.operator.values
    if uses_driver_objects(spec):
        return any(get_nested(item, "spec", "driverType") == VGPU_TYPE for item in drivers)
    driver = spec.get("driver") or {}
    image = f"{driver.get('repository') or ''}/{driver.get('image') or ''}"
    return driver.get("enabled") is not False and (live_target({"spec": spec}) is not None or VGPU_TYPE in image)


def vgpu_pools(plan: Plan) -> list[PoolPlan]:
    """The pools that declare the vGPU driver."""
    return [pool for pool in plan.pools if (pool.driver or {}).get("type") == VGPU_TYPE]


def declared_vgpu_types(plan: Plan, pools: t.Collection[str] = ()) -> list[str]:
    """The vGPU types in the `match` of the vGPU pools with these names, or of all vGPU pools; other products are included."""
    return [product for pool in vgpu_pools(plan) if not pools or pool.name in pools for product in pool.match.products]


def desired_targets(
    plan: Plan, policy: Document | None, version: str, secret_name: str | None, drivers: t.Iterable[Document] = ()
) -> list[LicenseTarget]:
    """The objects that must contain the token; raises InvalidOptions if the driver pods of a pool would mount none.

    If there are vGPU pools, the name for each pool is `driver.licensing_secret` or, if that is not set, the name in the ClusterPolicy, which the pool's
    NVIDIADriver inherits. Otherwise, the names come from NVIDIADriver objects if these describe the driver. If they do not, the name is `secret_name`,
    the name in the ClusterPolicy, or the default, in this order. A new name in the ClusterPolicy restarts the driver on every node. `drivers` contains
    the NVIDIADriver objects.
    """
    # A ClusterPolicy that does not exist yet is created from the values.
    expected = policy if policy is not None else {"spec": plan.operator.values}
    live = live_target(expected)
    if pools := vgpu_pools(plan):
        # The operator mounts the token only with nlsEnabled, which the pools also inherit.
        return _targets_of_pools(pools, live if licensing_of(expected).get("nlsEnabled") is True else None)
    if not _policy_describes_driver(plan, expected):
        if named := mounted_targets(policy, drivers):
            return named
        raise InvalidOptions(
            [
                "No driver pod mounts a licensing token: no pool has driver.type: vgpu, and no NVIDIADriver names a Secret. Set driver.type and "
                "driver.licensing_secret of the pool."
            ]
        )
    name = secret_name or (live.name if live is not None else DEFAULT_NAME)
    return [LicenseTarget(SECRET if has_secret_name(version) else CONFIG_MAP, name)]


def declared_targets(plan: Plan) -> list[LicenseTarget]:
    """The Secrets that pools declare, with the pools that declare them."""
    return _with_pools((pool, target) for pool in vgpu_pools(plan) if (target := _declared_target(pool)) is not None)


def _declared_target(pool: PoolPlan) -> LicenseTarget | None:
    name = (pool.driver or {}).get("licensing_secret")
    return LicenseTarget(SECRET, str(name)) if name else None


def _with_pools(pairs: t.Iterable[tuple[PoolPlan, LicenseTarget]]) -> list[LicenseTarget]:
    by_target: dict[LicenseTarget, list[str]] = {}
    for pool, target in pairs:
        by_target.setdefault(target, []).append(pool.name)
    return [replace(target, pools=tuple(names)) for target, names in by_target.items()]


def _targets_of_pools(pools: t.Iterable[PoolPlan], inherited: LicenseTarget | None) -> list[LicenseTarget]:
    targets = [(pool, _declared_target(pool) or inherited) for pool in pools]
    if unnamed := [pool.name for pool, target in targets if target is None]:
        raise InvalidOptions(
            [
                f"Pool {name} names no licensing Secret, and neither does the ClusterPolicy with nlsEnabled. Set driver.licensing_secret of the pool, for "
                f"example to {DEFAULT_NAME}."
                for name in unnamed
            ]
        )
    return _with_pools((pool, target) for pool, target in targets if target is not None)


def mounted_targets(policy: Document | None, drivers: t.Iterable[Document] = ()) -> list[LicenseTarget]:
    """The objects that NVIDIADrivers refer to, or that the ClusterPolicy refers to if it describes the driver; empty if there are none."""
    if not uses_driver_objects((policy or {}).get("spec") or {}):
        live = live_target(policy)
        return [live] if live is not None else []
    by_target: dict[LicenseTarget, list[str]] = {}
    for item in drivers:
        target = target_of_driver(item)
        if target is not None:
            pool = get_nested(item, "spec", "nodeSelector", POOL_LABEL)
            by_target.setdefault(target, []).append(str(pool or ""))
    # An NVIDIADriver that does not select a pool may apply to any node.
    named = [replace(target, pools=tuple(pools) if all(pools) else ()) for target, pools in by_target.items()]
    return sorted(named, key=lambda target: target.name)


def target_of_driver(driver: Document) -> LicenseTarget | None:
    """The object that an NVIDIADriver refers to, without pools; None if it refers to none, or does not describe the vGPU driver."""
    is_vgpu = get_nested(driver, "spec", "driverType") == VGPU_TYPE
    return _named_in(get_nested(driver, "spec", "licensingConfig"), DRIVER_LICENSE_FIELDS) if is_vgpu else None


def target_of_pool(targets: t.Sequence[LicenseTarget], pool: str | None) -> LicenseTarget | None:
    """The object that the driver pods of a pool mount; None if there is none, or if several exist and none belongs to the pool."""
    own = next((target for target in targets if pool in target.pools), None)
    return own or (targets[0] if len(targets) == 1 else None)


def plan_licensing_config(plan: Plan, policy: Document | None, target: LicenseTarget) -> LicensingConfigDiff | None:
    """The change that makes the ClusterPolicy refer to the object; None if the ClusterPolicy does not describe the driver."""
    if policy is None or not _policy_describes_driver(plan, policy):
        return None
    before = licensing_of(policy)
    after: dict[str, t.Any] = {LICENSE_FIELDS[target.kind]: target.name, "nlsEnabled": True}
    if target.kind == SECRET and before.get("configMapName"):
        after["configMapName"] = ""
    return LicensingConfigDiff(before, after)
