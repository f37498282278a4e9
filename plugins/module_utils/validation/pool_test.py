# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test of one pool: what its pods have shown so far (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from . import evaluation, negative_checks
from .pods import PAIR, SURPLUS, PodRequest, ValidationSite, Workload, pod_name

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

Pod = t.Mapping[str, t.Any]

_RESULT_KEYS = {SURPLUS: "one_more", PAIR: "two_shares"}
_UNANSWERED = {
    SURPLUS: "it is not known in time whether one pod more has to wait",
    PAIR: "it is not known in time whether a request for two shares is refused",
}


@dataclass
class PoolTest:
    """The pods of one pool on one node."""

    pool: PoolPlan
    site: ValidationSite
    workload: Workload
    ran_together: bool = False
    observation: evaluation.PodObservation = field(
        default_factory=lambda: evaluation.PodObservation({}, together=False, ended=False)
    )
    _answers: dict[str, negative_checks.NegativeResult] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    def pod_name(self, request: PodRequest) -> str:
        """The name of one of the pods."""
        return pod_name(self.pool, request, self.workload)

    def update(self, pods: t.Mapping[str, Pod]) -> None:
        """Evaluate one reading of the pods, which are given by name."""
        holders = {request: pods[name] for request in self.site.holders if (name := self.pod_name(request)) in pods}
        self.observation = evaluation.observe(list(holders.values()), self.site.pods)
        self.ran_together = self.ran_together or self.observation.together
        for request in self.site.negative_checks:
            pod = pods.get(self.pod_name(request))
            if pod is None or request.name in self._answers:
                continue
            if request.name == PAIR:
                answer = negative_checks.pair_result(pod, request.resource)
            else:
                rivals = [other for holder, other in holders.items() if holder.resource == request.resource]
                answer = negative_checks.surplus_result(
                    pod, rivals, request.resource, ran_together=self.ran_together, ended=self.observation.ended
                )
            if answer:
                self._answers[request.name] = answer
            else:
                self._waiting[request.name] = evaluation.waiting_reason(pod.get("status") or {})

    @property
    def finished(self) -> bool:
        """Whether no further result can come."""
        answered = len(self._answers) == len(self.site.negative_checks)
        return bool(self.observation.failures) or (self.observation.ended and answered)

    @property
    def answers(self) -> dict[str, str]:
        """The answers to the negative checks, as far as these could be run here."""
        return {_RESULT_KEYS[name]: result.answer for name, result in self._answers.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """Wrong answers to the negative checks, and missing ones."""
        wrong = [result.problem for result in self._answers.values() if result.problem]
        missing = [request.name for request in self.site.negative_checks if request.name not in self._answers]
        return (*wrong, *(f"{_UNANSWERED[name]}: {self._waiting.get(name, 'no pod')}" for name in missing))
