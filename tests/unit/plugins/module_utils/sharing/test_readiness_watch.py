# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which undiscovered nodes a run waits for."""

from __future__ import annotations

import datetime
import time
import typing as t
from dataclasses import replace
from unittest import mock

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.catalog.names import CONFIG_LABEL
from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import Node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import NodeEdit, assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import Plan
from ansible_collections.accel.gpu.plugins.module_utils.sharing import verification
from ansible_collections.accel.gpu.plugins.module_utils.sharing.change_plan import Scope
from ansible_collections.accel.gpu.plugins.module_utils.sharing.verification import ReadinessWatch
from tests.helpers import fleet

PCI = "feature.node.kubernetes.io/pci-10de.present"
SKU = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
T4: dict[str, t.Any] = {"name": "notebooks", "match": {"model": "T4"}}
LABELED = Node("labeled", {PCI: "true", "nvidia.com/gpu.product": "Tesla-T4"}, ready=True)
LATE = Node("late", ready=True)


class Cluster:
    """The pods of NFD's workers, by node with their number of restarts, and the tolerations of the ClusterPolicy."""

    def __init__(self, workers: dict[str, int] | None = None, tolerations: t.Sequence[t.Any] = ()) -> None:
        self.workers = workers or {}
        self.tolerations = tolerations
        self.created = datetime.datetime.now(datetime.UTC).isoformat()

    def list(self, dummy_path: str, label_selector: str = "", field_selector: str = "") -> list[dict[str, t.Any]]:
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        return [
            {
                "metadata": {"name": f"nfd-{name}", "labels": {"app": "nfd-worker"}, "creationTimestamp": self.created},
                "spec": {"nodeName": name},
                "status": {
                    "containerStatuses": [{"name": "w", "restartCount": restarts, "state": waiting if restarts else {}}]
                },
            }
            for name, restarts in (self.workers.items() if label_selector == "app=nfd-worker" else ())
        ]

    def text(self, *dummy: t.Any) -> str:
        return ""

    def list_known(self, dummy_path: str) -> t.Sequence[dict[str, t.Any]]:
        metadata = {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"}
        return [{"metadata": metadata, "spec": {"daemonsets": {"tolerations": self.tolerations}}}]


def watch(cluster: Cluster, plan: Plan | None = None) -> ReadinessWatch:
    context = mock.Mock(client=cluster, plan=plan or derive({"name": "lab"}, {}, [T4]), scope=Scope())
    context.reader.expected_tolerations = ()
    return ReadinessWatch(context)


def state_of(watched: ReadinessWatch, *nodes: Node) -> t.Any:
    plan = watched._context.plan
    membership = assign_pools(plan.pools, nodes)
    return mock.Mock(nodes={node.name: node for node in nodes}, membership=membership, plan=plan)


@pytest.mark.parametrize(
    ("workers", "awaited"),
    [({"late": 0}, {"late"}), ({}, set()), ({"labeled": 0}, set()), ({"late": 5}, set())],
)
def test_a_node_without_labels_of_nfd_is_awaited_if_its_worker_runs(workers: dict[str, int], awaited: set[str]) -> None:
    watched = watch(Cluster(workers))
    state = state_of(watched, LABELED, LATE)
    assert watched._undiscovered(state.nodes, state) == awaited
    # A worker that has run for a while has nothing to label.
    t.cast("t.Any", watched._context.client).created = "2026-01-01T00:00:00Z"
    assert watched._undiscovered(state.nodes, state) == set()


@pytest.mark.parametrize(("seconds", "awaited"), [(5, {"late"}), (600, set())])
def test_a_node_that_has_just_joined_is_awaited_before_it_has_a_worker(seconds: int, awaited: set[str]) -> None:
    watched = watch(Cluster())
    created = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    joined = replace(LATE, created=created.isoformat())
    state = state_of(watched, LABELED, joined)
    assert watched._undiscovered(state.nodes, state) == awaited
    # It is also named if it has no label at the end of the run.
    warned = watched.late_warnings(state)
    assert ["late joined the cluster" in text and "spec.nodeName=late" in text for text in warned] == [True] * len(
        awaited
    )
    assert watched.late_warnings(state_of(watched, LABELED, replace(joined, labels=LABELED.labels))) == []


def test_a_discovered_node_that_needs_no_change_does_not_end_the_wait_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node of a model without a pool, while the labels of a pool's node are still missing."""
    monkeypatch.setattr(verification, "_COLLECT", 0.0)
    watched = watch(Cluster())
    (pool,) = watched._context.plan.pools
    slow = fleet.node("slow", labels=pool.node_labels, allocatable={}, capacity={})
    other = Node("other", {PCI: "true"}, ready=True)
    unclaimed = replace(
        other, labels={**other.labels, "nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": "1"}
    )
    ready = fleet.node("slow", labels=pool.node_labels)

    def state(*nodes: Node) -> t.Any:
        made = state_of(watched, *nodes)
        made.changes = mock.Mock(changed=False, edits=(), pool_of={"slow": pool})
        made.pool_of = lambda name: {"slow": pool}.get(name)
        return made

    context = t.cast("t.Any", watched._context)
    context.wait_timeout, context.reader.compare = 60, mock.Mock(return_value=state(slow, unclaimed))
    monkeypatch.setattr(watched, "_find_failing", lambda *dummy: None)
    monkeypatch.setattr(verification, "parse_node", lambda given: given["node"])
    monkeypatch.setattr(verification, "replace", lambda given, **dummy: given)
    events = iter([[unclaimed], [ready]])

    def deliver(*dummy: t.Any, **options: t.Any) -> t.Iterator[dict[str, t.Any]]:
        for node in next(events):
            yield {"type": "MODIFIED", "object": {"node": node, "metadata": {"resourceVersion": "2"}}}

    context.client.watch = deliver
    context.since.seconds.return_value = 0.0
    observed = watched.wait(state(slow, other), time.monotonic())
    assert (observed.findings, observed.undiscovered) == ({}, [])
    assert next(events, None) is None


def test_a_node_is_awaited_from_nfd_s_labels_until_those_of_gpu_feature_discovery() -> None:
    watched = watch(Cluster())
    state = state_of(watched, LABELED, LATE)
    undiscovered: set[str] = set()
    with_gpu = replace(LATE, labels={PCI: "true"})
    for node, expected in (
        (LATE, set()),
        (with_gpu, {"late"}),
        (replace(LATE, labels={**with_gpu.labels, "nvidia.com/gpu.product": "Tesla-T4"}), set()),
    ):
        watched._update_undiscovered(node, state, undiscovered)
        assert undiscovered == expected
    # NFD has found no GPU.
    undiscovered.add("late")
    watched._update_undiscovered(replace(LATE, labels={"feature.node.kubernetes.io/x": "1"}), state, undiscovered)
    assert undiscovered == set()


@pytest.mark.parametrize(
    ("taints", "tolerations", "pool", "words"),
    [
        ((SKU,), [], T4, ["no pool declares its taint sku=gpu:NoSchedule", "taints: [{key: sku, value: gpu"]),
        (
            (SKU,),
            [],
            {**T4, "taints": [SKU]},
            ["the ClusterPolicy does not tolerate", "gpu_operator_allow_driver_rollout"],
        ),
        ((SKU,), [{"operator": "Exists"}], T4, None),
        (({"key": "nvidia.com/gpu", "effect": "NoSchedule"},), [], T4, None),
        (({"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"},), [], T4, None),
        ((), [], T4, None),
    ],
)
def test_nodes_that_no_pod_of_nvidia_can_reach_are_not_awaited(
    taints: tuple[dict[str, str], ...],
    tolerations: list[dict[str, str]],
    pool: dict[str, t.Any],
    words: list[str] | None,
) -> None:
    watched = watch(Cluster(tolerations=tolerations), derive({"name": "lab"}, {}, [pool]))
    reasons = watched._kept_away([Node("n", {PCI: "true"}, taints=taints, ready=True)])
    assert (list(reasons) == ["n"]) is bool(words)
    assert [word for word in words or () if word not in reasons["n"]] == []


def test_a_node_whose_labels_flip_is_found() -> None:
    watched = watch(Cluster())
    (pool,) = watched._context.plan.pools
    product = "nvidia.com/gpu.product"
    states = [fleet.node("n", labels={**pool.node_labels, product: name}) for name in ("Tesla-T4", "Tesla-T4-SHARED")]
    state = mock.Mock(pool_of=lambda dummy: pool)
    findings: dict[str, t.Any] = {}
    for at in range(7):
        watched._update(states[at % 2], state, findings)
        assert watched.alternating(["n"]) == (["n"] if at >= 6 else [])
    assert watched.alternating(["other"]) == []


def test_a_node_on_which_nvidia_s_pods_run_already_is_awaited() -> None:
    """They stay there after the taint NoSchedule is added."""
    watched = watch(Cluster())
    running = [{"metadata": {"name": "gfd"}, "spec": {"nodeName": "n"}}]
    with mock.patch.object(Cluster, "list", return_value=running):
        assert watched._kept_away([Node("n", {PCI: "true"}, taints=(SKU,), ready=True)]) == {}


@pytest.mark.parametrize(("written", "failing"), [(True, False), (False, True)])
def test_a_pod_that_fails_with_the_label_before_this_run_is_no_failure(written: bool, failing: bool) -> None:
    """The watch delivers the new label later than the pods are read."""
    watched = watch(Cluster())
    (pool,) = watched._context.plan.pools
    node = Node("n", {PCI: "true", CONFIG_LABEL: "gone", "accel.gpu/pool": "notebooks"}, ready=True)
    edit = NodeEdit("n", {"metadata": {"labels": {CONFIG_LABEL: pool.config_key}}})
    state = mock.Mock(pool_of=lambda dummy: pool, changes=mock.Mock(edits=[edit] if written else []))
    crashing = {
        "metadata": {"name": "gfd", "labels": {"app": "gpu-feature-discovery"}},
        "spec": {"nodeName": "n"},
        "status": {
            "containerStatuses": [
                {"name": "config-manager", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
            ]
        },
    }
    with mock.patch.object(Cluster, "list", return_value=[crashing]):
        watched._find_failing({"n": node}, state, {}, {"n"})
    assert (list(watched.failing) == ["n"]) is failing
