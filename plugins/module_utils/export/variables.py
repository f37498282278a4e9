# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live cluster as the three documents: what the ClusterPolicy, Helm and the nodes say, and what nobody can know (pure)."""

from __future__ import annotations

import re
import textwrap
import typing as t
from dataclasses import dataclass, field

from ..catalog import releases
from ..helm.release import helm_release_of
from ..nvidia_config.yaml_text import render
from ..pools.derive import derive
from ..schema.messages import abbreviate
from ..schema.secret_values import without_secrets

if t.TYPE_CHECKING:
    from ..pools.plan import ReleasePlan

Document = dict[str, t.Any]

PARTS = ("operator", "nfd")
_USUAL = {
    "operator": (releases.OPERATOR_NAMESPACE, releases.OPERATOR_RELEASE),
    "nfd": (releases.NFD_NAMESPACE, releases.NFD_RELEASE),
}
_CHART_LABEL = "helm.sh/chart"
_VERSION = re.compile(r"-(v?\d+\.\d+\.\d+.*)$")
# What only a first installation is given; a release keeps what it has there, whatever the documents say.
_INITIAL = ("daemonsets", "tolerations")
_WIDTH, _TOLD = 100, 8


@dataclass(frozen=True)
class Release:
    """A Helm release as an object of it tells: where it is, and its version; `values` None where they may not be read."""

    name: str
    namespace: str
    version: str
    values: Document | None = None


@dataclass(frozen=True)
class Cluster:
    """gpu_cluster, what was remarked about it, and of each release the paths of values that no document expresses."""

    document: Document
    remarks: list[str] = field(default_factory=list)


def release_of(live: t.Mapping[str, t.Any] | None) -> Release | None:
    """Whose release an object is, by what Helm notes on it; None where it is none's."""
    if live is None:
        return None
    marks = helm_release_of(live)
    if marks is None:
        return None
    version = _VERSION.search((live["metadata"].get("labels") or {}).get(_CHART_LABEL, ""))
    return Release(*marks, version[1] if version else "")


def cluster(given: t.Mapping[str, t.Any], live: t.Mapping[str, Release | None], pools: t.Sequence[Document]) -> Cluster:
    """gpu_cluster: what only the inventory can know as `given`, release, version and values as they are.

    `live` holds the releases by PARTS. Values are what Helm was given and the documents do not derive, without secrets. Raises
    InvalidDocuments where what is found makes no sound document.
    """
    document: Document = {key: value for key, value in given.items() if key not in PARTS}
    remarks: list[str] = []
    for part in PARTS:
        release, said = (
            live.get(part),
            {key: value for key, value in (given.get(part) or {}).items() if key != "values"},
        )
        if release is not None:
            said.update({"version": release.version} if release.version else {})
            for key, value, usual in zip(
                ("namespace", "release"), (release.namespace, release.name), _USUAL[part], strict=True
            ):
                if value != usual:
                    said[key] = value
                else:
                    said.pop(key, None)
        if said:
            document[part] = said
    for part in PARTS:
        release = live.get(part)
        if release is None:
            continue
        if release.values is None:
            remarks.append(
                f"gpu_cluster.{part}.values: not read, since that takes the right to read Secrets in {release.namespace}"
            )
            continue
        planned: ReleasePlan = getattr(derive(document, {}, list(pools)), part)
        values, lacking = residual(_without_initial(release.values), planned.values)
        values, left_out = without_secrets(values)
        if left_out:
            told = abbreviate([f"values.{path}" for path in left_out], _TOLD)
            remarks.append(
                f"gpu_cluster.{part}: left out, since they look like secrets, which have no place in Helm values: {told}. Before site "
                "upgrades the release, put each into a Secret and name that."
            )
        if values:
            document[part]["values"] = values
        if lacking:
            told = abbreviate(lacking, _TOLD)
            remarks.append(f"gpu_cluster.{part}: site will give the release values that it does not have: {told}")
    return Cluster(document, remarks)


def _without_initial(values: Document) -> Document:
    first, second = _INITIAL
    below = {key: value for key, value in (values.get(first) or {}).items() if key != second}
    rest = {key: value for key, value in values.items() if key != first}
    return {**rest, first: below} if below else rest


def residual(live: t.Any, wanted: t.Any, path: str = "") -> tuple[Document, list[str]]:
    """What has to lie on top of the wanted values to give the live ones, and the paths that live values lack.

    Of a list of tolerations the ones that are wanted anyway are left out: they are added to.
    """
    values: Document = {}
    lacking = [f"{path}{key}" for key in wanted if key not in live]
    for key, value in live.items():
        if key not in wanted:
            values[key] = value
        elif isinstance(value, dict) and isinstance(wanted[key], dict):
            below, missing = residual(value, wanted[key], f"{path}{key}.")
            lacking += missing
            if below:
                values[key] = below
        elif isinstance(value, list) and isinstance(wanted[key], list) and f"{path}{key}" == "worker.tolerations":
            more = [item for item in value if item not in wanted[key]]
            if more:
                values[key] = more
            if any(item not in value for item in wanted[key]):
                lacking.append(f"{path}{key}")
        elif value != wanted[key]:
            values[key] = value
    return values, lacking


def text(document: Document, pools: t.Sequence[Document], remarks: t.Sequence[str]) -> str:
    """The three documents as YAML, with the remarks as comments before them."""
    comments = [
        line
        for remark in remarks
        for line in textwrap.wrap(remark, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False)
    ]
    body = render({"gpu_cluster": document, "gpu_defaults": {}, "gpu_pools": list(pools)})
    return "\n".join(["---", *comments, body])
