# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Computes the labels, taints and annotations that a MachineSet gets from its node group (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ...catalog.machine_api import CAPACITY_LABELS, AutoscalerRules
from ...catalog.names import FORMER_TAINTS
from ...pools.nodegroup_names import NODE_LABELS, NODE_TAINTS
from ...pools.scale_from_zero import capacity_annotations, format_labels, parse_labels
from .fields import ANNOTATIONS
from .machineset_object import RECORD_ANNOTATION, annotations_of, format_record, platform_of_object, record_of

Object = dict[str, t.Any]


@dataclass(frozen=True)
class FutureNodeOption:
    """The option `capacity`, which describes a future node of the group.

    resources: the resources that the node will provide, or None if they are not known. labels: the labels that the node will get.
    """

    resources: t.Mapping[str, int] | None
    labels: t.Mapping[str, str]


def complete_registration(
    fields: t.Mapping[str, t.Any],
    zone_labels: t.Mapping[str, str],
    capacity: FutureNodeOption | None,
    machineset: t.Mapping[str, t.Any],
    rules: AutoscalerRules,
) -> Object:
    """The declared labels and taints, completed for this MachineSet, and the MachineSet's annotations.

    The zone's labels are added. An entry that is recorded on the MachineSet but no longer declared gets the value None, which removes it. All other
    entries are kept.
    """
    record = record_of(machineset)
    completed: Object = {}
    own: dict[str, set[str]] = {}
    labels: dict[str, t.Any] = {}
    if NODE_LABELS in fields:
        labels = {**zone_labels, **fields[NODE_LABELS]}
        completed[NODE_LABELS] = {**_dropped(record, "labels", labels), **labels}
        own["labels"] = {key for key, value in labels.items() if value is not None}
    if NODE_TAINTS in fields:
        taints = fields[NODE_TAINTS]
        completed[NODE_TAINTS] = {**_dropped(record, "taints", taints), **taints}
        own["taints"] = {key for key, value in taints.items() if value is not None}
        former_taints = {*record.pop("taints", ()), *record.pop(FORMER_TAINTS, ())} - own["taints"]
        if former_taints:
            own[FORMER_TAINTS] = former_taints
    annotations: dict[str, str | None] = {}
    if capacity is not None:
        existing = annotations_of(machineset)
        former = set(record.get("node_labels", ()))
        if former and CAPACITY_LABELS in existing:
            others = {key: value for key, value in parse_labels(existing[CAPACITY_LABELS]).items() if key not in former}
            existing[CAPACITY_LABELS] = format_labels(others)
        # Since OpenShift 5.0, the autoscaler does not read the labels of the template, so the annotation also contains all of these labels.
        node_labels = {**{key: str(value) for key, value in labels.items() if value is not None}, **capacity.labels}
        computed = capacity_annotations(capacity.resources, node_labels, rules, existing)
        platform = platform_of_object(machineset)
        # Existing values that the platform's controller sets repeatedly are not overwritten.
        from_controller = {key for key in computed if platform and key in platform.controller_annotations}
        computed = {key: value for key, value in computed.items() if key not in from_controller or key not in existing}
        annotations = {**_dropped(record, "annotations", computed), **computed}
        own["annotations"] = {key for key in computed if key not in from_controller}
        own["node_labels"] = set(node_labels)
    if own:
        kept = {kind: set(entries) for kind, entries in record.items() if kind not in own}
        completed[ANNOTATIONS] = {**annotations, RECORD_ANNOTATION: format_record({**kept, **own})}
    return completed


def _dropped(record: t.Mapping[str, t.Iterable[str]], kind: str, declared: t.Collection[str]) -> dict[str, str | None]:
    return dict.fromkeys(sorted(set(record.get(kind, ())) - set(declared)))
