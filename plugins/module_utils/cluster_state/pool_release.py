# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the edit that releases a node from its pool, and verifies that the node's GPUs are whole (pure).

The label nvidia.com/mig.config is not removed from a released node but set to all-disabled, the value that the GPU operator sets on a
node without this label. If the label were removed, the MIG manager would look up an empty name, fail and leave the GPUs as they are
(mig-parted cmd/nvidia-mig-manager, "missing required flag 'selected-config'"), until the operator next reconciles the node.
"""

from __future__ import annotations

import typing as t

from ..catalog import names
from ..catalog.operands import MIG_MANAGER
from ..nvidia_config import mig_parted
from ..pools.metadata import NodeMetadata
from .cordon import is_cordoned_for_removal
from .node_check import CHANGING, FAILED, NodeDrift, has_mig_manager, mig_failure, paused_operands
from .ownership import POOL_OWNER, NodeEdit, metadata_edit, recorded

if t.TYPE_CHECKING:
    from .node import Node

ABANDONED = f"{names.MIG_STATE_LABEL} is {FAILED} and {names.MIG_CONFIG_LABEL} is not set, so GPUs that are still partitioned may be advertised as whole GPUs"
_DONE = "success"


def is_managed(node: Node) -> bool:
    """Whether the node has a pool label, or metadata that a pool has set."""
    return bool(recorded(node, POOL_OWNER)) or names.POOL_LABEL in node.labels


def is_partitioned(node: Node) -> bool:
    """Whether a pool's MIG configuration partitions the node's GPUs, or its removal has not been verified yet.

    If another tool or user has changed the label since then, its value no longer counts as set by the pool.
    """
    if not _sets_mig_config(node):
        return False
    if mig_parted.is_managed(node.mig_config):
        return True
    if node.mig_config not in ("", mig_parted.DISABLED):
        return False
    unknown = not node.mig_state and bool(node.mig_config) and has_mig_manager(node)
    return node.mig_state in (FAILED, *CHANGING) or bool(node.mig_devices) or unknown


def is_abandoned(node: Node) -> bool:
    """Whether a release without verification may have left the node with partitioned GPUs.

    An abandoned node has no MIG configuration, which has made the MIG manager fail. Nodes with a foreign configuration, or with partitioned GPUs and
    no failure, do not count.
    """
    return (
        not is_managed(node)
        and not node.mig_config
        and node.mig_state == FAILED
        and node.labels.get(names.MIG_CAPABLE_LABEL) == "true"
        and has_mig_manager(node)
    )


def is_being_repaired(node: Node) -> bool:
    """Whether a run has begun to disable MIG on an abandoned node, but has not finished."""
    return (
        names.CORDONED_ANNOTATION in node.annotations
        and not is_cordoned_for_removal(node)
        and not is_managed(node)
        and node.mig_config == mig_parted.DISABLED
        and _has_mig_result(node)
    )


def needs_verification(node: Node) -> bool:
    """Whether the node's GPUs must be verified to be whole before the node is uncordoned."""
    is_disabling = _sets_mig_config(node) and node.mig_config == mig_parted.DISABLED and _has_mig_result(node)
    return is_disabling or is_partitioned(node) or is_abandoned(node) or is_being_repaired(node)


def release_edit(node: Node) -> NodeEdit | None:
    """The edit that removes everything that a pool has set on the node, and sets its MIG configuration to all-disabled; None if nothing changes.

    The label nvidia.com/mig.config stays, but is no longer recorded as owned.
    """
    handed_over: dict[str, str] = {}
    if _sets_mig_config(node) or is_abandoned(node):
        foreign = node.mig_config and not mig_parted.is_managed(node.mig_config)
        handed_over = {names.MIG_CONFIG_LABEL: node.mig_config if foreign else mig_parted.DISABLED}
    annotations = dict.fromkeys((names.GPUS_ANNOTATION, names.LAST_GOOD_ANNOTATION, names.ROLLOUT_ANNOTATION))
    return metadata_edit(
        node, POOL_OWNER, NodeMetadata(), remove_others=True, own_annotations=annotations, handed_over=handed_over
    )


def check_whole_gpus(node: Node) -> NodeDrift | None:
    """The reasons why the node's GPUs are not verified to be whole under the configuration all-disabled; None if they are verified.

    All of these conditions must be met: the MIG manager reports success, the paused operands run again, neither GFD's labels nor the allocatable
    resources contain a MIG device, and the node offers as many GPUs (or shares of whole GPUs, if the cluster's default shares them) as GFD counts.
    """
    pool = node.pin
    if node.mig_config == mig_parted.DISABLED and node.mig_state == FAILED:
        return NodeDrift(node.name, pool, (mig_failure(node),), final=True, operand=MIG_MANAGER)
    differences = tuple(_unfinished(node))
    operand = MIG_MANAGER if node.mig_state != _DONE else ""
    return NodeDrift(node.name, pool, differences, operand=operand) if differences else None


def _unfinished(node: Node) -> t.Iterator[str]:
    if node.mig_config != mig_parted.DISABLED:
        yield f"label {names.MIG_CONFIG_LABEL} is {node.mig_config or 'absent'}, but {mig_parted.DISABLED} is expected"
    elif node.mig_state != _DONE:
        yield f"{names.MIG_STATE_LABEL} is {node.mig_state or 'absent'}, but {_DONE} is expected"
    paused = paused_operands(node)
    if paused:
        yield f"operands are paused for the change: {', '.join(paused)}"
    if node.mig_devices or node.product.endswith(names.INVALID_SUFFIX):
        yield f"labels still show MIG devices ({names.PRODUCT_LABEL} is {node.product})"
    for name, count in sorted(node.allocatable.items()):
        if name.startswith("nvidia.com/mig-") and count:
            yield f"allocatable {name} is still {count}"
    if node.labels.get(names.PLUGIN_DEPLOY_LABEL) == "false":
        return
    expected = node.gpus * max(1, node.replicas)
    live = sum(node.allocatable.get(name, 0) for name in (names.GPU_RESOURCE, names.SHARED_GPU_RESOURCE))
    if live != expected or not expected:
        yield f"allocatable {names.GPU_RESOURCE} is {live}, but {expected or 'a number of whole GPUs'} is expected"


def _has_mig_result(node: Node) -> bool:
    """Whether the MIG manager has reported the state of the node's configuration, or runs on the node and will report it."""
    return bool(node.mig_state) or has_mig_manager(node)


def _sets_mig_config(node: Node) -> bool:
    """Whether a pool has set the label nvidia.com/mig.config on the node, and its GPUs are not known to lack support for MIG."""
    incapable = node.labels.get(names.MIG_CAPABLE_LABEL) == "false"
    return names.MIG_CONFIG_LABEL in recorded(node, POOL_OWNER).labels and not incapable
