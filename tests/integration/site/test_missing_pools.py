# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A missing, misspelled or truncated variable removes nothing from a cluster in use, and the message lists what it would remove."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_sharing
from tests.helpers.cluster import Cluster
from tests.helpers.cut_watch import cut_watch, is_cut
from tests.helpers.playbook import PlaybookRun, run_playbook
from tests.helpers.snapshot import differences, snapshot
from tests.helpers.workloads import GPU, Users
from tests.labs import Lab
from tests.programs import REPO

pytestmark = [pytest.mark.lab]

HALVES = {"mode": "mig", "layout": {"3g.40gb": 2}}
CUT = {"name": "train-a100", "sharing": HALVES, "rollout": {"max_unavailable": 4}}
SHARED = "nvidia.com/gpu.shared"
COUNTS = {"notebooks": 7, "inference": 5, "train-a100": 4, "train-h100": 2, "train-h200": 2}


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    """The inventory's pools, one of them partitioned by MIG, with pods on four of them and a budget on one."""
    cluster = Cluster(lab)
    lab.become("shared-and-cut", lambda: _cut(cluster))
    users = Users(lab).create_namespace()
    users.deployment("study", "t4-1", replicas=3, resource=GPU)
    users.deployment("serve", "l40s-1", replicas=2, resource=SHARED)
    users.budget("serve", "serve", minAvailable=2)
    users.deployment("learn", "a100-1", replicas=2, resource=GPU)
    users.wait_running(7)
    return cluster


def _cut(cluster: Cluster) -> None:
    cluster.share()
    pools = cluster.pools(CUT)
    for main in (cluster_policy.main, gpu_sharing.main):
        result = cluster.run(main, gpu_pools=pools, wait_timeout=120)
        assert not result.get("failed"), result


@pytest.fixture
def untouched(cluster: Cluster) -> Iterator[None]:
    """No object of the cluster has changed, and no pod of a user has ended."""
    before = snapshot(cluster.lab)
    with Users(cluster.lab).watched() as pods:
        yield
    assert pods.gone == {}
    assert differences(before, snapshot(cluster.lab)) == {}


def of_pools(cluster: Cluster, *names: str) -> list[dict[str, Any]]:
    return [pool for pool in cluster.pools(CUT) if pool["name"] in names]


def misspelled(folder: Path) -> Path:
    """The lab's inventory with gpu_pool in place of gpu_pools."""
    created = folder / "inventory"
    shutil.copytree(REPO / "inventories" / "lab", created)
    written = created / "group_vars" / "gpu_clusters.yml"
    written.write_text(written.read_text().replace("\ngpu_pools:", "\ngpu_pool:"))
    assert "gpu_pools" not in yaml.safe_load(written.read_text())
    return created


def play(cluster: Cluster, name: str, **options: Any) -> PlaybookRun:
    return run_playbook(f"accel.gpu.{name}", environ=cluster.lab.env, **options)


@pytest.mark.usual(70)
@pytest.mark.usefixtures("untouched")
def test_no_module_removes_anything_by_mistake(cluster: Cluster) -> None:
    two = of_pools(cluster, "notebooks", "inference")
    renamed = cluster.pools(CUT)
    # Its match no longer matches any node.
    renamed[0] |= {"name": "notebook", "match": {"labels": {"rack": "one"}}}
    renamed[1] |= {"name": "serving", "match": {"labels": {"rack": "two"}}}
    for pools, gone in (
        ([], [*COUNTS]),
        (two, ["train-a100", "train-h100", "train-h200"]),
        (renamed, ["notebooks", "inference"]),
    ):
        for check in (True, False):
            result = cluster.run(gpu_sharing.main, gpu_pools=pools, check=check, diff=True)
            assert (result["code"], result["changed"]) == ("release_refused", False), result
            released = result["gpu_sharing"]["released_nodes"]
            assert len(released) == sum(COUNTS[name] for name in gone)
            assert {*released.values()} == {*gone}
            assert set(released) <= set(result["diff"]["after"]["nodes"])
            for name in gone:
                assert f"{name}: {COUNTS[name]}" in result["msg"]
            assert f"-e gpu_allow_release={','.join(sorted(gone))}" in result["msg"]
    assert "evict" in result["msg"]
    # A renamed pool whose match selects its nodes: they change pools, and no pod is evicted.
    moved = cluster.pools(CUT)
    moved[2]["name"] = "train"
    result = cluster.run(gpu_sharing.main, gpu_pools=moved, check=True)
    assert (result["changed"], result["gpu_sharing"]["released_nodes"]) == (True, {})
    assert not any(step["evicts"] for step in result["gpu_sharing"]["steps"].values())
    for options in ({}, {"gpu_pools": None}):
        for main in (gpu_sharing.main, cluster_policy.main):
            result = cluster.run(main, **options)
            assert result["code"] == "invalid"
            assert "gpu_pools: is not set" in result["msg"]
    assert cluster.run(gpu_sharing.main, gpu_pools={}).get("failed")


