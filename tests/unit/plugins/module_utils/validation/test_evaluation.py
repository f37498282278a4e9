# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Devices in the logs of pods, and observations of their states."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation import evaluation
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import ValidationSite
from tests.helpers.fleet import node, pool
from tests.helpers.validation import workload

SHARED = pool(replicas=4)


def _line(uuid: str, name: str = "Tesla T4", index: int = 0) -> str:
    return f"GPU {index}: {name} (UUID: GPU-{uuid})\n"


LOGS: list[tuple[str, t.Any, t.Any, list[str], list[str]]] = [
    ("exclusive", pool(), node(gpus=2), [_line("a"), _line("b")], []),
    ("shared", SHARED, node(replicas=4), [_line("a")] * 4, []),
    ("exclusive, shared in truth", pool(), node(gpus=2), [_line("a"), _line("a")], ["given to 2 pods", "one pod"]),
    ("too many shares", SHARED, node(replicas=4, gpus=2), [_line("a")] * 5, ["given to 5 pods", "4 pods"]),
    ("more devices than GPUs", SHARED, node(replicas=4), [_line("a"), _line("b")], ["given 2 devices", "has 1"]),
    ("all devices visible", pool(), node(gpus=2), [_line("a") + _line("b", index=1)], ["lists 2 devices"]),
    ("no driver", pool(), node(), ["NVIDIA-SMI has failed\n"], ["lists 0 devices", "NVIDIA-SMI has failed"]),
    ("another model", pool(), node(), [_line("a", "NVIDIA L40S")], ["was given a NVIDIA L40S", "labeled Tesla-T4"]),
]


@pytest.mark.parametrize(
    ("of_pool", "of_node", "logs", "words"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS]
)
def test_check_devices(of_pool: t.Any, of_node: t.Any, logs: list[str], words: list[str]) -> None:
    result = evaluation.check_devices(of_pool, of_node, {f"pod-{index}": log for index, log in enumerate(logs)})
    text = "; ".join(result.problems)
    assert bool(text) == bool(words)
    assert [word for word in words if word not in text] == []


def test_the_prefix_of_the_product_does_not_matter() -> None:
    result = evaluation.check_devices(pool(), node(model="NVIDIA-H200"), {"p": _line("a", "NVIDIA H200")})
    assert result.problems == ()


def test_mig_devices_replace_their_gpu() -> None:
    log = _line("a", "NVIDIA A30") + "  MIG 1g.6gb      Device  0: (UUID: MIG-1234-5678)\n"
    assert [uuid for dummy, uuid in evaluation.devices(log)] == ["MIG-1234-5678"]


def _status(phase: str, start: int = 0, end: int | None = None, **more: t.Any) -> dict[str, t.Any]:
    times = {"startedAt": f"2026-01-01T00:00:{start:02d}Z"}
    state = (
        {"running": times} if end is None else {"terminated": {**times, "finishedAt": f"2026-01-01T00:00:{end:02d}Z"}}
    )
    return {"phase": phase, "containerStatuses": [{"state": state}], **more}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes: 1 Insufficient",
}
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "maximum request size is 1; found 2"}
NO_IMAGE = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}
ENDED_BADLY = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 9, "reason": "Error"}}}]}

OBSERVATIONS: list[tuple[str, list[dict[str, t.Any]], bool, bool, str]] = [
    ("all run", [_status("Running"), _status("Running", 3)], True, False, ""),
    ("one waits", [_status("Running"), {"phase": "Pending"}], False, False, "not processed by the scheduler"),
    ("spans overlap", [_status("Succeeded", 1, 9), _status("Succeeded", 4, 12)], True, True, ""),
    ("one after another", [_status("Succeeded", 1, 4), _status("Succeeded", 4, 9)], False, True, ""),
    ("last still runs", [_status("Succeeded", 1, 9), _status("Running", 4)], True, False, ""),
    (
        "unschedulable",
        [_status("Running"), {"phase": "Pending", "conditions": [UNSCHEDULABLE]}],
        False,
        False,
        "0/5 nodes",
    ),
    ("refused", [_status("Running"), REFUSED], False, False, "UnexpectedAdmissionError: maximum request"),
    ("no image", [_status("Running"), {"phase": "Pending", **NO_IMAGE}], False, False, "ErrImagePull: not found"),
    ("exit code", [_status("Succeeded", 1, 9), ENDED_BADLY], False, True, "exit code 9"),
    ("not all there yet", [_status("Running")], False, False, ""),
]


