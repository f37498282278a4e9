# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes the variables of an existing cluster, and what a run with them would change (pure)."""

from __future__ import annotations

import copy
import re
import textwrap
import typing as t
from dataclasses import dataclass

from ..catalog import releases
from ..catalog.names import POOL_LABEL
from ..core.errors import ReleaseRefused
from ..core.messages import abbreviate, abbreviate_nodes, field_path, visible
from ..core.types import without_secrets
from ..core.yaml_text import render_yaml
from ..gpu_operator.upgrade import without_own_values
from ..kube.fields import helm_release_of
from ..nodes.impact import PLUGIN, Transition
from ..nodes.node_check import is_gpu_resource
from ..pools.derive import derive
from ..schema.variables import validate

if t.TYPE_CHECKING:
    from ..core.values import Object
    from ..nodes.node import Node
    from ..pools.plan import ComponentPlan

# Converts the Helm releases and pools of a cluster to the variables gpu_cluster and gpu_pools as YAML (pure).

COMPONENTS = ("operator", "nfd")
_DEFAULTS = {
    "operator": {"namespace": releases.OPERATOR_NAMESPACE, "release": releases.OPERATOR_HELM_RELEASE},
    "nfd": {"namespace": releases.NFD_NAMESPACE, "release": releases.NFD_HELM_RELEASE},
}
_CHART_LABEL = "helm.sh/chart"
_VERSION = re.compile(r"-(v?\d+\.\d+\.\d+.*)$")
_WIDTH = 100
# The problem of an operand that is disabled, although a pool needs it (schema/variables.py).
_DISABLED = re.compile(r"gpu_cluster\.operator\.values\.\w+\.enabled: false disables an operand")


@dataclass(frozen=True)
class InstalledRelease:
    """A Helm release according to the labels and annotations of one of its objects; `values` is None if the user is not allowed to read them."""

    name: str
    namespace: str
    version: str
    values: Object | None = None


def installed_release(live: t.Mapping[str, t.Any] | None) -> InstalledRelease | None:
    """The Helm release that an object belongs to; None if it belongs to no release."""
    release = helm_release_of(live) if live is not None else None
    if live is None or release is None:
        return None
    version = _VERSION.search((live["metadata"].get("labels") or {}).get(_CHART_LABEL, ""))
    return InstalledRelease(*release, version[1] if version else "")


def export_cluster(
    declared: t.Mapping[str, t.Any], installed: t.Mapping[str, InstalledRelease | None], pools: t.Sequence[Object]
) -> tuple[Object, list[str]]:
    """Return gpu_cluster with each installed component's release name, version and values, and with all other settings from `declared`; and remarks.

    Only values that are not derived from gpu_cluster and gpu_pools are exported, without secrets and without what the plan rejects. Raises InvalidVariables
    if `declared` is not valid.
    """
    derive(declared, {}, [])
    document: Object = {key: value for key, value in declared.items() if key not in COMPONENTS}
    remarks: list[str] = []
    for component in COMPONENTS:
        fields = {key: value for key, value in (declared.get(component) or {}).items() if key != "values"}
        if fields:
            document[component] = fields
    for component in COMPONENTS:
        release = installed.get(component)
        if release is not None:
            release_fields, rejected = _release_fields(document, component, release)
            remarks += rejected
            if release_fields is None:
                installed = {**installed, component: None}
            elif release_fields:
                document[component] = release_fields
    for component in COMPONENTS:
        release = installed.get(component)
        if release is None:
            continue
        if release.values is None:
            remarks.append(
                f"gpu_cluster.{component}.values: not exported, because this requires permission to read Secrets in {release.namespace}"
            )
            continue
        planned: ComponentPlan = getattr(derive(document, {}, list(pools)), component)
        values, missing = residual_values(_without_initial_values(release.values), planned.values)
        values, secrets = without_secrets(values)
        if secrets:
            paths = abbreviate([f"values.{path}" for path in secrets])
            remarks.append(
                f"gpu_cluster.{component}: not exported, because they look like secrets, which do not belong in Helm values: {paths}. Before site "
                "upgrades the Helm release, store each secret in a Secret, and set the value to the Secret's name."
            )
        if values:
            kept, rejected = _accepted_values(document, component, values, pools)
            remarks += rejected
            if kept:
                document[component] = {**document.get(component, {}), "values": kept}
        if missing:
            paths = abbreviate(missing)
            remarks.append(
                f"gpu_cluster.{component}: site will add values that the Helm release does not have: {paths}"
            )
    return document, remarks


def _release_fields(document: Object, component: str, release: InstalledRelease) -> tuple[Object | None, list[str]]:
    """The fields of a component with the release's name and version, and remarks; None if the plan rejects the release's name."""
    defaults = _DEFAULTS[component]
    fields = {**document.get(component, {}), "namespace": release.namespace, "release": release.name}
    fields = {key: value for key, value in fields.items() if key not in defaults or value != defaults[key]}
    if problem := _problem({**document, component: fields}):
        return None, [
            f"gpu_cluster.{component}: as declared, because the variables do not allow the Helm release that was found: {problem}"
        ]
    if not release.version:
        return fields, []
    problem = _problem({**document, component: {**fields, "version": release.version}})
    if problem:
        return fields, [
            f"gpu_cluster.{component}.version: not exported, because the variables do not allow it: {problem}. Set a version before you run site, which "
            "otherwise upgrades the Helm release."
        ]
    return {**fields, "version": release.version}, []


def _problem(document: Object, pools: t.Sequence[Object] = ()) -> str:
    """The first problem of gpu_cluster, which may also depend on what the pools need."""
    return next((text for text in validate(document, {}, list(pools)) if not text.startswith("gpu_pools")), "")


