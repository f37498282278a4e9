# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validates gpu_cluster, gpu_defaults and gpu_pools as a whole, and finds operands that are switched off."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections.abc import Mapping

from ..catalog.names import PLUGIN_DEPLOY_LABEL, WORKLOAD_LABEL
from ..catalog.operands import OPERANDS
from ..core.errors import ModuleFailure
from ..core.messages import abbreviate, field_path, join_words, quote, type_name
from ..core.types import PoolVariables, Problems
from ..core.values import Object, get_nested
from ..sharing_modes.modes import DEFAULT_MODE, mode_named
from .cluster import CLUSTER, CLUSTER_CHECKS
from .driver import driver_feature_problems, driver_problems
from .pool import ALL_POOLS_CHECKS, DEFAULTS, POOL, POOL_CHECKS, POOLS, node_group_problems
from .validators import VIRTUAL_MACHINES, reason_without_containers

if t.TYPE_CHECKING:
    from ..sharing_modes.modes import SharingMode

# Determines which of the GPU operator's operands run, and which of them a pool needs (pure).
#
# An operand is disabled by `enabled: false` of its part, in the spec of the ClusterPolicy and in the Helm values (the paths are the same). A preinstalled
# driver or container toolkit replaces the operator's own, so no pool needs these operands. NVIDIA's chart writes a Helm value as text, so the text "false"
# also disables an operand.
#
# Source: gpu-operator api/nvidia/v1/clusterpolicy_types.go (IsEnabled() of each part: the value if `enabled` is not set),
# controllers/state_manager.go (isStateEnabled), deployments/gpu-operator/templates/clusterpolicy.yaml.

_DEFAULTS = {operand.part: bool(operand.runs_by_default) for operand in OPERANDS if operand.runs_by_default is not None}
_PLUGIN, _DISCOVERY, _MIG_MANAGER = "devicePlugin", "gfd", "migManager"
# Why a pool needs an operand, as the end of a sentence that begins with the pool.
_REASONS = {
    _PLUGIN: "needs it, because only the device plugin of the operator offers and shares its GPUs",
    _DISCOVERY: "needs it, because gpu-feature-discovery sets the labels by which a run recognizes and verifies its GPUs",
    _MIG_MANAGER: "needs it, because only the MIG manager partitions its GPUs",
}
# What changes on the nodes when an operand stops running.
EFFECTS: t.Mapping[str, str] = {
    "driver": "the driver is unloaded, and every pod loses its GPU",
    "toolkit": "new containers get no GPU, unless a container toolkit is installed on the node",
    _PLUGIN: "the nodes no longer offer GPUs, so no new pod with a GPU request can start there",
    _DISCOVERY: "the labels that describe the GPUs are no longer set or updated",
    _MIG_MANAGER: "changes to MIG layouts are no longer applied",
    "dcgm": "the exporter has to use its own DCGM",
    "dcgmExporter": "metrics of the GPUs are no longer collected",
    "nodeStatusExporter": "metrics of the operator's nodes are no longer collected",
    "gds": "GPUDirect Storage no longer works",
    "gdrcopy": "GDRCopy no longer works",
}
_OTHER_PLUGIN = (
    f'or, if another device plugin serves its nodes, set the label {PLUGIN_DEPLOY_LABEL}: "false" in the pool, which is then neither shared nor '
    "validated"
)


def enabled_value(document: t.Any, part: str) -> bool | None:
    """The value of `enabled` of an operand in a spec or in Helm values; None if it is not set or invalid."""
    value = get_nested(document, part, "enabled")
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    return value if isinstance(value, bool) else None


def runs(document: t.Any, part: str) -> bool:
    """Whether an operand runs under this spec of a ClusterPolicy."""
    value = enabled_value(document, part)
    return _DEFAULTS[part] if value is None else value


def workload_for_virtual_machines(*documents: t.Any) -> str:
    """The workload of nodes without a workload label, if it is one of virtual machines; otherwise, empty.

    documents: Helm values or specs of a ClusterPolicy; an earlier one overrides the fields of a later one. The operator runs no operand for containers on
    nodes with this workload.
    """

    def value(key: str) -> t.Any:
        values = (get_nested(document, "sandboxWorkloads", key) for document in documents)
        return next((value for value in values if value is not None), None)

    enabled, workload = str(value("enabled")).strip().lower() == "true", value("defaultWorkload")
    return str(workload) if enabled and workload in VIRTUAL_MACHINES else ""


def depend_on_default_workload(pools: t.Iterable[tuple[str, t.Mapping[str, str]]]) -> list[str]:
    """The names of the pools for containers whose labels, given with the name, do not choose a workload."""
    return [name for name, labels in pools if WORKLOAD_LABEL not in labels and not reason_without_containers(labels)]


def needed_operands(mode: SharingMode, labels: t.Mapping[str, str]) -> tuple[str, ...]:
    """The parts of the operands without which a pool with this mode and these labels offers no GPU as declared."""
    if reason_without_containers(labels):
        return ()
    return (_PLUGIN, _DISCOVERY, *((_MIG_MANAGER,) if mode.partitions_gpus else ()))


def missing_operands(
    pools: t.Iterable[tuple[str, SharingMode, t.Mapping[str, str]]], is_running: t.Callable[[str], bool]
) -> dict[str, list[str]]:
    """The names of the pools that need an operand that does not run, by the operand's part; a pool has a name, a mode and labels."""
    missing: dict[str, list[str]] = {}
    for name, mode, labels in pools:
        for part in needed_operands(mode, labels):
            if not is_running(part):
                missing.setdefault(part, []).append(name)
    return missing


def explain_missing(part: str, pools: t.Sequence[str]) -> str:
    """The end of the message about a disabled operand: the rule, with the pools that need the operand."""
    verb = _REASONS[part]
    plural = verb.replace("needs", "need", 1).replace("its GPUs", "their GPUs")
    return f"pool {pools[0]} {verb}" if len(pools) == 1 else f"pools {abbreviate(pools)} {plural}"


def remedy_for_pools(part: str) -> str:
    """The remedy for a pool if the operand must stay disabled, as the continuation of a sentence."""
    return "or choose another sharing.mode" if part == _MIG_MANAGER else _OTHER_PLUGIN


def disabled_operand_problems(cluster: Object, pools: t.Sequence[PoolVariables]) -> Problems:
    """The operator's Helm values must not disable an operand that a pool needs."""
    values = get_nested(cluster, "operator", "values")
    known = [
        (str(name), mode, pool.labels)
        for pool in pools
        if isinstance(name := get_nested(pool.merged, "name"), str) and (mode := _mode_of(pool)) is not None
    ]
    for part, names in missing_operands(known, lambda part: enabled_value(values, part) is not False).items():
        yield (
            f"gpu_cluster.operator.values.{part}.enabled: false disables an operand, but {explain_missing(part, names)}; remove it, {remedy_for_pools(part)}"
        )


def _mode_of(pool: PoolVariables) -> SharingMode | None:
    name = get_nested(pool.merged, "sharing", "mode")
    return DEFAULT_MODE if name is None else mode_named(name)


# Reads gpu_cluster, gpu_defaults and gpu_pools, checks them together, and fills in the defaults.

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

    cluster: Object
    pools: tuple[Object, ...]
    declared_cluster: Object
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