@pytest.mark.parametrize(
    ("statuses", "together", "ended", "words"),
    [case[1:] for case in OBSERVATIONS],
    ids=[case[0] for case in OBSERVATIONS],
)
def test_observe(statuses: list[dict[str, t.Any]], together: bool, ended: bool, words: str) -> None:
    pods = [{"metadata": {"name": f"p{index}"}, "status": status} for index, status in enumerate(statuses)]
    seen = evaluation.observe(pods, 2)
    assert (seen.together, seen.ended) == (together, ended)
    failures = [f"{failure.pod}: {failure.reason}" for failure in seen.failures]
    assert words in "; ".join([*failures, *seen.waiting])


def _test_run(statuses: list[dict[str, t.Any]], rejected: bool = False) -> evaluation.PoolTest:
    """The test of two pods with these states; with `rejected`, the API server has rejected the second one."""
    test_run = evaluation.PoolTest(pool(), ValidationSite(node(gpus=2), ("nvidia.com/gpu",) * 2), workload())
    names = [test_run.pod_name(request) for request in test_run.site.holders]
    if rejected:
        test_run.rejected[names[1]] = "exceeded quota: gpus"
    test_run.update(
        {
            name: {"metadata": {"name": name}, "status": status}
            for name, status in zip(names, statuses, strict=not rejected)
        }
    )
    return test_run


BAD_KERNEL = {
    **_status("Failed"),
    "containerStatuses": [{"name": "kernel", "state": {"terminated": {"exitCode": 124}}}],
}
BAD_KERNEL["containerStatuses"][0]["state"]["terminated"]["startedAt"] = "2026-01-01T00:00:01Z"


@pytest.mark.parametrize(
    ("statuses", "rejected", "finished", "failures", "disproves"),
    [
        # A pod that runs its kernel may fail, too; the test does not wait for a pending pod.
        ([BAD_KERNEL, _status("Running")], False, False, 1, True),
        ([BAD_KERNEL, BAD_KERNEL], False, True, 2, True),
        ([BAD_KERNEL, _status("Succeeded", 1, 9)], False, True, 1, True),
        ([BAD_KERNEL, {"phase": "Pending"}], False, True, 1, True),
        ([{"phase": "Pending"}, {"phase": "Pending"}], False, False, 0, False),
        ([NO_IMAGE, NO_IMAGE], False, True, 2, False),
        ([{"phase": "Pending"}], True, True, 1, False),
        ([_status("Running")], True, False, 1, False),
        ([BAD_KERNEL], True, True, 2, False),
    ],
)
def test_failures_of_a_pool(
    statuses: list[dict[str, t.Any]], rejected: bool, finished: bool, failures: int, disproves: bool
) -> None:
    test_run = _test_run(statuses, rejected)
    assert (test_run.finished, len(test_run.failures), test_run.disproves) == (finished, failures, disproves)
    assert test_run.failures[-1:] == () or not rejected or "rejected: exceeded quota" in test_run.failures[-1].reason


@pytest.mark.parametrize(
    ("result", "messages"),
    [
        (evaluation.DeviceCheck(), []),
        (evaluation.DeviceCheck(problems=("a", "b")), ["a", "b"]),
        (evaluation.DeviceCheck(problems=("a", "b"), summary=("2 pods",)), ["2 pods"]),
        (evaluation.DeviceCheck(problems=tuple("abcdefg")), [*"abcde", "and 2 more problems"]),
        (evaluation.DeviceCheck(problems=("a", "b"), summary=("2 pods",)).with_problem("late"), ["late", "2 pods"]),
    ],
)
def test_messages_name_some_problems(result: evaluation.DeviceCheck, messages: list[str]) -> None:
    assert result.messages == messages
