# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans the restoration of a ClusterPolicy that is kept (pure)."""

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
    """One merge patch of the spec, or None if nothing must be restored; `before` and `after` contain the differences.

    `reaches_driver`: whether entries of daemonsets.tolerations are removed, which restarts the driver.
    """

    patch: Object | None
    before: Object
    after: Object
    reaches_driver: bool = False


def restore_policy(live: Document, *, hold_driver: bool = False) -> PolicyRestoration:
    """Remove the collection's tolerations and the fields that only the collection has written, and restore the recorded previous values.

    The server treats the list of tolerations as a single field. With `hold_driver`, the list and the record of the collection's entries are kept.
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
    changes = merge_patch(spec, restored)
    if not changes:
        return PolicyRestoration(None, {}, {}, reaches_driver)
    patch = {"metadata": {"resourceVersion": live["metadata"]["resourceVersion"]}, "spec": changes}
    before, after = _without_deletions(merge_patch(restored, spec)), _without_deletions(changes)
    return PolicyRestoration(patch, {"spec": before}, {"spec": after}, reaches_driver)


def _without_tolerations(tree: Tree) -> Tree:
    """The collection's fields without the list of tolerations, whose entries are removed according to their record."""
    below = child(tree, _DAEMONSETS)
    if f"f:{_TOLERATIONS}" not in below:
        return tree
    remaining = {key: value for key, value in below.items() if key != f"f:{_TOLERATIONS}"}
    others = {key: value for key, value in tree.items() if key != f"f:{_DAEMONSETS}"}
    # An empty map would count as a single field, and would be removed together with the list.
    return {**others, f"f:{_DAEMONSETS}": remaining} if any(key != "." for key in remaining) else others


def _without_deletions(patch: Object) -> Object:
    """The values that a merge patch sets."""
    return {
        key: _without_deletions(value) if isinstance(value, dict) else value
        for key, value in patch.items()
        if value is not None
    }
