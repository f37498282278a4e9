# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads gpu_cluster, gpu_defaults and gpu_pools, checks them together, and fills in the defaults."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections.abc import Mapping

from ..common.errors import ModuleFailure
from ..common.nested import get_nested
from ..schema.cluster import CLUSTER, CLUSTER_CHECKS
from ..schema.driver import driver_problems
from ..schema.driver_features import driver_feature_problems
from ..schema.messages import field_path, join_words, quote, type_name
from ..schema.nodegroup_checks import node_group_problems
from ..schema.operand_switches import disabled_operand_problems
from ..schema.pool import DEFAULTS, POOL, POOLS
from ..schema.pool_checks import ALL_POOLS_CHECKS, POOL_CHECKS
from ..schema.types import Document, PoolVariables

_NAMES = ("gpu_cluster", "gpu_defaults", "gpu_pools")
# An unset gpu_pools is not treated as an empty list, because a missing or misspelled variable must never release a node.
NOT_SET = (
    "gpu_pools: is not set (or null); declare the pools of the cluster, and check the spelling of the variable. An explicit [] means that there "
    "are no pools: every managed node is released, which removes its pool's labels, taints and sharing"
)
# These limits are far higher than Helm values or thousands of pools need.
_MAX_LEVELS, _MAX_VALUES = 50, 1_000_000
# Fields that only apply to pools whose nodes a run creates.
_NODE_GROUP_FIELDS = ("nodes", "autoscale", "model")


class InvalidVariables(ModuleFailure):
    """Raised if the variables are invalid; `problems` has one line for each problem, beginning with its path."""

    code = "invalid"

    def __init__(self, problems: t.Sequence[str], where: str = join_words(_NAMES)) -> None:
        self.problems = list(problems)
        count = f"{len(self.problems)} errors" if len(self.problems) != 1 else "1 error"
        super().__init__("\n".join([f"{count} in {where}:", *self.problems]))


@dataclasses.dataclass(frozen=True)
class Variables:
    """The cluster and the pools with all defaults, in the user's order; `declared_cluster` is the cluster without the defaults.

    `pools_without_mode`: the names of pools whose sharing.mode is set neither in the pool nor in gpu_defaults.
    """

    cluster: Document
    pools: tuple[Document, ...]
    declared_cluster: Document
    pools_without_mode: frozenset[str] = frozenset()


def merge(under: t.Any, over: t.Any) -> t.Any:
    """`over` merged over `under`: maps are merged key by key at every depth, all other values (including lists) are replaced.

    None in `over` keeps the value of `under`, so `merge({}, x) == merge(x, {}) == x`, and merging is associative.
    Neither argument is changed.
    """
    if isinstance(under, dict) and isinstance(over, dict):
        result = dict(under)
        for key, value in over.items():
            result[key] = merge(under[key], value) if key in under else value
        return result
    return under if over is None else over


def plain(value: t.Any) -> t.Any:
    """A copy with only Python's built-in types, because ansible-core passes tagged subclasses of str, int, dict and list."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def split_variables(variables: t.Any) -> tuple[t.Any, t.Any, t.Any]:
    """The cluster, the defaults and the pools from the single map that a filter gets; raises InvalidVariables."""
    if not isinstance(variables, Mapping):
        raise InvalidVariables([f"the input: is {type_name(plain(variables))}, not a map of {join_words(_NAMES)}"])
    unknown = [f"{quote(plain(key))}: is not one of {join_words(_NAMES)}" for key in variables if key not in _NAMES]
    if unknown:
        raise InvalidVariables(unknown)
    return tuple(variables.get(name) for name in _NAMES)  # type: ignore[return-value]


def validate(cluster: t.Any, defaults: t.Any, pools: t.Any) -> list[str]:
    """All problems in the three variables, in their order; empty if there are none."""
    return _read(cluster, defaults, pools)[1]


def load(cluster: t.Any, defaults: t.Any, pools: t.Any) -> Variables:
    """The variables with all defaults; raises InvalidVariables."""
    (cluster, defaults, pools), problems = _read(cluster, defaults, pools)
    if problems:
        raise InvalidVariables(problems)
    merged = [_with_defaults(pool, defaults) for pool in pools]
    without_mode = frozenset(pool["name"] for pool in merged if not get_nested(pool, "sharing", "mode"))
    return Variables(CLUSTER.complete(cluster), tuple(map(POOL.complete, merged)), cluster, without_mode)


def _with_defaults(pool: t.Any, defaults: t.Any) -> t.Any:
    """A pool merged with the defaults; defaults for node groups only apply to pools whose nodes a run creates."""
    if isinstance(defaults, dict) and get_nested(pool, "nodes") is None:
        defaults = {key: value for key, value in defaults.items() if key not in _NODE_GROUP_FIELDS}
    return merge(defaults, pool)


def _read(cluster: t.Any, defaults: t.Any, pools: t.Any) -> tuple[tuple[t.Any, t.Any, t.Any], list[str]]:
    unbounded = [
        f"{name}: {reason}"
        for name, value in zip(_NAMES, (cluster, defaults, pools), strict=True)
        if (reason := _unbounded(value))
    ]
    if unbounded:
        return (None, None, None), unbounded
    cluster, defaults, pools = (
        CLUSTER.coerce({} if cluster is None else plain(cluster)),
        DEFAULTS.coerce({} if defaults is None else plain(defaults)),
        # Text is not accepted for the whole list, because an empty list would release all nodes.
        POOLS.coerce(plain(pools)) if isinstance(pools, (list, tuple)) else pools,
    )
    valid_cluster = CLUSTER.without_invalid(cluster)
    problems = [
        *CLUSTER.problems(cluster, "gpu_cluster"),
        *(problem for check in CLUSTER_CHECKS for problem in check(valid_cluster)),
        *DEFAULTS.problems(defaults, "gpu_defaults"),
        *_pool_problems(valid_cluster, defaults, pools),
    ]
    return (cluster, defaults, pools), problems


def _unbounded(variable: t.Any) -> str | None:
    """The reason why a value cannot be read completely, as the end of a sentence; with YAML aliases, a few lines can expand without limit."""
    waiting = [(variable, 0)]
    for count in itertools.count():
        if not waiting:
            return None
        value, depth = waiting.pop()
        if depth > _MAX_LEVELS:
            return f"is nested more than {_MAX_LEVELS} levels deep, or contains itself; write it out"
        if count > _MAX_VALUES:
            return f"has more than {_MAX_VALUES} values; declare fewer pools, or remove YAML aliases that multiply"
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
    valid_defaults = DEFAULTS.without_invalid(defaults)
    views = []
    for index, pool in enumerate(pools):
        path = field_path("gpu_pools", index)
        yield from POOL.problems(pool, path)
        declared = POOL.without_invalid(pool)
        if isinstance(declared, dict):
            merged = _with_defaults(declared, valid_defaults) if isinstance(valid_defaults, dict) else declared
            view = PoolVariables(path, declared, merged)
            views.append(view)
            for check in POOL_CHECKS:
                yield from check(view)
            yield from node_group_problems(cluster, view)
            yield from driver_problems(cluster, view)
    for pools_check in ALL_POOLS_CHECKS:
        yield from pools_check(views)
    yield from driver_feature_problems(cluster, views)
    yield from disabled_operand_problems(cluster, views)
