# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases are allowed and which are rejected, and the rollout settings that they follow."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node, parse_selector
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pods import PodOnNode, PodsByNode
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.sharing import change_plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import (
    ChangePlan,
    ConfigMaps,
    plan_sharing_changes,
)
from ansible_collections.accel.gpu.plugins.module_utils.sharing.rollout import pool_queues
from ansible_collections.accel.gpu.plugins.module_utils.sharing_modes.modes import Sharing, plugin_entry_name
from tests.helpers.fleet import node

GPU = "nvidia.com/gpu"
CONFIG = "nvidia.com/device-plugin.config"
T4: dict[str, t.Any] = {
    "name": "notebooks",
    "match": {"model": "Tesla-T4"},
    "sharing": {"mode": "time-slicing", "replicas": 4},
}
L40S: dict[str, t.Any] = {"name": "inference", "match": {"model": "L40S"}}
A100: dict[str, t.Any] = {"name": "train", "match": {"model": "A100-SXM4-80GB"}}
MODELS = {"notebooks": "Tesla-T4", "inference": "NVIDIA-L40S", "train": "NVIDIA-A100-SXM4-80GB"}


def member(name: str, pool: str, **annotations: str) -> Node:
    """A node of a pool after a run."""
    sharing = Sharing("time-slicing", 4) if pool == "notebooks" else Sharing()
    labels = {"accel.gpu/pool": pool, CONFIG: plugin_entry_name(sharing)}
    notes = {"accel.gpu/pool-labels": json.dumps(sorted(labels)), **annotations}
    return node(name, model=MODELS[pool], replicas=sharing.replicas, labels=labels, annotations=notes)


def fleet() -> list[Node]:
    return [
        *(member(f"t4-{at}", "notebooks") for at in (1, 2)),
        member("l40s-1", "inference"),
        member("a100-1", "train"),
    ]


def changes(
    pools: t.Sequence[dict[str, t.Any]],
    nodes: t.Sequence[Node],
    scope: change_plan.Scope = change_plan.EVERYTHING,
    pods: PodsByNode | None = None,
    defaults: t.Any = None,
) -> ChangePlan:
    plan = derive({"name": "lab"}, defaults, list(pools))
    return plan_sharing_changes(plan, nodes, assign_pools(plan.pools, nodes), ConfigMaps(), scope=scope, pods=pods)


@pytest.mark.parametrize(
    ("pools", "allowed", "counts", "uncovered"),
    [
        ([T4, L40S, A100], "", {}, []),
        # One pool of several is allowed.
        ([L40S, A100], "", {"notebooks": 2}, []),
        ([T4], "", {"inference": 1, "train": 1}, ["inference", "train"]),
        ([T4], "train", {"inference": 1, "train": 1}, ["inference"]),
        ([T4], "train, inference", {"inference": 1, "train": 1}, []),
        ([T4], ["train", "inference"], {"inference": 1, "train": 1}, []),
        ([T4], "all", {"inference": 1, "train": 1}, []),
        ([], "", {"inference": 1, "notebooks": 2, "train": 1}, ["inference", "notebooks", "train"]),
        ([], "all", {"inference": 1, "notebooks": 2, "train": 1}, []),
        # Renamed, and claimed by its match: moved, not released.
        ([{**T4, "name": "lectures"}, {**L40S, "name": "serving"}, A100], "", {}, []),
        # Its match has changed: the pool is declared, and its nodes are not in it. That is rejected for one pool, too.
        ([{**T4, "match": {"model": "V100-PCIE-16GB"}}, L40S, A100], "", {"notebooks": 2}, ["notebooks"]),
        ([{**T4, "match": {"model": "V100-PCIE-16GB"}}, L40S, A100], "notebooks", {"notebooks": 2}, []),
        ([{**T4, "match": {"model": "V100-PCIE-16GB"}}, {**L40S, "match": {"model": "L4"}}, A100], "", {"inference": 1, "notebooks": 2}, ["inference", "notebooks"]),
    ],
)  # fmt: skip
def test_which_releases_need_a_permission(
    pools: list[dict[str, t.Any]], allowed: t.Any, counts: dict[str, int], uncovered: list[str]
) -> None:
    releases = changes(pools, fleet()).releases
    assert releases.counts == counts
    assert releases.uncovered(allowed) == uncovered
    assert bool(releases.refusal(allowed)) is bool(uncovered)


