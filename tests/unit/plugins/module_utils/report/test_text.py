# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan and the report as a terminal shows them."""

from __future__ import annotations

import typing as t
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.core.messages import Column, table
from ansible_collections.accel.gpu.plugins.module_utils.report.text import lines


def _pool(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "model": "Tesla-T4",
        "models": ["Tesla-T4"],
        "mode": "time-slicing",
        "replicas": 4,
        "resource": "nvidia.com/gpu",
        "memory_mib_per_share": 3840,
        "nodes": 4,
        "gpus": 4,
        "expected": 16,
        "allocatable": 16,
        "changes": {},
        "drift": [],
        "drifted_nodes": 0,
        "as_declared": True,
        **changes,
    }


def _info(**changes: t.Any) -> dict[str, t.Any]:
    return {
        "reachable": True,
        "cluster": "lab",
        "pools": {"notebooks": _pool()},
        "totals": {"nodes": 20, "gpu_nodes": 16, "gpus": 64, "allocatable": {"nvidia.com/gpu": 76}},
        **changes,
    }


def _found(**changes: t.Any) -> dict[str, t.Any]:
    what = "GPU operator v25.3.2 in namespace x (OLM)"
    return {"adopted": True, "problem": "", "what": what, "notes": [], **changes}


CHANGES = {
    "nodes": 4,
    "joining": 4,
    "switched_from": {"none": 3, "undiscovered": 1},
    "labels": ["team"],
    "taints": ["a=b:NoSchedule"],
    "removed_taints": ["c=d:NoSchedule"],
}
DEMAND = {"1g.10gb": 2, "3g.40gb": 3}
CUTS = [
    {
        "gpus": 3,
        "profiles": {"3g.40gb": 1},
        "slices": 8,
        "devices": [{"profile": "3g.40gb", "start": 4, "size": 4}],
        "unused": {"compute": 4, "memory": 4, "media": True},
    },
    {
        "gpus": 2,
        "profiles": {"1g.10gb": 1},
        "slices": 8,
        "devices": [{"profile": "1g.10gb", "start": 0, "size": 1}],
        "unused": {"compute": 6, "memory": 7, "media": True},
    },
    {"gpus": 11, "profiles": {}, "slices": 8, "devices": [], "unused": {}},
]
BY_GPU = [{"devices": [0, 1], "profiles": {"3g.40gb": 1}}, {"devices": [2], "profiles": {}}]
DECLARED = [{**CUTS[0], "gpus": None}, {**CUTS[2], "gpus": None}]
LAYOUT = [{"devices": [], "profiles": {"1g.10gb": 2, "7g.80gb": 1}}]
PROGRAMS = {
    "kernel": "passed",
    "load": {"seconds": 60, "min_gflops": 4900.0, "max_gflops": 5000.5},
    "all_reduce": {"nodes": ["a"], "gpus": 8, "bus_bandwidth": 350.1},
    "network_all_reduce": {"nodes": ["a", "b"], "gpus": 16, "bus_bandwidth": 10.2},
}
PROOF = {"node": "t4-1", "devices": {"GPU-1": 4}, "current": True}


def _costing(**counts: t.Any) -> dict[str, t.Any]:
    each = {
        name: counts.pop(name, 0)
        for name in ("driver_restarts", "pods", "operand_pods", "repartitioned_nodes", "resets")
    }
    facts = {
        "max_parallel": 0,
        "at_once": False,
        "reasons": [],
        "in_place": False,
        "held_back": False,
        "allowed": False,
        "release": None,
    }
    total = {**each, **facts, "upgrade": None, **counts}
    return _info(pools={"notebooks": _pool(changes=CHANGES, impact=each)}, impact=total)


