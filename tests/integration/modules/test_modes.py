# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG and MPS in the lab: nodes offer what their pool declares, and changes back leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.modules import cluster_policy, gpu_sharing
from tests.helpers.cluster import NAMESPACE, Cluster, settled
from tests.helpers.snapshot import differences
from tests.labs import Lab

NONE = {"mode": "none"}
GPUS = {"train-a100": {"gpus_per_node": 8}, "notebooks": {"gpus_per_node": 1}}
# The last declaration; `make test` leaves some of the modes out.
DECLARED: dict[str, dict[str, Any]] = {"train-a100": NONE, "notebooks": NONE, "inference": NONE}
# The A100-SXM4-80GB nodes of the lab have eight GPUs, the T4 nodes one.
SEVENTHS = {"mode": "mig", "layout": {"1g.10gb": 7}}
MIXTURE = {"mode": "mig", "layout": ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]}
SLICED = {"mode": "mig", "layout": {"3g.40gb": 2}, "replicas": 2, "rename": True}
EXTRAS = {"mode": "mig", "layout": {"1g.10gb": 6, "1g.10gb+me": 1}}
BY_GPU = {"mode": "mig", "layout": {0: {"7g.80gb": 1}, 1: {"1g.10gb": 7}}}
MODES: dict[str, tuple[str, str, dict[str, Any], dict[str, int]]] = {
    "sevenths": ("train-a100", "a100-", SEVENTHS, {"nvidia.com/gpu": 56}),
    "mixture": (
        "train-a100",
        "a100-",
        MIXTURE,
        {"nvidia.com/mig-1g.10gb": 16, "nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.40gb": 8},
    ),
    "sliced": ("train-a100", "a100-", SLICED, {"nvidia.com/gpu.shared": 32}),
    "by gpu": (
        "train-a100",
        "a100-",
        BY_GPU,
        {"nvidia.com/mig-7g.80gb": 1, "nvidia.com/mig-1g.10gb": 7, "nvidia.com/gpu": 6},
    ),
    # The device plugin of operator v25.10 offers devices with media extensions as plain ones.
    "media extensions": ("train-a100", "a100-", EXTRAS, {"nvidia.com/mig-1g.10gb": 56}),
    "mig-disabled": ("train-a100", "a100-", NONE, {"nvidia.com/gpu": 8}),
    "mps": ("notebooks", "t4-", {"mode": "mps", "replicas": 4}, {"nvidia.com/gpu": 4}),
    "mps renamed": ("notebooks", "t4-", {"mode": "mps", "replicas": 4, "rename": True}, {"nvidia.com/gpu.shared": 4}),
    "alone again": ("notebooks", "t4-", NONE, {"nvidia.com/gpu": 1}),
}


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Iterator[Cluster]:
    installed = Cluster(lab).install()
    share(installed, "notebooks", NONE)
    yield installed
    lab.command("fault", "clear")


def share(cluster: Cluster, pool: str, sharing: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Declare this sharing for one pool, as the roles gpu_operator and sharing do; the others keep their last declaration."""
    declared = {**DECLARED, pool: sharing}
    pools = cluster.pools(
        *({"name": name, "sharing": pool_sharing, **GPUS.get(name, {})} for name, pool_sharing in declared.items())
    )
    check = bool(options.get("check"))
    if not check:
        DECLARED.update(declared)
    policy = cluster.run(cluster_policy.main, gpu_pools=pools, wait_timeout=90, wait_sleep=1, check=check)
    assert not policy.get("failed"), policy
    options = {"gpu_pools": pools, "wait_timeout": 300, "expected_policy": policy["cluster_policy"], **options}
    return cluster.run(gpu_sharing.main, **options)


@pytest.mark.sampled(1, group="changes between modes")
def test_check_mode_predicts_the_run(cluster: Cluster) -> None:
    """On nodes without MIG: the MIG manager's configuration exists only after the real run of cluster_policy."""
    predicted = share(cluster, "train-a100", SEVENTHS, check=True, diff=True)
    done = share(cluster, "train-a100", SEVENTHS, diff=True)
    assert predicted["diff"] == done["diff"]
    assert predicted["changed"] is done["changed"] is True


@pytest.mark.sampled(1, group="changes between modes")
@pytest.mark.usual(20)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_verified_and_no_other_node_changes(cluster: Cluster, mode: str) -> None:
    pool, prefix, sharing, offered = MODES[mode]
    others = {name: settled(node) for name, node in cluster.nodes().items() if not name.startswith(prefix)}
    mark = cluster.mark()
    result = share(cluster, pool, sharing)
    assert not result.get("failed"), result["msg"]
    members = sorted(name for name in cluster.nodes() if name.startswith(prefix))
    assert cluster.offered(prefix) == dict.fromkeys(members, offered)
    assert result["gpu_sharing"]["pools"][pool]["verified"] == len(members)
    assert cluster.written_nodes(mark, "gpu_sharing") <= set(members)
    now = {name: settled(node) for name, node in cluster.nodes().items() if name in others}
    assert differences(others, now) == {}
    again = share(cluster, pool, sharing)
    assert again["changed"] is False, again


@pytest.mark.sampled(1, group="changes between modes")
def test_a_layout_is_an_entry_beside_foreign_ones(cluster: Cluster) -> None:
    share(cluster, "train-a100", MIXTURE)
    configmap = cluster.get("configmap", "accel-gpu-mig-parted", "-n", NAMESPACE)
    entries = yaml.safe_load(configmap["data"]["config.yaml"])["mig-configs"]
    named = {node["metadata"]["labels"].get("nvidia.com/mig.config") for node in cluster.nodes().values()} - {None}
    assert named <= set(entries)
    assert {"all-disabled", "all-enabled", "all-1g.10gb"} <= set(entries)
    assert [name for name in entries if name.startswith("mig-")] == [name for name in named if name.startswith("mig-")]


@pytest.mark.sampled(1, group="changes between modes")
def test_a_failed_mig_change_is_reported_with_the_log_of_the_mig_manager(cluster: Cluster) -> None:
    share(cluster, "train-a100", NONE)
    cluster.lab.command("fault", "inject", "mig-failed", "--nodes", "a100-1")
    result = share(cluster, "train-a100", SEVENTHS)
    assert result["failed"] is True
    for word in ("a100-1 (pool train-a100)", "nvidia.com/mig.config.state is failed", "the log of", "delete pod"):
        assert word in result["msg"]
    assert "a100-2" not in result["msg"]
    cluster.lab.command("fault", "clear")
    share(cluster, "train-a100", NONE)
