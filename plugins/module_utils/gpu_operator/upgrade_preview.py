# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predicts how an upgrade of the operator's Helm release changes the ClusterPolicy: pure.

For a kind that helm does not know it sends the difference of the old and the new revision's manifest as a JSON merge patch
(helm v3 pkg/kube/client.go, createPatch). So a field that was set by hand stays where both manifests agree, and is
overwritten or removed where they differ.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ..common.nested import apply_merge_patch, get_nested, merge_patch
from ..helm.chart import Chart, matching_documents
from .cluster_policy import KIND, PolicyChange
from .driver_rollout import Path, driver_fields, is_empty

Object = dict[str, t.Any]
Document = t.Mapping[str, t.Any]

_MISSING = object()
_DEPLOYMENT = re.compile(r"^kind:\s*[\"']?Deployment\b", re.MULTILINE)
_POLICY = re.compile(rf"^kind:\s*[\"']?{KIND}\b", re.MULTILINE)
# Fields whose values may be shown; others may be confidential.
_SHOWN = frozenset({"version", "image", "repository", "enabled", "usePrecompiled", "kernelModuleType"})


@dataclass(frozen=True)
class UpgradePreview:
    """The effect on the active policy; `spec` is the result.

    `lost` are the fields that were set by hand and Helm would overwrite; `reasons` say why the driver's DaemonSet
    changes, and are empty when it does not. `by_values`: it changes although the chart stays the same.
    """

    spec: Object
    reasons: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    by_values: bool = False


def preview_upgrade(
    old: tuple[Chart, str], new: tuple[Chart, str], live: Document, desired: t.Mapping[str, t.Any]
) -> UpgradePreview | None:
    """Compare two charts with their manifests; None unless both contain a GPU operator.

    `live` is the active ClusterPolicy, `desired` the values that the user sets: a field that they set may be overwritten.
    """
    if not operator_deployments(old[1]) or not operator_deployments(new[1]):
        return None
    name = live["metadata"]["name"]
    before, after = _spec(old[1], name), _spec(new[1], name)
    spec = dict(live.get("spec") or {})
    patch = merge_patch(before, after)
    outcome = t.cast("Object", apply_merge_patch(spec, patch))
    paths = driver_fields(spec, outcome)
    replaced = old[0] != new[0]
    reasons = [f"chart {old[0].label} becomes {new[0].label}"] if replaced else []
    # A new chart changes many fields, and the version label of every pod; then only the driver itself is named.
    named = [path for path in paths if not replaced or path[-1] in ("version", "image", "repository")]
    reasons += [format_change(spec, outcome, path) for path in named if path[:2] != ("daemonsets", "labels")]
    return UpgradePreview(
        spec=outcome,
        reasons=tuple(reasons) if replaced or paths else (),
        lost=tuple(".".join(("spec", *path)) for path in _lost_fields(patch, before, spec, desired)),
        by_values=bool(paths) and not replaced,
    )


def operator_deployments(manifest: str) -> list[str]:
    """The names of the Deployments in a manifest that run the GPU operator."""
    return [
        item["metadata"]["name"]
        for item in matching_documents(manifest, _DEPLOYMENT)
        if item.get("kind") == "Deployment"
        and (item["spec"]["template"]["metadata"].get("labels") or {}).get("app") == "gpu-operator"
    ]


def reaching_paths(live: Document, change: PolicyChange) -> list[Path]:
    """The paths below spec at which our change to the policy reaches the driver's DaemonSet."""
    if not change.reaches_driver:
        return []
    spec = live.get("spec") or {}
    return driver_fields(spec, t.cast("Document", apply_merge_patch(spec, change.after.get("spec") or {})))


def format_change(before: Document, after: Document, path: Path) -> str:
    """A path at which two specs differ, with both values where they may be shown."""
    name = ".".join(path)
    if path[-1] not in _SHOWN:
        return name
    old, new = (_format_value(get_nested(document, *path)) for document in (before, after))
    return f"{name} {old} becomes {new}"


def _lost_fields(patch: Object, before: Object, live: Object, desired: t.Mapping[str, t.Any]) -> list[Path]:
    """The patch's fields whose live value is neither the old revision's nor the new one."""

    def find(patch: t.Any, old: t.Any, now: t.Any, wanted: t.Any, path: Path) -> t.Iterator[Path]:
        if isinstance(patch, dict) and isinstance(now, dict):
            for key, below in patch.items():
                yield from find(below, _get(old, key), _get(now, key), _get(wanted, key), (*path, key))
        elif now is not _MISSING and not is_empty(now) and now not in (old, patch) and wanted is _MISSING:
            yield path

    return list(find(patch, before, live, dict(desired), ()))


def _get(document: t.Any, key: str) -> t.Any:
    return document.get(key, _MISSING) if isinstance(document, dict) else _MISSING


def _format_value(value: t.Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "(not set)" if is_empty(value) else str(value)


def _spec(manifest: str, name: str) -> Object:
    for item in matching_documents(manifest, _POLICY):
        if item.get("kind") == KIND and item["metadata"]["name"] == name:
            return dict(item.get("spec") or {})
    return {}
