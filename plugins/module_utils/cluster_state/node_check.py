# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares a node with its pool's declaration, and finds MIG changes that need a restart of the MIG manager (pure).

Sources: mig-parted v0.13 to v0.15 cmd/nvidia-mig-manager and pkg/mig/reconfigure; NVIDIA/gpu-operator#2833, #1309, #1703.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog import names
from ..catalog.operands import DISCOVERY, MIG_MANAGER
from ..mig import layout as layouts
from ..schema.operand_labels import reason_without_discovery
from . import expected_state
from .node import Node

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

FAILED, CHANGING = "failed", ("pending", "rebooting")
# The phrase for a node that is not ready, in all messages and in the node's drift.
NOT_READY = "is not ready"


@dataclass(frozen=True)
class NodeDrift:
    """The differences between a node and its pool's declaration. `final`: whether they remain no matter how long a run waits.

    `operand` is the label app of the operand whose log contains the cause; empty if it is unknown. `labels_only`: whether the node offers the
    expected resources, and only the labels of gpu-feature-discovery differ. `lost`: whether the labels are as expected, but the node offers fewer GPUs.
    """

    node: str
    pool: str
    differences: tuple[str, ...]
    final: bool = False
    operand: str = ""
    labels_only: bool = False
    lost: bool = False

    def __str__(self) -> str:
        return f"{self.node} (pool {self.pool}): {'; '.join(self.differences)}"


def check_node(node: Node, pool: PoolPlan) -> NodeDrift | None:
    """Compare GFD's labels and the allocatable resources with the pool's declaration; None if there is no difference."""

    def finding(*differences: str, **fields: t.Any) -> NodeDrift:
        return NodeDrift(node.name, pool.name, differences, **fields)

    if pool.reason_without_containers:
        return None
    reason = reason_without_discovery(node.labels)
    unreachable = f"{reason}, so it cannot reach the declared state"
    if not node.discovered:
        if reason:
            return finding(unreachable, final=True)
        # If NFD has examined the node and the operator has processed the result, waiting does not help.
        denied = node.has_nfd_labels and node.labels.get(names.GPU_PRESENT_LABEL) == "false"
        return finding(_undiscovered(node), final=denied)
    if expected_state.lacks_mig_support(node, pool):
        return finding(f"its {node.model} does not support MIG; choose another sharing.mode for it", final=True)
    failed_config = expected_state.expected_mig_config(node, pool, managed=True)
    if node.mig_state == FAILED and failed_config in (None, node.mig_config):
        return finding(mig_failure(node), final=True, operand=MIG_MANAGER)
    if node.product.endswith(names.INVALID_SUFFIX):
        return finding(f"{names.PRODUCT_LABEL} is {node.product}: its MIG layout is invalid")
    operands, labels, resources = (list(compare(node, pool)) for compare in (_operands, _labels, _resources))
    differences = [*operands, *labels, *resources]
    if reason and differences:
        return finding(unreachable, *differences, final=True)
    gpus = expected_state.expected_gpus(node, pool)
    if pool.gpus_per_node not in (None, gpus):
        hardware = f"has {gpus} GPU(s), but gpus_per_node is {pool.gpus_per_node}"
        # If labels and resources agree, the finding is final, because waiting does not bring back a missing GPU.
        return finding(hardware, *differences, final=not differences)
    if labels == differences != []:
        return finding(*differences, operand=DISCOVERY, labels_only=True)
    is_changing = node.mig_state in CHANGING or (expected_state.expected_mig_config(node, pool) and not node.mig_state)
    lost = resources == differences and _offers_less(node, pool)
    return finding(*differences, operand=MIG_MANAGER if is_changing else "", lost=lost) if differences else None


def _offers_less(node: Node, pool: PoolPlan) -> bool:
    offers = expected_state.expected_offers(node, pool)
    return any(node.allocatable.get(resource, 0) < expected for resource, expected in offers.items())


def not_ready_message(subject: str) -> str:
    """The message for a node that a run cannot change because the node is not ready; `subject` is the node's name or another noun for the node."""
    return f"{subject} {NOT_READY}, so its pods cannot terminate and NVIDIA's operands do not run"


def mig_failure(node: Node) -> str:
    """The message for a node whose MIG manager has failed."""
    return f"{names.MIG_STATE_LABEL} is {FAILED} for {node.mig_config}, and the MIG manager does not retry"


def _undiscovered(node: Node) -> str:
    if not node.has_gpu:
        denied = node.labels.get(names.GPU_PRESENT_LABEL) == "false"
        shows = f"has the label {names.GPU_PRESENT_LABEL}=false, because it lacks" if denied else "lacks"
        return (
            f"{shows} NFD's label for a PCI device of NVIDIA: check that NFD runs there and that the GPU is attached (lspci -d 10de:); if the node "
            f"has no GPU any longer, remove its label {names.POOL_LABEL}"
        )
    if not node.gpus:
        return "has an NVIDIA GPU that gpu-feature-discovery has not labeled yet"
    # NFD drops a label that is too long, and the strategy single makes the product's name longer by appending the
    # profile.
    return (
        f"has no label {names.PRODUCT_LABEL} even though gpu-feature-discovery has counted its GPUs; if NFD has dropped it because of its "
        f"length, set sharing.strategy to {layouts.MIXED}, or set match.model"
    )


