# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects with the token of each pool: which Secret or ConfigMap the driver pods of a node mount, and how the ClusterPolicy names it (pure).

Source: gpu-operator api/nvidia/v1/clusterpolicy_types.go (DriverLicensingConfigSpec) and controllers/object_controls.go (transformDriverContainer) of the
tags v24.9.2 to v26.7.0: secretName exists since v25.10 and has precedence over configMapName; the token is mounted only with nlsEnabled.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.releases import LICENSING_SECRET_SINCE, release_of
from ..cluster_state.cluster_policy import uses_driver_objects
from ..common.nested import get_nested
from ..schema.driver import VGPU_TYPE

if t.TYPE_CHECKING:
    from ..pools.plan import Plan, PoolPlan

Document = t.Mapping[str, t.Any]
Path = tuple[str, ...]

SECRET, CONFIG_MAP = "Secret", "ConfigMap"
DEFAULT_NAME = "licensing-config"
_FIELDS = {SECRET: "secretName", CONFIG_MAP: "configMapName"}
PATH: Path = ("driver", "licensingConfig")


@dataclass(frozen=True)
class LicenseTarget:
    """One object with a token, and the pools whose driver pods mount it; without pools, all driver pods mount it."""

    kind: str
    name: str
    pools: tuple[str, ...] = ()

    def label(self, namespace: str) -> str:
        """Kind, namespace and name for messages."""
        return f"{self.kind} {namespace}/{self.name}"


@dataclass(frozen=True)
class Wiring:
    """The ClusterPolicy's licensingConfig, as it is and as it names the object."""

    before: Document
    after: Document

    @property
    def changed(self) -> bool:
        """Whether the ClusterPolicy must change."""
        return any((self.before.get(key) or None) != (value or None) for key, value in self.after.items())

    @property
    def paths(self) -> list[Path]:
        """The changed fields below spec."""
        return [
            (*PATH, key)
            for key, value in sorted(self.after.items())
            if (self.before.get(key) or None) != (value or None)
        ]


def has_secret_name(version: str) -> bool:
    """Whether this release of the operator can mount a Secret; an unknown (empty) version can."""
    return not version or release_of(version) >= LICENSING_SECRET_SINCE


def licensing_of(policy: Document | None) -> Document:
    """The ClusterPolicy's licensingConfig without empty values."""
    given = get_nested(policy, "spec", *PATH)
    return {key: value for key, value in given.items() if value not in (None, "")} if isinstance(given, dict) else {}


def live_target(policy: Document | None) -> LicenseTarget | None:
    """The object that the ClusterPolicy names; None if it names none."""
    given = licensing_of(policy)
    return next((LicenseTarget(kind, str(given[field])) for kind, field in _FIELDS.items() if given.get(field)), None)


def vgpu_pools(plan: Plan) -> list[PoolPlan]:
    """The pools that declare the vGPU driver."""
    return [pool for pool in plan.pools if (pool.driver or {}).get("type") == VGPU_TYPE]


def desired_targets(
    plan: Plan, policy: Document | None, version: str, name: str | None, drivers: t.Iterable[Document] = ()
) -> list[LicenseTarget]:
    """The objects that must have the token. `name` is the user's choice, `drivers` are NVIDIADriver objects that no pool has declared.

    A name that is in use is kept, because another name restarts the driver on every node.
    """
    live = live_target(policy)
    inherited = live.name if live is not None and live.kind == SECRET else name
    by_name: dict[str, list[str]] = {}
    for pool in vgpu_pools(plan):
        own = (pool.driver or {}).get("licensing_secret") or inherited or DEFAULT_NAME
        by_name.setdefault(str(own), []).append(pool.name)
    if by_name:
        return [LicenseTarget(SECRET, own, tuple(pools)) for own, pools in by_name.items()]
    if by_objects := _names_of_objects(policy, drivers):
        return [LicenseTarget(SECRET, own) for own in by_objects]
    declared = get_nested(plan.operator.values, *PATH, "secretName")
    chosen = name or (live.name if live else None) or (declared if isinstance(declared, str) else None) or DEFAULT_NAME
    return [LicenseTarget(SECRET if has_secret_name(version) else CONFIG_MAP, chosen)]


def mounted_targets(plan: Plan, policy: Document | None, drivers: t.Iterable[Document] = ()) -> list[LicenseTarget]:
    """The objects that driver pods mount; empty if the ClusterPolicy names none."""
    live = live_target(policy)
    if vgpu_pools(plan) or _names_of_objects(policy, drivers := list(drivers)):
        return desired_targets(plan, policy, "", None, drivers)
    return [live] if live is not None else []


def _names_of_objects(policy: Document | None, drivers: t.Iterable[Document]) -> list[str]:
    if not uses_driver_objects((policy or {}).get("spec") or {}):
        return []
    named = [
        str(get_nested(item, "spec", "licensingConfig", "secretName") or "")
        for item in drivers
        if get_nested(item, "spec", "driverType") == VGPU_TYPE
    ]
    return sorted({own for own in named if own})


def target_of_pool(targets: t.Sequence[LicenseTarget], pool: str | None) -> LicenseTarget | None:
    """The object that the driver pods of a pool mount; None if several objects exist and none is that of the pool."""
    own = next((target for target in targets if pool in target.pools), None)
    return own or (targets[0] if len(targets) == 1 else None)


def plan_wiring(plan: Plan, policy: Document | None, target: LicenseTarget) -> Wiring | None:
    """How the ClusterPolicy must name the object; None if it does not describe the driver, because NVIDIADriver objects do."""
    spec = (policy or {}).get("spec") or {}
    if policy is None or plan.declares_drivers or uses_driver_objects(spec) or target.pools:
        return None
    if get_nested(spec, "driver", "enabled") is False:
        return None
    before = licensing_of(policy)
    after: dict[str, t.Any] = {_FIELDS[target.kind]: target.name, "nlsEnabled": True}
    if target.kind == SECRET and before.get("configMapName"):
        after["configMapName"] = ""
    return Wiring(before, after)
