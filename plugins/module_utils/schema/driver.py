# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of a pool or a cluster, as it is declared."""

from __future__ import annotations

import re
import typing as t

from ..catalog import models, releases
from ..core.messages import quote
from ..core.types import (
    MAX_NODES,
    Boolean,
    Choice,
    Field,
    ListOf,
    PoolVariables,
    Problems,
    Section,
    Text,
    integer_between,
)
from ..core.values import Object, get_nested
from . import validators
from .validators import NodeAmount

# The schema of a pool's `driver`, which an NVIDIADriver object installs on the pool's nodes, and checks that combine several fields of `driver`.
#
# Sources: gpu-operator api/nvidia/v1alpha1/nvidiadriver_types.go (tags v24.9.2 to v26.7.0), and internal/state/driver.go.

GPU_TYPE, VGPU_TYPE = "gpu", "vgpu"
KERNEL_MODULE_TYPES = ("auto", "open", "proprietary")

DRIVER = Section(
    doc="The driver of the nodes, if pools need different drivers. If at least one pool declares this key, NVIDIADriver objects, instead of the "
    "ClusterPolicy, describe the drivers of all pools. Pools without C(driver) use the values of the ClusterPolicy. Keys that a pool does not declare "
    "also use the values of the ClusterPolicy. With an empty map, all keys use the values of the ClusterPolicy. A change restarts the driver only on the "
    "nodes of the changed pool. The change is held back until you allow it with C(gpu_operator_allow_driver_rollout).",
    default=None,
    keys_declare=True,
    fields={
        "type": Choice(
            doc="The type of driver. V(vgpu) is the guest driver for virtual machines with a vGPU. By default, V(gpu). The type cannot be changed later.",
            known=(GPU_TYPE, VGPU_TYPE),
        ),
        "version": Text(
            (validators.driver_version,),
            doc="The bare version, such as V(580.105.08), or C(sha256:) followed by a digest. The operator appends the operating system of the node.",
        ),
        "repository": Text(
            (validators.registry,),
            doc="The registry and path of the driver image, such as V(nvcr.io/nvidia). Required if C(type) is V(vgpu).",
        ),
        "image": Text((validators.image_name,), doc="The name of the image in the repository. By default, V(driver)."),
        "kernel_module_type": Choice(
            doc="The type of kernel modules to build. This type must support the GPU model that the pool declares. Requires operator v25.3 or later.",
            known=KERNEL_MODULE_TYPES,
        ),
        "precompiled": Boolean(
            doc='Whether an image with a precompiled driver is used. If V(true), C(version) must be the driver branch, such as V("580"). The value of '
            "C(precompiled) cannot be changed later."
        ),
        "image_pull_secrets": ListOf(
            doc="Names of the Secrets that are used to pull the image. The operator's namespace must contain these Secrets.",
            default=None,
            item=Text((validators.object_name,)),
        ),
        "secret_env": Text(
            (validators.object_name,),
            doc="Name of the Secret whose keys become environment variables of the driver container. Requires operator v25.10 or later.",
        ),
        "repo_config": Text(
            (validators.object_name,), doc="Name of the ConfigMap with the package sources of the driver container."
        ),
        "cert_config": Text(
            (validators.object_name,),
            doc="Name of the ConfigMap with the CA certificates that the driver container trusts.",
        ),
        "kernel_module_config": Text(
            (validators.object_name,), doc="Name of the ConfigMap with the parameters of the kernel modules."
        ),
        "licensing_secret": Text(
            (validators.object_name,),
            doc="Name of the Secret with the configuration and the token of the NVIDIA License System. Only allowed if C(type) is V(vgpu). Requires "
            "operator v25.10 or later. Without this key, a pool uses the Secret that is named in the ClusterPolicy, which must also set C(nlsEnabled) to "
            "V(true).",
        ),
        "upgrade": Section(
            doc="How the operator replaces the driver on the nodes of the pool. Requires operator v26.7 or later; in earlier releases, "
            "C(driver.upgradePolicy) of the ClusterPolicy applies to all nodes.",
            default=None,
            fields={
                "automatic": Boolean(
                    doc="Whether the operator upgrades the driver node by node. With V(false), each node keeps its driver until its driver pod is "
                    "deleted. By default, V(true)."
                ),
                "max_parallel": integer_between(
                    0,
                    MAX_NODES,
                    "set 0 (no limit) or more",
                    f"a cluster has at most {MAX_NODES} nodes; set 0 for no limit",
                    doc="Number of nodes that are upgraded at the same time. With V(0), there is no limit. By default, V(1).",
                ),
                "max_unavailable": NodeAmount(
                    doc='Number of nodes, or a percentage, that may be unavailable during the upgrade. By default, V("25%").'
                ),
            },
        ),
    },
)
# The keys that a precompiled driver does not use.
BUILD_KEYS = ("secret_env", "repo_config", "cert_config")
# The keys that checks also read from the Helm values, and their names there.
_VALUES = {
    "version": "version",
    "repository": "repository",
    "kernel_module_type": "kernelModuleType",
    "precompiled": "usePrecompiled",
}
# The longest name of an image (github.com/distribution/reference).
_MAX_IMAGE_NAME = 255
_CRD_VALUES = ("driver", "nvidiaDriverCRD")


