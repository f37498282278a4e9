# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of several fields or pools together; they see UNSOUND where a single value was wrong already."""

from __future__ import annotations

import collections
import typing as t

from ..catalog import releases
from ..common.nested import get_nested
from .identity_checks import IDENTITY_CHECKS
from .matching import MatchTerms, resolve_match
from .messages import field_path, join_words, quote
from .nodegroup_checks import CLOUD_CHECKS, NODE_GROUP_CHECKS, cloud_is_one, groups_differ
from .operand_labels import wrong_value
from .operator_checks import OPERATOR_CHECKS
from .secret_checks import reboot_command_holds_no_secrets, values_hold_no_secrets
from .sharing_checks import SHARING_CHECKS
from .types import Problems
from .validators import is_bare_chart
from .views import Document, PoolView


def taints_differ(pool: PoolView) -> Problems:
    """Kubernetes keeps one taint for a key and an effect."""
    seen: dict[tuple[str, str], int] = {}
    taints = get_nested(pool.merged, "taints")
    for index, taint in enumerate(taints if isinstance(taints, list) else ()):
        key, effect = get_nested(taint, "key"), get_nested(taint, "effect")
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
    wanted, written = get_nested(pool.merged, "match", "labels"), get_nested(pool.merged, "labels")
    if not (isinstance(wanted, dict) and isinstance(written, dict)):
        return
    for key in wanted.keys() & written.keys():
        if wanted[key] != written[key]:
            yield (
                f"{field_path(f'{pool.path}.labels', key)}: {quote(written[key])} contradicts match.labels, which wants "
                f"{quote(wanted[key])}; a node would leave the pool once labelled"
            )


def operand_labels_are_known(pool: PoolView) -> Problems:
    """The operator takes a value that it does not know for its default, without a word."""
    written = get_nested(pool.merged, "labels")
    for key, value in written.items() if isinstance(written, dict) else ():
        wrong = wrong_value(key, value) if isinstance(key, str) and isinstance(value, str) else None
        if wrong:
            yield f"{field_path(f'{pool.path}.labels', key)}: {quote(value)} {wrong}"


def names_differ(pools: t.Sequence[PoolView]) -> Problems:
    """A pool is known by its name."""
    first: dict[str, PoolView] = {}
    for pool in pools:
        name = get_nested(pool.merged, "name")
        if isinstance(name, str) and first.setdefault(name, pool) is not pool:
            yield f"{pool.path}.name: {quote(name)} is the name of {first[name].path} already; give each pool its own"


def _asked(pool: PoolView) -> MatchTerms | None:
    """None for a pool without match, whose nodes are pinned one by one, and for a match that is wrong."""
    match = get_nested(pool.merged, "match")
    if not isinstance(match, dict):
        return None
    model, labels = match.get("model"), match.get("labels")
    if not isinstance(model, (str, type(None))) or not isinstance(labels, (dict, type(None))):
        return None
    if not all(isinstance(value, str) for value in (labels or {}).values()):
        return None
    resolved = resolve_match(match)
    return None if resolved.pins_only else MatchTerms.by(resolved)


def matches_differ(pools: t.Sequence[PoolView]) -> Problems:
    """No pool takes every node of another one. (Whether pools that may overlap do, only the nodes can tell.)"""
    asked = [(pool, its) for pool in pools if (its := _asked(pool))]
    # Who asks for a label or product: only these can lie within a pool that asks for it, so not every pair is compared.
    asking: dict[t.Any, list[tuple[PoolView, MatchTerms]]] = collections.defaultdict(list)
    for pool, its in asked:
        for thing in (*its.products, *its.labels):
            asking[thing].append((pool, its))
    first: dict[MatchTerms, PoolView] = {}
    for pool, want in asked:
        if first.setdefault(want, pool) is not pool:
            yield f"{pool.path}.match: is the same as that of {first[want].title}; {_APART}"
            continue
        fewest = min((asking[thing] for thing in want.labels or want.products), key=len)
        within = [other.title for other, its in fewest if its != want and its.implies(want)]
        if within:
            more = [f"{len(within) - 3} more"] if len(within) > 3 else []
            yield f"{pool.path}.match: takes every node of {join_words(within[:3] + more)} too; {_APART}"


_APART = "tell them apart by match.labels, or leave match out of one and pin its nodes with the label accel.gpu/pool"


def chart_has_a_place(cluster: Document) -> Problems:
    """A chart's name needs a repository, and nothing else does."""
    for which, usual, usual_repo in (
        ("operator", releases.OPERATOR_CHART, releases.OPERATOR_CHART_REPO),
        ("nfd", releases.NFD_CHART, ""),
    ):
        chart, repo = get_nested(cluster, which, "chart") or usual, get_nested(cluster, which, "chart_repo")
        path = f"gpu_cluster.{which}.chart_repo"
        if not isinstance(chart, str):
            continue
        if is_bare_chart(chart):
            if not (usual_repo if repo is None else repo):
                yield f"{path}: is missing; the chart {quote(chart)} is only a name, so say from which repository"
        elif repo and isinstance(repo, str):
            yield f"{path}: {quote(repo)} has no effect beside the chart {quote(chart)}; take it out"


def releases_differ(cluster: Document) -> Problems:
    """Helm knows a release by its namespace and name."""
    operator = (
        get_nested(cluster, "operator", "namespace") or releases.OPERATOR_NAMESPACE,
        get_nested(cluster, "operator", "release") or releases.OPERATOR_RELEASE,
    )
    nfd = (
        get_nested(cluster, "nfd", "namespace") or releases.NFD_NAMESPACE,
        get_nested(cluster, "nfd", "release") or releases.NFD_RELEASE,
    )
    if operator == nfd and all(isinstance(word, str) for word in nfd):
        yield "gpu_cluster.nfd.release: is the operator's release in the same namespace; give one of them another name"


# Helm values that would make a second owner of something, and who owns it.
_OWNED_VALUES = (
    (("operator", "nfd", "enabled"), "NFD is a release of its own (gpu_cluster.nfd)"),
    (("operator", "devicePlugin", "config"), "the pools' sharing decides it"),
    (("operator", "operator", "cleanupCRD"), "accel.gpu.uninstall takes out the CRDs that nobody else's objects need"),
)


def values_leave_ours(cluster: Document) -> Problems:
    """A field has one owner."""
    for (which, *keys), owner in _OWNED_VALUES:
        if get_nested(cluster, which, "values", *keys) not in (None, False):
            yield f"gpu_cluster.{which}.values.{'.'.join(keys)}: is not yours to set, {owner}; take it out"


POOL_CHECKS = (
    *SHARING_CHECKS,
    taints_differ,
    labels_keep_matching,
    operand_labels_are_known,
    *NODE_GROUP_CHECKS,
    reboot_command_holds_no_secrets,
)
FLEET_CHECKS = (names_differ, matches_differ, groups_differ)
CLUSTER_CHECKS = (
    *IDENTITY_CHECKS,
    chart_has_a_place,
    releases_differ,
    values_leave_ours,
    values_hold_no_secrets,
    *OPERATOR_CHECKS,
    cloud_is_one,
)
__all__ = ["CLOUD_CHECKS", "CLUSTER_CHECKS", "FLEET_CHECKS", "POOL_CHECKS"]
