# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The negative checks: the evaluation of the cluster's reactions, and the results of a run's reads."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation.evaluation import (
    PoolTest,
    one_more_result,
    two_shares_result,
)
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import ValidationSite
from tests.helpers.fleet import node, pool
from tests.helpers.validation import workload

GPU = "nvidia.com/gpu"


def pod(phase: str, start: int | None = None, end: int | None = None, **status: t.Any) -> dict[str, t.Any]:
    """A pod that has begun and ended in these seconds."""
    state: dict[str, t.Any] = {}
    if start is not None:
        times = {"startedAt": f"2026-01-01T00:00:{start:02d}Z"}
        ended = {**times, "finishedAt": f"2026-01-01T00:00:{end or 0:02d}Z"}
        state = {"running": times} if end is None else {"terminated": ended}
    return {"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": [{"state": state}], **status}}


def unscheduled(message: str) -> dict[str, t.Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return pod("Pending", conditions=[condition])


# Message of kube-scheduler 1.36.
FULL = unscheduled(
    f"0/24 nodes are available: 1 Insufficient {GPU}, 23 node(s) didn't match Pod's node affinity/selector."
)
NO_CPU = unscheduled(
    "0/24 nodes are available: 1 Insufficient cpu, 23 node(s) didn't match Pod's node affinity/selector."
)
REFUSED = pod(
    "Failed",
    reason="UnexpectedAdmissionError",
    message=f'Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "{GPU}": '
    "invalid request: maximum request size for shared resources is 1; found 2, which is unexpected",
)
GONE = pod("Failed", reason="UnexpectedAdmissionError", message=f"no healthy devices present; cannot allocate {GPU}")
RUN = [pod("Running", 1), pod("Running", 3)]
ENDED = [pod("Succeeded", 1, 11), pod("Succeeded", 3, 13)]
ONE_ENDED = [pod("Succeeded", 1, 11), pod("Running", 3)]
COMING = [pod("Running", 1), pod("Pending")]

# The extra pod, the pods that hold all devices, whether these ran together, and the result: None, an answer, a problem.
ONE_MORE: list[tuple[str, t.Any, list[t.Any], bool, str | None, str]] = [
    ("waits while all run", FULL, RUN, True, "waited", ""),
    ("waits until all have ended", FULL, ENDED, True, "waited", ""),
    ("waits, but not all run yet", FULL, COMING, False, None, ""),
    ("waits, but one has ended", FULL, ONE_ENDED, True, None, ""),
    ("waits for another reason", NO_CPU, RUN, True, None, ""),
    ("not looked at yet", pod("Pending"), RUN, True, None, ""),
    ("begins when one has ended", pod("Running", 11), ONE_ENDED, True, "waited", ""),
    ("was brief, and after the first", pod("Succeeded", 12, 12), ENDED, True, "waited", ""),
    ("began before the first had ended", pod("Succeeded", 10, 11), ENDED, True, "ran", "ran in addition to the 2"),
    ("runs beside them", pod("Running", 4), RUN, True, "ran", f"hold all {GPU}"),
    ("came before one of them", pod("Running", 2), COMING, False, None, ""),
    ("fails", GONE, RUN, True, "failed", "no healthy devices present"),
]


@pytest.mark.parametrize(
    ("late", "crowd", "together", "expected", "problem"),
    [case[1:] for case in ONE_MORE],
    ids=[case[0] for case in ONE_MORE],
)
def test_one_more(late: t.Any, crowd: list[t.Any], together: bool, expected: str | None, problem: str) -> None:
    over = all(other["status"]["phase"] == "Succeeded" for other in crowd)
    answer = one_more_result(late, crowd, GPU, ran_together=together, ended=over)
    assert (answer and answer.answer) == expected
    assert bool(answer and answer.problem) == bool(problem)
    assert problem in (answer.problem if answer else "")


@pytest.mark.parametrize(
    ("asked", "expected", "problem"),
    [
        (REFUSED, "refused", ""),
        (GONE, "failed", "failed for a reason other than its size"),
        (pod("Running", 1), "granted", "even though failRequestsGreaterThanOne"),
        (pod("Succeeded", 1, 1), "granted", GPU),
        (FULL, None, ""),
        (pod("Pending"), None, ""),
    ],
)
def test_two_shares(asked: t.Any, expected: str | None, problem: str) -> None:
    answer = two_shares_result(asked, GPU)
    assert (answer and answer.answer) == expected
    assert bool(answer and answer.problem) == bool(problem)
    assert problem in (answer.problem if answer else "")


def looked(*looks: list[t.Any]) -> PoolTest:
    """A test_run of two pods, one more and one for two shares, after these looks at them, in that order."""
    test_run = PoolTest(
        pool(replicas=2), ValidationSite(node(replicas=2), (GPU, GPU), one_more=GPU, two_shares=GPU), workload()
    )
    names = [test_run.pod_name(ask) for ask in (*test_run.site.holders, *test_run.site.negative_checks)]
    for pods in looks:
        test_run.update({name: {**seen, "metadata": {"name": name}} for name, seen in zip(names, pods, strict=False)})
    return test_run


def test_answers_are_remembered() -> None:
    test_run = looked([*RUN, FULL, FULL], [*ENDED, pod("Succeeded", 12, 12), REFUSED])
    assert test_run.finished
    assert test_run.ran_together
    assert test_run.answers == {"one_more": "waited", "two_shares": "refused"}
    assert test_run.problems == ()


def test_a_test_is_not_finished_before_both_answers() -> None:
    test_run = looked([*RUN, FULL, FULL], [*ENDED, FULL, FULL])
    assert not test_run.finished
    assert test_run.answers == {"one_more": "waited"}
    [problem] = test_run.problems
    assert problem.startswith(
        "the time limit was reached before it was known whether a request for two shares is rejected: Pending, Unschedulable"
    )


def test_missing_pods_give_no_answer() -> None:
    test_run = looked(RUN)
    assert not test_run.finished
    assert [problem.rpartition(": ")[2] for problem in test_run.problems] == ["no pod", "no pod"]


def test_a_served_request_is_a_problem() -> None:
    test_run = looked([*ENDED, pod("Succeeded", 4, 5), pod("Succeeded", 14, 14)])
    assert test_run.finished
    assert test_run.answers == {"one_more": "ran", "two_shares": "granted"}
    assert len(test_run.problems) == 2
