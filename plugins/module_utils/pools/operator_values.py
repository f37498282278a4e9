# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the settings of the GPU operator and of NFD (pure)."""

from __future__ import annotations

import copy
import typing as t

from ..catalog.distributions import BY_NAME, CONFIG_VARIABLES, Distribution
from ..catalog.openshift import OLM
from ..catalog.operands import WORKER_CONFIG
from ..catalog.releases import (
    COMPONENTS_WITHOUT_SECRETS,
    DRIVER_IMAGE,
    POLICY_PARTS_SINCE,
    VERSIONED_IMAGES,
    image_folders,
    release_of,
)
from ..core import yaml_text
from ..core.values import Document, Object, get_nested, set_nested
from ..schema.driver import BUILD_KEYS, FABRIC_MODES, FABRIC_SOCKET
from ..schema.variables import merge

if t.TYPE_CHECKING:
    from ..catalog.taints import Toleration

# Derives the Helm values, and the image of the validation pods, from gpu_cluster.operator (pure).
#
# No Helm value depends on the pools. Therefore, Helm owns these values, and changing them requires a Helm upgrade.

# Artifacts that kataManager pulls; Helm replaces a list as a whole.
_KATA_ARTIFACTS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("kata-nvidia-gpu", {}, "ubuntu22.04-535.54.03"),
    ("kata-nvidia-gpu-snp", {"nvidia.com/cc.capable": "true"}, "ubuntu22.04-535.86.10-snp"),
)

_DRIVER_VALUES = {"version": "version", "kernel_module_type": "kernelModuleType", "secret_env": "secretEnv"}
_RDMA_VALUES = {"enabled": "enabled", "use_host_mofed": "useHostMofed"}


def operator_values(settings: Object, distribution: str | None = None) -> Object:
    """The values of NVIDIA's chart for gpu_cluster.operator with all defaults; the user's own values override them.

    The environment variables of the driver and toolkit containers are merged with the user's variables by name.
    """
    own = _images(settings.get("registry"), settings["version"], settings["image_pull_secrets"])
    driver = _driver(settings)
    own = merge(own, {"driver": driver} if driver else {})
    own = merge(own, {key: sidecar for key in ("gds", "gdrcopy") if (sidecar := _sidecar(settings[key]))})
    values: Object = merge(own, settings["values"])
    users = get_nested(settings, "values", "driver", "env")
    # An empty list is also merged, so it does not remove the proxy.
    if users is not None:
        values["driver"] = {**values["driver"], "env": _merged_env(driver.get("env", []), users)}
    return with_values(values, declared_distribution_values(settings, distribution))


def declared_distribution_values(settings: Object, distribution: str | None) -> Object:
    """The values that operator_values() adds for the declared distribution."""
    return distribution_values(BY_NAME[distribution], settings["version"], settings["values"]) if distribution else {}


def distribution_values(distribution: Distribution, operator_version: str, values: t.Mapping[str, t.Any]) -> Object:
    """The values that the chart needs for a declared or detected distribution, without settings that `values` already contains."""
    return toolkit_values(_toolkit_env(distribution, operator_version, values))


def toolkit_values(env: t.Sequence[Object]) -> Object:
    """The chart's values that set these environment variables of the container toolkit."""
    return {"toolkit": {"env": list(env)}} if env else {}


def _toolkit_env(distribution: Distribution, operator_version: str, values: t.Mapping[str, t.Any]) -> list[Object]:
    """The environment variables of the container toolkit for a distribution, without those that `values` already contains.

    If `values` contains one of the variables for containerd's configuration, none of them is added, because they depend on each other. The list is empty if
    the operator installs no toolkit, or if its NRI plugin makes the configuration of containerd unnecessary.
    """
    if get_nested(values, "toolkit", "enabled") is False or get_nested(values, "cdi", "nriPluginEnabled") is True:
        return []
    names = {entry["name"] for entry in get_nested(values, "toolkit", "env") or ()}
    set_by_user = names | (CONFIG_VARIABLES if names & CONFIG_VARIABLES else frozenset())
    variables = distribution.toolkit_variables(operator_version)
    return [{"name": name, "value": value} for name, value in variables.items() if name not in set_by_user]


