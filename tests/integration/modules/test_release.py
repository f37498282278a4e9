# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with MIG devices are released: uncordoned only after their GPUs are whole, whatever the operator does meanwhile."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_sharing
from tests.helpers.cluster import NAMESPACE
from tests.helpers.cut_watch import CONFIG, STATE, cut_watch, is_cut
from tests.helpers.playbook import run_playbook
from tests.helpers.playbook_kills import killed_after
from tests.helpers.polling import until
from tests.helpers.rolling import HALVES, POOL, TARGET, Rolling
from tests.helpers.snapshot import differences, snapshot
from tests.helpers.workloads import GPU
from tests.labs import Lab

pytestmark = [pytest.mark.lab]

NODES, GPUS = 2, 2
WHOLE = {GPU: GPUS}


@pytest.fixture(scope="module")
def rolling(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Rolling:
    return Rolling(lab).install(tmp_path_factory.mktemp("release"), NODES, GPUS)


@pytest.fixture(autouse=True)
def no_gpu_pods(rolling: Rolling) -> Iterator[None]:
    rolling.users.delete_all()
    yield
    rolling.lab.command("fault", "clear")
    rolling.users.delete_all()


@contextlib.contextmanager
def reconciling(rolling: Rolling) -> Iterator[None]:
    """Make the operator reconcile all the time, as after changes of its ClusterPolicy."""
    ended = threading.Event()

    def poke() -> None:
        for number in itertools.count():
            rolling.cluster.kubectl("annotate", "--overwrite", "clusterpolicies", "--all", f"poked={number}")
            if ended.wait(0.5):
                return

    thread = threading.Thread(target=poke, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def cut(rolling: Rolling, **rollout: Any) -> None:
    """Partition the GPUs of both nodes, and start a pod with a device on each."""
    result = rolling.share(HALVES, rollout=rollout)
    assert not result.get("failed"), result
    assert all(is_cut(node) for name, node in rolling.cluster.nodes().items() if name.startswith("a100-"))
    for name in rolling.nodes():
        rolling.users.deployment(f"work-{name}", name, resource=GPU)
    rolling.users.wait_running(NODES)


def release(rolling: Rolling, **options: Any) -> dict[str, Any]:
    """Run the module without any declared pool."""
    args = {"gpu_pools": [], "wait_timeout": 90, "allow_release": [POOL], **options}
    return rolling.cluster.run(gpu_sharing.main, **args)


def require_whole(rolling: Rolling) -> None:
    """Every node is configured for whole GPUs, offers them, is uncordoned, and has no labels or annotations of the collection."""
    rolling.require_offered(WHOLE)
    for name, node in rolling.cluster.nodes().items():
        managed = [
            key
            for key in {**node["metadata"]["labels"], **node["metadata"]["annotations"]}
            if key.startswith("accel.gpu/")
        ]
        assert (managed, bool(node["spec"].get("unschedulable"))) == ([], False), name
        if name.startswith("a100-"):
            labels = node["metadata"]["labels"]
            assert (labels[CONFIG], labels[STATE], is_cut(node)) == ("all-disabled", "success", False), name


@pytest.mark.usual(25)
@pytest.mark.parametrize("rounds", [1, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(2400)])])
def test_no_node_is_uncordoned_before_its_gpus_are_whole(rolling: Rolling, rounds: int) -> None:
    for number in range(rounds):
        cut(rolling, max_unavailable=2)
        before = snapshot(rolling.lab)
        for check in (True, False):
            refused = release(rolling, allow_release=[], check=check)
            assert (refused["code"], refused["changed"]) == ("release_refused", False), refused
            for words in (
                f"{NODES} node(s) ({POOL}: {NODES})",
                f"evict {NODES} pod(s): users/work-",
                f"-e gpu_allow_release={POOL}",
            ):
                assert words in refused["msg"]
        assert differences(before, snapshot(rolling.lab)) == {}
        predicted = release(rolling, check=True, diff=True)
        with cut_watch(rolling.lab) as watch, rolling.users.watched() as pods, reconciling(rolling):
            done = release(rolling, diff=True)
        assert not done.get("failed"), done
        assert watch.wrong == [], f"round {number}"
        assert watch.cut_states > 0
        assert done["gpu_sharing"]["released_nodes"] == dict.fromkeys(rolling.nodes(), POOL)
        assert predicted["gpu_sharing"]["released_nodes"] == done["gpu_sharing"]["released_nodes"]
        assert predicted["diff"] == done["diff"]
        assert pods.names() == {pod for step in predicted["gpu_sharing"]["steps"].values() for pod in step["evicts"]}
        assert pods.not_evicted() == []
        require_whole(rolling)
        assert release(rolling, allow_release=[])["changed"] is False
        rolling.users.delete_all()


