# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restores a ClusterPolicy that is kept, and finds DaemonSets that have not followed yet (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER
from ..catalog.taints import toleration_identity
from ..cluster_state.cluster_policy import (
    policy_tolerations,
    recorded_previous_spec,
    recorded_tolerations,
    restore_previous_spec,
)
from ..common.nested import merge_patch
from ..kube.diff import without
from ..kube.managed_fields import Tree, child, owned_by, owned_by_others

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_DAEMONSETS, _TOLERATIONS = "daemonsets", "tolerations"


@dataclass(frozen=True)
class PolicyRestoration:
    """One merge patch of the spec (None: nothing to restore); before and after contain the differences.

    `reaches_driver`: entries of daemonsets.tolerations are removed, which rolls the driver.
    """

    patch: Object | None
    before: Object
    after: Object
    reaches_driver: bool = False


def restore_policy(live: Document, *, hold_driver: bool = False) -> PolicyRestoration:
    """Remove the fields that only we have written and our tolerations, and restore the recorded previous values.

    The list of tolerations is one field for the server. With hold_driver it stays, together with the record of our entries.
    """
    spec: Object = dict(live.get("spec") or {})
    own, foreign = child(owned_by(live, FIELD_MANAGER), "spec"), child(owned_by_others(live, FIELD_MANAGER), "spec")
    restored: Object = without(spec, _without_tolerations(own), foreign)
    current = policy_tolerations(live)
    recorded = {toleration_identity(item) for item in recorded_tolerations(live) or ()}
    kept = [item for item in current if toleration_identity(item) not in recorded]
    reaches_driver = len(kept) != len(current)
    if reaches_driver and not hold_driver:
        daemonsets = {key: value for key, value in (restored.get(_DAEMONSETS) or {}).items() if key != _TOLERATIONS}
        restored = {**restored, _DAEMONSETS: {**daemonsets, **({_TOLERATIONS: kept} if kept else {})}}
    restored = restore_previous_spec(restored, recorded_previous_spec(live))
    before, after = _differences(spec, restored)
    if not before and not after:
        return PolicyRestoration(None, {}, {}, reaches_driver)
    metadata = {"resourceVersion": live["metadata"]["resourceVersion"]}
    patch = {"metadata": metadata, "spec": merge_patch(spec, restored)}
    return PolicyRestoration(patch, {"spec": before}, {"spec": after}, reaches_driver)


def unfinished_daemonsets(daemonsets: t.Iterable[Document], configmaps: t.Collection[str]) -> list[str]:
    """The DaemonSets whose pods may still need one of these ConfigMaps, as text.

    The driver's (OnDelete) mounts no managed ConfigMap, and rolls at the operator's pace.
    """
    lines = []
    for daemonset in daemonsets:
        if (daemonset["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            continue
        metadata, status = daemonset["metadata"], daemonset.get("status") or {}
        volumes = daemonset["spec"]["template"]["spec"].get("volumes") or []
        mounted = sorted({str((volume.get("configMap") or {}).get("name")) for volume in volumes} & set(configmaps))
        desired = int(status.get("desiredNumberScheduled") or 0)
        updated = int(status.get("updatedNumberScheduled") or 0)
        if mounted:
            lines.append(f"DaemonSet {metadata['name']} still mounts {', '.join(mounted)}")
        elif int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0) or updated < desired:
            lines.append(f"DaemonSet {metadata['name']}: {updated} of {desired} pods are updated")
    return lines


def _without_tolerations(tree: Tree) -> Tree:
    """Our fields without the list, whose entries are removed by their record."""
    below = child(tree, _DAEMONSETS)
    if f"f:{_TOLERATIONS}" not in below:
        return tree
    remaining = {key: value for key, value in below.items() if key != f"f:{_TOLERATIONS}"}
    others = {key: value for key, value in tree.items() if key != f"f:{_DAEMONSETS}"}
    # An empty map would count as one field, so that the list would be removed with it.
    return {**others, f"f:{_DAEMONSETS}": remaining} if any(key != "." for key in remaining) else others


def _differences(one: Object, other: Object) -> tuple[Object, Object]:
    """The parts of two maps that the other one does not have."""
    left: Object = {}
    right: Object = {}
    for key in {**one, **other}:
        here, there = one.get(key), other.get(key)
        if here == there:
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            here, there = _differences(here, there)
        if key in one:
            left[key] = here
        if key in other:
            right[key] = there
    return left, right