def test_releasing_all_managed_nodes_needs_a_permission() -> None:
    only = [member("t4-1", "notebooks"), node("l40s-9", model="NVIDIA-L40S")]
    releases = changes([L40S], only).releases
    assert releases.uncovered(()) == ["notebooks"]
    assert "all nodes that this collection manages" in releases.refusal(())
    assert releases.uncovered({"notebooks"}) == []


SHARED: dict[str, t.Any] = {"mode": "time-slicing", "replicas": 4}
WHOLE: dict[str, t.Any] = {"mode": "none"}
BARE: dict[str, t.Any] = {key: value for key, value in T4.items() if key != "sharing"}


@pytest.mark.parametrize(
    ("pool", "defaults", "unshared"),
    [
        (T4, {}, {}),
        (BARE, {"sharing": SHARED}, {}),
        (BARE, {}, {"notebooks": 2}),
        ({**BARE, "sharing": {}}, {}, {"notebooks": 2}),
        ({**BARE, "sharing": None}, None, {"notebooks": 2}),
        ({**BARE, "sharing": {"mode": "none"}}, {}, {}),
        (BARE, {"sharing": WHOLE}, {}),
    ],
)
def test_a_run_without_sharing_mode_ends_no_sharing(
    pool: dict[str, t.Any], defaults: t.Any, unshared: dict[str, int]
) -> None:
    """Missing or misspelled gpu_defaults must not end the sharing of pools that rely on them."""
    shared = fleet()
    releases = changes([pool, L40S, A100], shared, defaults=defaults).releases
    assert releases.unshared == unshared
    assert ("neither these pools nor gpu_defaults set sharing.mode" in releases.refusal(())) is bool(unshared)
    assert bool(releases.refusal({"all"})) is bool(unshared), "a permission to release does not cover sharing"
    assert changes([BARE, L40S, A100], shared, change_plan.Scope(change_plan.RESET)).releases.unshared == {}


def test_mig_devices_and_sharing_by_others_count() -> None:
    manual = node("t4-9", replicas=2)
    assert changes([BARE], [manual]).releases.unshared == {"notebooks": 1}
    cut = {
        "nvidia.com/mig.config": "accel-gpu-1",
        "nvidia.com/mig-1g.10gb.count": "7",
        "accel.gpu/pool": "train",
        CONFIG: "mig-x",
    }
    notes = {"accel.gpu/pool-labels": json.dumps(["accel.gpu/pool", CONFIG, "nvidia.com/mig.config"])}
    of_mig = node("a100-9", model=MODELS["train"], labels=cut, annotations=notes)
    assert changes([A100], [of_mig]).releases.unshared == {"train": 1}
    assert changes([A100], [node("a100-9", model=MODELS["train"])]).releases.unshared == {}


@pytest.mark.parametrize(
    ("pool", "recorded", "entry", "replaced"),
    [
        (L40S, [], "quiet", True),
        # A pool had set the label, and another user has changed it.
        (L40S, [CONFIG], "quiet", True),
        (L40S, [], plugin_entry_name(Sharing()), False),
        (L40S, [], "", False),
        ({**L40S, "sharing": WHOLE}, [], "quiet", False),
    ],
)
def test_a_run_without_sharing_mode_replaces_no_foreign_configuration(
    pool: dict[str, t.Any], recorded: list[str], entry: str, replaced: bool
) -> None:
    """Such a configuration may have been made for these nodes, even if it shares no GPU."""
    owned = {"accel.gpu/pool-labels": json.dumps(recorded)} if recorded else {}
    whole = node("l40s-1", model=MODELS["inference"], labels={CONFIG: entry} if entry else {}, annotations=owned)
    releases = changes([pool], [whole]).releases
    assert releases.unshared == ({"inference": 1} if replaced else {})
    assert ("or replace foreign device plugin configurations" in releases.refusal(())) is replaced


@pytest.mark.parametrize("state", [change_plan.RESET, change_plan.REPAIRED, change_plan.NEW_NODES])
def test_only_state_present_releases_nodes(state: str) -> None:
    assert changes([], fleet(), change_plan.Scope(state)).node_changes == ()
    assert (
        changes([T4], fleet(), change_plan.Scope(change_plan.PRESENT, frozenset({"notebooks"}))).releases.changes == ()
    )


def test_a_label_selector_does_not_avoid_the_refusal() -> None:
    scope = change_plan.Scope(requirements=tuple(parse_selector("accel.gpu/pool=train")))
    releases = changes([], fleet(), scope).releases
    assert releases.counts == {"train": 1}
    assert releases.uncovered(()) == ["train"]
    assert releases.uncovered({"train"}) == []


