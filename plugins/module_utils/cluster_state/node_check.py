# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node is seen to be what its pool declares, and if not, what is seen instead (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ..catalog.names import (
    CLIENT_LABEL,
    DEPLOY_PREFIX,
    INVALID_SUFFIX,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    PAUSED_FOR_MIG,
    PRODUCT_LABEL,
)
from ..mig import layout as mig
from ..schema.operand_labels import without_discovery
from . import expected_state
from .node import Node
from .operand_pods import DISCOVERY, MIG_MANAGER
from .ownership import POOLS, recorded_keys

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan


FAILED, CHANGING = "failed", ("pending", "rebooting")
# Where the MIG manager stops an agent for the time of a change (mig-parted pkg/mig/reconfigure).
_DEPLOY, _PAUSED = DEPLOY_PREFIX, PAUSED_FOR_MIG


@dataclass(frozen=True)
class Finding:
    """What of a node is not as its pool declares; final when waiting cannot change it.

    `blamed` is the agent (its pods' label app) whose log tells why; empty where none is known. labels_only: the node offers what it
    should, and the labels of gpu-feature-discovery do not say so.
    """

    node: str
    pool: str
    seen: tuple[str, ...]
    final: bool = False
    blamed: str = ""
    labels_only: bool = False

    def __str__(self) -> str:
        return f"{self.node} (pool {self.pool}): {'; '.join(self.seen)}"


def check(node: Node, pool: PoolPlan) -> Finding | None:
    """None when GFD's labels and the allocatable resources are what the pool declares."""
    if pool.without_containers:
        return None
    if not node.discovered:
        never = without_discovery(node.labels)
        if never:
            return Finding(
                node.name, pool.name, (f"{never}, so that it cannot become what the pool declares",), final=True
            )
        return Finding(node.name, pool.name, (_unlabelled(node),))
    if expected_state.incapable_devices(node, pool):
        what = f"its {node.model} cannot be cut into MIG devices; choose another sharing.mode for it"
        return Finding(node.name, pool.name, (what,), final=True)
    if node.mig_state == FAILED and expected_state.mig_config(node, pool, ours=True) in (None, node.mig_config):
        what = f"{MIG_STATE_LABEL} is {FAILED} for {node.mig_config}, and the MIG manager does not try again by itself"
        return Finding(node.name, pool.name, (what,), final=True, blamed=MIG_MANAGER)
    if node.product.endswith(INVALID_SUFFIX):
        return Finding(node.name, pool.name, (f"{PRODUCT_LABEL} is {node.product}: its MIG layout cannot be used",))
    of_agents, labels, resources = (list(read(node, pool)) for read in (_agents, _labels, _resources))
    seen = [*of_agents, *labels, *resources]
    hardware = _hardware(node, pool)
    if hardware:
        # Labels and resources that agree are settled: a missing card does not come back by waiting.
        return Finding(node.name, pool.name, (hardware, *seen), final=not seen)
    blamed = MIG_MANAGER if node.mig_state in CHANGING or (_config(node, pool) and not node.mig_state) else ""
    if labels == seen != []:
        return Finding(node.name, pool.name, tuple(seen), blamed=DISCOVERY, labels_only=True)
    return Finding(node.name, pool.name, tuple(seen), blamed=blamed) if seen else None


def _unlabelled(node: Node) -> str:
    if not node.gpus:
        return "has an NVIDIA GPU that gpu-feature-discovery has not labelled yet"
    # NFD drops a label that is too long, and the strategy single hangs the profile on the product's name.
    return (
        f"has no label {PRODUCT_LABEL} although gpu-feature-discovery has counted its GPUs; if NFD has dropped it for its length, set "
        f"sharing.strategy to {mig.MIXED}, or name the model in match"
    )


def paused(node: Node) -> list[str]:
    """The operands that the MIG manager has stopped for a change and not let run again, as their labels name them.

    Clients of GPUs are no operands: they run again when the node is opened.
    """
    return sorted(
        key.removeprefix(_DEPLOY)
        for key, value in node.labels.items()
        if value == _PAUSED and key.startswith(_DEPLOY) and key != CLIENT_LABEL
    )


def clients_paused(node: Node) -> bool:
    """Whether DaemonSets that select nvidia.com/gpu.deploy.client are kept off the node, by a run or by the MIG manager, with no change under way."""
    return node.labels.get(CLIENT_LABEL) == _PAUSED and node.mig_state not in CHANGING


def settled(findings: t.Mapping[str, Finding]) -> bool:
    """Whether waiting can change nothing any more."""
    return all(finding.final for finding in findings.values())


def pending_message(findings: t.Mapping[str, Finding], undiscovered: t.Collection[str]) -> str:
    """What a wait still waits for, in a few words."""
    waiting = [f"{len(findings)} nodes not as declared yet"] if findings else []
    if undiscovered:
        waiting.append(f"{len(undiscovered)} GPU nodes not discovered yet")
    return ", ".join(waiting) or "all nodes as declared"


def _config(node: Node, pool: PoolPlan) -> str | None:
    """The MIG configuration that the node is to have by our word; None where the label is the operator's."""
    return expected_state.mig_config(node, pool, ours=MIG_CONFIG_LABEL in recorded_keys(node.annotations, POOLS.labels))


def _agents(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    wanted = _config(node, pool)
    if wanted and node.mig_config != wanted:
        yield f"label {MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, {wanted} is expected"
    elif node.mig_state in CHANGING:
        yield f"{MIG_STATE_LABEL} is {node.mig_state}"
    elif not node.mig_state and (wanted or _expects_mig_manager(node)):
        # Not even where the rest is as it should be: without a MIG strategy the plugin offers GPUs that are cut as whole
        # ones, until the MIG manager stops it to make them whole.
        yield f"the MIG manager has not looked at {node.mig_config} yet"
    if paused(node):
        yield f"{', '.join(paused(node))} paused for the change"


def _expects_mig_manager(node: Node) -> bool:
    """Whether the MIG manager has yet to look at a node; where it finds something to do, agents stop for the time."""
    return bool(node.mig_config) and node.labels.get(f"{_DEPLOY}mig-manager") == "true"


def _labels(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    for key, wanted in sorted(expected_state.labels(node, pool).items()):
        live = node.labels.get(key)
        if live != wanted:
            yield f"label {key} is {live or 'absent'}, {wanted} is expected"


def _resources(node: Node, pool: PoolPlan) -> t.Iterator[str]:
    expected = expected_state.resources(node, pool)
    for resource, wanted in sorted(expected.items()):
        live = node.allocatable.get(resource, 0)
        if live != wanted:
            capacity = node.capacity.get(resource, 0)
            # The kubelet keeps the capacity and drops the allocatable while no plugin is registered for the resource.
            why = "no plugin is registered" if live == 0 else "GPUs are unhealthy"
            lost = f" of a capacity of {capacity}: {why}" if live < capacity == wanted else ""
            yield f"allocatable {resource} is {live}{lost}, {wanted} is expected"
    for other, live in sorted(node.allocatable.items()):
        if other not in expected and live and expected_state.of_gpus(other):
            yield f"allocatable {other} is still {live}"


def _hardware(node: Node, pool: PoolPlan) -> str | None:
    found = expected_state.expected_gpus(node, pool)
    if pool.gpus_per_node in (None, found):
        return None
    return f"has {found} GPU(s), gpus_per_node says {pool.gpus_per_node}"
