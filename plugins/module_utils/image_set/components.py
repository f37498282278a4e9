# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the images that a cluster pulls for the GPU operator and NFD, from rendered charts, a ClusterPolicy and ClusterServiceVersions (pure)."""

from __future__ import annotations

import re
import typing as t

from ..catalog.operands import DRIVER_MANAGER_VARIABLE, OPERANDS, OperandDefinition
from ..common.nested import get_nested

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

DRIVER = "driver"
_WORKLOADS = frozenset({"Deployment", "DaemonSet", "StatefulSet", "Job", "CronJob"})
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class MissingImage(ValueError):
    """The image of a part of the ClusterPolicy is missing or incomplete."""


def workload_images(documents: t.Iterable[Document]) -> dict[str, str]:
    """The images of the pods of rendered workloads, by the name of the workload and of the container. Helm hooks are included."""
    images: dict[str, str] = {}
    for item in documents:
        if item.get("kind") not in _WORKLOADS:
            continue
        spec = get_nested(item, "spec", "template", "spec") or get_nested(
            item, "spec", "jobTemplate", "spec", "template", "spec"
        )
        for container in (*((spec or {}).get("initContainers") or ()), *((spec or {}).get("containers") or ())):
            images[f"{item['metadata']['name']}/{container['name']}"] = container["image"]
    return images


def policy_images(
    spec: Document, suffixes_of: t.Callable[[bool], t.Collection[str]], environment: Document
) -> dict[str, str]:
    """The images of the operands by their part of the ClusterPolicy; drivers have one entry for each suffix, such as driver/rhel9.6.

    `suffixes_of` returns the suffixes; its argument is true for precompiled drivers, whose suffixes contain the kernel.
    `environment` contains the operator's environment variables, which set the images of the other parts.
    """
    images: dict[str, str] = {}
    for part, by_system, variable in _parts(spec):
        if part == DRIVER and get_nested(spec, "driver", "useNvidiaDriverCRD") is True:
            continue
        settings = get_nested(spec, *part.split(".")) or {}
        if by_system:
            images.update(driver_images(part, settings, suffixes_of(part == DRIVER and is_precompiled(settings))))
        else:
            image = _image(settings) or str(environment.get(variable) or "")
            if not image:
                raise MissingImage(
                    f"Neither the ClusterPolicy nor the operator's environment variables name an image for {part}"
                )
            images[part] = image
    return images


def driver_images(part: str, settings: Document, suffixes: t.Collection[str]) -> dict[str, str]:
    """The image of a driver for each operating system; an image with a digest is the same for all of them."""
    image = _image(settings)
    if not image:
        raise MissingImage(f"{part} has no repository, image or version")
    if "@" in image:
        return {part: image}
    return {f"{part}/{suffix}": f"{image}-{suffix}" for suffix in sorted(suffixes)}


def is_precompiled(settings: Document) -> bool:
    """Whether the tag of the driver's image contains the kernel."""
    return settings.get("usePrecompiled") is True


def related_images(csv: Document) -> dict[str, str]:
    """The images of a ClusterServiceVersion: its relatedImages and those of its Deployments."""
    images = {
        str(item.get("name") or item["image"]): str(item["image"])
        for item in get_nested(csv, "spec", "relatedImages") or ()
        if item.get("image")
    }
    known = set(images.values())
    for deployment in get_nested(csv, "spec", "install", "spec", "deployments") or ():
        item = {"kind": "Deployment", "metadata": {"name": deployment["name"]}, "spec": deployment.get("spec") or {}}
        images.update({name: image for name, image in workload_images([item]).items() if image not in known})
    return images


def operator_environment(documents: t.Iterable[Document]) -> dict[str, str]:
    """The environment variables of the operator's container that contain images."""
    return {
        entry["name"]: entry["value"]
        for item in documents
        if item.get("kind") == "Deployment"
        for container in get_nested(item, "spec", "template", "spec", "containers") or ()
        for entry in container.get("env") or ()
        if entry["name"].endswith("_IMAGE") and entry.get("value")
    }


def _parts(spec: Document) -> t.Iterator[tuple[str, bool, str]]:
    """Yield three values for each operand that runs.

    These are the part of the ClusterPolicy with the operand's image, whether the image's tag contains the operating system, and the operator's
    environment variable with the image.
    """
    for operand in OPERANDS:
        if _runs(spec, operand):
            yield operand.part, operand.by_system, operand.variable
            if operand.manager:
                yield f"{operand.part}.{operand.manager}", False, DRIVER_MANAGER_VARIABLE


def _runs(spec: Document, operand: OperandDefinition) -> bool:
    if operand.virtual_machines and get_nested(spec, "sandboxWorkloads", "enabled") is not True:
        return False
    if operand.runs_by_default is None:
        return True
    enabled = get_nested(spec, operand.part, "enabled")
    return operand.runs_by_default if enabled is None else enabled is True


def _image(settings: Document) -> str:
    """The image of a part as the operator composes it; empty if it is incomplete."""
    repository, image, version = (str(settings.get(key) or "") for key in ("repository", "image", "version"))
    if not version:
        # The whole reference may be in `image`.
        return image if not repository and (":" in image or "@" in image) else ""
    if not repository or not image:
        return ""
    return f"{repository}/{image}{'@' if _DIGEST.fullmatch(version) else ':'}{version}"
