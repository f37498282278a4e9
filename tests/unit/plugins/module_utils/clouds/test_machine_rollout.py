# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which outdated Machines are replaced, in which order, and how many at a time."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machine_rollout import (
    OutdatedMachine,
    PoolRollout,
    plan_pool,
    rollout_diff,
    rollout_settings,
    with_rollouts,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import RolloutPlan


def outdated(name: str, node: str | None = "", group: str = "vdi") -> OutdatedMachine:
    """A Machine with a node of the same name, unless `node` says otherwise."""
    return OutdatedMachine(name, f"uid-{name}", name if node == "" else node, group, group)


MACHINES = [outdated("a"), outdated("b"), outdated("c"), outdated("d", None)]
IDLE_FIRST = ["x", "c", "a", "b"]


GROUPS: list[dict[str, t.Any]] = [
    {"name": "vdi-a", "node_labels": {"accel.gpu/pool": "vdi"}},
    {"name": "other", "node_labels": None},
]


def settings_of(**options: t.Any) -> dict[str, RolloutPlan]:
    usual = {"replace_outdated": True, "wait": True, "surge": False, "rollouts": {}}
    return rollout_settings({**usual, **options}, GROUPS)


@pytest.mark.parametrize(
    ("rollout", "batches", "remaining"),
    [
        # One at a time: first the machine without a node, then the idle nodes.
        ({}, [["d"], ["c"], ["a"], ["b"]], []),
        ({"max_unavailable": 2}, [["d", "c"], ["a", "b"]], []),
        ({"max_unavailable": 3}, [["d", "c", "a"], ["b"]], []),
        # Of the five machines of the pool, one is not outdated.
        ({"max_unavailable": "40%"}, [["d", "c"], ["a", "b"]], []),
        ({"max_unavailable": "100%"}, [["d", "c", "a", "b"]], []),
        ({"max_unavailable": "2"}, [["d", "c"], ["a", "b"]], []),
        ({"order": "name"}, [["d"], ["a"], ["b"], ["c"]], []),
        ({"limit": 3}, [["d"], ["c"], ["a"]], ["b"]),
        ({"limit": "20%", "max_unavailable": 2}, [["d"]], ["c", "a", "b"]),
        ({"max_unavailable": None, "order": None, "limit": None}, [["d"], ["c"], ["a"], ["b"]], []),
        # What applies to changes of sharing does not matter here.
        ({"drain": "none", "reboot": None, "on_failure": "leave"}, [["d"], ["c"], ["a"], ["b"]], []),
    ],
)
def test_the_batches_of_a_pool(rollout: dict[str, t.Any], batches: list[list[str]], remaining: list[str]) -> None:
    settings = settings_of(rollouts={"vdi": rollout})["vdi"]
    actual = plan_pool("vdi", MACHINES, 5, settings, IDLE_FIRST)
    assert [[machine.name for machine in batch] for batch in actual.batches] == batches
    assert [machine.name for machine in actual.remaining] == remaining


@pytest.mark.parametrize(
    ("rollout", "problem"),
    [
        ({"max_unavailable": 0}, "rollouts.vdi.max_unavailable: 0 is not allowed"),
        ({"max_unavailable": "many"}, "rollouts.vdi.max_unavailable"),
        ({"ordre": "name"}, "rollouts.vdi.ordre"),
        ("one", "rollouts.vdi"),
    ],
)
def test_invalid_settings_are_refused_with_their_pool(rollout: t.Any, problem: str) -> None:
    with pytest.raises(InvalidOptions) as error:
        settings_of(rollouts={"vdi": rollout, "other": {"limit": -1}})
    assert any(text.startswith(problem) for text in error.value.problems), error.value.problems
    assert any(text.startswith("rollouts.other.limit") for text in error.value.problems)


@pytest.mark.parametrize(
    ("options", "problems"),
    [
        ({"surge": True}, ()),
        ({"surge": True, "replace_outdated": False}, ("surge: has no effect without replace_outdated",)),
        ({"wait": False, "replace_outdated": False}, ()),
        ({"wait": False}, ("wait: replace_outdated waits for each new machine",)),
        ({"rollouts": {"vdi": {}, "other": {}}, "replace_outdated": False}, ()),
        # A group is not a pool, and a typo would mean the pace of the defaults.
        (
            {"rollouts": {"vdi-a": {}, "vid": {"max_unavailable": 2}}, "surge": True, "replace_outdated": False},
            (
                "rollouts.vdi-a: none of the node groups belongs to this pool",
                "rollouts.vid: none of the node groups belongs to this pool; correct or remove the name. "
                "Pools of the node groups: other and vdi",
                "surge: has no effect",
            ),
        ),
    ],
)
def test_options_without_an_effect_are_refused(options: dict[str, t.Any], problems: tuple[str, ...]) -> None:
    texts: list[str] = []
    try:
        settings_of(**options)
    except InvalidOptions as error:
        texts = list(error.problems)
    assert [text[: len(problem)] for text, problem in zip(texts, problems, strict=True)] == [*problems]


ROLLOUT = PoolRollout("vdi", ((outdated("a"), outdated("d", None)), (outdated("b", "node-b"),)), (outdated("c"),))


def test_the_diff_lists_the_batches_in_their_order() -> None:
    diff = rollout_diff([ROLLOUT])
    assert diff["before"] == {"vdi": {"outdated": ["a", "d", "b", "c"]}}
    assert diff["after"] == {"vdi": {"outdated": ["c"], "replaced": ["a, d", "b (node node-b)"]}}


@pytest.mark.parametrize("single", [False, True])
def test_the_result_contains_the_machines_that_stay_outdated(single: bool) -> None:
    group = {"name": "vdi-2", "action": "none", "outdated": ["a", "b", "c", "d"]}
    other = {"name": "other", "action": "none"}
    result = {"changed": False, "nodegroups": {"vdi": group, "other": other}, "diff": {"before": ""}}
    actual = with_rollouts({**result, "nodegroup": group} if single else result, [ROLLOUT])
    assert actual["changed"]
    assert actual["nodegroups"] == {"vdi": {**group, "outdated": ["c"]}, "other": other}
    assert actual.get("nodegroup") == (actual["nodegroups"]["vdi"] if single else None)
    assert actual["rollouts"]["vdi"] == {
        "batches": [[{"name": "a", "node": "a"}, {"name": "d", "node": None}], [{"name": "b", "node": "node-b"}]],
        "remaining": ["c"],
    }
    assert actual["diff"] == [result["diff"], rollout_diff([ROLLOUT])]
    assert with_rollouts(result, [])["diff"] == result["diff"]
    assert not with_rollouts(result, [])["changed"]