def driver_of_values(values: t.Any) -> Object:
    """The driver settings in the operator's Helm values, with the keys of a pool's `driver`."""
    driver = get_nested(values, "driver")
    return {key: value for key, name in _VALUES.items() if (value := get_nested(driver, name)) is not None}


def operator_driver(cluster: t.Any) -> Object:
    """The driver settings of gpu_cluster.operator, with the same keys; its Helm values take precedence."""
    operator = get_nested(cluster, "operator")
    declared = get_nested(operator, "driver")
    of_keys = {key: value for key in _VALUES if (value := get_nested(declared, key)) is not None}
    return {**of_keys, **driver_of_values(get_nested(operator, "values"))}


def effective_driver(inherited: Object, declared: t.Any) -> Object:
    """The driver settings for the nodes of a pool; settings that its `driver` does not declare are inherited from the operator's driver."""
    own = declared if isinstance(declared, dict) else {}
    return {**inherited, **{key: value for key, value in own.items() if value is not None}}


def module_type_problem(driver: Object, model: models.Model | None) -> str:
    """Why this driver's kernel modules do not support a GPU model, as the end of a sentence; empty if they do, or if it is unknown whether they do."""
    kind = driver.get("kernel_module_type")
    needed = model.kernel_modules if model else ""
    if kind not in ("open", "proprietary") or needed in ("", kind) or model is None:
        return ""
    return f"{quote(kind)} kernel modules do not support the GPUs {model.key}; set {needed}, or auto"


def pool_model(pool: PoolVariables) -> models.Model | None:
    """The GPU model that a pool declares."""
    name = get_nested(pool.merged, "match", "model") or get_nested(pool.merged, "model")
    return models.find(name) if isinstance(name, str) else None


def version_problem(version: t.Any, precompiled: t.Any) -> str | None:
    """Why a version is invalid: a precompiled driver needs a branch, and any other driver needs a full version. None if it is valid."""
    if not isinstance(version, str) or precompiled not in (None, True, False):
        return None
    branch = re.fullmatch(r"[0-9]+", version)
    if branch and not precompiled:
        remedy = "use the full version, such as 580.105.08, or set precompiled: true for a precompiled driver"
        return f"{quote(version)} is only a branch; {remedy}"
    if precompiled and not branch:
        remedy = f"use {version.partition('.')[0]}" if version[0].isdecimal() and "." in version else "use a branch"
        return f"{quote(version)} is not a branch, but precompiled drivers are named by branch; {remedy}"
    return None


def driver_problems(cluster: t.Any, pool: PoolVariables) -> Problems:
    """The problems in a pool's driver, both on its own and in combination with the operator's settings."""
    driver = get_nested(pool.merged, "driver")
    if not isinstance(driver, dict):
        return
    path = f"{pool.path}.driver"
    operator = get_nested(cluster, "operator")
    if get_nested(operator, "driver", "enabled") is False:
        yield f"{path}: has no effect with gpu_cluster.operator.driver.enabled: false; remove one of them"
    yield from _image_problems(path, driver, operator_driver(cluster))
    yield from _precompiled_problems(path, driver, operator_driver(cluster))
    if problem := module_type_problem(effective_driver(operator_driver(cluster), driver), pool_model(pool)):
        yield f"{path}.kernel_module_type: {problem}"
    yield from _vgpu_problems(path, driver)
    yield from newer_fields(path, driver, get_nested(operator, "version"), releases.POOL_DRIVER_FIELDS_SINCE)
    declared = get_nested(operator, "values", *_CRD_VALUES)
    if isinstance(declared, dict) and (
        declared.get("enabled") is not True or declared.get("deployDefaultCR") is not False
    ):
        remedy = "remove gpu_cluster.operator.values.driver.nvidiaDriverCRD, or set enabled: true and deployDefaultCR: false there"
        yield f"{path}: the chart's own NVIDIADriver would select the same nodes, which the operator rejects; {remedy}"