def with_values(values: t.Mapping[str, t.Any], added: t.Mapping[str, t.Any]) -> Object:
    """The values merged with those of a distribution, whose list entries come first, as with combine(list_merge='prepend') in the role."""
    result = dict(values)
    for key, value in added.items():
        if isinstance(value, dict):
            result[key] = with_values(result.get(key) or {}, value)
        else:
            result[key] = [*value, *(result.get(key) or ())] if isinstance(value, list) else value
    return result


def without_values(values: t.Mapping[str, t.Any], added: t.Mapping[str, t.Any]) -> Object:
    """The values without those that with_values() has added, and without maps and lists that are then empty."""
    result = dict(values)
    for key, value in added.items():
        rest: t.Any = None
        if isinstance(value, dict):
            rest = without_values(result[key], value)
        elif isinstance(value, list):
            rest = [entry for entry in result[key] if entry not in value]
        if rest:
            result[key] = rest
        else:
            del result[key]
    return result


def mirrored_image(image: str, registry: str | None) -> str:
    """The address of a public image in the mirror, where it has the same path."""
    return f"{registry}/{image.partition('/')[2]}" if registry else image


def _images(registry: str | None, version: str, secrets: t.Sequence[str]) -> Object:
    values: Object = {}
    folders = image_folders(version)
    if registry:
        for component, folder in folders.items():
            set_nested(values, (*component.split("."), "repository"), f"{registry}/{folder}")
        if "kataManager" in folders:
            set_nested(values, ("kataManager", "config", "runtimeClasses"), _kata_artifacts(registry, secrets))
    if secrets:
        for component in (*folders, "vgpuManager"):
            if component not in COMPONENTS_WITHOUT_SECRETS:
                set_nested(values, (*component.split("."), "imagePullSecrets"), list(secrets))
    return values


def _kata_artifacts(registry: str, secrets: t.Sequence[str]) -> list[Object]:
    return [
        {
            "name": name,
            "nodeSelector": dict(selector),
            "artifacts": {
                "url": f"{registry}/nvidia/cloud-native/kata-gpu-artifacts:{tag}",
                "pullSecret": secrets[0] if secrets else "",
            },
        }
        for name, selector, tag in _KATA_ARTIFACTS
    ]


def _driver(settings: Object) -> Object:
    """The driver's values that differ from the chart's own defaults."""
    driver = settings["driver"]
    values: Object = {value: driver[key] for key, value in _DRIVER_VALUES.items() if key in driver}
    if not driver["enabled"]:
        values["enabled"] = False
    if driver["precompiled"]:
        values["usePrecompiled"] = True
    if settings.get("repo_config"):
        values["repoConfig"] = {"configMapName": settings["repo_config"]}
    if settings.get("cert_config"):
        values["certConfig"] = {"name": settings["cert_config"]}
    rdma = {value: True for key, value in _RDMA_VALUES.items() if driver["rdma"][key]}
    if rdma:
        values["rdma"] = rdma
    environment = _environment(settings["proxy"]) + _fabric_manager(driver["fabric_manager"].get("mode"))
    return {**values, "env": environment} if environment else values


def _sidecar(settings: Object) -> Object:
    """The values of GPUDirect Storage or GDRCopy; empty if the feature is not enabled, because the chart then ignores its version."""
    return {**settings} if settings["enabled"] else {}


def _fabric_manager(mode: str | None) -> list[Object]:
    """The variables for Fabric Manager; the driver container writes variables with this prefix to fabricmanager.cfg (gpu-operator-kubevirt-dra.rst)."""
    if mode is None:
        return []
    options = {"FABRIC_MODE": FABRIC_MODES[mode], "FM_CMD_UNIX_SOCKET_PATH": FABRIC_SOCKET}
    return [{"name": f"NVFM_CONFIG_{name}", "value": value} for name, value in options.items()]


def _environment(proxy: Object) -> list[Object]:
    """The proxy variables in upper and lower case, because programs differ (NVIDIA: Install GPU Operator in Proxy Environments)."""
    variables = {
        "HTTP_PROXY": proxy.get("http"),
        "HTTPS_PROXY": proxy.get("https"),
        "NO_PROXY": ",".join(proxy["no_proxy"]),
    }
    return [
        {"name": spelled, "value": value}
        for name, value in variables.items()
        if value
        for spelled in (name, name.lower())
    ]


