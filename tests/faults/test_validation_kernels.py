# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes on which nvidia-smi works and CUDA does not: their pools fail with node, evidence and remedy, and the others pass."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.accel.gpu.plugins.module_utils.validation import validator
from ansible_collections.accel.gpu.plugins.modules import gpu_info, gpu_validation
from tests.helpers.cluster import NAMESPACE, Cluster
from tests.helpers.playbook import run_playbook
from tests.helpers.polling import BUSY, until
from tests.labs import Lab

pytestmark = [
    pytest.mark.sampled(1, group="states of validation"),
    pytest.mark.usual(40),
    pytest.mark.timeout(600),
]

OWN_DRIVER = {"nvidia.com/gpu.deploy.driver": "false"}
FLEET = {
    "defaults": {"os": "ubuntu-24.04", "driver": "580.95.05"},
    "groups": [
        # Its driver is installed on the host, and the operator leaves it alone.
        {"name": "old", "count": 1, "model": "T4", "gpus": 1, "driver": "535.183.01", "labels": OWN_DRIVER},
        {"name": "wrong", "count": 1, "model": "L40S", "gpus": 2},
        {"name": "hung", "count": 1, "model": "A100-SXM4-80GB", "gpus": 8},
        {"name": "good", "count": 2, "model": "H100-80GB-HBM3", "gpus": 8},
        {"name": "shared", "count": 1, "model": "A30", "gpus": 1},
    ],
}
POOLS: list[dict[str, Any]] = [
    {"name": "old", "match": {"model": "T4"}},
    {"name": "wrong", "match": {"model": "L40S"}},
    {"name": "hung", "match": {"model": "A100-SXM4-80GB"}},
    {"name": "good", "match": {"model": "H100-80GB-HBM3"}},
    {"name": "shared", "match": {"model": "A30"}, "sharing": {"mode": "mps", "replicas": 4}},
]
CUDA_13 = "registry.example.com/cuda-sample:vectoradd-cuda13.0.0"
QUICK = {"hold_seconds": 3, "kernel_timeout": 4, "wait_timeout": 120}