def _image_problems(path: str, driver: t.Mapping[str, t.Any], inherited: Object) -> Problems:
    """The problems in the image's fields that would otherwise be noticed only when a node pulls the image."""
    repository = effective_driver(inherited, driver).get("repository") or releases.DRIVER_IMAGE[0]
    image = driver.get("image") or releases.DRIVER_IMAGE[1]
    if isinstance(repository, str) and isinstance(image, str):
        length = len(f"{repository}/{image}")
        if length > _MAX_IMAGE_NAME and (driver.get("repository") or driver.get("image")):
            key = "image" if driver.get("image") else "repository"
            yield (
                f"{path}.{key}: repository and image have {length} characters together; a container runtime accepts at most {_MAX_IMAGE_NAME}"
            )
    secrets = driver.get("image_pull_secrets")
    secrets = secrets if isinstance(secrets, list) else []
    for index, name in enumerate(secrets):
        if name in secrets[:index]:
            yield f"{path}.image_pull_secrets[{index}]: {quote(name)} is listed twice; remove one of them"


def _precompiled_problems(path: str, driver: t.Mapping[str, t.Any], inherited: Object) -> Problems:
    own = driver.get("precompiled")
    precompiled = effective_driver(inherited, driver).get("precompiled")
    reason = version_problem(driver.get("version"), precompiled)
    if reason:
        yield f"{path}.version: {reason}"
    if own in (True, False) and bool(inherited.get("precompiled")) != own and driver.get("version") is None:
        example = '"580"' if own else "580.105.08"
        yield f"{path}.version: is missing; precompiled: {quote(own)} needs a version, such as {example}"
    if precompiled is True:
        for key in BUILD_KEYS:
            if driver.get(key) is not None:
                yield f"{path}.{key}: has no effect with precompiled: true; remove it"


def _vgpu_problems(path: str, driver: t.Mapping[str, t.Any]) -> Problems:
    if driver.get("type") == VGPU_TYPE:
        if driver.get("repository") is None:
            yield f"{path}.repository: is missing; NVIDIA publishes no image of the vGPU driver, so set the registry of your image"
        if driver.get("precompiled") is True:
            yield f"{path}.precompiled: is not available with type: {VGPU_TYPE}; remove it"
    elif driver.get("licensing_secret") is not None and driver.get("type") in (None, GPU_TYPE):
        yield f"{path}.licensing_secret: has no effect without type: {VGPU_TYPE}; remove it, or set the type"


def newer_fields(
    path: str, document: t.Any, version: t.Any, since: t.Mapping[tuple[str, ...], releases.Release]
) -> Problems:
    """The problems of fields below this path that are set but not supported by this operator version; None means the default version."""
    version = releases.OPERATOR_VERSION if version is None else version
    if not isinstance(version, str):
        return
    for keys, release in since.items():
        if get_nested(document, *keys) not in (None, False) and releases.release_of(version) < release:
            added = f"it was added in v{release[0]}.{release[1]}; remove it, or install that release or a later one"
            yield f"{path}.{'.'.join(keys)}: is not supported by operator {version}; {added}"


# The schema of GPUDirect RDMA, GPUDirect Storage, GDRCopy and Fabric Manager in gpu_cluster.operator, and the requirements of each.
#
# Sources: gpu-operator-rdma.rst, platform-support.rst and gpu-operator-kubevirt-dra.rst in gpu-operator/ of NVIDIA/cloud-native-docs;
# gpu-operator v25.10.1 controllers/object_controls.go (transformPeerMemoryContainer, transformGDSContainer, transformGDRCopyContainer): all three
# are containers of the driver's DaemonSet, and the last two are rejected with precompiled drivers.

_PATH = "gpu_cluster.operator"
# The numbers of a driver version, a driver branch, or an nvidia-fs release.
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)(?:-.*)?", re.ASCII)
# nvidia-fs 2.17.5 and later releases need the open kernel modules; the operator has shipped one of them since v23.9.1 (gpu-operator-rdma.rst).
_OPEN_SINCE = (2, 17, 5)
# The first driver branch that automatically chooses the open kernel modules if kernel_module_type is auto (platform-support.rst).
_CHOOSES_OPEN_SINCE = 570


def _sidecar_version(value: str) -> str | None:
    """Accepts a version of nvidia-fs or gdrdrv, without the operating system, which the operator appends."""
    if re.fullmatch(r"v?[0-9]+(\.[0-9]+){1,3}|sha256:[0-9a-f]{64}", value, re.ASCII):
        return None
    return (
        validators.os_tag(value)
        or "is not a version; write only its numbers, such as 2.26.6, or sha256: and the digest of an image"
    )


