# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a node does not come right by waiting, and why starting its MIG manager anew mends it (pure).

Sources: mig-parted v0.13 to v0.15 cmd/nvidia-mig-manager and pkg/mig/reconfigure; NVIDIA/gpu-operator#2833, #1309, #1703.
"""

from __future__ import annotations

import typing as t

from ..catalog.names import INVALID_SUFFIX
from . import expected_state
from .node_check import CHANGING, FAILED, paused
from .transition import named

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan
    from .node import Node


def remedy(node: Node, pool: PoolPlan | None) -> str:
    """What is wrong, in a few words; empty where nothing is, or where it is not the MIG manager's affair.

    One that is pending may yet be at work: it is given its time before it is started anew.
    """
    if not node.mig_config or not node.discovered:
        return ""
    if node.mig_state == FAILED:
        return "the MIG manager failed and does not try again by itself"
    if node.mig_state in CHANGING:
        return f"the MIG manager says {node.mig_state}, and may say so for ever"
    stopped = paused(node)
    if stopped:
        return f"{', '.join(stopped)} were left paused"
    if node.product.endswith(INVALID_SUFFIX):
        return f"its MIG layout cannot be used ({node.product})"
    wanted = expected_state.mig_config(node, pool, ours=True) if pool else None
    if (
        pool
        and wanted == node.mig_config
        and named(node.mig_devices) != named(expected_state.expected_devices(node, pool))
    ):
        return f"the MIG manager says {node.mig_state or 'nothing'}, and the MIG devices are not those of {wanted}"
    return ""
