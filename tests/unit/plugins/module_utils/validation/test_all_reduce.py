# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an all-reduce runs, its pods, and its results from the output of nccl-tests."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_pods import GpuRequest
from ansible_collections.accel.gpu.plugins.module_utils.validation import all_reduce, network_program
from ansible_collections.accel.gpu.plugins.module_utils.validation.all_reduce import (
    NETWORK,
    NODE,
    AllReduceOptions,
    AllReduceSite,
    choose_nodes,
    covers,
    evaluate,
    manifest,
)
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import Workload
from tests.helpers.fleet import node, pool

IMAGE = "registry.example/nccl:1"
WORKLOAD = Workload("gpu-operator", {"0.0": "registry.example/k:1"}, "run-1", hold_seconds=10, deadline=900)
FLEET = [node("a", gpus=8), node("b", gpus=8), node("c", gpus=4), node("d", gpus=8, unschedulable=True)]
# The end of nccl-tests 2.x (src/util.cu).
OUTPUT = """\
GPU 0: NVIDIA H200 (UUID: GPU-1)
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  2147483648     536870912     float     sum      -1   7904.0  271.70  475.47      0   7897.1  271.93  475.88      0
# Out of bounds values : {wrong}
# Avg bus bandwidth    : {bandwidth}
#
"""


def used(name: str, count: int) -> dict[str, list[GpuRequest]]:
    return {name: [GpuRequest("ns", "p", "nvidia.com/gpu", count)]}


@pytest.mark.parametrize(
    ("kind", "of_pool", "others", "count", "expected"),
    [
        (NODE, pool(), {}, 1, (["a"], 8)),
        (NODE, pool(), used("a", 3), 1, (["b"], 8)),
        (NETWORK, pool(), {}, 2, (["a", "b"], 8)),
        (NETWORK, pool(), used("a", 6), 2, (["b", "c"], 4)),
        (NETWORK, pool(), used("a", 8), 3, "fewer than 3 of its nodes have 1 or more free GPUs"),
        (NETWORK, pool(), {}, 4, "fewer than 4 of its nodes"),
        (NODE, pool(replicas=4), {}, 1, "shared or partitioned"),
        (NODE, pool(layout={"1g.5gb": 7}), {}, 1, "shared or partitioned"),
    ],
)
def test_nodes(kind: str, of_pool: t.Any, others: t.Any, count: int, expected: t.Any) -> None:
    site = choose_nodes(kind, of_pool, FLEET, others, count)
    if isinstance(expected, str):
        assert isinstance(site, str)
        assert expected in site
    else:
        assert isinstance(site, AllReduceSite)
        assert ([each.name for each in site.nodes], site.gpus) == expected


def test_one_gpu_is_too_few() -> None:
    assert choose_nodes(NODE, pool(), [node("a")], {}, 1) == "fewer than 1 of its nodes have 2 or more free GPUs"


def test_manifests() -> None:
    site = AllReduceSite(NETWORK, pool(), tuple(FLEET[:2]), 8)
    first, second = (manifest(site, rank, address, WORKLOAD, IMAGE) for rank, address in ((0, ""), (1, "10.1.2.3")))
    assert [body["metadata"]["name"] for body in (first, second)] == list(site.pod_names(WORKLOAD))
    containers = [body["spec"]["containers"][0] for body in (first, second)]
    assert [each["resources"]["limits"] for each in containers] == [{"nvidia.com/gpu": "8"}] * 2
    assert [f"--node-rank={rank} " in each["command"][2] for rank, each in enumerate(containers)] == [True, True]
    env = [{entry["name"]: entry for entry in each["env"]} for each in containers]
    assert env[0]["RANK_0"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert env[1]["RANK_0"]["value"] == "10.1.2.3"
    assert "a" in str(first["spec"]["affinity"])
    assert first["spec"]["volumes"][0]["emptyDir"] == {"medium": "Memory"}


def test_the_program_is_python_and_kubernetes_replaces_nothing_in_it() -> None:
    compile(network_program.PROGRAM, "all_reduce.py", "exec")
    assert "$(" not in network_program.PROGRAM


@pytest.mark.parametrize(
    ("bandwidth", "wrong", "minimum", "result", "problem"),
    [
        ("361.234 ", "0 OK", 0, 361.2, ""),
        ("1.2e+03 OK", "0 OK", 400, 1200.0, ""),
        ("35.9 ", "0 OK", 300, 35.9, "35.9 GB/s bus bandwidth, at least 300 is required. Check nvidia-smi nvlink"),
        ("361.2 ", "18 FAILED", 0, None, "18 wrong values"),
    ],
)
def test_results(bandwidth: str, wrong: str, minimum: int, result: float | None, problem: str) -> None:
    site = AllReduceSite(NODE, pool(), (node("a", gpus=8),), 8)
    values, text = evaluate(site, OUTPUT.format(bandwidth=bandwidth, wrong=wrong), minimum)
    assert values.get("bus_bandwidth") == result
    assert (values["nodes"], values["gpus"]) == (["a"], 8)
    assert problem in text
    assert bool(text) == bool(problem)


def test_output_without_a_result_is_a_problem() -> None:
    site = AllReduceSite(NODE, pool(), (node("a", gpus=8),), 8)
    assert evaluate(site, "NCCL WARN", 0)[1] == "all-reduce over 8 GPUs of a printed no bandwidth"


def test_what_to_do_if_an_all_reduce_does_not_end() -> None:
    assert "nvlink" in all_reduce.on_timeout(NODE)
    assert "port 29500" in all_reduce.on_timeout(NETWORK)


RESULT = {"nodes": ["a"], "gpus": 8, "bus_bandwidth": 350.0}


@pytest.mark.parametrize(
    ("entry", "options", "covered"),
    [
        ({}, {}, True),
        ({}, {"node": True}, False),
        ({NODE: RESULT}, {"node": True}, True),
        ({NODE: RESULT}, {"node": True, "min_bandwidth": 360}, False),
        ({NODE: {"skipped": "shared"}}, {"node": True, "min_bandwidth": 360}, True),
        ({NODE: RESULT}, {"node": True, "nodes": 2}, False),
        ({NETWORK: {**RESULT, "nodes": ["a", "b"]}}, {"nodes": 2}, True),
        ({NETWORK: {**RESULT, "nodes": ["a", "b"]}}, {"nodes": 3}, False),
        ({NETWORK: {"skipped": "too few"}}, {"nodes": 3}, True),
    ],
)
def test_evidence_that_covers_a_request(entry: dict[str, t.Any], options: dict[str, t.Any], covered: bool) -> None:
    assert covers(entry, AllReduceOptions(IMAGE, **options)) is covered
    assert all_reduce.covers(entry, AllReduceOptions(IMAGE))