CASES: list[tuple[str, str, dict[str, t.Any], list[str]]] = [
    (
        "as declared",
        "report",
        _info(),
        ["Report of cluster lab", "16/16", "3.8 GiB", "notebooks: as declared", "64 GPUs"],
    ),
    (
        "verified",
        "report",
        _info(pools={"a": _pool(validation=PROOF)}),
        ["as declared; 4 pods on t4-1 ran at the same time on 1 device"],
    ),
    (
        "verified on a node that was replaced",
        "report",
        _info(pools={"a": _pool(validation={**PROOF, "in_pool": False})}),
        ["as declared; 4 pods on t4-1 (which has left the pool) ran at the same time on 1 device"],
    ),
    (
        "verified, with what was not granted",
        "report",
        _info(pools={"a": _pool(validation={**PROOF, "one_more": "waited", "two_shares": "refused"})}),
        ["on 1 device, one more waited, a request for two was rejected"],
    ),
    (
        "verified, with further programs",
        "report",
        _info(pools={"a": _pool(validation={**PROOF, **PROGRAMS})}),
        [
            "the CUDA kernel passed, 60 s of load at 4900.0 to 5000.5 GFLOP/s, 350.1 GB/s between 8 GPUs of a node, "
            "10.2 GB/s between 16 GPUs of 2 nodes"
        ],
    ),
    (
        "drift",
        "report",
        _info(pools={"a": _pool(as_declared=False, drift=["n1: x"], drifted_nodes=3, allocatable=4)}),
        ["4/16", "drift", "a: drift on 3 node(s): n1: x; and 2 more"],
    ),
    (
        "drift, of which none is described",
        "report",
        _info(pools={"a": _pool(as_declared=False, drifted_nodes=3, allocatable=4, changes=CHANGES)}),
        ["4/16", "a: drift on 3 node(s): to change: 3 node(s) from none to time-slicing"],
    ),
    ("empty", "report", _info(pools={"a": _pool(nodes=0, as_declared=False)}), ["no nodes", "no node of the cluster"]),
    (
        "before discovery",
        "plan",
        _info(
            pools={"a": _pool(nodes=0, gpus=0, expected=0)},
            totals={"nodes": 20, "gpu_nodes": 0, "gpus": 0, "allocatable": {}},
        ),
        ["3.8 GiB after discovery", "after discovery: no node is known to have GPUs yet"],
    ),
    ("no change", "plan", _info(), ["Plan of cluster lab", "notebooks: no change"]),
    (
        "changes",
        "plan",
        _info(pools={"a": _pool(changes=CHANGES)}),
        ["3 node(s) from none to time-slicing x4", "4 node(s) join", "labels team; taints a=b:", "without taints c=d:"],
    ),
    (
        "offline",
        "plan",
        {"reachable": False, "reason": "refused", "cluster": "lab", "pools": {"a": _pool()}},
        ["refused"],
    ),
    ("no pools", "plan", _info(pools={}), ["No pools are declared", "total:"]),
    (
        "memory of MIG devices",
        "plan",
        _info(pools={"a": _pool(mode="mig", replicas=2, memory_mib_per_share=None, layout=LAYOUT)}),
        ["mig x2 gpu 16 5-40 GB", "each GPU with 2 x 1g.10gb + 1 x 7g.80gb"],
    ),
    (
        "slices of MIG devices",
        "plan",
        _info(pools={"a": _pool(mode="mig", replicas=1, memory_mib_per_share=None, demand=DEMAND, gpu_layouts=CUTS)}),
        [
            "mig gpu 16 10-40 GB",
            "2 x 1g.10gb + 3 x 3g.40gb in total",
            "memory slices of the GPUs of a:",
            "3 GPU(s), 4 compute slice(s) and 4 memory slice(s) unused |-------------------------------|3g.40gb |",
            "2 GPU(s), 6 compute slice(s) and 7 memory slice(s) unused "
            "|1g.10gb|-------------------------------------------------------|",
            "11 GPU(s) whole",
        ],
    ),
    (
        "slices of MIG devices by GPU, without a node",
        "plan",
        _info(
            pools={"a": _pool(mode="mig", replicas=1, memory_mib_per_share=None, layout=BY_GPU, gpu_layouts=DECLARED)}
        ),
        ["GPU 0, 1 with 1 x 3g.40gb; GPU 2 whole", "GPU 0, 1, 4 compute slice(s)", "GPU 2 whole"],
    ),
    (
        "what sharing costs",
        "plan",
        _info(
            pools={
                **{name: _pool() for name in "ab"},
                "c": _pool(mode="mps", models=["NVIDIA-L40S"], memory_mib_per_share=11517),
                "d": _pool(mode="mig", replicas=1, models=["NVIDIA-H100-80GB-HBM3"], layout=LAYOUT),
                "e": _pool(mode="none", replicas=1),
            }
        ),
        [
            "a, b (time-slicing x4): on an H200, busy pods get 0.226 of the GPU each",
            "c (mps x4): on an H200, busy pods get 0.244 of the GPU each",
            "11517 MiB of memory each",
            "d (mig): 7g.80gb has 7 of 7 compute slices and 80 GB; 1g.10gb has 1 of 7",
            "sharing: times were measured on one NVIDIA H200",
        ],
    ),
    ("warnings", "plan", _info(warnings=["Node n1 is unusual."]), ["warning: Node n1 is unusual."]),
    ("warnings of a report", "report", _info(warnings=["Node n1 is unusual."]), ["warning: Node n1 is unusual."]),
    ("free of cost", "plan", _costing(), ["impact: no driver or operand is restarted, and no pod loses its GPU"]),
    ("one node", "plan", _info(pools={"a": _pool(changes={**CHANGES, "nodes": 1})}), [" 1 node a: "]),
    (
        "all drivers at the same time",
        "plan",
        _costing(
            driver_restarts=20, max_parallel=20, at_once=True, reasons=["driver.useNvidiaDriverCRD"], allowed=True
        ),
        [
            "drivers: the driver restarts on all 20 node(s) at the same time: driver.useNvidiaDriverCRD; pods that use a GPU on these nodes are "
            "evicted; allowed by gpu_operator_allow_driver_rollout"
        ],
    ),
    (
        "costs",
        "plan",
        _costing(
            driver_restarts=4,
            pods=9,
            operand_pods=31,
            repartitioned_nodes=2,
            resets=1,
            max_parallel=1,
            reasons=["daemonsets.tolerations", "driver.env"],
            held_back=True,
        ),
        [
            "IMPACT DRIVER RESTARTS PODS LOSE GPU OPERAND PODS NODES REPARTITIONED GPU RESETS notebooks 4 9 31 2 1",
            "drivers: the driver restarts on 4 node(s), at most 1 at a time: daemonsets.tolerations; driver.env; pods that use a GPU "
            "on these nodes are evicted first; held back, unless gpu_operator_allow_driver_rollout is true",
            "mig: GPUs of 2 node(s) are repartitioned in a rolling update: cordon, drain, change, verify, uncordon",
            "resets: the MIG mode of 1 node(s) with Ampere GPUs is switched",
        ],
    ),
    (
        "another operator",
        "plan",
        _costing(
            driver_restarts=2, reasons=["operator a becomes b"], release={"installed": "v25.3.2", "desired": "v25.10.1"}
        ),
        [
            "operator: upgrade from v25.3.2 to v25.10.1, which restarts all operands",
            "drivers: the driver of 2 node(s) is updated once its driver pod is deleted: operator a becomes b; "
            "refused, unless gpu_operator_allow_driver_rollout is true",
        ],
    ),
    (
        "another operator that site refuses",
        "plan",
        _costing(
            driver_restarts=2,
            max_parallel=1,
            reasons=["operator a becomes b"],
            release={"installed": "v25.10.1", "desired": "v26.7.0"},
            upgrade={
                "refusals": [
                    {"code": "manual_fields", "message": "Helm would overwrite x."},
                    {"code": "driver_rollout", "message": "Not upgraded, because y."},
                ],
                "problem": "",
            },
        ),
        [
            "operator a becomes b; pods that use a GPU on these nodes are evicted first REFUSED: Helm would overwrite x. "
            "REFUSED: Not upgraded, because y.",
        ],
    ),
    (
        "another operator whose chart is missing",
        "plan",
        _costing(
            driver_restarts=2,
            max_parallel=1,
            allowed=True,
            reasons=["operator a becomes b"],
            release={"installed": "v25.10.1", "desired": "v26.7.0"},
            upgrade={"refusals": [], "problem": "Cannot fetch chart c."},
        ),
        [
            "are evicted first; allowed by gpu_operator_allow_driver_rollout",
            "upgrade: site may fail for reasons that this plan does not show: Cannot fetch chart c.",
        ],
    ),
    (
        "in place",
        "plan",
        _costing(driver_restarts=4, operand_pods=31, max_parallel=1, reasons=["daemonsets.tolerations"], in_place=True),
        [
            "drivers: the driver pods of 4 node(s) restart in place, at most 1 at a time: daemonsets.tolerations; each node is "
            "cordoned while its driver pod restarts, and no pod is evicted",
        ],
    ),
    ("undiscovered", "plan", _info(undiscovered=list("abcdefg")), ["7 GPU node(s)", "a, b, c, d, e and 2 more"]),
    ("in no pool", "report", _info(unclaimed=["rtx"]), ["in no pool: 1 GPU node(s) that no pool matches"]),
    (
        "released",
        "plan",
        _info(released=["n9"], release={"pools": {"train": 1}, "refusal": ""}),
        ["released: 1 node(s) are released; their pool's labels are removed (1 of pool train): n9"],
    ),
    (
        "refused",
        "plan",
        _info(released=["n9"], release={"pools": {"train": 1}, "refusal": "run once with -e gpu_allow_release=train"}),
        ["REFUSED: run once with -e gpu_allow_release=train"],
    ),
    (
        "no pools, and nodes to release",
        "plan",
        _info(
            pools={},
            released=["n9"],
            release={"pools": {"train": 1}, "refusal": "run once with -e gpu_allow_release=train"},
        ),
        ["No pools are declared", "released: 1 node(s)", "REFUSED: run once with -e gpu_allow_release=train"],
    ),
    (
        "adopted",
        "plan",
        _info(installed={"operator": _found(notes=["beware"])}),
        ["operator: GPU operator v25.3.2 in namespace x (OLM) is adopted and not upgraded; beware"],
    ),
    ("two", "report", _info(installed={"operator": _found(adopted=False, problem="Two.")}), ["operator: Two."]),
]


