# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's three documents: read, checked as a whole, and completed with every default."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections.abc import Mapping

from ..common.nested import get_nested
from ..schema.cross_checks import CLOUD_CHECKS, CLUSTER_CHECKS, FLEET_CHECKS, POOL_CHECKS
from ..schema.messages import field_path, join_words, quote, type_name
from ..schema.pool import CLUSTER, DEFAULTS, POOL, POOLS
from ..schema.validators import is_bare_chart
from ..schema.views import Document, PoolView
from .merge import merge, plain

_PARTS = ("gpu_cluster", "gpu_defaults", "gpu_pools")
# Not an empty list: a variable that is missing or misspelled must never release a node.
NOT_SET = (
    "gpu_pools: is not set (or null); declare the pools of the cluster, and check how the variable is spelled. An explicit [] means that there "
    "are no pools: every node that this collection manages is to be released, that is, gives back its pool's labels, taints and sharing"
)
# Far more than Helm values or thousands of pools need.
_MOST_LEVELS, _MOST_VALUES = 50, 1_000_000
_OF_MADE_NODES = ("nodes", "autoscale", "model")


class InvalidVariables(Exception):
    """The documents have mistakes; `problems` holds one line for each, beginning with its path."""

    def __init__(self, problems: t.Sequence[str]) -> None:
        self.problems = list(problems)
        count = f"{len(self.problems)} mistakes" if len(self.problems) != 1 else "1 mistake"
        super().__init__("\n".join([f"{count} in gpu_cluster, gpu_defaults and gpu_pools:", *self.problems]))


@dataclasses.dataclass(frozen=True)
class Variables:
    """Cluster and pools with every default in place; `pools` in the user's order. `written` is the cluster without the defaults.

    `silent`: the names of the pools of which neither they nor gpu_defaults say sharing.mode.
    """

    cluster: Document
    pools: tuple[Document, ...]
    written: Document
    silent: frozenset[str] = frozenset()


def parts(documents: t.Any) -> tuple[t.Any, t.Any, t.Any]:
    """Cluster, defaults and pools out of the one map that a filter is given; raises InvalidDocuments."""
    if not isinstance(documents, Mapping):
        raise InvalidVariables([f"the documents: are {type_name(plain(documents))}, not a map of {join_words(_PARTS)}"])
    unknown = [
        f"{quote(plain(key))}: is not one of the documents {join_words(_PARTS)}"
        for key in documents
        if key not in _PARTS
    ]
    if unknown:
        raise InvalidVariables(unknown)
    return tuple(documents.get(part) for part in _PARTS)  # type: ignore[return-value]


def validate(cluster: t.Any, defaults: t.Any, pools: t.Any) -> list[str]:
    """Every mistake in the three documents, in their order; empty when there is none."""
    return _read(cluster, defaults, pools)[1]


def load(cluster: t.Any, defaults: t.Any, pools: t.Any) -> Variables:
    """The documents, ready for derivation; raises InvalidDocuments."""
    (cluster, defaults, pools), problems = _read(cluster, defaults, pools)
    if problems:
        raise InvalidVariables(problems)
    completed = CLUSTER.complete(cluster)
    for release in ("operator", "nfd"):
        if not is_bare_chart(completed[release]["chart"]):
            completed[release]["chart_repo"] = ""
    merged = [_under(defaults, pool) for pool in pools]
    silent = frozenset(pool["name"] for pool in merged if not (get_nested(pool, "sharing") or {}).get("mode"))
    return Variables(completed, tuple(map(POOL.complete, merged)), cluster, silent)


def _under(defaults: t.Any, pool: t.Any) -> t.Any:
    """A pool with the defaults under it; what they say of nodes is for pools that make some."""
    if isinstance(defaults, dict) and get_nested(pool, "nodes") is None:
        defaults = {key: value for key, value in defaults.items() if key not in _OF_MADE_NODES}
    return merge(defaults, pool)


def _read(cluster: t.Any, defaults: t.Any, pools: t.Any) -> tuple[tuple[t.Any, t.Any, t.Any], list[str]]:
    unbounded = [
        f"{name}: {reason}"
        for name, document in zip(("gpu_cluster", "gpu_defaults", "gpu_pools"), (cluster, defaults, pools), strict=True)
        if (reason := _unbounded(document))
    ]
    if unbounded:
        return (None, None, None), unbounded
    cluster, defaults, pools = (
        CLUSTER.coerce({} if cluster is None else plain(cluster)),
        DEFAULTS.coerce({} if defaults is None else plain(defaults)),
        None if pools is None else _coerced(plain(pools)),
    )
    problems = [
        *CLUSTER.problems(cluster, "gpu_cluster"),
        *(problem for check in CLUSTER_CHECKS for problem in check(CLUSTER.sound(cluster))),
        *DEFAULTS.problems(defaults, "gpu_defaults"),
        *_pool_problems(CLUSTER.sound(cluster), defaults, pools),
    ]
    return (cluster, defaults, pools), problems


def _coerced(pools: t.Any) -> t.Any:
    """The pools by the schema; a text is not taken for the list of all pools, which a run without any would release."""
    return POOLS.coerce(pools) if isinstance(pools, list) else pools


def _unbounded(document: t.Any) -> str | None:
    """Why a document cannot be read to its end, as the end of a sentence; YAML's aliases make endless ones of a few lines."""
    waiting = [(document, 0)]
    for count in itertools.count():
        if not waiting:
            return None
        value, depth = waiting.pop()
        if depth > _MOST_LEVELS:
            return f"is nested more than {_MOST_LEVELS} levels deep, or contains itself; write it out"
        if count > _MOST_VALUES:
            return f"has more than {_MOST_VALUES} values; declare fewer pools, or remove YAML aliases that multiply"
        if isinstance(value, Mapping):
            waiting.extend((item, depth + 1) for item in value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend((item, depth + 1) for item in value)
    return None


def _pool_problems(cluster: t.Any, defaults: t.Any, pools: t.Any) -> t.Iterator[str]:
    if pools is None:
        yield NOT_SET
        return
    if not isinstance(pools, list):
        yield from POOLS.problems(pools, "gpu_pools")
        return
    under = DEFAULTS.sound(defaults)
    views = []
    for index, pool in enumerate(pools):
        path = field_path("gpu_pools", index)
        yield from POOL.problems(pool, path)
        written = POOL.sound(pool)
        if isinstance(written, dict):
            view = PoolView(path, written, _under(under, written) if isinstance(under, dict) else written)
            views.append(view)
            for check in POOL_CHECKS:
                yield from check(view)
            for cloud_check in CLOUD_CHECKS:
                yield from cloud_check(cluster, view)
    for fleet_check in FLEET_CHECKS:
        yield from fleet_check(views)
