# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of several fields or pools together; they see UNSOUND where a single value was wrong already."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ..catalog import releases
from ..sharing.device_plugin import EXCLUSIVE, TIME_SLICING
from .matching import Asked, resolve
from .rules import is_bare_chart
from .schema import Problems
from .words import listed, place, said

Document = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class PoolView:
    """One pool as its author wrote it, and as it is with the defaults under it."""

    path: str
    written: Document
    merged: Document

    @property
    def title(self) -> str:
        """How another pool's message speaks of this one."""
        name = self.merged.get("name")
        return f"{self.path} ({name})" if isinstance(name, str) else self.path


def _part(document: t.Any, *keys: str) -> t.Any:
    """The value down there; None when it was left out or something above it is wrong."""
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document


def replicas_are_said(pool: PoolView) -> Problems:
    """Shares need a number."""
    if _part(pool.merged, "sharing", "mode") == TIME_SLICING and _part(pool.merged, "sharing", "replicas") is None:
        yield f"{pool.path}.sharing.replicas: is missing; time-slicing needs the shares of a GPU, such as replicas: 4"


def mode_is_said(pool: PoolView) -> Problems:
    """Nobody gives a number of shares and wants none."""
    replicas = _part(pool.written, "sharing", "replicas")
    if replicas is not None and _part(pool.merged, "sharing", "mode") is None:
        yield f"{pool.path}.sharing.mode: is missing beside replicas; say mode: {TIME_SLICING} to share the GPUs"


def options_have_an_effect(pool: PoolView) -> Problems:
    """What the same pool switches off it does not tune."""
    sharing = _part(pool.written, "sharing")
    if _part(sharing, "mode") != EXCLUSIVE:
        return
    for key in ("replicas", "rename", "fail_requests_greater_than_one"):
        if _part(sharing, key) is not None:
            remedy = f"take it out, or say mode: {TIME_SLICING}"
            yield f"{pool.path}.sharing.{key}: has no effect with mode: {EXCLUSIVE}; {remedy}"


def taints_differ(pool: PoolView) -> Problems:
    """Kubernetes keeps one taint for a key and an effect."""
    seen: dict[tuple[str, str], int] = {}
    taints = _part(pool.merged, "taints")
    for index, taint in enumerate(taints if isinstance(taints, list) else ()):
        key, effect = _part(taint, "key"), _part(taint, "effect")
        if not (isinstance(key, str) and isinstance(effect, str)):
            continue
        first = seen.setdefault((key, effect), index)
        if first != index:
            yield (
                f"{pool.path}.taints[{index}]: repeats key {key} and effect {effect} of taints[{first}]; "
                "a node has one taint for both, so keep one"
            )


def labels_keep_matching(pool: PoolView) -> Problems:
    """A pool must not write away the label by which it finds its nodes."""
    wanted, written = _part(pool.merged, "match", "labels"), _part(pool.merged, "labels")
    if not (isinstance(wanted, dict) and isinstance(written, dict)):
        return
    for key in wanted.keys() & written.keys():
        if wanted[key] != written[key]:
            yield (
                f"{place(f'{pool.path}.labels', key)}: {said(written[key])} contradicts match.labels, which wants "
                f"{said(wanted[key])}; a node would leave the pool once labelled"
            )


def names_differ(pools: t.Sequence[PoolView]) -> Problems:
    """A pool is known by its name."""
    first: dict[str, PoolView] = {}
    for pool in pools:
        name = _part(pool.merged, "name")
        if isinstance(name, str) and first.setdefault(name, pool) is not pool:
            yield f"{pool.path}.name: {said(name)} is the name of {first[name].path} already; give each pool its own"


