# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The future nodes of a pool, and the annotations from which OpenShift's autoscaler predicts them while the pool has no node (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ..catalog import models
from ..catalog.machine_api import (
    CAPACITY_CPU,
    CAPACITY_LABELS,
    CAPACITY_MEMORY,
    CPU,
    GPU,
    GPU_COUNT,
    GPU_TYPE,
    MEMORY_MB,
    AutoscalerRules,
)
from ..catalog.names import COUNT_LABEL, GPU_PRESENT_LABEL, GPU_RESOURCE, MIG_STRATEGY_LABEL, PCI_PRESENT_LABELS
from ..mig import layout as layouts

if t.TYPE_CHECKING:
    from .plan import PoolPlan

_MIB = 1024 * 1024


@dataclass(frozen=True)
class FutureNode:
    """A node of a pool once its GPUs are configured.

    resources: the amount of each extended resource that it offers; None if it is unknown until a node exists (no number of GPUs, or a demand).
    labels: the labels that NFD and gpu-feature-discovery will set, as far as they are known. accelerator: the value of the label
    cluster-api/accelerator; empty if the node must not have the label, because it never offers nvidia.com/gpu.
    """

    resources: t.Mapping[str, int] | None
    accelerator: str
    labels: t.Mapping[str, str] = field(default_factory=dict)


def future_node(pool: PoolPlan) -> FutureNode:
    """The future node of a pool, from its variables alone."""
    if pool.reason_without_containers:
        return FutureNode({}, "")
    gpus = pool.gpus_per_node or (pool.nodegroup.flavor_gpus if pool.nodegroup else None)
    may_offer_gpus = GPU_RESOURCE in pool.resources
    accelerator = (pool.accelerator or pool.name) if may_offer_gpus else ""
    if gpus is None or pool.sharing.demand:
        return FutureNode(None, accelerator, _present_labels())
    resources = {name: amount for name, amount in pool.sharing.offers(gpus).items() if amount}
    return FutureNode(resources, accelerator, {**_present_labels(), **_discovered_labels(pool, gpus)})


def capacity_annotations(
    resources: t.Mapping[str, int] | None,
    labels: t.Mapping[str, str],
    rules: AutoscalerRules,
    existing: t.Mapping[str, str],
) -> dict[str, str]:
    """The annotations that this collection sets on a MachineSet, for an autoscaler with these rules.

    Both families of annotations are returned, so that they remain correct when the cluster is upgraded. `existing` contains the MachineSet's annotations:
    cpu and memory are copied from those that the platform's controller sets, and other labels in the annotation for labels are kept.
    """
    annotations: dict[str, str] = {}
    if existing.get(CPU):
        annotations[CAPACITY_CPU] = existing[CPU]
    if existing.get(MEMORY_MB, "").isdecimal():
        annotations[CAPACITY_MEMORY] = str(int(existing[MEMORY_MB]) * _MIB)
    if resources is not None:
        resource, amount = rules.countable(resources)
        # The Cluster Autoscaler Operator parses this as a quantity and panics on other text. It is always an amount of nvidia.com/gpu.
        annotations[GPU] = str(resources.get(GPU_RESOURCE, 0))
        annotations[GPU_COUNT], annotations[GPU_TYPE] = str(amount), resource if amount else ""
    if labels:
        annotations[CAPACITY_LABELS] = format_labels({**parse_labels(existing.get(CAPACITY_LABELS, "")), **labels})
    return annotations


def parse_labels(text: str) -> dict[str, str]:
    """The labels in an annotation, as the autoscaler reads them: k=v, separated by commas; other parts are ignored."""
    parts = (part.partition("=") for part in text.split(","))
    return {key.strip(): value.strip() for key, equals, value in parts if equals}


def format_labels(labels: t.Mapping[str, str]) -> str:
    """The text of the annotation with these labels, in a fixed order."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _present_labels() -> dict[str, str]:
    return {GPU_PRESENT_LABEL: "true", PCI_PRESENT_LABELS[0]: "true"}


def _discovered_labels(pool: PoolPlan, gpus: int) -> dict[str, str]:
    """The labels of gpu-feature-discovery; none if the model is not known."""
    model = models.find(pool.model) if pool.model else None
    if model is None:
        return {}
    devices: dict[str, int] = {}
    for index in range(gpus if pool.sharing.layout else 0):
        for profile, count in layouts.on_gpu(pool.sharing.layout, index).items():
            devices[profile] = devices.get(profile, 0) + count
    labels = pool.sharing.definition.labels(pool.sharing, model.product, devices)
    # With the strategy mixed, the labels of the model and of the GPUs that stay whole are not predicted.
    return labels if MIG_STRATEGY_LABEL in labels else {COUNT_LABEL: str(gpus), **labels}
