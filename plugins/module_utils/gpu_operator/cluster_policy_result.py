# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What cluster_policy tells of a change and of what became of it: pure."""

from __future__ import annotations

import typing as t

from ..cluster_state.unusual_nodes import as_list
from .driver_rollout import DriverRollout
from .readiness import OperatorReadiness

Object = dict[str, t.Any]


def warnings(roll: DriverRollout | None, held_back: t.Sequence[str]) -> t.Iterator[str]:
    """The driver's roll, announced or held back."""
    if roll and held_back:
        yield (
            f"{', '.join(held_back)} of the ClusterPolicy was held back: it would roll the driver on {roll.nodes} nodes and evict their "
            "GPU pods. Set allow_driver_rollout when that may happen."
        )
    elif roll:
        yield roll.announcement


def observed(verdict: OperatorReadiness | None) -> Object:
    """A verdict as a result; None where there is no policy to look at yet."""
    verdict = verdict or OperatorReadiness("", "", 0, waiting=("",))
    return {
        "ready": verdict.ready,
        "state": verdict.state,
        "reason": verdict.reason,
        "waiting": [line for line in verdict.waiting if line],
        "gpu_nodes": verdict.gpu_nodes,
        "operands": {item.name: {"desired": item.expected, "ready": item.ready} for item in verdict.operands},
        "unreached": list(verdict.unreached)[:100],
        "driver_upgrade": verdict.upgrade.as_dict(),
        "unusual_nodes": as_list(dict(sorted(verdict.set_aside.items())), 100),
    }
