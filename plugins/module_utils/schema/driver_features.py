# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of GPUDirect RDMA, GPUDirect Storage, GDRCopy and Fabric Manager in gpu_cluster.operator, and the requirements of each.

Sources: gpu-operator-rdma.rst, platform-support.rst and gpu-operator-kubevirt-dra.rst in gpu-operator/ of NVIDIA/cloud-native-docs;
gpu-operator v25.10.1 controllers/object_controls.go (transformPeerMemoryContainer, transformGDSContainer, transformGDRCopyContainer): all three
are containers of the driver's DaemonSet, and the last two are rejected with precompiled drivers.
"""

from __future__ import annotations

import re
import typing as t

from ..catalog import models, releases
from ..common.nested import get_nested
from . import validators
from .driver import effective_driver, newer_fields, operator_driver, pool_model
from .messages import quote
from .types import Boolean, Choice, Document, Field, PoolVariables, Problems, Section, Text

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


_VERSION = Text((_sidecar_version,))
_SIDECAR: dict[str, Field] = {"enabled": Boolean(default=False), "version": _VERSION}
OPERATOR_FEATURES: dict[str, Field] = {"gds": Section(fields=_SIDECAR), "gdrcopy": Section(fields=_SIDECAR)}
DRIVER_FEATURES: dict[str, Field] = {
    "rdma": Section(fields={"enabled": Boolean(default=False), "use_host_mofed": Boolean(default=False)}),
    "fabric_manager": Section(fields={"mode": Choice(known=("full-passthrough", "shared-nvswitch"))}),
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


def feature_driver_problems(cluster: Document) -> Problems:
    """These features must not be set if the operator does not install the driver, because they are part of the driver."""
    if get_nested(cluster, "operator", "driver", "enabled") is not False:
        return
    for keys, remedy in _ON_THE_HOST.items():
        if get_nested(cluster, "operator", *keys) not in (None, False):
            yield (
                f"{_PATH}.{'.'.join(keys)}: has no effect with driver.enabled: false, because the driver pods would provide it; remove it"
                + (f", and {remedy}" if remedy else "")
            )


def sidecar_problems(cluster: Document) -> Problems:
    """gds and gdrcopy must not be enabled with a precompiled driver, because their kernel modules are compiled together with the driver."""
    if get_nested(cluster, "operator", "driver", "precompiled") is not True:
        return
    for key, title in _SIDECARS.items():
        if get_nested(cluster, "operator", key, "enabled") is True:
            yield f"{_PATH}.{key}.enabled: {_not_precompiled(title)}; remove one of them"


def _not_precompiled(title: str) -> str:
    return f"the operator rejects {title} with driver.precompiled: true, because its kernel module is compiled for the driver"


def storage_module_problems(cluster: Document) -> Problems:
    """gds needs the open kernel modules, because nvidia-fs uses symbols that only these modules export."""
    problem = _open_modules_problem(operator_driver(cluster)) if _needs_open_modules(cluster) else ""
    # Operators before v25.3 read this value instead of kernel_module_type.
    is_open = get_nested(cluster, "operator", "values", "driver", "useOpenKernelModules") is True
    if problem and not (is_open and get_nested(cluster, "operator", "driver", "kernel_module_type") in (None, "auto")):
        yield f"{_PATH}.driver.kernel_module_type: {problem}"


def _open_modules_problem(driver: Document) -> str:
    """Why this driver does not have the open kernel modules, as the end of a sentence; empty if it may have them."""
    kind = driver.get("kernel_module_type")
    if kind == "proprietary":
        return f"{quote(kind)} excludes gds, which needs the open kernel modules; set open, or remove gds"
    branch = _driver_branch(driver.get("version"))
    if kind in (None, "auto") and branch and branch < _CHOOSES_OPEN_SINCE:
        return f"is missing; gds needs the open kernel modules, which drivers before {_CHOOSES_OPEN_SINCE} do not choose automatically; set open"
    return ""


def operator_field_problems(cluster: Document) -> Problems:
    """The operator's version must support the fields; an older operator silently ignores them, or the API server drops them."""
    version = get_nested(cluster, "operator", "version")
    yield from newer_fields(_PATH, get_nested(cluster, "operator"), version, releases.OPERATOR_FIELDS_SINCE)


FEATURE_CHECKS: tuple[t.Callable[[Document], Problems], ...] = (
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
    if (
        mode is not None
        and known
        and len(known) == len(pools)
        and not any(model.has_nvswitch for dummy, model in known)
    ):
        yield (
            f"{_PATH}.driver.fabric_manager.mode: no pool has GPUs that NVSwitches connect, so no node runs Fabric Manager; remove it "
            f"(models with NVSwitches: {', '.join(sorted(models.NVSWITCH_MODELS))})"
        )


def _pool_driver_problems(cluster: Document, pool: PoolVariables) -> Problems:
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


def _needs_open_modules(cluster: Document) -> bool:
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
