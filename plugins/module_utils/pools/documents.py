# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's three documents: read, checked as a whole, and completed with every default."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from .checks import CLOUD_CHECKS, CLUSTER_CHECKS, FLEET_CHECKS, POOL_CHECKS
from .fields import CLUSTER, DEFAULTS, POOL, POOLS
from .merge import merge, plain
from .rules import is_bare_chart
from .views import Document, PoolView, part
from .words import kind, listed, place, said

_PARTS = ("cluster", "defaults", "pools")
_OF_MADE_NODES = ("nodes", "autoscale", "model")


class InvalidDocuments(Exception):
    """The documents have mistakes; `problems` holds one line for each, beginning with its path."""

    def __init__(self, problems: t.Sequence[str]) -> None:
        self.problems = list(problems)
        count = f"{len(self.problems)} mistakes" if len(self.problems) != 1 else "1 mistake"
        super().__init__("\n".join([f"{count} in gpu_cluster, gpu_defaults and gpu_pools:", *self.problems]))


@dataclasses.dataclass(frozen=True)
class Documents:
    """Cluster and pools with every default in place; `pools` in the user's order."""

    cluster: Document
    pools: tuple[Document, ...]


def parts(documents: t.Any) -> tuple[t.Any, t.Any, t.Any]:
    """Cluster, defaults and pools out of the one map that a filter is given; raises InvalidDocuments."""
    if not isinstance(documents, Mapping):
        raise InvalidDocuments([f"the documents: are {kind(plain(documents))}, not a map of {listed(_PARTS)}"])
    unknown = [
        f"{said(plain(key))}: is not one of the documents {listed(_PARTS)}" for key in documents if key not in _PARTS
    ]
    if unknown:
        raise InvalidDocuments(unknown)
    return tuple(documents.get(part) for part in _PARTS)  # type: ignore[return-value]


def validate(cluster: t.Any, defaults: t.Any, pools: t.Any) -> list[str]:
    """Every mistake in the three documents, in their order; empty when there is none."""
    return _read(cluster, defaults, pools)[1]


def load(cluster: t.Any, defaults: t.Any, pools: t.Any) -> Documents:
    """The documents, ready for derivation; raises InvalidDocuments."""
    (cluster, defaults, pools), problems = _read(cluster, defaults, pools)
    if problems:
        raise InvalidDocuments(problems)
    completed = CLUSTER.complete(cluster)
    for release in ("operator", "nfd"):
        if not is_bare_chart(completed[release]["chart"]):
            completed[release]["chart_repo"] = ""
    return Documents(completed, tuple(POOL.complete(_under(defaults, pool)) for pool in pools))


def _under(defaults: t.Any, pool: t.Any) -> t.Any:
    """A pool with the defaults under it; what they say of nodes is for pools that make some."""
    if isinstance(defaults, dict) and part(pool, "nodes") is None:
        defaults = {key: value for key, value in defaults.items() if key not in _OF_MADE_NODES}
    return merge(defaults, pool)


def _read(cluster: t.Any, defaults: t.Any, pools: t.Any) -> tuple[tuple[t.Any, t.Any, t.Any], list[str]]:
    try:
        documents = plain(cluster), plain(defaults), plain(pools)
    except RecursionError:
        return (None, None, None), ["gpu_cluster, gpu_defaults, gpu_pools: one of them contains itself; write it out"]
    cluster, defaults, pools = (
        {} if documents[0] is None else documents[0],
        {} if documents[1] is None else documents[1],
        [] if documents[2] is None else documents[2],
    )
    problems = [
        *CLUSTER.problems(cluster, "gpu_cluster"),
        *(problem for check in CLUSTER_CHECKS for problem in check(CLUSTER.sound(cluster))),
        *DEFAULTS.problems(defaults, "gpu_defaults"),
        *_pool_problems(CLUSTER.sound(cluster), defaults, pools),
    ]
    return (cluster, defaults, pools), problems


def _pool_problems(cluster: t.Any, defaults: t.Any, pools: t.Any) -> t.Iterator[str]:
    if not isinstance(pools, list):
        yield from POOLS.problems(pools, "gpu_pools")
        return
    under = DEFAULTS.sound(defaults)
    views = []
    for index, pool in enumerate(pools):
        path = place("gpu_pools", index)
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
