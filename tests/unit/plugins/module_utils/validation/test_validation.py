# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a pool is proven, with which pods, what their logs prove, and when there is nothing to prove again."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.gpu_requests import GpuRequest
from ansible_collections.accel.gpu.plugins.module_utils.validation import evaluation, evidence
from ansible_collections.accel.gpu.plugins.module_utils.validation.pods import (
    NotTestable,
    ValidationSite,
    Workload,
    choose_node,
    manifest,
)
from tests.helpers.fleet import node, pool

WORKLOAD = Workload("gpu-operator", "registry.example/cuda:1", "run-1", hold=10, deadline=300)
SHARED = pool(replicas=4)
STARTING = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu", "effect": "NoSchedule"}


def lenient(of_pool: t.Any) -> t.Any:
    """The pool, without failRequestsGreaterThanOne."""
    return replace(of_pool, sharing=replace(of_pool.sharing, fail_requests=False))


def _used(name: str, count: int) -> dict[str, list[GpuRequest]]:
    return {name: [GpuRequest(name, "ns", "p", "nvidia.com/gpu", count)]}


def test_the_freest_node_is_chosen() -> None:
    nodes = [node("a", gpus=4), node("b", gpus=4)]
    assert choose_node(pool(), nodes, _used("a", 1), 8) == ValidationSite(
        nodes[1], ("nvidia.com/gpu",) * 4, surplus="nvidia.com/gpu"
    )


@pytest.mark.parametrize(
    ("nodes", "used", "words"),
    [
        ([node(ready=False), node("b", unschedulable=True)], {}, "ready and schedulable"),
        ([node(taints=(STARTING,))], {}, "ready and schedulable"),
        ([node(allocatable={})], {}, "offers nvidia.com/gpu"),
        ([node(gpus=2)], _used("n1", 2), "all 2 nvidia.com/gpu of the pool are in use"),
    ],
)
def test_why_no_node(nodes: list[t.Any], used: dict[str, list[GpuRequest]], words: str) -> None:
    found = choose_node(pool(), nodes, used, 8)
    assert isinstance(found, NotTestable)
    assert words in found.reason
    assert found.busy == ("in use" in words)


@pytest.mark.parametrize(("gpus", "replicas", "pods"), [(1, 4, 4), (8, 4, 9), (2, 4, 8), (16, 1, 8), (2, 1, 2)])
def test_enough_pods_to_prove_the_mode(gpus: int, replicas: int, pods: int) -> None:
    site = choose_node(pool(replicas=replicas), [node(gpus=gpus, replicas=replicas)], {}, 8)
    assert isinstance(site, ValidationSite)
    assert site.pods == pods


