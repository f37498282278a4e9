# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One pool under proof: what its pods have shown so far, look by look (pure)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from . import evaluation, negative_checks
from .pods import PAIR, SURPLUS, PodRequest, ValidationSite, Workload, pod_name

if t.TYPE_CHECKING:
    from ..pools.plan import PoolPlan

Pod = t.Mapping[str, t.Any]

_TOLD_AS = {SURPLUS: "one_more", PAIR: "two_shares"}
_UNSEEN = {
    SURPLUS: "whether one pod more has to wait was not seen in time",
    PAIR: "whether a request for two shares is refused was not seen in time",
}


@dataclass
class PoolTest:
    """What is known of the pods of one pool."""

    pool: PoolPlan
    site: ValidationSite
    workload: Workload
    together: bool = False
    look: evaluation.PodObservation = field(
        default_factory=lambda: evaluation.PodObservation({}, together=False, ended=False)
    )
    _answers: dict[str, negative_checks.NegativeResult] = field(default_factory=dict)
    _waiting: dict[str, str] = field(default_factory=dict)

    def pod(self, ask: PodRequest) -> str:
        """The name of one of the pods."""
        return pod_name(self.pool, ask, self.workload)

    def see(self, found: t.Mapping[str, Pod]) -> None:
        """Take in one look at the pods that there are, by name."""
        crowd = {ask: found[self.pod(ask)] for ask in self.site.crowd if self.pod(ask) in found}
        self.look = evaluation.observe(list(crowd.values()), self.site.pods)
        self.together = self.together or self.look.together
        for ask in self.site.beyond:
            pod = found.get(self.pod(ask))
            if pod is None or ask.name in self._answers:
                continue
            rivals = [other for of, other in crowd.items() if of.resource == ask.resource]
            answer = self._answer(ask, pod, rivals)
            if answer:
                self._answers[ask.name] = answer
            else:
                self._waiting[ask.name] = evaluation.waiting(pod.get("status") or {})

    @property
    def over(self) -> bool:
        """Whether more waiting brings nothing."""
        return bool(self.look.refusals) or (self.look.ended and len(self._answers) == len(self.site.beyond))

    @property
    def told(self) -> dict[str, str]:
        """How the cluster answered what it must not grant, as far as that could be tried here."""
        return {_TOLD_AS[name]: answer.told for name, answer in self._answers.items()}

    @property
    def problems(self) -> tuple[str, ...]:
        """What the cluster has granted that it must not, and what was not seen in time."""
        answered = [answer.problem for answer in self._answers.values() if answer.problem]
        unseen = [ask for ask in self.site.beyond if ask.name not in self._answers]
        return (*answered, *(f"{_UNSEEN[ask.name]}: {self._waiting.get(ask.name, 'no pod')}" for ask in unseen))

    def _answer(self, ask: PodRequest, pod: Pod, rivals: t.Sequence[Pod]) -> negative_checks.NegativeResult | None:
        if ask.name == PAIR:
            return negative_checks.pair_result(pod, ask.resource)
        return negative_checks.surplus_result(pod, rivals, ask.resource, together=self.together, over=self.look.ended)