def paused_operands(node: Node) -> list[str]:
    """The operands that the MIG manager has stopped for a change but not yet restarted, by the names in their labels.

    GPU clients are not operands; they are restarted when the node is uncordoned.
    """
    return sorted(
        key.removeprefix(names.DEPLOY_PREFIX)
        for key, value in node.labels.items()
        if value == names.PAUSED_FOR_MIG and key.startswith(names.DEPLOY_PREFIX) and key != names.CLIENT_LABEL
    )


def has_mig_manager(node: Node) -> bool:
    """Whether the GPU operator runs a MIG manager on the node."""
    return node.labels.get(names.MIG_MANAGER_DEPLOY_LABEL) == "true"


def clients_paused(node: Node) -> bool:
    """Whether DaemonSets that select nvidia.com/gpu.deploy.client are still stopped on the node although no change is in progress."""
    return node.labels.get(names.CLIENT_LABEL) == names.PAUSED_FOR_MIG and node.mig_state not in CHANGING


def all_final(findings: t.Mapping[str, NodeDrift]) -> bool:
    """Whether all findings are final, so that waiting cannot help."""
    return all(finding.final for finding in findings.values())


def progress_text(undiscovered: t.Collection[str]) -> str:
    """The end of a wait's progress message; the caller prepends the number of matching nodes and the number of all nodes of the pools."""
    waiting = f"; {len(undiscovered)} GPU nodes are not discovered yet" if undiscovered else ""
    return f"nodes are in the desired state{waiting}"


def _operands(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    expected = expected_state.expected_mig_config(node, pool)
    # The operator has set a configuration on the node, and the MIG manager has not processed it yet.
    awaits_mig_manager = bool(node.mig_config) and has_mig_manager(node)
    if expected and node.mig_config != expected:
        yield f"label {names.MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, but {expected} is expected"
    elif node.mig_state in CHANGING:
        yield f"{names.MIG_STATE_LABEL} is {node.mig_state}"
    elif not node.mig_state and (
        (expected and node.labels.get(names.MIG_CAPABLE_LABEL) != "false") or awaits_mig_manager
    ):
        # This is a difference even if everything else is as expected: without a MIG strategy, the plugin offers
        # partitioned GPUs as whole ones until the MIG manager stops it to disable MIG.
        yield f"the MIG manager has not processed {node.mig_config} yet"
    paused = paused_operands(node)
    if paused:
        yield f"operands are paused for the change: {', '.join(paused)}"


def _labels(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    for key, expected in sorted(expected_state.expected_labels(node, pool).items()):
        live = node.labels.get(key)
        if live != expected:
            yield f"label {key} is {live or 'absent'}, but {expected} is expected"


def _resources(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    offers = expected_state.expected_offers(node, pool)
    for resource, expected in sorted(offers.items()):
        live = node.allocatable.get(resource, 0)
        if live != expected:
            capacity = node.capacity.get(resource, 0)
            # The kubelet keeps the capacity and reduces the allocatable amount while no plugin is registered for the resource.
            cause = "no plugin is registered, or all its GPUs are unhealthy" if live == 0 else "GPUs are unhealthy"
            lost = f" of a capacity of {capacity}: {cause}" if live < capacity == expected else ""
            yield f"allocatable {resource} is {live}{lost}, but {expected} is expected"
    for other, live in sorted(node.allocatable.items()):
        if other not in offers and live and expected_state.is_gpu_resource(other):
            yield f"allocatable {other} is still {live}"


def repair_reason(node: Node, pool: PoolPlan | None) -> str:
    """The reason why the node's MIG manager should be restarted; empty if no restart is needed.

    A MIG manager that reports `pending` may still be working, so callers wait before they restart it.
    """
    if not node.mig_config or not node.discovered or reason_without_discovery(node.labels):
        return ""
    if node.mig_state == FAILED:
        return "the MIG manager failed and does not retry"
    if node.mig_state in CHANGING:
        return f"the MIG manager reports {node.mig_state}, and may do so indefinitely"
    paused = paused_operands(node)
    if paused:
        return f"{', '.join(paused)} were left paused"
    if node.product.endswith(names.INVALID_SUFFIX):
        return f"its MIG layout is invalid ({node.product})"
    is_expected = pool is not None and expected_state.expected_mig_config(node, pool, managed=True) == node.mig_config
    if pool and is_expected and node.mig_devices != expected_state.devices_in_labels(node, pool):
        return f"the MIG manager reports {node.mig_state or 'nothing'}, and the MIG devices are not those of {node.mig_config}"
    return ""