def abandoned(rolling: Rolling, name: str) -> None:
    """Leave a node as a release without verification does: no labels, and its GPUs still partitioned."""
    node = rolling.cluster.nodes()[name]["metadata"]
    labels = {key: None for key in node["labels"] if key.startswith("accel.gpu/")}
    annotations = {key: None for key in node["annotations"] if key.startswith("accel.gpu/")}
    sharing = {CONFIG: None, STATE: None, "nvidia.com/device-plugin.config": None}
    patch = {"metadata": {"labels": {**labels, **sharing}, "annotations": annotations}}
    rolling.cluster.kubectl("patch", "node", name, "--type=merge", "-p", json.dumps(patch))
    until(lambda: rolling.cluster.nodes()[name]["metadata"]["labels"].get(STATE) == "failed")


@contextlib.contextmanager
def without_operator(rolling: Rolling) -> Iterator[None]:
    """Stop the operator, so that the state of the MIG manager after the removal of its label stays."""

    def scale(replicas: int) -> None:
        rolling.cluster.kubectl("scale", "deployment", "gpu-operator", "-n", NAMESPACE, f"--replicas={replicas}")
        pods = ("pods", "-n", NAMESPACE, "-l", "app=gpu-operator")
        until(lambda: len(rolling.cluster.get(*pods)["items"]) == replicas)

    scale(0)
    try:
        yield
    finally:
        scale(1)


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="failures of a release")
def test_an_abandoned_node_is_repaired_and_a_failure_follows_the_recorded_settings(rolling: Rolling) -> None:
    cut(rolling, max_unavailable=2, on_failure="leave")
    (other,) = set(rolling.nodes()) - {TARGET}
    with without_operator(rolling):
        abandoned(rolling, other)
        assert is_cut(rolling.cluster.nodes()[other])
        info = rolling.cluster.run(gpu_info.main, gpu_pools=[])["gpu_info"]
        assert any(other in text and "still partitioned" in text for text in info["warnings"])
        predicted = release(rolling, state="repaired", check=True)
        assert predicted["gpu_sharing"]["repaired"].keys() == {other}
        assert predicted["gpu_sharing"]["steps"][other]["evicts"] != []
        repaired = release(rolling, state="repaired")
        assert repaired["gpu_sharing"]["repaired"].keys() == {other}, repaired
        assert repaired["gpu_sharing"]["released_nodes"] == {}
        node = rolling.cluster.nodes()[other]
        assert (is_cut(node), node["metadata"]["labels"][CONFIG]) == (False, "all-disabled")
        assert release(rolling, state="repaired")["changed"] is False
    rolling.lab.command("fault", "inject", "mig-failed", "--nodes", TARGET)
    failed = release(rolling)
    assert failed["code"] == "partial", failed
    assert failed["gpu_sharing"]["left_cordoned"] == [TARGET]
    assert failed["gpu_sharing"]["released_nodes"] == {}
    node = rolling.cluster.nodes()[TARGET]
    assert {"key": "accel.gpu/failed", "value": "mig-failed", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["spec"]["unschedulable"] is True
    rolling.lab.command("fault", "clear")
    with cut_watch(rolling.lab) as watch:
        assert not release(rolling).get("failed")
    assert watch.wrong == []
    require_whole(rolling)


@pytest.mark.usual(25)
@pytest.mark.sampled(1, group="failures of a release")
def test_a_release_follows_drain_none(rolling: Rolling) -> None:
    cut(rolling, max_unavailable=2, drain="none", drain_timeout=4)
    with rolling.users.watched() as pods:
        failed = release(rolling)
    assert failed["code"] == "partial"
    assert "Evictions are disabled" in failed["msg"]
    assert "rollout.drain: gpu-pods" in failed["msg"]
    assert pods.gone == {}
    for name, node in rolling.cluster.nodes().items():
        assert not node["spec"].get("unschedulable"), name
    rolling.users.delete_all()
    assert not release(rolling).get("failed")
    require_whole(rolling)


@pytest.mark.usual(40)
@pytest.mark.sampled(1, group="failures of a release")
@pytest.mark.parametrize("at", range(3))
def test_a_killed_release_continues(rolling: Rolling, tmp_path: Path, rng: random.Random, at: int) -> None:
    cut(rolling, max_unavailable=2)
    variables = {"gpu_pools": [], "gpu_allow_release": "all", "gpu_cluster": {"name": rolling.lab.name}}
    number = rng.randint(1 + 5 * at, 5 + 5 * at)
    with cut_watch(rolling.lab) as watch:
        killed_after(rolling.lab, "accel.gpu.share", number, tmp_path, variables=variables)
        run_playbook("accel.gpu.share", environ=rolling.lab.env, variables=variables).require_success()
    assert watch.wrong == []
    require_whole(rolling)


@pytest.mark.usual(30)
def test_a_budget_that_refuses_an_eviction_is_named_in_advance(rolling: Rolling) -> None:
    cut(rolling, max_unavailable=2, drain_timeout=4)
    rolling.users.budget("strict", f"work-{TARGET}", minAvailable=1)
    (name,) = (pod["metadata"]["name"] for pod in rolling.users.pods(f"work-{TARGET}"))
    named = {"pod": f"users/{name}", "node": TARGET, "budgets": ["users/strict"]}
    refused = [{**named, "reason": "needs 1 healthy pod and has 1"}]
    predicted = release(rolling, check=True)
    assert predicted["gpu_sharing"]["refused_evictions"] == refused
    assert f"allows no eviction now: users/{name} on {TARGET} (users/strict: needs 1" in str(predicted["warnings"])
    info = rolling.cluster.run(gpu_info.main, gpu_pools=[], include_impact=True)["gpu_info"]
    assert info["impact"]["refused_evictions"] == refused
    failed = release(rolling)
    assert failed["gpu_sharing"]["failed"].keys() == {TARGET}, failed
    assert "PodDisruptionBudget users/strict" in failed["msg"]
    rolling.users.no_budget("strict")
    assert "refused_evictions" not in release(rolling, check=True)["gpu_sharing"]
    assert not release(rolling).get("failed")
    require_whole(rolling)


@pytest.mark.usual(30)
def test_a_release_restores_the_layout_that_the_node_had_before(rolling: Rolling) -> None:
    """A layout that an administrator has chosen by a label stays, with its pods, if the pool has the same layout."""
    assert not release(rolling).get("failed")
    theirs = "all-3g.40gb"
    # Without a strategy in the policy, the labels would not show the devices.
    rolling.cluster.kubectl(
        "patch", "clusterpolicy", "cluster-policy", "--type=merge", "-p", '{"spec": {"mig": {"strategy": "single"}}}'
    )
    rolling.cluster.kubectl("label", "--overwrite", "node", *rolling.nodes(), f"{CONFIG}={theirs}")

    def settled(config: str) -> bool:
        labels = [
            node["metadata"]["labels"] for name, node in rolling.cluster.nodes().items() if name.startswith("a100-")
        ]
        shown = [(each.get(CONFIG), each.get(STATE), "-MIG-" in each["nvidia.com/gpu.product"]) for each in labels]
        return shown == [(config, "success", config == theirs)] * NODES

    until(lambda: settled(theirs))
    cut(rolling, max_unavailable=2)
    nodes = rolling.cluster.nodes()
    for name in rolling.nodes():
        labels, annotations = nodes[name]["metadata"]["labels"], nodes[name]["metadata"]["annotations"]
        record = json.loads(annotations["accel.gpu/former-labels"])
        assert record == {"labels": {CONFIG: theirs}, "mig_devices": {"3g.40gb": 2 * GPUS}}
        assert labels[CONFIG] != theirs
    predicted = release(rolling, check=True, diff=True)
    with rolling.users.watched() as pods:
        done = release(rolling, diff=True)
    assert not done.get("failed"), done
    assert predicted["diff"] == done["diff"]
    assert pods.gone == {}
    nodes = rolling.cluster.nodes()
    for name in rolling.nodes():
        metadata = nodes[name]["metadata"]
        own = [key for key in {**metadata["labels"], **metadata["annotations"]} if key.startswith("accel.gpu/")]
        assert (own, metadata["labels"][CONFIG], is_cut(nodes[name])) == ([], theirs, True), name
        assert not nodes[name]["spec"].get("unschedulable")
    assert release(rolling, allow_release=[])["changed"] is False
    rolling.users.delete_all()
    rolling.cluster.kubectl("label", "--overwrite", "node", *rolling.nodes(), f"{CONFIG}=all-disabled")
    until(lambda: settled("all-disabled"))