def test_a_managed_installation_is_not_reported() -> None:
    managed = {"nfd": _found(adopted=False), "operator": _found(adopted=False)}
    assert lines(_info(installed=managed)) == lines(_info())


@pytest.mark.parametrize(("kind", "info", "words"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_lines(kind: str, info: dict[str, t.Any], words: list[str]) -> None:
    text = "\n".join(lines(info, kind))
    assert [word for word in words if word not in " ".join(text.split())] == []
    assert max(map(len, text.splitlines())) <= 100


def test_sharing_overhead_is_reported_in_advance_and_where_it_applies() -> None:
    assert "busy pods" not in "\n".join(lines(_info(), "report"))
    cut = _pool(mode="mig", replicas=1, layout=LAYOUT)
    for pool in (_pool(mode="none", replicas=1), cut):
        assert "sharing:" not in "\n".join(lines(_info(pools={"a": pool}), "plan"))


@given(st.text("ab-", min_size=1, max_size=63), st.text("xyz", max_size=63), st.integers(0, 5000))
@example("a" * 63, "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-4g.96gb", 5000)
def test_a_row_fits_whatever_the_names(name: str, model: str, count: int) -> None:
    pool = _pool(models=[model], nodes=count, gpus=count * 8, expected=count * 64, resource="nvidia.com/gpu.shared")
    shown = lines(_info(pools={name: pool}), "plan")
    assert max(map(len, shown)) <= 100


def test_numbers_stand_right_and_long_text_is_cut() -> None:
    shown = table(
        [Column("NAME", itemgetter(0), cuts=True), Column("N", itemgetter(1), number=True)],
        [("abcdefghijklmnop", 5), ("b", 500)],
        16,
    )
    assert shown == ["NAME           N", "abcdefghi..    5", "b            500"]


def test_a_driver_upgrade_in_progress_is_reported() -> None:
    upgrade = {"states": {"upgrade-required": 2, "upgrade-failed": 1}, "failed": ["t4-3"], "skipped": []}
    text = "\n".join(lines(_info(driver_upgrade=upgrade), "plan"))
    assert "driver: upgrade in progress: 2 node(s) upgrade-required, 1 node(s) upgrade-failed; failed: t4-3" in text
    assert "driver:" not in "\n".join(lines(_info(driver_upgrade={"states": {}, "failed": [], "skipped": []}), "plan"))


def test_drivers_by_nvidiadriver_objects_are_reported() -> None:
    driver = {"name": "accel-gpu-a", "managed": True, "version": "570.148.08", "nodes": 2, "message": ""}
    foreign = {**driver, "name": "other", "managed": False, "version": None, "message": "state notReady"}
    text = " ".join(" ".join(lines(_info(nvidia_drivers=[driver, foreign]))).split())
    assert "driver 570.148.08, 2 node(s), ready" in text
    assert "driver without a version, 2 node(s), state notReady; foreign, not changed" in text


def test_node_group_of_a_pool() -> None:
    made = _pool(nodegroup={"name": "gpus", "flavor": "g2.5xlarge", "size": "2 nodes"})
    for kind in ("plan", "report"):
        for reachable in (True, False):
            shown = lines(_info(pools={"made": made}, reachable=reachable), kind)
            assert "nodes of made: node group gpus of g2.5xlarge, 2 nodes" in shown
