# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests that a node must not serve: one pod more than it has shares, and two shares of a device in one request (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from . import evaluation

WAITED, REFUSED = "waited", "refused"

# k8s-device-plugin internal/plugin/server.go, the same for time-slicing and MPS; observed on an H200.
_ONE_EACH = "maximum request size for shared resources is 1"

Pod = t.Mapping[str, t.Any]


@dataclass(frozen=True)
class NegativeResult:
    """The cluster's answer to such a pod; `problem` is empty when the answer is right."""

    answer: str
    problem: str = ""


def surplus_result(
    pod: Pod, holders: t.Sequence[Pod], resource: str, *, ran_together: bool, ended: bool
) -> NegativeResult | None:
    """Whether one pod more had to wait while the `holders` held all of the resource; None: not known yet.

    `ran_together`: all holders have been running at the same time; `ended`: all have ended. The pod has waited if it was
    unschedulable while all holders ran, or started no sooner than the first of them ended (whole seconds, the node's clock).
    """
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        reason = evaluation.failure_reason(status)
        return NegativeResult("failed", f"one pod more than {len(holders)} did not wait: {reason}")
    started = [start for start, dummy in evaluation.run_times(status)]
    if not started:
        waits = f"Insufficient {resource}" in _unschedulable_message(status)
        running = all((holder.get("status") or {}).get("phase") == "Running" for holder in holders)
        return NegativeResult(WAITED) if waits and (ended or running) else None
    ends = [end for holder in holders for dummy, end in evaluation.run_times(holder.get("status") or {}) if end]
    if ends and started[0] >= min(ends):
        return NegativeResult(WAITED)
    if ran_together:
        return NegativeResult(
            "ran", f"one pod more ran besides the {len(holders)} that hold all {resource} of the node"
        )
    return None


def pair_result(pod: Pod, resource: str) -> NegativeResult | None:
    """Whether a request for two shares was refused; None: not known yet."""
    status = pod.get("status") or {}
    if status.get("phase") == "Failed":
        reason = evaluation.failure_reason(status)
        if _ONE_EACH in reason:
            return NegativeResult(REFUSED)
        return NegativeResult(
            "failed", f"a request for two {resource} failed for another reason than its size: {reason}"
        )
    if list(evaluation.run_times(status)):
        return NegativeResult(
            "granted", f"a request for two {resource} was granted, although failRequestsGreaterThanOne is set"
        )
    return None


def _unschedulable_message(status: t.Mapping[str, t.Any]) -> str:
    return next(
        (
            str(condition.get("message"))
            for condition in status.get("conditions") or ()
            if condition.get("type") == "PodScheduled" and condition.get("reason") == "Unschedulable"
        ),
        "",
    )