def test_a_node_without_its_pool_label_needs_all() -> None:
    noted = Node("t4-9", {**node().labels, CONFIG: "some"}, {"accel.gpu/pool-labels": json.dumps([CONFIG])}, ready=True)
    releases = changes([], [noted]).releases
    assert releases.counts == {"(unknown)": 1}
    assert releases.uncovered({"notebooks"}) == ["(unknown)"]
    assert "-e gpu_allow_release=all" in releases.refusal(())


def held(name: str, pods: int) -> dict[str, list[PodOnNode]]:
    return {name: [PodOnNode("team", f"work-{at}", f"work-{at}", {GPU: 1}, ("requests",)) for at in range(pods)]}


def test_the_message_names_pools_nodes_pods_and_the_variable() -> None:
    message = changes([L40S, A100][:1], fleet(), pods=PodsByNode(held("t4-1", 3))).releases.refusal(())
    for words in (
        "3 node(s) (notebooks: 2, train: 1)",
        "evict 2 pod(s): team/work-1, team/work-2",
        "Nothing was changed",
        "-e gpu_allow_release=notebooks,train (option allow_release of gpu_sharing)",
    ):
        assert words in message


@pytest.mark.parametrize(
    ("record", "evicted"),
    [("", ["team/work-1", "team/work-2"]), ('{"drain": "none"}', []), ("not sound", ["team/work-1", "team/work-2"])],
)
def test_a_release_follows_the_recorded_rollout_settings(record: str, evicted: list[str]) -> None:
    actual = member("t4-1", "notebooks", **{"accel.gpu/rollout": record})
    (change,) = changes(
        [L40S], [actual, member("l40s-1", "inference")], pods=PodsByNode(held("t4-1", 3))
    ).rolling_changes
    assert (change.released_from, change.rolling, change.as_dict()["evicts"]) == ("notebooks", True, evicted)


def test_the_most_careful_recorded_settings_of_a_pool_count() -> None:
    nodes = [member(f"t4-{at}", "notebooks", **{"accel.gpu/rollout": json.dumps(text)}) for at, text in enumerate(({"max_unavailable": 3}, {"max_unavailable": 2, "pause_on_failure": False}))]  # fmt: skip
    pods = PodsByNode({name: users for at in range(2) for name, users in held(f"t4-{at}", 3).items()})
    (queue,) = pool_queues(changes([], nodes, pods=pods).rolling_changes, {})
    assert (queue.max_unavailable, queue.pause_on_failure) == (2, True)


def test_a_recorded_limit_leaves_nodes_for_another_run() -> None:
    nodes = [member(f"t4-{at}", "notebooks", **{"accel.gpu/rollout": '{"limit": 1}'}) for at in range(3)]
    pods = PodsByNode({name: users for at in range(3) for name, users in held(f"t4-{at}", 3).items()})
    actual = changes([], nodes, pods=pods)
    assert (len(actual.rolling_changes), len(actual.limited), actual.releases.counts) == (1, 2, {"notebooks": 3})


@pytest.mark.parametrize(
    "lost",
    [
        # The operator sets this once NFD's labels are gone; the labels of gpu-feature-discovery may remain.
        {"nvidia.com/gpu.present": "false"},
        {"nvidia.com/gpu.product": None, "nvidia.com/gpu.count": None},
        {"nvidia.com/gpu.family": None},
    ],
)
def test_nodes_whose_labels_of_discovery_are_gone_keep_their_pool(lost: dict[str, str | None]) -> None:
    match = {"model": "Tesla-T4", "labels": {"nvidia.com/gpu.family": "turing"}}
    nodes = []
    for each in fleet()[:2]:
        labels = {**each.labels, "nvidia.com/gpu.family": "turing", **lost}
        kept = {key: value for key, value in labels.items() if value is not None}
        nodes.append(dataclasses.replace(each, labels=kept))
    plan = changes([{**T4, "match": match}], nodes)
    assert plan.releases.refusal(()) == ""
    assert plan.released == []
    assert set(plan.pool_of.values()) == {"notebooks"}


def test_nodes_whose_labels_contradict_the_match_still_leave_their_pool() -> None:
    moved = [
        dataclasses.replace(each, labels={**each.labels, "nvidia.com/gpu.product": "NVIDIA-L4"}) for each in fleet()[:2]
    ]
    assert "notebooks: 2" in changes([T4], moved).releases.refusal(())
    gone = [dataclasses.replace(each, labels={**each.labels, "rack": "b"}) for each in fleet()[:2]]
    of_rack = {**T4, "match": {"model": "Tesla-T4", "labels": {"rack": "a"}}}
    assert "notebooks: 2" in changes([of_rack], gone).releases.refusal(())