@pytest.fixture(scope="module")
def kernels(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The fleet with its pools, before any validation."""
    fleet = tmp_path_factory.mktemp("fleet") / "kernels.yaml"
    fleet.write_text(yaml.safe_dump(FLEET))

    def install() -> None:
        skip = ["--skip-tags", "validation,report"]
        run_playbook(
            "accel.gpu.site", environ=lab.env, arguments=skip, variables={"gpu_pools": POOLS}
        ).require_success()

    lab.become("kernels", install, Path(fleet))
    return Cluster(lab)


@pytest.fixture(autouse=True)
def no_faults(kernels: Cluster) -> Any:
    """Every test begins and ends without faults."""
    kernels.lab.command("fault", "clear")
    yield
    kernels.lab.command("fault", "clear")


def validated(cluster: Cluster, *names: str, **options: Any) -> dict[str, Any]:
    target: dict[str, Any] = {"name": cluster.lab.name, "kubeconfig": str(cluster.lab.kubeconfig)}
    if image := options.pop("image", None):
        target["validation"] = {"image": image}
    pools = [pool for pool in POOLS if not names or pool["name"] in names]
    return cluster.run(gpu_validation.main, gpu_cluster=target, gpu_pools=pools, **{**QUICK, **options})


def pods(cluster: Cluster) -> list[Any]:
    actual: list[Any] = cluster.get("pods", "-A", "-l", "accel.gpu/validation")["items"]
    return actual


@contextlib.contextmanager
def created(cluster: Cluster, body: dict[str, Any], directory: Path) -> Iterator[None]:
    """The object exists inside the block."""
    path = directory / "object.json"
    path.write_text(json.dumps(body))
    cluster.kubectl("create", "-f", str(path))
    try:
        yield
    finally:
        cluster.kubectl("delete", "-f", str(path))


def problems(result: dict[str, Any], pool: str) -> str:
    return "\n".join(result["gpu_validation"]["pools"][pool]["problems"])


def test_broken_gpus_fail_with_evidence_and_remedy_and_other_pools_pass(kernels: Cluster) -> None:
    kernels.lab.command("fault", "inject", "kernel-wrong-result=1", "--nodes", "wrong-1")
    kernels.lab.command("fault", "inject", "kernel-hang", "--nodes", "hung-1")
    result = validated(kernels, image=CUDA_13)
    assert result["failed"] is True
    actual = result["gpu_validation"]["pools"]
    statuses = {name: (pool["status"], pool["kernel"]) for name, pool in actual.items()}
    bad, good = ("failed", "failed"), ("verified", "passed")
    assert statuses == {"old": bad, "wrong": bad, "hung": bad, "good": good, "shared": good}
    for pool, node, words in (
        (
            "old",
            "old-1",
            [
                "CUDA driver version is insufficient for CUDA runtime version",
                f"Driver 535.183.01 supports CUDA 12.2, and {CUDA_13} needs a newer one. Update the driver",
            ],
        ),
        ("wrong", "wrong-1", ["on GPU-", "exit code 1", "Result verification failed at element 0!", "dcgmi diag -r 3"]),
        ("hung", "hung-1", ["on GPU-", "exit code 124", "GPU 0: NVIDIA A100-SXM4-80GB", "does not respond: cordon"]),
    ):
        assert actual[pool]["node"] == node
        assert f"{pool} on {node}: " in result["msg"]
        assert [word for word in words if word not in problems(result, pool)] == []
    # One of the two GPUs computes wrongly.
    assert len(actual["wrong"]["problems"]) == 1
    # The result names every GPU that hangs, and the message the first ones.
    uuids = list(actual["hung"]["devices"])
    assert len(uuids) == len(actual["hung"]["problems"]) == 8
    assert [
        uuid for uuid in uuids if f"on {uuid}: kernel ended with exit code 124" not in problems(result, "hung")
    ] == []
    assert "hung on hung-1: 8 of 9 pods on 8 GPUs (GPU-" in result["msg"]
    assert " and 3 more): kernel ended with exit code 124" in result["msg"]
    assert pods(kernels) == []
    kernels.lab.command("fault", "clear")
    again = validated(kernels, image=CUDA_13)
    assert {name: pool["status"] for name, pool in again["gpu_validation"]["pools"].items()} == {
        "old": "failed",
        "wrong": "verified",
        "hung": "verified",
        "good": "skipped",
        "shared": "skipped",
    }


def test_a_failed_validation_is_reported_until_the_pool_is_verified(kernels: Cluster, tmp_path: Path) -> None:
    """The run that fails writes the report first, and later reports show the failure, too."""
    pools = [pool for pool in POOLS if pool["name"] in ("hung", "shared")]
    file = tmp_path / "fleet.json"
    kernels.lab.command("fault", "inject", "kernel-hang", "--nodes", "hung-1")
    options = {"force": True, "hold_seconds": 3, "kernel_timeout": 4}
    variables = {"gpu_pools": pools, "gpu_report_path": str(file)} | {
        f"gpu_validation_{name}": value for name, value in options.items()
    }
    tags = ["--tags", "validation,report"]
    run = run_playbook("accel.gpu.site", environ=kernels.lab.env, arguments=tags, variables=variables)
    assert run.rc == 2
    assert "8 of 9 pods on 8 GPUs" in run.failure()
    assert run.shown("hung: as declared; validation failed,")
    info = json.loads(file.read_text())
    later = kernels.run(gpu_info.main, gpu_pools=pools)["gpu_info"]
    for actual in (info["pools"], later["pools"]):
        failure = actual["hung"]["validation"]
        assert (failure["status"], failure["node"], failure["current"]) == ("failed", "hung-1", True)
        assert len(failure["devices"]) == 8
        assert failure["problems"][0].startswith("8 of 9 pods on 8 GPUs")
        assert actual["shared"]["validation"]["status"] == "verified"
    predicted = validated(kernels, "hung", "shared", check=True)
    assert predicted["gpu_validation"]["pools"]["hung"]["reason"] == "its last validation failed"
    kernels.lab.command("fault", "clear")
    assert validated(kernels, "hung", "shared")["gpu_validation"]["pools"]["hung"]["status"] == "verified"
    again = kernels.run(gpu_info.main, gpu_pools=pools)["gpu_info"]["pools"]["hung"]["validation"]
    assert again["status"] == "verified"
    assert validated(kernels, "hung", "shared")["changed"] is False


def test_the_image_fits_the_driver_of_each_node(kernels: Cluster) -> None:
    """Without an image of the user's, the old driver is not a problem; CUDA that fails there is one.

    Each pod costs one creation and one log, as without the kernel.
    """
    mark = kernels.mark()
    result = validated(kernels, "old", "good", "shared", force=True)
    assert not result.get("failed"), result["msg"]
    images = {name: pool["image"].rpartition("-")[2] for name, pool in result["gpu_validation"]["pools"].items()}
    assert images == {"old": "cuda11.7.1", "good": "cuda12.5.0", "shared": "cuda12.5.0"}
    pools = result["gpu_validation"]["pools"].values()
    created = sum(pool["pods"] + len({"one_more", "two_shares"} & pool.keys()) for pool in pools)
    requests = [request.partition("?")[0] for request in kernels.requests(mark, "gpu_validation")]
    assert len([each for each in requests if each.startswith("create") and each.endswith("/pods")]) == created == 17
    assert len([each for each in requests if each.endswith("/log")]) == sum(pool["pods"] for pool in pools) == 13
    kernels.lab.command("fault", "inject", "kernel-driver-old", "--nodes", "shared-1")
    failed = validated(kernels, "old", "shared", force=True)
    assert failed["gpu_validation"]["pools"]["old"]["status"] == "verified"
    for word in ("CUDA driver version is insufficient", "sufficient for", "the container does not use this driver"):
        assert word in problems(failed, "shared")
    assert pods(kernels) == []


def test_load_and_all_reduce_are_measured_on_request(kernels: Cluster) -> None:
    first = validated(kernels, "good", "shared", force=True)["gpu_validation"]["pools"]["good"]
    assert not {"load", "all_reduce", "network_all_reduce"} & first.keys()
    more = {"load_seconds": 2, "all_reduce": True, "all_reduce_nodes": 2, "min_bandwidth": 100}
    predicted = validated(kernels, "good", "shared", check=True, **more)["gpu_validation"]["pools"]
    assert {pool["reason"] for pool in predicted.values()} == {"verified, but not with all programs of this run"}
    result = validated(kernels, "good", "shared", **more)
    assert not result.get("failed"), result["msg"]
    good, shared = (result["gpu_validation"]["pools"][name] for name in ("good", "shared"))
    assert good["load"]["seconds"] == 2
    assert good["load"]["min_gflops"] > 1000
    assert good["all_reduce"]["gpus"] == 8
    assert good["all_reduce"]["bus_bandwidth"] > 100
    assert good["network_all_reduce"]["nodes"] == ["good-1", "good-2"]
    assert 1 < good["network_all_reduce"]["bus_bandwidth"] < 100
    assert "shared or partitioned" in shared["all_reduce"]["skipped"]
    again = validated(kernels, "good", "shared", **more)
    assert again["changed"] is False
    info = kernels.run(gpu_info.main, gpu_pools=POOLS)["gpu_info"]["pools"]["good"]["validation"]
    assert (info["all_reduce"], info["load"]) == (good["all_reduce"], good["load"])
    assert pods(kernels) == []


def test_a_quota_counts_the_device_of_load_and_kernel_once(kernels: Cluster, tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "kernels", "namespace": NAMESPACE},
        # Eight pods, and one more that has to wait.
        "spec": {"hard": {"requests.nvidia.com/gpu": "9"}},
    }
    with created(kernels, quota, tmp_path):
        until(lambda: kernels.get("quota", "kernels", "-n", NAMESPACE).get("status", {}).get("used"))
        result = validated(kernels, "good", force=True, load_seconds=1)
    assert not result.get("failed"), result["msg"]
    good = result["gpu_validation"]["pools"]["good"]
    assert (good["pods"], good["one_more"], good["load"]["seconds"]) == (8, "waited", 1)


def test_a_pool_whose_pods_are_rejected_fails_and_other_pools_pass(kernels: Cluster, tmp_path: Path) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "kernels", "namespace": NAMESPACE},
        "spec": {"hard": {"requests.nvidia.com/gpu": "6"}},
    }
    with created(kernels, quota, tmp_path):
        until(lambda: kernels.get("quota", "kernels", "-n", NAMESPACE).get("status", {}).get("used"))
        rejected = validated(kernels, "good", force=True)
    assert (rejected["failed"], rejected.get("code")) == (True, None)
    good = rejected["gpu_validation"]["pools"]["good"]
    assert (good["status"], len(good["problems"])) == ("failed", 2)
    assert "2 of 9 pods (accel-gpu-validation-good-" in rejected["msg"]
    for word in ("rejected: exceeded quota: kernels", "Raise the limit of this ResourceQuota"):
        assert word in rejected["msg"]
    assert "Role" not in rejected["msg"]
    # The pods of the kernel request one GPU, the pod of an all-reduce eight.
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "kernels", "namespace": NAMESPACE},
        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "4"}}]},
    }
    with created(kernels, limits, tmp_path):
        measured = validated(kernels, "good", "shared", force=True, all_reduce=True)
    assert (measured["failed"], measured.get("code")) == (True, None)
    actual = measured["gpu_validation"]["pools"]
    assert {name: (pool["status"], pool["kernel"]) for name, pool in actual.items()} == {
        "good": ("failed", "passed"),
        "shared": ("verified", "passed"),
    }
    assert "rejected: maximum nvidia.com/gpu usage per Container is 4" in problems(measured, "good")
    assert pods(kernels) == []


def test_a_slow_link_fails_where_a_bandwidth_is_required(kernels: Cluster) -> None:
    kernels.lab.command("fault", "inject", "link-slow", "--nodes", "good-1,good-2")
    result = validated(
        kernels,
        "good",
        force=True,
        all_reduce=True,
        all_reduce_nodes=2,
        min_bandwidth={"good": 200},
        min_network_bandwidth=5,
    )
    assert result["failed"] is True
    text = problems(result, "good")
    for word in ("over 8 GPUs of good-1", "at least 200 is required", "nvlink --status", "over 16 GPUs", "at least 5"):
        assert word in text
    assert result["gpu_validation"]["pools"]["good"]["all_reduce"]["bus_bandwidth"] < 100
    # A failure is no evidence, and neither is what was verified before it.
    assert validated(kernels, "good", check=True)["gpu_validation"]["pools"]["good"]["status"] == "would_run"
    assert pods(kernels) == []


def test_pods_that_cannot_be_killed_are_reported_and_hold_up_no_other_pool(
    kernels: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validator, "DELETE_TIMEOUT", 3.0)
    kernels.lab.command("fault", "inject", "kernel-hang=unkillable", "--nodes", "hung-1")
    start = time.monotonic()
    result = validated(kernels, "hung", "shared", force=True, wait_timeout=15)
    assert time.monotonic() - start < BUSY * 60
    assert result["failed"] is True
    assert result["gpu_validation"]["pools"]["shared"]["status"] == "verified"
    for word in ("8 Running", "has not finished its kernel", "still exists", "reboot"):
        assert word in problems(result, "hung")
    assert len(pods(kernels)) >= 8
    # The pods of the former run hold their GPUs; the other pools are validated all the same.
    second = validated(kernels, "hung", "shared", force=True, wait_timeout=15)
    actual = second["gpu_validation"]["pools"]
    assert (actual["shared"]["status"], actual["hung"]["status"]) == ("verified", "busy")
    kernels.lab.command("fault", "clear")
    until(lambda: pods(kernels) == [])


def test_limits_are_checked_first(kernels: Cluster) -> None:
    mark = kernels.mark()
    result = validated(kernels, kernel_timeout=0, all_reduce_nodes=1)
    assert (result["failed"], result["code"]) == (True, "invalid")
    assert [problem.partition(" ")[0] for problem in result["details"]["problems"]] == [
        "gpu_validation_kernel_timeout",
        "gpu_validation_all_reduce_nodes",
    ]
    assert kernels.requests(mark, "gpu_validation") == []
