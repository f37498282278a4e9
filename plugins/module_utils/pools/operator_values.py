# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Helm values, and the image of the validation pods, that follow from gpu_cluster.operator: pure.

They are static: none of them depends on the pools, so that Helm owns them and a change of them goes by helm upgrade.
"""

from __future__ import annotations

import typing as t

from ..catalog.releases import Release, release_of
from ..common.nested import set_nested
from .merge import merge

Document = dict[str, t.Any]

_NEVER: Release = (99, 0)

# The folder of nvcr.io in which the image of each component is, by its path among the values of NVIDIA's chart. A chart
# ignores the values of a component that it does not have. The image of vgpuManager is in no public registry.
# Source: gpu-operator, deployments/gpu-operator/values.yaml of the tags v23.9.2 to v26.7.0.
_FOLDERS: dict[str, str] = {
    "operator": "nvidia",
    "operator.initContainer": "nvidia",
    "validator": "nvidia",
    "driver": "nvidia",
    "driver.manager": "nvidia/cloud-native",
    "toolkit": "nvidia/k8s",
    "devicePlugin": "nvidia",
    "gfd": "nvidia",
    "dcgm": "nvidia/cloud-native",
    "dcgmExporter": "nvidia/k8s",
    "migManager": "nvidia/cloud-native",
    "nodeStatusExporter": "nvidia",
    "gds": "nvidia/cloud-native",
    "gdrcopy": "nvidia/cloud-native",
    "vgpuManager.driverManager": "nvidia/cloud-native",
    "vgpuDeviceManager": "nvidia/cloud-native",
    "vfioManager": "nvidia/cloud-native",
    "vfioManager.driverManager": "nvidia/cloud-native",
    "kataManager": "nvidia/cloud-native",
    "sandboxDevicePlugin": "nvidia",
    "kataSandboxDevicePlugin": "nvidia/cloud-native",
    "ccManager": "nvidia/cloud-native",
    "draDriver": "nvidia",
}
# Where it was before a release.
_BEFORE: tuple[tuple[Release, str, str], ...] = (
    ((25, 10), "validator", "nvidia/cloud-native"),
    ((25, 10), "nodeStatusExporter", "nvidia/cloud-native"),
    ((26, 3), "vfioManager", "nvidia"),
)
# What a release no longer has.
_UNTIL: dict[str, Release] = {"operator.initContainer": (26, 3), "kataManager": (26, 3)}
# Artifacts that kataManager pulls by itself; a list, which Helm replaces as a whole.
_KATA: tuple[tuple[str, dict[str, str], str], ...] = (
    ("kata-nvidia-gpu", {}, "ubuntu22.04-535.54.03"),
    ("kata-nvidia-gpu-snp", {"nvidia.com/cc.capable": "true"}, "ubuntu22.04-535.86.10-snp"),
)
# A manager's init container is pulled with its pod's secrets, and has no field for its own.
_WITHOUT_SECRETS = frozenset({"driver.manager", "vgpuManager.driverManager", "vfioManager.driverManager"})

_NFD_IMAGE = "nfd/node-feature-discovery"
_DRIVER_VALUES = {"version": "version", "kernel_module_type": "kernelModuleType", "secret_env": "secretEnv"}


def operator_values(settings: Document) -> Document:
    """What the completed document gpu_cluster.operator asks of NVIDIA's chart; the user's own values lie on top.

    Variables of the driver's container stay beside the user's, whose own one of the same name wins.
    """
    ours = _images(settings.get("registry"), settings["version"], settings["image_pull_secrets"])
    ours = merge(ours, {"driver": driver} if (driver := _driver(settings)) else {})
    values: Document = merge(ours, settings["values"])
    if isinstance(values.get("driver"), dict) and isinstance(values["driver"].get("env"), list):
        values["driver"] = {
            **values["driver"],
            "env": _joined(ours.get("driver", {}).get("env", []), values["driver"]["env"]),
        }
    return values


def nfd_values(operator: Document) -> Document:
    """What the same document asks of NFD's chart: its images come from the registry too, with the same secrets."""
    registry, secrets = operator.get("registry"), operator["image_pull_secrets"]
    if not registry:
        return {}
    named: Document = {"imagePullSecrets": [{"name": name} for name in secrets]} if secrets else {}
    return {"image": {"repository": f"{registry}/{_NFD_IMAGE}"}, **named}


def mirrored_image(image: str, registry: str | None) -> str:
    """An image of a public registry where the mirror has it: under the same path."""
    return f"{registry}/{image.partition('/')[2]}" if registry else image


def _images(registry: str | None, version: str, secrets: t.Sequence[str]) -> Document:
    values: Document = {}
    folders = _folders(release_of(version))
    if registry:
        for component, folder in folders.items():
            set_nested(values, (*component.split("."), "repository"), f"{registry}/{folder}")
        if "kataManager" in folders:
            set_nested(values, ("kataManager", "config", "runtimeClasses"), _kata(registry, secrets))
    if secrets:
        for component in (*folders, "vgpuManager"):
            if component not in _WITHOUT_SECRETS:
                set_nested(values, (*component.split("."), "imagePullSecrets"), list(secrets))
    return values


def _folders(release: Release) -> dict[str, str]:
    there = {component: folder for component, folder in _FOLDERS.items() if release < _UNTIL.get(component, _NEVER)}
    return {**there, **{component: folder for before, component, folder in _BEFORE if release < before}}


def _kata(registry: str, secrets: t.Sequence[str]) -> list[Document]:
    return [
        {
            "name": name,
            "nodeSelector": dict(selector),
            "artifacts": {
                "url": f"{registry}/nvidia/cloud-native/kata-gpu-artifacts:{tag}",
                "pullSecret": secrets[0] if secrets else "",
            },
        }
        for name, selector, tag in _KATA
    ]


def _driver(settings: Document) -> Document:
    """Only what differs from the chart's own defaults."""
    said = settings["driver"]
    values: Document = {value: said[key] for key, value in _DRIVER_VALUES.items() if key in said}
    if not said["enabled"]:
        values["enabled"] = False
    if said["precompiled"]:
        values["usePrecompiled"] = True
    if settings.get("repo_config"):
        values["repoConfig"] = {"configMapName": settings["repo_config"]}
    if settings.get("cert_config"):
        values["certConfig"] = {"name": settings["cert_config"]}
    environment = _environment(settings["proxy"])
    return {**values, "env": environment} if environment else values


def _environment(proxy: Document) -> list[Document]:
    """Each variable in both spellings, since programs differ (NVIDIA: Install GPU Operator in Proxy Environments)."""
    said = {
        "HTTP_PROXY": proxy.get("http"),
        "HTTPS_PROXY": proxy.get("https"),
        "NO_PROXY": ",".join(proxy["no_proxy"]),
    }
    return [
        {"name": spelled, "value": value} for name, value in said.items() if value for spelled in (name, name.lower())
    ]


def _joined(ours: list[Document], theirs: list[t.Any]) -> list[t.Any]:
    named = {entry.get("name") for entry in theirs if isinstance(entry, dict)}
    return [entry for entry in ours if entry["name"] not in named] + theirs
