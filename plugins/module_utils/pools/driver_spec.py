# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spec of an NVIDIADriver: the driver settings of the ClusterPolicy, overridden by those of a pool's `driver` (pure).

Source: gpu-operator v25.10.1 deployments/gpu-operator/templates/nvidiadriver.yaml and internal/image/image.go.
"""

from __future__ import annotations

import typing as t

from ..catalog.releases import DRIVER_IMAGE
from ..common.nested import get_nested
from ..schema.driver import BUILD_KEYS
from .variables import merge

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

# The fields of ClusterPolicy.spec.driver that NVIDIADriver has under the same name.
_INHERITED_FIELDS = (
    *("repository", "image", "version", "imagePullPolicy", "imagePullSecrets", "kernelModuleType", "usePrecompiled"),
    *("manager", "rdma", "startupProbe", "livenessProbe", "readinessProbe", "certConfig", "kernelModuleConfig"),
    *("secretEnv", "resources", "args", "env"),
)
_EMPTY: tuple[t.Any, ...] = (None, "", [], {})
_MANAGER_FIELDS = ("repository", "image", "version", "imagePullPolicy", "imagePullSecrets", "env")
# The keys of a pool's `driver`, and the paths of their fields in an NVIDIADriver.
_KEYS: dict[str, tuple[str, ...]] = {
    "type": ("driverType",),
    "version": ("version",),
    "repository": ("repository",),
    "image": ("image",),
    "kernel_module_type": ("kernelModuleType",),
    "precompiled": ("usePrecompiled",),
    "image_pull_secrets": ("imagePullSecrets",),
    "secret_env": ("secretEnv",),
    "repo_config": ("repoConfig", "name"),
    "cert_config": ("certConfig", "name"),
    "kernel_module_config": ("kernelModuleConfig", "name"),
    "licensing_secret": ("licensingConfig", "secretName"),
}
_UPGRADE_KEYS = {
    "automatic": "autoUpgrade",
    "max_parallel": "maxParallelUpgrades",
    "max_unavailable": "maxUnavailable",
}
# The fields that a precompiled driver does not use.
_BUILD_FIELDS = frozenset(_KEYS[key][0] for key in BUILD_KEYS)
# The chart's values, used if the ClusterPolicy does not set them.
_DEFAULT_IMAGE = {"repository": DRIVER_IMAGE[0], "image": DRIVER_IMAGE[1]}


def inherited_driver(policy: Document) -> Object:
    """The driver of a ClusterPolicy as the spec of an NVIDIADriver (gpu-operator deployments/gpu-operator/templates/nvidiadriver.yaml)."""
    spec = policy.get("spec") or {}
    driver = spec.get("driver") or {}
    result: Object = {**_DEFAULT_IMAGE, "driverType": "gpu"}
    for key in _INHERITED_FIELDS:
        value = driver.get(key)
        # The chart writes the names of absent ConfigMaps as empty strings.
        value = (
            {name: below for name, below in value.items() if below not in _EMPTY} if isinstance(value, dict) else value
        )
        if value not in _EMPTY:
            result[key] = value
    if isinstance(result.get("manager"), dict):
        result["manager"] = {key: value for key, value in result["manager"].items() if key in _MANAGER_FIELDS}
    if get_nested(driver, "repoConfig", "configMapName"):
        result["repoConfig"] = {"name": driver["repoConfig"]["configMapName"]}
    if get_nested(driver, "virtualTopology", "config"):
        result["virtualTopologyConfig"] = {"name": driver["virtualTopology"]["config"]}
    licensing = driver.get("licensingConfig") or {}
    named = {"secretName": licensing.get("secretName"), "name": licensing.get("configMapName")}
    if any(named.values()):
        result["licensingConfig"] = {key: value for key, value in named.items() if value}
        result["licensingConfig"]["nlsEnabled"] = licensing.get("nlsEnabled") is True
    for part in ("gds", "gdrcopy"):
        if get_nested(spec, part, "enabled") is True:
            result[part] = dict(spec[part])
    priority = get_nested(spec, "daemonsets", "priorityClassName")
    return {**result, "priorityClassName": priority} if priority else result


def declared_spec(driver: Document, inherited: Document) -> Object:
    """The spec of the NVIDIADriver for a pool's `driver`, merged over the inherited spec."""
    spec: Object = {}
    for key, (first, *rest) in _KEYS.items():
        if driver.get(key) is not None:
            spec[first] = {rest[0]: driver[key]} if rest else driver[key]
    if "licensingConfig" in spec:
        spec["licensingConfig"]["nlsEnabled"] = True
    upgrade = {_UPGRADE_KEYS[key]: value for key, value in (driver.get("upgrade") or {}).items()}
    result: Object = merge(dict(inherited), {**spec, **({"upgradePolicy": upgrade} if upgrade else {})})
    if result.get("usePrecompiled") is True:
        return {key: value for key, value in result.items() if key not in _BUILD_FIELDS}
    return result
