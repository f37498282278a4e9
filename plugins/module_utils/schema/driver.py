# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The schema of a pool's `driver`, which an NVIDIADriver object installs on the pool's nodes, and checks that combine several fields of `driver`.

Sources: gpu-operator api/nvidia/v1alpha1/nvidiadriver_types.go (tags v24.9.2 to v26.7.0), and internal/state/driver.go.
"""

from __future__ import annotations

import re
import typing as t

from ..catalog import models, releases
from ..common.nested import get_nested
from . import validators
from .messages import quote
from .rollout import NodeAmount
from .types import (
    MAX_NODES,
    Boolean,
    Choice,
    Document,
    ListOf,
    PoolVariables,
    Problems,
    Section,
    Text,
    integer_between,
)

GPU_TYPE, VGPU_TYPE = "gpu", "vgpu"
KERNEL_MODULE_TYPES = ("auto", "open", "proprietary")

DRIVER = Section(
    default=None,
    keys_declare=True,
    fields={
        "type": Choice(known=(GPU_TYPE, VGPU_TYPE)),
        "version": Text((validators.driver_version,)),
        "repository": Text((validators.registry,)),
        "image": Text((validators.image_name,)),
        "kernel_module_type": Choice(known=KERNEL_MODULE_TYPES),
        "precompiled": Boolean(),
        "image_pull_secrets": ListOf(default=None, item=Text((validators.object_name,))),
        "secret_env": Text((validators.object_name,)),
        "repo_config": Text((validators.object_name,)),
        "cert_config": Text((validators.object_name,)),
        "kernel_module_config": Text((validators.object_name,)),
        "licensing_secret": Text((validators.object_name,)),
        "upgrade": Section(
            default=None,
            fields={
                "automatic": Boolean(),
                "max_parallel": integer_between(
                    0,
                    MAX_NODES,
                    "set 0 (no limit) or more",
                    f"a cluster has at most {MAX_NODES} nodes; set 0 for no limit",
                ),
                "max_unavailable": NodeAmount(),
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


def driver_of_values(values: t.Any) -> Document:
    """The driver settings in the operator's Helm values, with the keys of a pool's `driver`."""
    driver = get_nested(values, "driver")
    return {key: value for key, name in _VALUES.items() if (value := get_nested(driver, name)) is not None}


def operator_driver(cluster: t.Any) -> Document:
    """The driver settings of gpu_cluster.operator, with the same keys; its Helm values take precedence."""
    operator = get_nested(cluster, "operator")
    declared = get_nested(operator, "driver")
    of_keys = {key: value for key in _VALUES if (value := get_nested(declared, key)) is not None}
    return {**of_keys, **driver_of_values(get_nested(operator, "values"))}


def effective_driver(inherited: Document, declared: t.Any) -> Document:
    """The driver settings for the nodes of a pool; settings that its `driver` does not declare are inherited from the operator's driver."""
    own = declared if isinstance(declared, dict) else {}
    return {**inherited, **{key: value for key, value in own.items() if value is not None}}


def module_type_problem(driver: Document, model: models.Model | None) -> str:
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


def _image_problems(path: str, driver: t.Mapping[str, t.Any], inherited: Document) -> Problems:
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


def _precompiled_problems(path: str, driver: t.Mapping[str, t.Any], inherited: Document) -> Problems:
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
