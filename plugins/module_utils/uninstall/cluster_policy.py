# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ClusterPolicy that stays, without what is ours in it, and what its DaemonSets still have of it (pure)."""

from __future__ import annotations

import json
import typing as t
from dataclasses import dataclass

from ..catalog.names import FIELD_MANAGER, OWNED_TOLERATIONS_ANNOTATION
from ..catalog.taints import toleration_identity
from ..cluster_state.cluster_policy import policy_tolerations, recorded_previous_spec, restore_previous_spec
from ..kube.managed_fields import Tree, child, owned_by, owned_by_others, without

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_DAEMONSETS, _TOLERATIONS = "daemonsets", "tolerations"


@dataclass(frozen=True)
class PolicyRestoration:
    """One merge patch of the spec (None: nothing of it is ours); before and after show what differs.

    `reaches_driver`: entries of daemonsets.tolerations go, which rolls the driver.
    """

    patch: Object | None
    before: Object
    after: Object
    reaches_driver: bool = False


def restore_policy(live: Document, *, hold_driver: bool = False) -> PolicyRestoration:
    """Take out the fields that only we have written, and our entries of the list of tolerations; put back what was there before.

    The list is one field to the server. With hold_driver it stays as it is, together with the note of what in it is ours.
    """
    spec: Object = dict(live.get("spec") or {})
    mine, others = child(owned_by(live, FIELD_MANAGER), "spec"), child(owned_by_others(live, FIELD_MANAGER), "spec")
    rest: Object = without(spec, _but_tolerations(mine), {}, others)
    held = policy_tolerations(live)
    kept = [
        entry for entry in held if toleration_identity(entry) not in {toleration_identity(item) for item in noted(live)}
    ]
    rolls = len(kept) != len(held)
    if rolls and not hold_driver:
        daemonsets = {key: value for key, value in (rest.get(_DAEMONSETS) or {}).items() if key != _TOLERATIONS}
        rest = {**rest, _DAEMONSETS: {**daemonsets, **({_TOLERATIONS: kept} if kept else {})}}
    rest = restore_previous_spec(rest, recorded_previous_spec(live))
    before, after = _differing(spec, rest)
    if not before and not after:
        return PolicyRestoration(None, {}, {}, rolls)
    patch = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "spec": _merge_patch(spec, rest)}
    return PolicyRestoration(patch, {"spec": before}, {"spec": after}, rolls)


def noted(live: Document) -> list[Object]:
    """The entries of daemonsets.tolerations that the annotation says are ours."""
    try:
        entries = json.loads((live["metadata"].get("annotations") or {}).get(OWNED_TOLERATIONS_ANNOTATION) or "[]")
    except ValueError:
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def mounting(daemonsets: t.Iterable[Document], configmaps: t.Collection[str]) -> list[str]:
    """The DaemonSets whose pods may still need one of these ConfigMaps, in words.

    The driver's (OnDelete) mounts none of ours, and rolls at the operator's own pace.
    """
    found = []
    for daemonset in daemonsets:
        if (daemonset["spec"].get("updateStrategy") or {}).get("type") == "OnDelete":
            continue
        metadata, status = daemonset["metadata"], daemonset.get("status") or {}
        volumes = daemonset["spec"]["template"]["spec"].get("volumes") or []
        mounted = sorted({str((volume.get("configMap") or {}).get("name")) for volume in volumes} & set(configmaps))
        desired = int(status.get("desiredNumberScheduled") or 0)
        updated = int(status.get("updatedNumberScheduled") or 0)
        if mounted:
            found.append(f"DaemonSet {metadata['name']} still mounts {', '.join(mounted)}")
        elif int(status.get("observedGeneration") or 0) < int(metadata.get("generation") or 0) or updated < desired:
            found.append(f"DaemonSet {metadata['name']}: {updated} of {desired} pods are as they should be")
    return found


def _but_tolerations(tree: Tree) -> Tree:
    """Our fields without the list, which is taken apart by its note."""
    below = child(tree, _DAEMONSETS)
    if f"f:{_TOLERATIONS}" not in below:
        return tree
    rest = {key: value for key, value in below.items() if key != f"f:{_TOLERATIONS}"}
    left = {key: value for key, value in tree.items() if key != f"f:{_DAEMONSETS}"}
    # Without an entry of its own the map would count as one field, and the list would go with it.
    return {**left, f"f:{_DAEMONSETS}": rest} if any(key != "." for key in rest) else left


def _merge_patch(live: Object, wanted: Object) -> Object:
    patch: Object = dict.fromkeys(key for key in live if key not in wanted)
    for key, value in wanted.items():
        below = live.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            inner = _merge_patch(below, value)
            if inner:
                patch[key] = inner
        elif value != below:
            patch[key] = value
    return patch


def _differing(one: Object, other: Object) -> tuple[Object, Object]:
    """Of two maps, what either has and the other does not."""
    left: Object = {}
    right: Object = {}
    for key in {**one, **other}:
        here, there = one.get(key), other.get(key)
        if here == there:
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            here, there = _differing(here, there)
        if key in one:
            left[key] = here
        if key in other:
            right[key] = there
    return left, right
