# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts the node that the cluster autoscaler expects from a MachineSet without nodes (pure)."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ..catalog.cluster_autoscaler import group_id
from ..catalog.machine_api import (
    CAPACITY_LABELS,
    CAPACITY_TAINTS,
    GPU_TYPE,
    MEMORY_MB,
    AutoscalerRules,
    is_managed_label,
    platform_of,
    provider_zone_labels,
)
from ..catalog.names import GPU_RESOURCE
from ..catalog.taints import STARTUP_TAINT_PREFIX
from ..common.nested import get_nested
from .ownership import machine_set_owner

Document = t.Mapping[str, t.Any]
Taint = t.Mapping[str, t.Any]

# The notation of quantities (apimachinery, pkg/api/resource). All counts, and the values of the old memory key, are whole numbers.
_QUANTITY = re.compile(r"\+?(\d+\.?\d*|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")
_WHOLE = re.compile(r"\+?\d+")
# The second entry is the older prefix of startup taints (kubernetes/autoscaler, utils/taints).
_IGNORED_TAINTS = (STARTUP_TAINT_PREFIX, "ignore-taint.cluster-autoscaler.kubernetes.io/")
# The notation of a taint in an annotation; other effects are not accepted.
_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:]*))?:(?P<effect>NoSchedule|NoExecute|PreferNoSchedule)")


@dataclass(frozen=True)
class MachineSet:
    """The data that the autoscaler reads from a MachineSet."""

    name: str
    namespace: str
    replicas: int
    annotations: t.Mapping[str, str]
    labels: t.Mapping[str, str]
    taints: tuple[Taint, ...]
    # The labels of the zone in which its machines are created; empty if the MachineSet sets no zone.
    zone_labels: t.Mapping[str, str] = field(default_factory=dict)
    # The annotations that the platform's controller sets repeatedly.
    controller_annotations: frozenset[str] = frozenset()
    # The declared node group that it belongs to according to its mark, or empty.
    owner: str = ""

    @property
    def group_id(self) -> str:
        """The name of the MachineSet's node group."""
        return group_id(self.namespace, self.name)


@dataclass(frozen=True)
class NodeTemplate:
    """The expected node. `missing` contains required annotations that are absent, and `unreadable` contains annotations with an invalid value.

    In both cases, the autoscaler ignores the MachineSet while it has no nodes.
    """

    missing: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    resources: t.Mapping[str, int] = field(default_factory=dict)
    labels: t.Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


def parse_machine_set(raw: Document) -> MachineSet:
    """Parse a MachineSet object; missing fields are empty."""
    metadata = raw.get("metadata") or {}
    template = get_nested(raw, "spec", "template", "spec") or {}
    provider_spec = get_nested(template, "providerSpec", "value") or {}
    platform = platform_of(provider_spec)
    return MachineSet(
        name=metadata.get("name", ""),
        namespace=metadata.get("namespace", ""),
        replicas=_replicas(raw),
        annotations=dict(metadata.get("annotations") or {}),
        labels=dict(get_nested(template, "metadata", "labels") or {}),
        taints=tuple(template.get("taints") or ()),
        zone_labels=provider_zone_labels(provider_spec),
        controller_annotations=platform.controller_annotations if platform else frozenset(),
        owner=(machine_set_owner(raw, new=True) or "") if metadata.get("name") else "",
    )


def node_template(machine_set: MachineSet, rules: AutoscalerRules) -> NodeTemplate:
    """The node that an autoscaler with these rules expects."""
    unreadable: list[str] = []
    amounts = {
        name: _amount(machine_set.annotations, keys, name == "gpu", unreadable)
        for name, keys in (("cpu", rules.cpu), ("memory", rules.memory), ("gpu", rules.gpu_count))
    }
    resource = machine_set.annotations.get(GPU_TYPE, "")
    resource = resource if rules.counts_gpu_type else GPU_RESOURCE
    return NodeTemplate(
        missing=tuple(
            keys[0]
            for name, keys in (("cpu", rules.cpu), ("memory", rules.memory))
            if not amounts[name] and not set(keys) & set(unreadable)
        ),
        unreadable=tuple(unreadable),
        resources={resource: int(amounts["gpu"])} if resource and amounts["gpu"] else {},
        labels=_labels(machine_set, rules),
        taints=tuple(_taints(machine_set)),
    )


def _replicas(raw: Document) -> int:
    """The desired number of replicas; the default is 1 (openshift/api, machine/v1beta1)."""
    replicas = get_nested(raw, "spec", "replicas")
    return 1 if replicas is None else int(replicas)


def _amount(annotations: t.Mapping[str, str], keys: t.Iterable[str], is_whole: bool, unreadable: list[str]) -> float:
    """The amount in the first annotation that is set; 0 if its value is invalid.

    As in the autoscaler, an annotation with the value 0 is skipped for CPU and memory, but not for GPUs.
    """
    for key in keys:
        text = annotations.get(key, "")
        if not text or (text == "0" and not is_whole):
            continue
        pattern = _WHOLE if is_whole or key == MEMORY_MB else _QUANTITY
        match = pattern.fullmatch(text)
        if match is None:
            unreadable.append(key)
            return 0
        return float(match[0]) if pattern is _WHOLE else float(match[1])
    return 0


def _labels(machine_set: MachineSet, rules: AutoscalerRules) -> dict[str, str]:
    """The labels of the template that this release of the autoscaler reads, and the labels in the annotation, which take precedence."""
    labels = {key: value for key, value in machine_set.labels.items() if rules.all_labels or is_managed_label(key)}
    for text in machine_set.annotations.get(CAPACITY_LABELS, "").split(","):
        key, equals, value = text.partition("=")
        if equals:
            labels[key] = value
    return labels


def _taints(machine_set: MachineSet) -> t.Iterator[Taint]:
    """The taints of the template and of the annotation, except startup taints, which the autoscaler removes."""
    annotated = machine_set.annotations.get(CAPACITY_TAINTS, "").split(",")
    matches = [match for text in annotated if (match := _TAINT.fullmatch(text))]
    taints = [*machine_set.taints, *({k: v for k, v in match.groupdict().items() if v} for match in matches)]
    yield from (taint for taint in taints if not str(taint.get("key") or "").startswith(_IGNORED_TAINTS))