def _merged_env(own: list[Object], users: list[Object]) -> list[Object]:
    names = {entry["name"] for entry in users}
    return [entry for entry in own if entry["name"] not in names] + users


# The fields of the ClusterPolicy for a GPU operator that OLM installs, derived from gpu_cluster (pure).
#
# OLM has no Helm values; the same settings are fields of the ClusterPolicy.

# Components of the chart that are not parts of a ClusterPolicy's spec.
_NOT_IN_POLICY = ("operator", "draDriver")


def policy_values(settings: Object) -> Object:
    """The fields of a new ClusterPolicy's spec for gpu_cluster.operator with all defaults; the user's own fields override them."""
    values = operator_values({**settings, "registry": None})
    release = release_of(settings["version"])
    absent = {*_NOT_IN_POLICY, *(part for part, since in POLICY_PARTS_SINCE.items() if release < since)}
    values = {key: value for key, value in values.items() if key not in absent or key in settings["values"]}
    # An operator installed by OLM takes images from its environment. If only a version is set, it builds an image reference without a name, so
    # repository and image must be set as well (gpu-operator internal/image/image.go; issues 202 and 2006).
    for part, (repository, image) in VERSIONED_IMAGES.items():
        if (values.get(part) or {}).get("version"):
            values[part] = {"repository": repository, "image": image, **values[part]}
    return values


# The settings of NFD: the values of its Helm chart, or the spec of its custom resource if OLM installs its operator (pure).

_IMAGE = "nfd/node-feature-discovery"
# NVIDIA's own chart sets these tolerations for the NFD workers (gpu-operator: deployments/gpu-operator/values.yaml).
_CONTROL_PLANE_TOLERATIONS: tuple[Toleration, ...] = tuple(
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Equal", "value": "", "effect": "NoSchedule"}
    for role in ("master", "control-plane")
)


def nfd_values(nfd: Object, operator: Object, tolerations: t.Iterable[Toleration]) -> Object:
    """The settings of NFD for gpu_cluster.nfd and gpu_cluster.operator, both with defaults and installer; `tolerations` are added for the pools' taints."""
    if nfd["installer"] == OLM:
        return _discovery_spec(nfd["values"])
    return _chart_values(operator, nfd["values"], tolerations)


def _chart_values(operator: Object, user_values: Object, tolerations: t.Iterable[Toleration]) -> Object:
    """The values of the operator's own NFD sub-chart, with tolerations for the pools' taints, so that NFD finds their GPUs.

    The image comes from the operator's registry and is pulled with the same Secrets. The user's values override these values,
    but their tolerations are added, because a pool's taint must still be tolerated.
    """
    needed = [dict(toleration) for toleration in (*_CONTROL_PLANE_TOLERATIONS, *tolerations)]
    values: Object = {
        **_image(operator),
        "master": {"extraLabelNs": ["nvidia.com"]},
        "worker": {"config": copy.deepcopy(WORKER_CONFIG), "tolerations": needed},
    }
    values = merge(values, user_values)
    worker = values["worker"]
    if isinstance(worker["tolerations"], list):
        worker["tolerations"] = needed + [extra for extra in worker["tolerations"] if extra not in needed]
    return values


def _discovery_spec(user_spec: Object) -> Object:
    """The fields of a new NodeFeatureDiscovery's spec, without tolerations, which are added to the object.

    workerConfig.configData is a string; the user's own string replaces the derived one.
    """
    spec: Object = {"workerConfig": {"configData": yaml_text.render_yaml(WORKER_CONFIG)}}
    return t.cast("Object", merge(spec, copy.deepcopy(user_spec)))


def _image(operator: Object) -> Object:
    registry, secrets = operator.get("registry"), operator["image_pull_secrets"]
    if not registry:
        return {}
    pull_secrets: Object = {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}
    return {"image": {"repository": f"{registry}/{_IMAGE}"}, **pull_secrets}


# The spec of an NVIDIADriver: the driver settings of the ClusterPolicy, overridden by those of a pool's `driver` (pure).
#
# Source: gpu-operator v25.10.1 deployments/gpu-operator/templates/nvidiadriver.yaml and internal/image/image.go.

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