MIXTURE = pool(layout={0: {"3g.20gb": 1, "1g.5gb": 4}}, gpus_per_node=2)
MIXED = {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-3g.20gb": 1, "nvidia.com/gpu": 1}

# What is offered, what others hold of it, how many pods there may be, and what is tried beside them (surplus, pair).
BEYOND: list[tuple[str, t.Any, t.Any, int, int, tuple[str, str]]] = [
    ("exclusive", pool(), node(gpus=8), 0, 8, ("nvidia.com/gpu", "")),
    ("more GPUs than pods", pool(), node(gpus=16), 0, 8, ("", "")),
    ("one GPU is held", pool(), node(gpus=4), 1, 8, ("", "")),
    ("shared", SHARED, node(replicas=4), 0, 8, ("nvidia.com/gpu", "nvidia.com/gpu")),
    ("shared, one share is held", SHARED, node(replicas=4), 1, 8, ("", "")),
    ("shared, three stay free", SHARED, node(gpus=4, replicas=4), 5, 8, ("", "nvidia.com/gpu")),
    ("MPS", pool(replicas=4, mode="mps"), node(replicas=4), 0, 8, ("nvidia.com/gpu", "nvidia.com/gpu")),
    ("two may be asked for", lenient(SHARED), node(replicas=4), 0, 8, ("nvidia.com/gpu", "")),
    ("renamed", pool(replicas=4, rename=True), node(replicas=4, rename=True), 0, 8, ("nvidia.com/gpu.shared",) * 2),
    ("a mixture, all of it", MIXTURE, node(gpus=2, allocatable=MIXED), 0, 8, ("nvidia.com/mig-1g.5gb", "")),
    ("a mixture, the first pods of it", MIXTURE, node(gpus=2, allocatable=MIXED), 0, 4, ("nvidia.com/mig-3g.20gb", "")),
    (
        "MIG devices that are shared",
        pool(layout={"1g.5gb": 7}, replicas=2),
        node(allocatable={"nvidia.com/gpu": 14}),
        0,
        14,
        ("nvidia.com/gpu", "nvidia.com/gpu"),
    ),
]


@pytest.mark.parametrize(
    ("of_pool", "of_node", "others", "limit", "tried"), [case[1:] for case in BEYOND], ids=[case[0] for case in BEYOND]
)
def test_what_is_tried_beyond(of_pool: t.Any, of_node: t.Any, others: int, limit: int, tried: tuple[str, str]) -> None:
    site = choose_node(of_pool, [of_node], _used("n1", others), limit)
    assert isinstance(site, ValidationSite)
    assert (site.surplus, site.pair) == tried
    assert [(ask.name, ask.count, ask.holds) for ask in site.beyond] == [
        (name, count, False) for name, count, on in (("surplus", 1, tried[0]), ("pair", 2, tried[1])) if on
    ]


def test_manifest() -> None:
    toleration = {"key": "a", "operator": "Exists", "effect": "NoSchedule"}
    of_pool = pool(replicas=4, rename=True, tolerations=(toleration,))
    site = ValidationSite(node("n7"), of_pool.resources * 4, pair=of_pool.resource)
    pod = manifest(of_pool, site, site.crowd[2], WORKLOAD)
    spec = pod["spec"]
    assert "nodeName" not in spec
    assert spec["tolerations"] == [toleration]
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": "1"}
    assert "n7" in str(spec["affinity"])
    assert spec["restartPolicy"] == "Never"
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert pod["metadata"]["labels"]["accel.gpu/validation"] == "notebooks"
    assert len(pod["metadata"]["name"]) <= 63 + len("notebooks")
    pair = manifest(of_pool, site, site.beyond[0], WORKLOAD)
    assert pair["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu.shared": "2"}
    assert "sleep" in str(spec["containers"][0]["command"])
    assert "sleep" not in str(pair["spec"]["containers"][0]["command"])
    assert pair["metadata"]["labels"] == pod["metadata"]["labels"]


def _line(uuid: str, name: str = "Tesla T4", index: int = 0) -> str:
    return f"GPU {index}: {name} (UUID: GPU-{uuid})\n"


LOGS: list[tuple[str, t.Any, t.Any, list[str], list[str]]] = [
    ("exclusive", pool(), node(gpus=2), [_line("a"), _line("b")], []),
    ("shared", SHARED, node(replicas=4), [_line("a")] * 4, []),
    ("exclusive, shared in truth", pool(), node(gpus=2), [_line("a"), _line("a")], ["given to 2 pods", "one pod"]),
    ("too many shares", SHARED, node(replicas=4, gpus=2), [_line("a")] * 5, ["given to 5 pods", "4 pods"]),
    ("more devices than GPUs", SHARED, node(replicas=4), [_line("a"), _line("b")], ["saw 2 devices", "has 1"]),
    ("all devices visible", pool(), node(gpus=2), [_line("a") + _line("b", index=1)], ["lists 2 devices"]),
    ("no driver", pool(), node(), ["NVIDIA-SMI has failed\n"], ["lists 0 devices", "NVIDIA-SMI has failed"]),
    ("another model", pool(), node(), [_line("a", "NVIDIA L40S")], ["was given a NVIDIA L40S", "labelled Tesla-T4"]),
]


@pytest.mark.parametrize(
    ("of_pool", "of_node", "logs", "words"), [case[1:] for case in LOGS], ids=[case[0] for case in LOGS]
)
def test_proof(of_pool: t.Any, of_node: t.Any, logs: list[str], words: list[str]) -> None:
    proof = evaluation.check_devices(of_pool, of_node, {f"pod-{index}": log for index, log in enumerate(logs)})
    text = "; ".join(proof.problems)
    assert bool(text) == bool(words)
    assert [word for word in words if word not in text] == []


def test_the_prefix_of_the_product_does_not_matter() -> None:
    proof = evaluation.check_devices(pool(), node(model="NVIDIA-H200"), {"p": _line("a", "NVIDIA H200")})
    assert proof.problems == ()


def test_mig_devices_stand_for_their_gpu() -> None:
    log = _line("a", "NVIDIA A30") + "  MIG 1g.6gb      Device  0: (UUID: MIG-1234-5678)\n"
    assert [uuid for dummy, uuid in evaluation.devices(log)] == ["MIG-1234-5678"]


def _status(phase: str, start: int = 0, end: int | None = None, **more: t.Any) -> dict[str, t.Any]:
    times = {"startedAt": f"2026-01-01T00:00:{start:02d}Z"}
    state = (
        {"running": times} if end is None else {"terminated": {**times, "finishedAt": f"2026-01-01T00:00:{end:02d}Z"}}
    )
    return {"phase": phase, "containerStatuses": [{"state": state}], **more}


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes: 1 Insufficient",
}
REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "maximum request size is 1; found 2"}
NO_IMAGE = {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}}}]}
ENDED_BADLY = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 9, "reason": "Error"}}}]}

