# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the NVIDIADriver objects in two manifests of a Helm release and finds the nodes on which an upgrade restarts the driver (pure).

Source: gpu-operator v25.10.1 deployments/gpu-operator/templates/nvidiadriver.yaml. The chart creates one object, `default`, if both
driver.nvidiaDriverCRD.enabled and deployDefaultCR are true.
"""

from __future__ import annotations

import re
import typing as t

from ..cluster_state.nvidia_driver import KIND
from ..common.nested import apply_merge_patch
from ..helm.chart import matching_documents
from ..helm.object_upgrade import upgraded
from ..helm.release import helm_release_of
from .driver_rollout import SWITCH, Path, differing_fields, format_change

if t.TYPE_CHECKING:
    from ..pools.plan import Plan

Document = t.Mapping[str, t.Any]

_DRIVER = re.compile(rf"^kind:\s*[\"']?{KIND}\b", re.MULTILINE)
# The keys of the Helm value `driver` that have the same name in the spec of the chart's object.
_VALUES = ("repository", "image", "version", "kernelModuleType", "imagePullSecrets", "secretEnv", "env", "args")
# Changes to these fields do not affect the pods themselves: the fields only determine how pods are replaced or which nodes are selected.
_NOT_IN_OBJECT_TEMPLATE = frozenset({"upgradePolicy", "default"})


def changed_objects(before: str, after: str, live: t.Iterable[Document]) -> dict[str, list[str]]:
    """The reasons why the driver of each existing object changes when Helm replaces the manifest `before` with `after`, by object name."""
    old, new = _specs(before), _specs(after)
    reasons: dict[str, list[str]] = {}
    for item in live:
        name, spec = item["metadata"]["name"], item.get("spec") or {}
        if name in old and name not in new:
            reasons[name] = [f"NVIDIADriver {name} is deleted"]
        elif name in new:
            reasons[name] = _reasons(name, spec, upgraded(spec, old.get(name, {}), new[name]))
    return {name: texts for name, texts in reasons.items() if texts}


def value_changes(plan: Plan, live: t.Iterable[Document]) -> dict[str, list[str]]:
    """The reasons why the planned Helm values change the driver of each existing object, by object name; the chart's own defaults are not known."""
    release, values = (plan.operator.name, plan.operator.namespace), plan.operator.values.get("driver") or {}
    patch = {key: values[key] for key in _VALUES if key in values}
    own = {item["metadata"]["name"]: item.get("spec") or {} for item in live if helm_release_of(item) == release}
    reasons = {name: _reasons(name, spec, apply_merge_patch(spec, patch)) for name, spec in own.items()}
    return {name: texts for name, texts in reasons.items() if texts}


def _reasons(name: str, spec: Document, outcome: Document) -> list[str]:
    """A description of each spec field whose change alters the object's DaemonSets."""
    return [f"{format_change(spec, outcome, path)} in NVIDIADriver {name}" for path in template_fields(spec, outcome)]


def template_fields(before: Document, after: Document) -> list[Path]:
    """The paths of the spec fields that differ and whose change alters the DaemonSets of an NVIDIADriver."""
    return [path for path in differing_fields(before, after) if path[0] not in _NOT_IN_OBJECT_TEMPLATE]


def rolled_nodes(
    nodes: t.Mapping[str, int], paths: t.Sequence[Path], changed: t.Collection[str], *, replaced: bool
) -> dict[str, int]:
    """The number of nodes on which the driver restarts, by the NVIDIADriver that manages the driver now; the key for the ClusterPolicy is empty.

    `paths` contains the changed fields of the ClusterPolicy that affect a driver DaemonSet, and `changed` contains the names of the changed objects.
    `replaced` is true if the chart changes; the new operator then writes every template again.
    """
    reached = {owner: not owner or SWITCH in paths or ("hostPaths", "rootFS") in paths for owner in nodes}
    return {
        owner: count
        for owner, count in nodes.items()
        if count and (replaced or owner in changed or (bool(paths) and reached[owner]))
    }


def _specs(manifest: str) -> dict[str, Document]:
    return {
        item["metadata"]["name"]: item.get("spec") or {}
        for item in matching_documents(manifest, _DRIVER)
        if item.get("kind") == KIND
    }