def _accepted_values(
    document: Object, component: str, values: Object, pools: t.Sequence[Object]
) -> tuple[Object, list[str]]:
    """The Helm values without each entry that the plan rejects, and the reasons as remarks."""
    remarks: list[str] = []
    values = copy.deepcopy(values)
    start = f"gpu_cluster.{component}.values"
    while problem := _problem({**document, component: {**document.get(component, {}), "values": values}}, pools):
        effect = ". Until you change this, site enables the operand" if _DISABLED.match(problem) else ""
        remarks.append(f"{start}: an entry is not exported, because the variables do not allow it: {problem}{effect}")
        if not _remove_entry(values, start, problem):
            return {}, remarks
    return values, remarks


def _remove_entry(value: t.Any, path: str, problem: str) -> bool:
    """Remove the entry that a problem concerns, which is the innermost one whose path the problem begins with; False if there is none."""
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    # A path may be the beginning of another one.
    for key, item in sorted(entries, key=lambda entry: -len(field_path(path, entry[0]))):
        below = field_path(path, key)
        if problem.startswith((f"{below}:", f"{below}.", f"{below}[")):
            if not _remove_entry(item, below, problem):
                del value[key]
            return True
    return False


def _without_initial_values(values: Object) -> Object:
    """The values without daemonsets.tolerations, which the first installation sets, and without the names that upgrades add."""
    values = without_own_values(values)
    daemonsets = {key: value for key, value in (values.get("daemonsets") or {}).items() if key != "tolerations"}
    rest = {key: value for key, value in values.items() if key != "daemonsets"}
    return {**rest, "daemonsets": daemonsets} if daemonsets else rest


def residual_values(live: t.Any, derived: t.Any, path: str = "") -> tuple[Object, list[str]]:
    """The values that must be added to the derived values to obtain the live values, and the paths of derived values that the live values lack.

    For the list worker.tolerations, only additional entries are returned, because the user's entries are appended to the derived ones.
    """
    values: Object = {}
    missing = [f"{path}{key}" for key in derived if key not in live]
    for key, value in live.items():
        if key not in derived:
            values[key] = value
        elif isinstance(value, dict) and isinstance(derived[key], dict):
            below, missing_below = residual_values(value, derived[key], f"{path}{key}.")
            missing += missing_below
            if below:
                values[key] = below
        elif isinstance(value, list) and isinstance(derived[key], list) and f"{path}{key}" == "worker.tolerations":
            additional = [item for item in value if item not in derived[key]]
            if additional:
                values[key] = additional
            if any(item not in value for item in derived[key]):
                missing.append(f"{path}{key}")
        elif value != derived[key]:
            values[key] = value
    return values, missing


def render_variables(document: Object, pools: t.Sequence[Object], remarks: t.Sequence[str]) -> str:
    """The remarks as YAML comments, followed by gpu_cluster, gpu_defaults and gpu_pools as YAML.

    The cluster's text remains data: Ansible does not evaluate it, and none of the characters that YAML reads as a line break ends a comment.
    """
    comments = [
        line
        for remark in remarks
        for line in textwrap.wrap(
            visible(remark), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False
        )
    ]
    body = render_yaml({"gpu_cluster": document, "gpu_defaults": {}, "gpu_pools": list(pools)}, for_ansible=True)
    return "\n".join(["---", *comments, body])


# Describes the changes that a run with the exported variables makes to the nodes (pure).


def require_no_release(released: t.Collection[str]) -> None:
    """Raise ReleaseRefused if a run would release nodes, for example a pool's node that has lost its pool label."""
    if released:
        raise ReleaseRefused(
            f"No exported pool contains {abbreviate_nodes(released)}, so a run with the exported variables would remove what this collection has "
            "set there. Nothing was written. Set the pool's label and export again: "
            f"kubectl label --overwrite nodes NODE {POOL_LABEL}=POOL"
        )


def effect_remarks(
    nodes: t.Iterable[Node],
    transitions: t.Mapping[str, Transition],
    postponed: t.Collection[str],
    pools_without_sharing: t.Iterable[str],
) -> list[str]:
    """The remarks about the nodes that a run edits (`transitions`: the effect of each edit), and about the nodes that it postpones to another run.

    If there are `pools_without_sharing`, a run fails before any change, so the only remark lists these pools.
    """
    refused = sorted(pools_without_sharing)
    if refused:
        return [
            f"site and gpu_sharing reject these variables and change no nodes until sharing.mode is set for: {abbreviate(refused)}."
        ]
    by_name = {node.name: node for node in nodes}
    disturbed = {name for name, change in transitions.items() if _disturbs(by_name[name], change)} | set(postponed)
    undisturbed = len(transitions.keys() - disturbed)
    remarks = []
    if undisturbed:
        remarks.append(
            f"{undisturbed} node(s) will get the labels that make them members of their pools; their allocatable resources do not change. "
            "See accel.gpu.plan."
        )
    if disturbed:
        remarks.append(
            f"{len(disturbed)} node(s) will get different allocatable resources, or lose the pods that use their GPUs: "
            f"{abbreviate(sorted(disturbed))}. See accel.gpu.plan."
        )
    return remarks


def _disturbs(node: Node, change: Transition) -> bool:
    if change.repartitions or change.evicts_all:
        return True
    advertised = {name: count for name, count in node.capacity.items() if count and is_gpu_resource(name)}
    return change.kind == PLUGIN and advertised != {name: count for name, count in change.offers.items() if count}
