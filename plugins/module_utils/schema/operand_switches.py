# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determines which of the GPU operator's operands run, and which of them a pool needs (pure).

An operand is disabled by `enabled: false` of its part, in the spec of the ClusterPolicy and in the Helm values (the paths are the same). A preinstalled
driver or container toolkit replaces the operator's own, so no pool needs these operands. NVIDIA's chart writes a Helm value as text, so the text "false"
also disables an operand.

Source: gpu-operator api/nvidia/v1/clusterpolicy_types.go (IsEnabled() of each part: the value if `enabled` is not set),
controllers/state_manager.go (isStateEnabled), deployments/gpu-operator/templates/clusterpolicy.yaml.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import PLUGIN_DEPLOY_LABEL, WORKLOAD_LABEL
from ..catalog.operands import OPERANDS
from ..common.nested import get_nested
from ..sharing_modes.modes import DEFAULT_MODE, mode_named
from .messages import abbreviate
from .operand_labels import VIRTUAL_MACHINES, reason_without_containers
from .types import Document, PoolVariables, Problems

if t.TYPE_CHECKING:
    from ..sharing_modes.base import SharingMode

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


def switched_off(before: t.Any, after: t.Any) -> list[str]:
    """The parts of the operands that run under the spec `before`, but not under the spec `after`."""
    return [part for part in _DEFAULTS if part in EFFECTS and runs(before, part) and not runs(after, part)]


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


def disabled_operand_problems(cluster: Document, pools: t.Sequence[PoolVariables]) -> Problems:
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
