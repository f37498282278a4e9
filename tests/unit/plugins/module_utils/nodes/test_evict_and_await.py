# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain evicts pods, waits for others, and names the options when the wait takes too long."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress, WaitTimeout
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import BUDGET_CAUSE, ApiError
from ansible_collections.accel.gpu.plugins.module_utils.nodes import drain as eviction
from ansible_collections.accel.gpu.plugins.module_utils.nodes.drain import progress_by_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.impact import ROLLOUT_OPTIONS, pods_to_await
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import DrainOptions

TRAIN, WEB = PodOnNode("team", "train", "1"), PodOnNode("team", "web", "2")
WAITING = DrainOptions(evict=False, drain_timeout=0)


def drain(
    to_evict: t.Sequence[PodOnNode], to_await: t.Mapping[str, str], remaining: t.Sequence[PodOnNode]
) -> tuple[list[str], list[list[PodOnNode]]]:
    """The lines of progress and the evictions of a drain after which the pods `remaining` are still listed."""
    progress: list[str] = []
    evictions: list[list[PodOnNode]] = []
    with mock.patch.object(eviction, "evict_pods", side_effect=lambda client, node, pods, *rest, **named: evictions.append(pods)):  # fmt: skip
        eviction.evict_and_await(
            mock.Mock(), "n1", to_evict, to_await, WAITING, ROLLOUT_OPTIONS, lambda: None, progress.append, list_pods=lambda: remaining
        )  # fmt: skip
    return progress, evictions


def test_pods_are_evicted_and_awaited() -> None:
    assert drain([WEB], {"1": "remedy"}, [WEB]) == (["waiting until 1 pod(s) terminate"], [[WEB]])


def test_nothing_is_sent_without_pods() -> None:
    assert drain([], {}, [TRAIN]) == ([], [])


def test_the_timeout_names_the_pods_and_the_options() -> None:
    with pytest.raises(
        WaitTimeout, match=r"\(rollout\.drain_timeout\).*team/train has not terminated.*set rollout\.drain: gpu-pods"
    ):
        drain([], pods_to_await([TRAIN], WAITING), [TRAIN, WEB])


def test_the_budget_of_a_pod_is_named_with_a_remedy_for_either_of_its_kinds() -> None:
    text = eviction._budget_refusal("The disruption budget keep needs 1 healthy pods and has 1 currently", WEB)
    assert text.startswith(
        "PodDisruptionBudget team/keep needs 1 healthy pod and has 1 currently: run more of its pods"
    )
    assert "lower its minAvailable or raise its maxUnavailable" in text
    assert "needs 2 healthy pods and" in eviction._budget_refusal(
        "The disruption budget keep needs 2 healthy pods and has 2", WEB
    )


def test_the_time_of_a_refusal_begins_with_zero() -> None:
    state = eviction._Eviction(mock.Mock(), "n1", {"1": TRAIN}, None, lambda: None, lambda: 0.0)
    with mock.patch("time.monotonic", side_effect=[10.0, 11.0, 12.0]):
        assert [state._refused_seconds("1") for dummy in range(3)] == [0.0, 1.0, 2.0]


def test_the_progress_line_names_only_nodes_whose_work_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    file.touch()
    report = progress_by_node(Progress(str(file)))
    for name, text in (("a", "draining"), ("b", "draining"), ("a", ""), ("b", "waiting"), ("b", ""), ("b", "")):
        report(name, text)
    lines = [json.loads(line)["text"] for line in file.read_text().splitlines()]
    assert lines == ["a: draining", "a: draining; b: draining", "b: draining", "b: waiting"]


class Clock:
    """A clock that only sleeping moves."""

    seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def test_a_refused_eviction_is_reported_less_and_less_often() -> None:
    clock, client = Clock(), mock.Mock()
    client.list.return_value = [{"metadata": {"uid": WEB.uid}}]
    client.get.return_value = {}
    message = "The disruption budget keep needs 2 healthy pods and has 2 currently"
    causes = [{"reason": BUDGET_CAUSE, "message": message}]
    client.evict.side_effect = ApiError(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        status=429,
        reason="TooManyRequests",
        details={"causes": causes},
    )
    lines: list[tuple[float, str]] = []
    with (
        mock.patch("time.monotonic", side_effect=lambda: clock.seconds),
        mock.patch("time.sleep", side_effect=clock.sleep),
        pytest.raises(WaitTimeout, match="not evicted for 300 s"),
    ):
        eviction.evict_pods(
            client,
            "n1",
            [WEB],
            DrainOptions(drain_timeout=300),
            lambda: None,
            lambda line: lines.append((clock.seconds, line.partition(": PodDisruptionBudget")[0])),
        )
    refused = "node n1: 0/1 pods gone; team/web refused"
    durations = {10: 10, 20: 20, 40: 40, 60: 60, 120: 120, 180: 180, 240: 240, 300: 300}
    assert lines == [(0, refused), *((at, f"{refused} for {shown} s") for at, shown in durations.items())]