def _sidecar(doc: str, enabled: str, version: str) -> Section:
    fields = {"enabled": Boolean(doc=enabled, default=False), "version": Text((_sidecar_version,), doc=version)}
    return Section(doc=doc, fields=fields)


OPERATOR_FEATURES: dict[str, Field] = {
    "gds": _sidecar(
        "GPUDirect Storage. It requires a driver that is compiled on the nodes, and the open kernel modules. These modules do not support GPUs older "
        "than Turing.",
        "Whether the driver pods load nvidia-fs.",
        "The bare version of nvidia-fs, such as V(2.26.6). By default, the version in the chart.",
    ),
    "gdrcopy": _sidecar(
        "GDRCopy. It requires a driver that is compiled on the nodes.",
        "Whether the driver pods load gdrdrv.",
        "The bare version of gdrdrv, such as V(v2.5.1). By default, the version in the chart.",
    ),
}
DRIVER_FEATURES: dict[str, Field] = {
    "rdma": Section(
        doc="GPUDirect RDMA through the kernel module nvidia-peermem. NVIDIA recommends DMA-BUF instead. If the Network Operator installs the network "
        "drivers, DMA-BUF requires neither C(enabled) nor C(use_host_mofed).",
        fields={
            "enabled": Boolean(
                doc="Whether the driver pods load nvidia-peermem. The pods then wait for the drivers of the network adapters.",
                default=False,
            ),
            "use_host_mofed": Boolean(
                doc="Whether MLNX_OFED or DOCA-OFED is installed on the nodes. If V(false), the Network Operator installs the network drivers.",
                default=False,
            ),
        },
    ),
    "fabric_manager": Section(
        doc="Fabric Manager. On nodes with NVSwitches, the driver pods run the Fabric Manager version that matches the driver.",
        fields={
            "mode": Choice(
                doc="The mode of Fabric Manager. V(shared-nvswitch) divides the NVSwitch fabric into partitions, which the DRA driver activates for "
                "virtual machines. By default, the driver image sets V(full-passthrough). Requires operator v26.7 or later.",
                known=("full-passthrough", "shared-nvswitch"),
            )
        },
    ),
}
_SIDECARS = {"gds": "GPUDirect Storage", "gdrcopy": "GDRCopy"}
# The values of FABRIC_MODE in fabricmanager.cfg (Fabric Manager user guide).
FABRIC_MODES = {"full-passthrough": "0", "shared-nvswitch": "1"}
# The socket at which the DRA driver activates partitions (gpu-operator-kubevirt-dra.rst).
FABRIC_SOCKET = "/run/nvidia-fabricmanager/socket"

# What to do on the nodes instead if a feature is needed and the operator does not install the driver.
_ON_THE_HOST = {
    ("driver", "rdma", "enabled"): "load nvidia-peermem on the nodes instead",
    ("driver", "rdma", "use_host_mofed"): "",
    ("driver", "fabric_manager", "mode"): "configure /usr/share/nvidia/nvswitch/fabricmanager.cfg on the nodes instead",
    (
        "gds",
        "enabled",
    ): "install nvidia-fs on the nodes instead, and set GDS_ENABLED=true in devicePlugin.env of values",
    (
        "gdrcopy",
        "enabled",
    ): "install gdrdrv on the nodes instead, and set GDRCOPY_ENABLED=true in devicePlugin.env of values",
}


def feature_driver_problems(cluster: Object) -> Problems:
    """These features must not be set if the operator does not install the driver, because they are part of the driver."""
    if get_nested(cluster, "operator", "driver", "enabled") is not False:
        return
    for keys, remedy in _ON_THE_HOST.items():
        if get_nested(cluster, "operator", *keys) not in (None, False):
            yield (
                f"{_PATH}.{'.'.join(keys)}: has no effect with driver.enabled: false, because the driver pods would provide it; remove it"
                + (f", and {remedy}" if remedy else "")
            )


def sidecar_problems(cluster: Object) -> Problems:
    """gds and gdrcopy must not be enabled with a precompiled driver, because their kernel modules are compiled together with the driver."""
    if get_nested(cluster, "operator", "driver", "precompiled") is not True:
        return
    for key, title in _SIDECARS.items():
        if get_nested(cluster, "operator", key, "enabled") is True:
            yield f"{_PATH}.{key}.enabled: {_not_precompiled(title)}; remove one of them"


def _not_precompiled(title: str) -> str:
    return f"the operator rejects {title} with driver.precompiled: true, because its kernel module is compiled for the driver"


