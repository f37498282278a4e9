# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that belongs to no declared pool any more: what it gives back, and when its GPUs are verified to be whole (pure).

The label nvidia.com/mig.config is not taken off a released node but set to all-disabled, the value that the GPU operator gives a
node without one. When the label is removed, the MIG manager looks up an empty name, fails and leaves the GPUs as they are
(mig-parted cmd/nvidia-mig-manager, "missing required flag 'selected-config'"), until the operator next reconciles the node.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import (
    CORDONED_ANNOTATION,
    GPU_RESOURCE,
    GPUS_ANNOTATION,
    INVALID_SUFFIX,
    LAST_GOOD_ANNOTATION,
    MIG_CAPABLE_LABEL,
    MIG_CONFIG_LABEL,
    MIG_STATE_LABEL,
    POOL_LABEL,
    PRODUCT_LABEL,
    ROLLOUT_ANNOTATION,
    SHARED_GPU_RESOURCE,
)
from ..nvidia_config import mig_parted
from .cordon import is_cordoned_for_removal
from .node_check import CHANGING, FAILED, Finding, paused
from .operand_pods import MIG_MANAGER
from .ownership import POOLS, NodeEdit, edit, recorded_keys

if t.TYPE_CHECKING:
    from .node import Node

ABANDONED = f"{MIG_STATE_LABEL} is {FAILED} and {MIG_CONFIG_LABEL} is not set, so that GPUs that are still cut may be offered as whole ones"
_DEPLOY_MIG_MANAGER = "nvidia.com/gpu.deploy.mig-manager"
_DEPLOY_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
_DONE = "success"
# The state is about the configuration before.
STALE = {MIG_CONFIG_LABEL: MIG_STATE_LABEL}


def left_pool(node: Node) -> str:
    """The name of the pool that a released node leaves, by its label; empty where the label is gone."""
    return node.labels.get(POOL_LABEL, "")


def is_managed(node: Node) -> bool:
    """Whether the node carries the name of a pool, or labels or taints that a pool has put there."""
    owned = recorded_keys(node.annotations, POOLS.labels) or recorded_keys(node.annotations, POOLS.taints)
    return bool(owned) or POOL_LABEL in node.labels


def is_cut(node: Node) -> bool:
    """Whether a MIG configuration of a pool cuts the node's GPUs, or is not verified to be undone.

    A value that somebody else has given the label since is theirs.
    """
    if not _sets_mig_config(node):
        return False
    if mig_parted.is_ours(node.mig_config):
        return True
    if node.mig_config not in ("", mig_parted.DISABLED):
        return False
    unknown = not node.mig_state and bool(node.mig_config) and has_mig_manager(node)
    return node.mig_state in (FAILED, *CHANGING) or bool(node.mig_devices) or unknown


def is_abandoned(node: Node) -> bool:
    """Whether a release without verification may have left the node with GPUs that are still cut.

    Nothing asks for a MIG configuration, and the MIG manager has failed over that. A node with a configuration of
    somebody else, or with GPUs that are cut without a failure, is none.
    """
    return (
        not is_managed(node)
        and not node.mig_config
        and node.mig_state == FAILED
        and node.labels.get(MIG_CAPABLE_LABEL) == "true"
        and has_mig_manager(node)
    )


def is_being_repaired(node: Node) -> bool:
    """Whether a run has begun to make the GPUs of an abandoned node whole, and has not finished."""
    return (
        CORDONED_ANNOTATION in node.annotations
        and not is_cordoned_for_removal(node)
        and not is_managed(node)
        and node.mig_config == mig_parted.DISABLED
        and _has_answer(node)
    )


def has_mig_manager(node: Node) -> bool:
    """Whether the GPU operator runs a MIG manager on the node."""
    return node.labels.get(_DEPLOY_MIG_MANAGER) == "true"


def needs_verification(node: Node) -> bool:
    """Whether the node may be opened only when its GPUs are verified to be whole."""
    told = _sets_mig_config(node) and node.mig_config == mig_parted.DISABLED and _has_answer(node)
    return told or is_cut(node) or is_abandoned(node) or is_being_repaired(node)


def release_edit(node: Node) -> NodeEdit | None:
    """What gives back everything that a pool has put on the node, its MIG configuration made all-disabled; None: nothing is there.

    The label nvidia.com/mig.config stays, and is not noted as the collection's any more.
    """
    handed_over: dict[str, str] = {}
    if _sets_mig_config(node) or is_abandoned(node):
        foreign = node.mig_config and not mig_parted.is_ours(node.mig_config)
        handed_over = {MIG_CONFIG_LABEL: node.mig_config if foreign else mig_parted.DISABLED}
    dropped = dict.fromkeys((GPUS_ANNOTATION, LAST_GOOD_ANNOTATION, ROLLOUT_ANNOTATION))
    return edit(node, POOLS, drop_others=True, annotations=dropped, stale=STALE, handed_over=handed_over)


def not_whole(node: Node) -> Finding | None:
    """What of the node does not show whole GPUs by the configuration all-disabled; None when all of it does.

    Believed only together: the MIG manager's state, its operands running again, no MIG device in GFD's labels or in the
    allocatable resources, and as many GPUs (or shares of whole GPUs, where the cluster's default shares them) as GFD counts.
    """
    pool = left_pool(node)
    if node.mig_config == mig_parted.DISABLED and node.mig_state == FAILED:
        what = f"{MIG_STATE_LABEL} is {FAILED} for {node.mig_config}, and the MIG manager does not try again by itself"
        return Finding(node.name, pool, (what,), final=True, blamed=MIG_MANAGER)
    seen = tuple(_unfinished(node))
    return Finding(node.name, pool, seen, blamed=MIG_MANAGER if node.mig_state != _DONE else "") if seen else None


def _unfinished(node: Node) -> t.Iterator[str]:
    if node.mig_config != mig_parted.DISABLED:
        yield f"label {MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, {mig_parted.DISABLED} is expected"
    elif node.mig_state != _DONE:
        yield f"{MIG_STATE_LABEL} is {node.mig_state or 'absent'}, {_DONE} is expected"
    stopped = paused(node)
    if stopped:
        yield f"{', '.join(stopped)} paused for the change"
    if node.mig_devices or node.product.endswith(INVALID_SUFFIX):
        yield f"labels still show MIG devices ({PRODUCT_LABEL} is {node.product})"
    for name, count in sorted(node.allocatable.items()):
        if name.startswith("nvidia.com/mig-") and count:
            yield f"allocatable {name} is still {count}"
    if node.labels.get(_DEPLOY_PLUGIN) == "false":
        return
    wanted = node.gpus * max(1, node.replicas)
    live = sum(node.allocatable.get(name, 0) for name in (GPU_RESOURCE, SHARED_GPU_RESOURCE))
    if live != wanted or not wanted:
        yield f"allocatable {GPU_RESOURCE} is {live}, {wanted or 'a number of whole GPUs'} is expected"


def _has_answer(node: Node) -> bool:
    """Whether the MIG manager has said what became of the node's configuration, or is there to say it."""
    return bool(node.mig_state) or has_mig_manager(node)


def _sets_mig_config(node: Node) -> bool:
    """Whether the label nvidia.com/mig.config is a pool's, on GPUs that can be cut at all."""
    incapable = node.labels.get(MIG_CAPABLE_LABEL) == "false"
    return MIG_CONFIG_LABEL in recorded_keys(node.annotations, POOLS.labels) and not incapable
