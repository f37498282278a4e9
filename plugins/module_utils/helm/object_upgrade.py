# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts the effect of a Helm upgrade on a custom resource, for example the ClusterPolicy or an NVIDIADriver (pure).

For a kind that helm does not know, helm sends the difference between the manifests of the old and the new revision as a JSON merge patch
(helm v3 pkg/kube/client.go, createPatch). A manually set field is therefore kept if both manifests have the same value for it, and overwritten or
removed if they differ.
"""

from __future__ import annotations

import typing as t

from ..common.nested import apply_merge_patch, merge_patch

Document = t.Mapping[str, t.Any]


def upgraded(live: Document, before: Document, after: Document) -> dict[str, t.Any]:
    """The live spec after an upgrade from the spec in the old manifest to the spec in the new one."""
    return t.cast("dict[str, t.Any]", apply_merge_patch(live, merge_patch(before, after)))


def overwritten(live: Document, before: Document, after: Document) -> t.Iterator[tuple[tuple[str, ...], t.Any, t.Any]]:
    """The path, live value and new value (None if removed) of every field of the live spec that the upgrade changes."""
    return _changed_leaves(live, merge_patch(before, after), ())


def _changed_leaves(
    live: t.Any, patch: t.Any, path: tuple[str, ...]
) -> t.Iterator[tuple[tuple[str, ...], t.Any, t.Any]]:
    if live == patch:
        return
    if isinstance(live, dict):
        for key, value in live.items():
            if not isinstance(patch, dict):
                # The patch replaces the whole map.
                yield from _changed_leaves(value, None, (*path, key))
            elif key in patch:
                yield from _changed_leaves(value, patch[key], (*path, key))
    else:
        yield path, live, patch
