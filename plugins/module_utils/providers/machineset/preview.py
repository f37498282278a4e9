# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts which MachineSets will exist after a run of the module machineset (pure).

Previews of changes that depend on MachineSets need this prediction.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...catalog.machine_api import ZONE_LABEL, AutoscalerRules
from ...common.nested import get_nested
from ...kube.metadata import name_of
from ...pools.nodegroup_names import NODE_LABELS
from .machineset_object import LABELS, Object, configured, platform_of_object
from .specs import Cluster, MachineSetSpec, Options, find_machineset, spec_of


def machine_sets_after(
    groups: t.Iterable[Options], machinesets: t.Sequence[Object], rules: AutoscalerRules
) -> list[Object]:
    """The MachineSets that will exist after a run with these node groups. A MachineSet that the run would refuse to change is unchanged.

    The Infrastructure object is not read. If the platform's failure domains are in this object, the declared zone is assumed to be correct.
    """
    cluster = Cluster(machinesets, rules, None)
    after = {name_of(item): item for item in machinesets}
    for group in groups:
        options: Object = {"state": "present", "recreate": False, **group}
        live, problems = find_machineset(options, machinesets, "")
        if problems:
            continue
        spec = _spec(options, live, cluster)
        if spec is None:
            continue
        if live is None:
            after[spec.name] = spec.created(spec.name, spec.desired_count(None) or 0, rules)
        else:
            after[name_of(live)] = configured(live, spec.differences(live, rules), spec.paths, spec.name)
    return list(after.values())


def _spec(options: Options, live: Object | None, cluster: Cluster) -> MachineSetSpec | None:
    """The spec of a group, or None if the run would reject the group."""
    zone = options.get("zone")
    has_domains = any(
        (platform := platform_of_object(item)) and platform.failure_domains for item in cluster.machinesets
    )
    if not has_domains:
        spec, problems, dummy = spec_of(options, live, cluster)
        return None if problems else spec
    spec, problems, dummy = spec_of({**options, "zone": None}, live, cluster)
    if problems:
        return None
    if live is None:
        return dataclasses.replace(spec, zone_labels={ZONE_LABEL: zone} if zone else {})
    # The zone is not known here, and spec_of() would remove recorded zone labels. Existing zone labels are therefore kept.
    platform = platform_of_object(live)
    keys = {*platform.zone_label_keys, *platform.region_label_keys} if platform else set()
    zone_labels = {key: value for key, value in (get_nested(live, *LABELS) or {}).items() if key in keys}
    labels = spec.fields.get(NODE_LABELS)
    fields = {**spec.fields, **({NODE_LABELS: {**labels, **zone_labels}} if labels is not None else {})}
    return dataclasses.replace(spec, fields=fields, zone_labels=zone_labels)