def _asked(pool: PoolView) -> Asked | None:
    """None for a pool without match, whose nodes are pinned one by one, and for a match that is wrong."""
    match = _part(pool.merged, "match")
    if not isinstance(match, dict):
        return None
    model, labels = match.get("model"), match.get("labels")
    if not isinstance(model, (str, type(None))) or not isinstance(labels, (dict, type(None))):
        return None
    if not all(isinstance(value, str) for value in (labels or {}).values()):
        return None
    resolved = resolve(match)
    return None if resolved.pins_only else Asked.by(resolved)


def matches_differ(pools: t.Sequence[PoolView]) -> Problems:
    """No pool takes every node of another one. (Whether pools that may overlap do, only the nodes can tell.)"""
    asked = [(pool, its) for pool in pools if (its := _asked(pool))]
    # Who asks for a label or product: only these can lie within a pool that asks for it, so not every pair is compared.
    asking: dict[t.Any, list[tuple[PoolView, Asked]]] = collections.defaultdict(list)
    for pool, its in asked:
        for thing in (*its.products, *its.labels):
            asking[thing].append((pool, its))
    first: dict[Asked, PoolView] = {}
    for pool, want in asked:
        if first.setdefault(want, pool) is not pool:
            yield f"{pool.path}.match: is the same as that of {first[want].title}; {_APART}"
            continue
        fewest = min((asking[thing] for thing in want.labels or want.products), key=len)
        within = [other.title for other, its in fewest if its != want and its.implies(want)]
        if within:
            more = [f"{len(within) - 3} more"] if len(within) > 3 else []
            yield f"{pool.path}.match: takes every node of {listed(within[:3] + more)} too; {_APART}"


_APART = "tell them apart by match.labels, or leave match out of one and pin its nodes with the label accel.gpu/pool"


def chart_has_a_place(cluster: Document) -> Problems:
    """A chart's name needs a repository, and nothing else does."""
    for part, usual, usual_repo in (
        ("operator", releases.OPERATOR_CHART, releases.OPERATOR_CHART_REPO),
        ("nfd", releases.NFD_CHART, ""),
    ):
        chart, repo = _part(cluster, part, "chart") or usual, _part(cluster, part, "chart_repo")
        path = f"gpu_cluster.{part}.chart_repo"
        if not isinstance(chart, str):
            continue
        if is_bare_chart(chart):
            if not (usual_repo if repo is None else repo):
                yield f"{path}: is missing; the chart {said(chart)} is only a name, so say from which repository"
        elif repo and isinstance(repo, str):
            yield f"{path}: {said(repo)} has no effect beside the chart {said(chart)}; take it out"


def releases_differ(cluster: Document) -> Problems:
    """Helm knows a release by its namespace and name."""
    operator = (
        _part(cluster, "operator", "namespace") or releases.OPERATOR_NAMESPACE,
        _part(cluster, "operator", "release") or releases.OPERATOR_RELEASE,
    )
    nfd = (
        _part(cluster, "nfd", "namespace") or releases.NFD_NAMESPACE,
        _part(cluster, "nfd", "release") or releases.NFD_RELEASE,
    )
    if operator == nfd and all(isinstance(word, str) for word in nfd):
        yield "gpu_cluster.nfd.release: is the operator's release in the same namespace; give one of them another name"


# Helm values that would make a second owner of something, and who owns it.
_OWNED_VALUES = (
    (("operator", "nfd", "enabled"), "NFD is a release of its own (gpu_cluster.nfd)"),
    (("operator", "devicePlugin", "config"), "the pools' sharing decides it"),
)


def values_leave_ours(cluster: Document) -> Problems:
    """A field has one owner."""
    for (part, *keys), owner in _OWNED_VALUES:
        if _part(cluster, part, "values", *keys) not in (None, False):
            yield f"gpu_cluster.{part}.values.{'.'.join(keys)}: is not yours to set, {owner}; take it out"


POOL_CHECKS = (replicas_are_said, mode_is_said, options_have_an_effect, taints_differ, labels_keep_matching)
FLEET_CHECKS = (names_differ, matches_differ)
CLUSTER_CHECKS = (chart_has_a_place, releases_differ, values_leave_ours)
