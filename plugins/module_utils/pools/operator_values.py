# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Derives the Helm values, and the image of the validation pods, from gpu_cluster.operator (pure).

No Helm value depends on the pools. Therefore, Helm owns these values, and changing them requires a Helm upgrade.
"""

from __future__ import annotations

import typing as t

from ..catalog.distributions import BY_NAME, CONFIG_VARIABLES, Distribution
from ..catalog.releases import COMPONENTS_WITHOUT_SECRETS, image_folders
from ..common.nested import get_nested, set_nested
from ..schema.driver_features import FABRIC_MODES, FABRIC_SOCKET
from ..schema.types import Document
from .variables import merge

# Artifacts that kataManager pulls; Helm replaces a list as a whole.
_KATA_ARTIFACTS: tuple[tuple[str, dict[str, str], str], ...] = (
    ("kata-nvidia-gpu", {}, "ubuntu22.04-535.54.03"),
    ("kata-nvidia-gpu-snp", {"nvidia.com/cc.capable": "true"}, "ubuntu22.04-535.86.10-snp"),
)

_DRIVER_VALUES = {"version": "version", "kernel_module_type": "kernelModuleType", "secret_env": "secretEnv"}
_RDMA_VALUES = {"enabled": "enabled", "use_host_mofed": "useHostMofed"}


def operator_values(settings: Document, distribution: str | None = None) -> Document:
    """The values of NVIDIA's chart for gpu_cluster.operator with all defaults; the user's own values override them.

    The environment variables of the driver and toolkit containers are merged with the user's variables by name.
    """
    own = _images(settings.get("registry"), settings["version"], settings["image_pull_secrets"])
    driver = _driver(settings)
    own = merge(own, {"driver": driver} if driver else {})
    own = merge(own, {key: sidecar for key in ("gds", "gdrcopy") if (sidecar := _sidecar(settings[key]))})
    values: Document = merge(own, settings["values"])
    users = get_nested(settings, "values", "driver", "env")
    # An empty list is also merged, so it does not remove the proxy.
    if users is not None:
        values["driver"] = {**values["driver"], "env": _merged_env(driver.get("env", []), users)}
    return with_values(values, declared_distribution_values(settings, distribution))


def declared_distribution_values(settings: Document, distribution: str | None) -> Document:
    """The values that operator_values() adds for the declared distribution."""
    return distribution_values(BY_NAME[distribution], settings["version"], settings["values"]) if distribution else {}


def distribution_values(distribution: Distribution, operator_version: str, values: t.Mapping[str, t.Any]) -> Document:
    """The values that the chart needs for a declared or detected distribution, without settings that `values` already contains."""
    return toolkit_values(_toolkit_env(distribution, operator_version, values))


def toolkit_values(env: t.Sequence[Document]) -> Document:
    """The chart's values that set these environment variables of the container toolkit."""
    return {"toolkit": {"env": list(env)}} if env else {}


def _toolkit_env(distribution: Distribution, operator_version: str, values: t.Mapping[str, t.Any]) -> list[Document]:
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


def with_values(values: t.Mapping[str, t.Any], added: t.Mapping[str, t.Any]) -> Document:
    """The values merged with those of a distribution, whose list entries come first, as with combine(list_merge='prepend') in the role."""
    result = dict(values)
    for key, value in added.items():
        if isinstance(value, dict):
            result[key] = with_values(result.get(key) or {}, value)
        else:
            result[key] = [*value, *(result.get(key) or ())] if isinstance(value, list) else value
    return result


def without_values(values: t.Mapping[str, t.Any], added: t.Mapping[str, t.Any]) -> Document:
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


def _images(registry: str | None, version: str, secrets: t.Sequence[str]) -> Document:
    values: Document = {}
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


def _kata_artifacts(registry: str, secrets: t.Sequence[str]) -> list[Document]:
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


def _driver(settings: Document) -> Document:
    """The driver's values that differ from the chart's own defaults."""
    driver = settings["driver"]
    values: Document = {value: driver[key] for key, value in _DRIVER_VALUES.items() if key in driver}
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


def _sidecar(settings: Document) -> Document:
    """The values of GPUDirect Storage or GDRCopy; empty if the feature is not enabled, because the chart then ignores its version."""
    return {**settings} if settings["enabled"] else {}


def _fabric_manager(mode: str | None) -> list[Document]:
    """The variables for Fabric Manager; the driver container writes variables with this prefix to fabricmanager.cfg (gpu-operator-kubevirt-dra.rst)."""
    if mode is None:
        return []
    options = {"FABRIC_MODE": FABRIC_MODES[mode], "FM_CMD_UNIX_SOCKET_PATH": FABRIC_SOCKET}
    return [{"name": f"NVFM_CONFIG_{name}", "value": value} for name, value in options.items()]


def _environment(proxy: Document) -> list[Document]:
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


def _merged_env(own: list[Document], users: list[Document]) -> list[Document]:
    names = {entry["name"] for entry in users}
    return [entry for entry in own if entry["name"] not in names] + users
