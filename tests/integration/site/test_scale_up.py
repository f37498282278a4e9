# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New nodes of every pool after the end of the playbook: with registration labels they converge, MIG with a startup taint after `new_nodes`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.filter.plan import plan
from tests.helpers.cluster import Cluster
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.workloads import GPU, Users
from tests.labs import Lab

pytestmark = [pytest.mark.timeout(900), pytest.mark.soak]

STARTUP = "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu"
TAINT = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}
# A pool of each sharing, the group of its machines, and the resources of one machine.
POOLS: list[tuple[dict[str, Any], dict[str, Any], dict[str, int]]] = [
    ({"name": "whole", "match": {"model": "H200"}, "taints": [TAINT]}, {"model": "H200", "gpus": 2}, {GPU: 2}),
    (
        {
            "name": "notebooks",
            "match": {"model": "Tesla-T4"},
            "labels": {"team": "teaching"},
            "sharing": {"mode": "time-slicing", "replicas": 4, "rename": True},
        },
        {"model": "T4", "gpus": 1},
        {"nvidia.com/gpu.shared": 4},
    ),
    (
        {"name": "inference", "match": {"model": "L40S"}, "sharing": {"mode": "mps", "replicas": 3}},
        {"model": "L40S", "gpus": 2},
        {GPU: 6},
    ),
    (
        {
            "name": "slices",
            "match": {"model": "A100-SXM4-80GB"},
            "sharing": {"mode": "mig", "layout": {"3g.40gb": 2}, "replicas": 2},
        },
        {"model": "A100-SXM4-80GB", "gpus": 1},
        {GPU: 4},
    ),
    (
        {
            "name": "guarded",
            "match": {"model": "H100-80GB-HBM3"},
            "sharing": {"mode": "mig", "layout": {"1g.10gb": 3, "3g.40gb": 1}},
            "startup_taint": True,
        },
        {"model": "H100-80GB-HBM3", "gpus": 1},
        {"nvidia.com/mig-1g.10gb": 3, "nvidia.com/mig-3g.40gb": 1},
    ),
]
OFFERS = {pool["name"]: offers for pool, dummy, offers in POOLS}
VARIABLES = {"gpu_pools": [pool for pool, dummy, offers in POOLS]}


def play(lab: Lab, name: str, *arguments: str) -> PlaybookRun:
    return run_playbook(name, environ=lab.env, variables=VARIABLES, arguments=arguments).require_success()


def fleet(path: Path, registered: dict[str, Any]) -> Path:
    """A machine of each pool without registration labels, and one each with those of the plan."""
    groups: list[dict[str, Any]] = [{"name": "cpu", "count": 1}]
    for pool, machine, dummy in POOLS:
        groups.append({"name": pool["name"], "count": 1, **machine})
        if pool["name"] in registered:
            groups.append({"name": f"{pool['name']}-new", "count": 1, **machine, **registered[pool["name"]]})
    path.write_text(yaml.safe_dump({"groups": groups}))
    return path


@pytest.fixture(scope="module")
def scaled(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The playbook has ended; then the node groups grow."""
    folder = tmp_path_factory.mktemp("scale-up")
    lab.reset(fleet(folder / "before.yaml", {}))
    run_playbook(
        "accel.gpu.site", environ=lab.env, variables=VARIABLES, arguments=["--tags", "nfd,gpu_operator,sharing"]
    ).require_success()
    derived = plan({"gpu_cluster": {"name": lab.name}, "gpu_pools": VARIABLES["gpu_pools"]})
    registered = {
        pool["name"]: {"labels": pool["registration"]["node_labels"], "taints": pool["registration"]["taints"]}
        for pool in derived["pools"]
    }
    lab.command("nodes", "apply", str(fleet(folder / "after.yaml", registered)), "--wait")
    Users(lab).create_namespace()
    yield Cluster(lab)
    Users(lab).delete_all()
    lab.reset()


def offered(cluster: Cluster, pool: str) -> dict[str, int]:
    """The resources of the new machine of a pool."""
    return cluster.offered(f"{pool}-new-1")[f"{pool}-new-1"]


def taints(cluster: Cluster, node: str) -> set[str]:
    return {taint["key"] for taint in cluster.get("node", node)["spec"].get("taints", [])}


@pytest.mark.usual(120)
@pytest.mark.parametrize("pool", [name for name in OFFERS if name != "guarded"])
def test_a_node_with_registration_labels_converges_automatically(scaled: Cluster, pool: str) -> None:
    scaled.until(lambda: offered(scaled, pool) == OFFERS[pool], 120)
    old, new = (scaled.get("node", f"{pool}{which}-1")["metadata"]["labels"] for which in ("", "-new"))
    same = ("nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy", "accel.gpu/pool")
    assert {key: new.get(key) for key in same} == {key: old.get(key) for key in same}
    assert taints(scaled, f"{pool}-new-1") == taints(scaled, f"{pool}-1")
    assert STARTUP not in taints(scaled, f"{pool}-new-1")


@pytest.mark.usual(60)
def test_a_node_with_a_startup_taint_takes_no_pods_before_new_nodes(scaled: Cluster) -> None:
    users, node = Users(scaled.lab), "guarded-new-1"
    assert STARTUP in taints(scaled, node)
    assert STARTUP not in taints(scaled, "guarded-1")
    users.deployment("eager", node, resource="nvidia.com/mig-1g.10gb")
    scaled.until(lambda: offered(scaled, "guarded") == OFFERS["guarded"], 120)
    predicted = play(scaled.lab, "accel.gpu.new_nodes", "--check")
    assert STARTUP in taints(scaled, node)
    assert users.running("eager") == []
    joined = play(scaled.lab, "accel.gpu.new_nodes")
    assert joined.changed() == predicted.changed() == 1
    assert STARTUP not in taints(scaled, node)
    users.wait_running(1, "eager")
    assert play(scaled.lab, "accel.gpu.new_nodes").changed() == 0


@pytest.mark.usual(60)
def test_share_evicts_no_pods(scaled: Cluster) -> None:
    """Nodes with registration labels need no eviction: at most the collection's labels are added."""
    done = play(scaled.lab, "accel.gpu.share")
    reported = done.module_results("accel.gpu.gpu_sharing")[-1]["gpu_sharing"]
    assert set(reported["change_counts"]) <= {"labels"}
    assert not reported["failed"]
    for pool, offers in OFFERS.items():
        assert offered(scaled, pool) == offers
    assert play(scaled.lab, "accel.gpu.share").changed() == 0
