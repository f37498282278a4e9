# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which outdated Machines are replaced, in which order, and how many at a time."""

from __future__ import annotations

import typing as t
from types import SimpleNamespace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machine_rollout import (
    MachineRollout,
    OutdatedMachine,
    PoolRollout,
    plan_pool,
    rollout_diff,
    rollout_settings,
    with_rollouts,
)
from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.nodegroups.reconciler import GroupFailed
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


class Cluster:
    """One MachineSet whose Machines change while a rollout drains them or scales it down. It is the API, the provider and the drainer of the rollout."""

    def __init__(self, *names: str, during_drain: t.Sequence[str] = (), other: str = "") -> None:
        self.uids = {name: f"uid-{name}" for name in names}
        self.during_drain, self.other = during_drain, other
        self.sizes: list[tuple[int, list[str]]] = []

    def read(self) -> t.Any:
        machines = [{"metadata": {"name": name, "uid": uid}} for name, uid in self.uids.items()]
        return SimpleNamespace(machines=machines)

    def get(self, _machineset: str) -> dict[str, t.Any]:
        return {"spec": {"replicas": len(self.uids)}}

    def drain(self, _nodes: t.Collection[str]) -> None:
        for name in self.during_drain:
            del self.uids[name]
            self.uids[f"new-{name}"] = f"uid-new-{name}"

    def check(self) -> None:
        """Nobody has taken the Lease."""

    def cluster_nodes(self) -> list[t.Any]:
        return []

    def resize(self, _machineset: str, add: int, *, at_least: int = 0, leaving: t.Iterable[str] = ()) -> None:
        self.sizes.append((add, list(leaving)))
        for name in self.sizes[-1][1]:
            del self.uids[self.other or name]


def rollout_of(cluster: Cluster) -> MachineRollout:
    actual = MachineRollout(
        t.cast("t.Any", cluster),
        t.cast("t.Any", cluster),
        t.cast("t.Any", cluster),
        t.cast("t.Any", None),
        t.cast("t.Any", None),
        surge=False,
    )
    actual._await = lambda *_arguments: None  # type: ignore[method-assign]
    return actual


def test_a_machine_that_somebody_deletes_during_the_drain_is_not_counted() -> None:
    cluster = Cluster("a", "b", during_drain=["a"])
    rollout = rollout_of(cluster)
    rollout._replace([outdated("a"), outdated("b")], t.cast("t.Any", None))
    assert cluster.sizes == [(-1, ["b"]), (0, [])]
    assert sorted(cluster.uids) == ["new-a"]
    alone = Cluster("a", "b", during_drain=["a"])
    rollout_of(alone)._replace([outdated("a")], t.cast("t.Any", None))
    assert [size for size in alone.sizes if size[0] < 0] == []
    assert sorted(alone.uids) == ["b", "new-a"]


def test_another_machine_that_is_removed_is_an_error() -> None:
    cluster = Cluster("a", "b", other="b")
    rollout = rollout_of(cluster)
    with pytest.raises(GroupFailed, match="removed another machine instead of a, which was drained"):
        rollout._replace([outdated("a")], t.cast("t.Any", None))
    assert rollout._left(PoolRollout("vdi", ((outdated("a"),),))) == ["a"]
