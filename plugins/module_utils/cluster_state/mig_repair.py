# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes whose MIG change does not finish by waiting, and the reason, for which a restart of their MIG manager helps (pure).

Sources: mig-parted v0.13 to v0.15 cmd/nvidia-mig-manager and pkg/mig/reconfigure; NVIDIA/gpu-operator#2833, #1309, #1703.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import INVALID_SUFFIX
from . import expected_state
from .node_check import CHANGING, FAILED, paused_operands
from .transition import device_counts

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node


def repair_reason(node: Node, pool: PoolPlan | None) -> str:
    """Why the node's MIG manager should be restarted; empty if it should not.

    A pending one may still be working: callers wait before they restart it.
    """
    if not node.mig_config or not node.discovered:
        return ""
    if node.mig_state == FAILED:
        return "the MIG manager failed and does not retry"
    if node.mig_state in CHANGING:
        return f"the MIG manager reports {node.mig_state}, and may do so forever"
    paused = paused_operands(node)
    if paused:
        return f"{', '.join(paused)} were left paused"
    if node.product.endswith(INVALID_SUFFIX):
        return f"its MIG layout is invalid ({node.product})"
    expected = expected_state.expected_mig_config(node, pool, managed=True) if pool else None
    if (
        pool
        and expected == node.mig_config
        and device_counts(node.mig_devices) != device_counts(expected_state.expected_devices(node, pool))
    ):
        return f"the MIG manager reports {node.mig_state or 'nothing'}, and the MIG devices are not those of {expected}"
    return ""