LOOKS: list[tuple[str, list[dict[str, t.Any]], bool, bool, str]] = [
    ("all run", [_status("Running"), _status("Running", 3)], True, False, ""),
    ("one waits", [_status("Running"), {"phase": "Pending"}], False, False, "not looked at by the scheduler"),
    ("spans overlap", [_status("Succeeded", 1, 9), _status("Succeeded", 4, 12)], True, True, ""),
    ("one after the other", [_status("Succeeded", 1, 4), _status("Succeeded", 4, 9)], False, True, ""),
    ("last still runs", [_status("Succeeded", 1, 9), _status("Running", 4)], True, False, ""),
    (
        "unschedulable",
        [_status("Running"), {"phase": "Pending", "conditions": [UNSCHEDULABLE]}],
        False,
        False,
        "0/5 nodes",
    ),
    ("refused", [_status("Running"), REFUSED], False, False, "UnexpectedAdmissionError: maximum request"),
    ("no image", [_status("Running"), {"phase": "Pending", **NO_IMAGE}], False, False, "ErrImagePull: not found"),
    ("exit code", [_status("Succeeded", 1, 9), ENDED_BADLY], False, True, "exit code 9"),
    ("not all there yet", [_status("Running")], False, False, ""),
]


@pytest.mark.parametrize(
    ("statuses", "together", "ended", "words"), [case[1:] for case in LOOKS], ids=[case[0] for case in LOOKS]
)
def test_look(statuses: list[dict[str, t.Any]], together: bool, ended: bool, words: str) -> None:
    pods = [{"metadata": {"name": f"p{index}"}, "status": status} for index, status in enumerate(statuses)]
    seen = evaluation.observe(pods, 2)
    assert (seen.together, seen.ended) == (together, ended)
    assert words in "; ".join([*seen.refusals, *seen.waiting])


def test_evidence_is_of_kinds_of_nodes() -> None:
    one = evidence.facts(pool(), [node("a"), node("b")], "image:1")
    assert evidence.fingerprint(one) == evidence.fingerprint(evidence.facts(pool(), [node("c")], "image:1"))


@pytest.mark.parametrize(
    "other",
    [
        evidence.facts(pool(), [node("a")], "image:2"),
        evidence.facts(SHARED, [node("a")], "image:1"),
        evidence.facts(pool(), [node("a"), node("b", gpus=2)], "image:1"),
        evidence.facts(pool(), [node("a", labels={"nvidia.com/cuda.driver-version.full": "595.1"})], "image:1"),
        evidence.facts(pool(tolerations=({"key": "a", "operator": "Exists"},)), [node("a")], "image:1"),
    ],
)
def test_evidence_changes_with_what_it_stands_on(other: dict[str, t.Any]) -> None:
    assert evidence.fingerprint(other) != evidence.fingerprint(evidence.facts(pool(), [node("a")], "image:1"))


def test_what_cannot_be_read_is_not_proved() -> None:
    assert evidence.noted({"data": {"a": "{", "b": "[]", "c": '{"evidence": "1"}'}}) == {"c": {"evidence": "1"}}
    assert evidence.noted(None) == {}
