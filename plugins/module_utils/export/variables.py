# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Converts the Helm releases and pools of a cluster to the variables gpu_cluster and gpu_pools as YAML (pure)."""

from __future__ import annotations

import copy
import re
import textwrap
import typing as t
from dataclasses import dataclass

from ..catalog import releases
from ..cluster_state.own_values import without_own_values
from ..common.results import visible
from ..helm.release import helm_release_of
from ..nvidia_config.yaml_text import render
from ..pools.derive import derive
from ..pools.variables import validate
from ..schema.messages import abbreviate, field_path
from ..schema.secret_values import without_secrets

if t.TYPE_CHECKING:
    from ..pools.plan import ComponentPlan

Document = dict[str, t.Any]

COMPONENTS = ("operator", "nfd")
_DEFAULTS = {
    "operator": {"namespace": releases.OPERATOR_NAMESPACE, "release": releases.OPERATOR_HELM_RELEASE},
    "nfd": {"namespace": releases.NFD_NAMESPACE, "release": releases.NFD_HELM_RELEASE},
}
_CHART_LABEL = "helm.sh/chart"
_VERSION = re.compile(r"-(v?\d+\.\d+\.\d+.*)$")
_WIDTH = 100
# The problem of an operand that is disabled, although a pool needs it (schema/operand_switches.py).
_DISABLED = re.compile(r"gpu_cluster\.operator\.values\.\w+\.enabled: false disables an operand")


@dataclass(frozen=True)
class InstalledRelease:
    """A Helm release according to the labels and annotations of one of its objects; `values` is None if the user is not allowed to read them."""

    name: str
    namespace: str
    version: str
    values: Document | None = None


def installed_release(live: t.Mapping[str, t.Any] | None) -> InstalledRelease | None:
    """The Helm release that an object belongs to; None if it belongs to no release."""
    release = helm_release_of(live) if live is not None else None
    if live is None or release is None:
        return None
    version = _VERSION.search((live["metadata"].get("labels") or {}).get(_CHART_LABEL, ""))
    return InstalledRelease(*release, version[1] if version else "")


def export_cluster(
    declared: t.Mapping[str, t.Any], installed: t.Mapping[str, InstalledRelease | None], pools: t.Sequence[Document]
) -> tuple[Document, list[str]]:
    """Return gpu_cluster with each installed component's release name, version and values, and with all other settings from `declared`; and remarks.

    Only values that are not derived from gpu_cluster and gpu_pools are exported, without secrets and without what the plan rejects. Raises InvalidVariables
    if `declared` is not valid.
    """
    derive(declared, {}, [])
    document: Document = {key: value for key, value in declared.items() if key not in COMPONENTS}
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


def _release_fields(document: Document, component: str, release: InstalledRelease) -> tuple[Document | None, list[str]]:
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


def _problem(document: Document, pools: t.Sequence[Document] = ()) -> str:
    """The first problem of gpu_cluster, which may also depend on what the pools need."""
    return next((text for text in validate(document, {}, list(pools)) if not text.startswith("gpu_pools")), "")


def _accepted_values(
    document: Document, component: str, values: Document, pools: t.Sequence[Document]
) -> tuple[Document, list[str]]:
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


def _without_initial_values(values: Document) -> Document:
    """The values without daemonsets.tolerations, which the first installation sets, and without the names that upgrades add."""
    values = without_own_values(values)
    daemonsets = {key: value for key, value in (values.get("daemonsets") or {}).items() if key != "tolerations"}
    rest = {key: value for key, value in values.items() if key != "daemonsets"}
    return {**rest, "daemonsets": daemonsets} if daemonsets else rest


def residual_values(live: t.Any, derived: t.Any, path: str = "") -> tuple[Document, list[str]]:
    """The values that must be added to the derived values to obtain the live values, and the paths of derived values that the live values lack.

    For the list worker.tolerations, only additional entries are returned, because the user's entries are appended to the derived ones.
    """
    values: Document = {}
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


def render_variables(document: Document, pools: t.Sequence[Document], remarks: t.Sequence[str]) -> str:
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
    body = render({"gpu_cluster": document, "gpu_defaults": {}, "gpu_pools": list(pools)}, for_ansible=True)
    return "\n".join(["---", *comments, body])