def storage_module_problems(cluster: Object) -> Problems:
    """gds needs the open kernel modules, because nvidia-fs uses symbols that only these modules export."""
    problem = _open_modules_problem(operator_driver(cluster)) if _needs_open_modules(cluster) else ""
    # Operators before v25.3 read this value instead of kernel_module_type.
    is_open = get_nested(cluster, "operator", "values", "driver", "useOpenKernelModules") is True
    if problem and not (is_open and get_nested(cluster, "operator", "driver", "kernel_module_type") in (None, "auto")):
        yield f"{_PATH}.driver.kernel_module_type: {problem}"


def _open_modules_problem(driver: Object) -> str:
    """Why this driver does not have the open kernel modules, as the end of a sentence; empty if it may have them."""
    kind = driver.get("kernel_module_type")
    if kind == "proprietary":
        return f"{quote(kind)} excludes gds, which needs the open kernel modules; set open, or remove gds"
    branch = _driver_branch(driver.get("version"))
    if kind in (None, "auto") and branch and branch < _CHOOSES_OPEN_SINCE:
        return f"is missing; gds needs the open kernel modules, which drivers before {_CHOOSES_OPEN_SINCE} do not choose automatically; set open"
    return ""


def operator_field_problems(cluster: Object) -> Problems:
    """The operator's version must support the fields; an older operator silently ignores them, or the API server drops them."""
    version = get_nested(cluster, "operator", "version")
    yield from newer_fields(_PATH, get_nested(cluster, "operator"), version, releases.OPERATOR_FIELDS_SINCE)


FEATURE_CHECKS: tuple[t.Callable[[Object], Problems], ...] = (
    feature_driver_problems,
    sidecar_problems,
    storage_module_problems,
    operator_field_problems,
)


def driver_feature_problems(cluster: t.Any, pools: t.Sequence[PoolVariables]) -> Problems:
    """The problems of pools whose driver excludes a feature that is enabled for the whole cluster, or whose GPUs cannot use it."""
    if not isinstance(cluster, dict):
        return
    for pool in pools:
        yield from _pool_driver_problems(cluster, pool)
    known = [(pool, model) for pool in pools if (model := pool_model(pool))]
    if _needs_open_modules(cluster):
        for pool, model in known:
            if model.kernel_modules == "proprietary":
                yield (
                    f"{_PATH}.gds.enabled: {pool.title} has GPUs {model.key}, which the open kernel modules do not support, but GPUDirect Storage "
                    "needs these modules on every node with a driver pod; remove gds, or the pool"
                )
    mode = get_nested(cluster, "operator", "driver", "fabric_manager", "mode")
    if mode is not None and known and len(known) == len(pools) and not any(model.nvswitch for dummy, model in known):
        yield (
            f"{_PATH}.driver.fabric_manager.mode: no pool has GPUs that NVSwitches connect, so no node runs Fabric Manager; remove it "
            f"(models with NVSwitches: {', '.join(sorted(model.key for model in models.MODELS if model.nvswitch))})"
        )


def _pool_driver_problems(cluster: Object, pool: PoolVariables) -> Problems:
    """The conflicts between a feature and this pool's `driver`; FEATURE_CHECKS check the operator's own driver."""
    declared = get_nested(pool.merged, "driver")
    if not isinstance(declared, dict):
        return
    inherited = operator_driver(cluster)
    driver = effective_driver(inherited, declared)
    if driver.get("precompiled") is True and inherited.get("precompiled") is not True:
        for key, title in _SIDECARS.items():
            if get_nested(cluster, "operator", key, "enabled") is True:
                yield f"{pool.path}.driver.precompiled: {_not_precompiled(title)}; remove it, or {_PATH}.{key}"
    if _needs_open_modules(cluster) and any(declared.get(key) is not None for key in ("version", "kernel_module_type")):
        problem = _open_modules_problem(driver)
        if problem and driver.get("kernel_module_type") == inherited.get("kernel_module_type") == "proprietary":
            # The same problem is reported for the operator's field.
            return
        if problem:
            yield f"{pool.path}.driver.kernel_module_type: {problem}"


def _needs_open_modules(cluster: Object) -> bool:
    if get_nested(cluster, "operator", "gds", "enabled") is not True:
        return False
    version = get_nested(cluster, "operator", "gds", "version")
    match = _NUMBERS.fullmatch(version) if isinstance(version, str) else None
    return match is None or tuple(map(int, match[1].split("."))) >= _OPEN_SINCE


def _driver_branch(version: t.Any) -> int | None:
    match = _NUMBERS.fullmatch(version) if isinstance(version, str) else None
    if match:
        return int(match[1].partition(".")[0])
    return None