@pytest.mark.usual(20)
@pytest.mark.sampled(1, group="mistakes in gpu_pools")
@pytest.mark.usefixtures("untouched")
def test_no_sharing_ends_and_no_pool_loses_its_nodes_by_mistake(cluster: Cluster) -> None:
    """gpu_defaults with the sharing are missing; the match of one pool no longer matches any node."""
    silent = [{key: value for key, value in pool.items() if key != "sharing"} for pool in cluster.pools(CUT)]
    without_nodes = cluster.pools(CUT)
    without_nodes[0]["match"] = {"model": "A10"}
    for pools, words in (
        (silent, [*(f"{name}: {COUNTS[name]}" for name in ("inference", "notebooks", "train-a100")), "sharing.mode"]),
        (without_nodes, [f"notebooks: {COUNTS['notebooks']}", "-e gpu_allow_release=notebooks"]),
    ):
        for check in (True, False):
            result = cluster.run(gpu_sharing.main, gpu_pools=pools, gpu_defaults={}, check=check)
            assert (result["code"], result["changed"]) == ("release_refused", False), result
            assert [word for word in words if word not in result["msg"]] == []
    planned = play(cluster, "plan", variables={"gpu_pools": silent, "gpu_defaults": {}})
    assert planned.require_success().shown(
        "REFUSED: This run would stop the sharing of GPUs, or replace foreign device plugin configurations, on 16 node(s)"
    )
    refused = play(cluster, "site", variables={"gpu_pools": silent, "gpu_defaults": {}})
    assert (refused.rc != 0, refused.changed()) == (True, 0)


@pytest.mark.usual(25)
@pytest.mark.sampled(1, group="mistakes in gpu_pools")
@pytest.mark.usefixtures("untouched")
def test_no_playbook_removes_anything_by_mistake(cluster: Cluster, tmp_path: Path) -> None:
    wrong = play(cluster, "share", inventory=misspelled(tmp_path))
    assert wrong.rc != 0
    assert "gpu_pools: is not set (or null)" in wrong.failure()
    assert "An explicit []" in wrong.failure()
    plan = play(cluster, "plan", variables={"gpu_pools": []})
    for words in (
        "REFUSED",
        "20 node(s)",
        "5 of pool inference",
        "have pods to evict",
        "-e gpu_allow_release=inference,",
    ):
        assert plan.shown(words), words
    # The roles before the one that would release the nodes have changed nothing, either.
    refused = play(cluster, "site", variables={"gpu_pools": of_pools(cluster, "notebooks", "inference")})
    assert refused.rc != 0
    assert refused.changed() == 0
    assert "train-a100: 4" in refused.failure()


@pytest.mark.soak
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("arguments", [[], ["--check", "--diff"]])
@pytest.mark.parametrize("name", ["plan", "share", "site"])
@pytest.mark.parametrize("pools", ["unset", None, [], {}, "two", "renamed"])
def test_every_playbook_and_every_mistake(
    cluster: Cluster, tmp_path: Path, pools: Any, name: str, arguments: list[str]
) -> None:
    args: dict[str, Any] = {"arguments": arguments}
    if pools == "unset":
        args["inventory"] = misspelled(tmp_path)
    elif pools == "two":
        args["variables"] = {"gpu_pools": of_pools(cluster, "notebooks", "inference")}
    elif pools == "renamed":
        (other,) = of_pools(cluster, "train-a100")
        renamed = {**other, "name": "train", "match": {"labels": {"rack": "one"}}}
        args["variables"] = {"gpu_pools": [renamed]}
    else:
        args["variables"] = {"gpu_pools": pools}
    played = play(cluster, name, **args)
    if name == "plan" and (pools == [] or pools in ("two", "renamed")):
        assert played.require_success().shown("REFUSED")
    else:
        assert played.rc != 0
        assert played.changed() == 0
        assert "gpu_pools" in played.failure()


@pytest.mark.usual(10)
@pytest.mark.sampled(1, group="failures of a release")
def test_an_allowed_release_happens_and_is_announced(cluster: Cluster) -> None:
    Users(cluster.lab).no_budget("serve")
    pools = of_pools(cluster, "notebooks", "train-a100")
    allowed = {"allow_release": "inference, train-h100, train-h200"}
    predicted = cluster.run(gpu_sharing.main, gpu_pools=pools, check=True, diff=True, **allowed)
    assert predicted["changed"] is True
    with Users(cluster.lab).watched() as pods:
        done = cluster.run(gpu_sharing.main, gpu_pools=pools, diff=True, **allowed)
    assert not done.get("failed"), done
    assert done["diff"] == predicted["diff"]
    assert done["gpu_sharing"]["released_nodes"] == predicted["gpu_sharing"]["released_nodes"]
    assert pods.names() == {pod for step in predicted["gpu_sharing"]["steps"].values() for pod in step["evicts"]}
    assert {*done["gpu_sharing"]["released_nodes"].values()} == {"inference", "train-h100", "train-h200"}
    assert "No pool in gpu_pools claims " in str(done["warnings"])
    assert cluster.run(gpu_sharing.main, gpu_pools=pools)["changed"] is False
    # Releasing a part of a pool needs no permission.
    single = cluster.run(gpu_sharing.main, gpu_pools=of_pools(cluster, "train-a100"), check=True)
    assert single["changed"] is True
    assert {*single["gpu_sharing"]["released_nodes"].values()} == {"notebooks"}
    cluster.lab.command("reset", "--to", "shared-and-cut")


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="failures of a release")
def test_site_releases_the_only_pool_with_mig(cluster: Cluster) -> None:
    """The MIG manager gets NVIDIA's own configuration again before the nodes are released."""
    pools = [pool for pool in cluster.pools() if pool["name"] != "train-a100"]
    with cut_watch(cluster.lab) as watch:
        played = play(cluster, "site", variables={"gpu_pools": pools}, arguments=["--skip-tags", "validation"])
    played.require_success()
    assert watch.wrong == []
    assert watch.cut_states > 0
    nodes = [node for name, node in cluster.nodes().items() if name.startswith("a100-")]
    assert not any(is_cut(node) or node["spec"].get("unschedulable") for node in nodes)
    assert {*map(str, cluster.offered("a100-").values())} == {str({GPU: 8})}
    cluster.lab.command("reset", "--to", "shared-and-cut")
