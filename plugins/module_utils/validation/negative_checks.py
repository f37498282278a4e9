# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node must not grant: one pod more than it has shares, and two shares of a device in one request (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from . import evaluation

WAITED, REFUSED = "waited", "refused"

# k8s-device-plugin internal/plugin/server.go, the same for time-slicing and MPS; seen on an H200.
_ONE_EACH = "maximum request size for shared resources is 1"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class NegativeResult:
    """How the cluster answered such a pod; problem empty: as it must."""

    told: str
    problem: str = ""


def surplus_result(
    pod: Pod, crowd: t.Sequence[Pod], resource: str, *, together: bool, over: bool
) -> NegativeResult | None:
    """Whether one pod more had to wait, while `crowd` held all of the resource; None: not to be told yet.

    `together`: the crowd has been seen running all at once; `over`: all of it has ended. Seen waiting while all of them
    run, or begun no sooner than the first of them had ended (whole seconds, one clock: the node's), it has waited.
    """
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        return NegativeResult("failed", f"one pod more than {len(crowd)} did not wait: {evaluation.refusal(status)}")
    begun = [start for start, dummy in evaluation.spans(status)]
    if not begun:
        waits = f"Insufficient {resource}" in _unschedulable(status)
        running = all((other.get("status") or {}).get("phase") == "Running" for other in crowd)
        return NegativeResult(WAITED) if waits and (over or running) else None
    ends = [end for other in crowd for dummy, end in evaluation.spans(other.get("status") or {}) if end]
    if ends and begun[0] >= min(ends):
        return NegativeResult(WAITED)
    if together:
        return NegativeResult("ran", f"one pod more ran beside the {len(crowd)} that hold all {resource} of the node")
    return None


def pair_result(pod: Pod, resource: str) -> NegativeResult | None:
    """Whether a request for two shares was refused; None: not to be told yet."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        why = evaluation.refusal(status)
        if _ONE_EACH in why:
            return NegativeResult(REFUSED)
        return NegativeResult("failed", f"a request for two {resource} was not refused as it should be: {why}")
    if list(evaluation.spans(status)):
        return NegativeResult(
            "granted", f"a request for two {resource} was granted, although failRequestsGreaterThanOne is set"
        )
    return None


def _unschedulable(status: t.Mapping[str, t.Any]) -> str:
    return next(
        (
            str(condition.get("message"))
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable"
        ),
        "",
    )
