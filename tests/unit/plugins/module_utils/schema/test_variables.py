# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each error in the variables has a path, a rule and a remedy, and all errors are reported together."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import CLUSTER, LAB_POOLS, Document

SLICED: Document = {"mode": "time-slicing", "replicas": 4}

# A pool (beside its name) and the one message about it, which begins with gpu_pools[0].
POOL_MISTAKES: list[tuple[dict[t.Any, t.Any], str]] = [
    ({"shraing": {}}, ".shraing: is not a known key; did you mean sharing?"),
    ({"gpusPerNode": 1}, ".gpusPerNode: is not a known key; did you mean gpus_per_node?"),
    ({"replicas": 4}, ".replicas: is not a known key; it belongs under sharing"),
    (
        {"model": "T4"},
        ".model: has no effect without nodes; existing nodes are selected by match.model, so move it to match",
    ),
    ({"flavor": "x"}, ".flavor: is not a known key; it belongs under nodes"),
    (
        {"xyz": "red"},
        ".xyz: is not a known key; known: name, match, model, nodes, vgpu, autoscale, gpus_per_node, labels",
    ),
    ({5: "x"}, "[5]: is not a known key; keys must be strings, but 5 is a number"),
    (
        {"gpus_per_node": "4 GPUs"},
        '.gpus_per_node: "4 GPUs" is a string, not a whole number; use only decimal digits',
    ),
    ({"gpus_per_node": 1.5}, ".gpus_per_node: 1.5 is a number with a fraction, not a whole number"),
    ({"gpus_per_node": True}, ".gpus_per_node: true is a boolean, not a whole number"),
    ({"gpus_per_node": 0}, ".gpus_per_node: 0 is not allowed: a pool without GPUs has no effect"),
    ({"gpus_per_node": 65}, ".gpus_per_node: 65 is not allowed: no node has more than 64 GPUs"),
    ({"labels": ["a"]}, ".labels: is a list, not a map; write it as `key: value` lines"),
    ({"labels": {"gpu": True}}, ".labels.gpu: true is a boolean, not a string; put it in quotes"),
    ({"labels": {"tier": 1}}, ".labels.tier: 1 is a number, not a string; put it in quotes"),
    ({"labels": {"tier": None}}, '.labels.tier: has no value; write "" for an empty one'),
    ({"labels": {"a b": "c"}}, ".labels['a b']: the key \"a b\" is not a label key"),
    ({"labels": {"-/a": "c"}}, ".labels['-/a']: the key \"-/a\" is not a label key; the part before '/'"),
    ({"labels": {"a/b/c": "d"}}, ".labels['a/b/c']: the key"),
    ({"labels": {"a": "b c"}}, '.labels.a: "b c" is not a valid label value; use a-z'),
    ({"labels": {"a": "x" * 64}}, ".labels.a: "),
    ({"labels": {"a": "{{ team }}"}}, '.labels.a: "{{ team }}" still contains a template'),
    (
        {"labels": {"nvidia.com/gpu.count": "8"}},
        ".labels['nvidia.com/gpu.count']: the key \"nvidia.com/gpu.count\" is reserved: NVIDIA's operands",
    ),
    (
        {"labels": {"nvidia.com/gpu.workload.config": "passthrough"}},
        ".labels['nvidia.com/gpu.workload.config']: \"passthrough\" is not a valid value; use container, vm-passthrough or vm-vgpu",
    ),
    (
        {"labels": {"nvidia.com/gpu.deploy.dcgm": "no"}},
        '.labels[\'nvidia.com/gpu.deploy.dcgm\']: "no" is not a valid value; use "true" or "false"',
    ),
    ({"labels": {"accel.gpu/pool": "x"}}, ".labels['accel.gpu/pool']: the key \"accel.gpu/pool\" is reserved: this"),
    ({"labels": {"nvidia.com/mig.config": "x"}}, ".labels['nvidia.com/mig.config']: the key"),
    ({"labels": {"kubernetes.io/hostname": "x"}}, ".labels['kubernetes.io/hostname']: the key"),
    ({"match": {"model": "T9"}}, '.match.model: "T9" is not a GPU model in the catalog; did you mean T4?'),
    (
        {"match": {"model": "GRID-A100-10C"}},
        '.match.model: "GRID-A100-10C" is a vGPU type, and models are those of physical GPUs; match a vGPU by its type instead, with match.labels:',
    ),
    ({"match": {"model": ["T4"]}}, ".match.model: is a list, not a string; set a single value"),
    ({"match": "T4"}, '.match: "T4" is a string, not a map; write it as `key: value` lines'),
    ({"match": {"labels": {"accel.gpu/pool": "x"}}}, ".match.labels['accel.gpu/pool']: the key"),
    ({"match": {"labels": {"a": "1"}}, "labels": {"a": "2"}}, '.labels.a: "2" contradicts match.labels'),
    ({"taints": {"key": "a"}}, ".taints: is a map, not a list; begin each entry with a dash"),
    ({"taints": [{"key": "a"}]}, ".taints[0].effect: is missing; choose one of NoSchedule"),
    ({"taints": [{"effect": "NoSchedule"}]}, ".taints[0].key: is missing; a taint has a key and an effect"),
    (
        {"taints": [{"key": "a", "effect": "noschedule"}]},
        '.taints[0].effect: "noschedule" is not a valid value; did you',
    ),
    (
        {"taints": [{"key": "a", "effect": "NoExecute", "value": True}]},
        ".taints[0].value: true is a boolean, not a string",
    ),
    ({"taints": [{"key": "a", "effect": "NoExecute", "value": "y"}]}, ".taints[0].value: "),
    ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, ".taints[0].key: "),
    (
        {"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]},
        '.taints[0].key: "karpenter.sh/disrupted" is reserved: Karpenter writes it, but a pool\'s taints are kept; omit it, or',
    ),
    (
        {"taints": [{"key": "startup-taint.cluster-autoscaler.kubernetes.io/x", "effect": "NoSchedule"}]},
        '.taints[0].key: "startup-taint.cluster-autoscaler.kubernetes.io/x" is reserved: startup taints are',
    ),
    ({"startup_taint": True}, ".startup_taint: has no effect with mode: none; it keeps workloads away from a new node"),
    ({"startup_taint": True, "sharing": SLICED}, ".startup_taint: has no effect with mode: time-slicing; it keeps"),
    ({"startup_taint": "perhaps"}, '.startup_taint: "perhaps" is a string, not a boolean; write true or false'),
    (
        {"taints": [{"key": "a", "effect": "NoExecute"}] * 2},
        ".taints[1]: repeats key a and effect NoExecute of taints[0]",
    ),
    ({"taints": ["a=b:NoSchedule"]}, '.taints[0]: "a=b:NoSchedule" is a string, not a map'),
]


@pytest.mark.parametrize(("pool", "message"), POOL_MISTAKES)
def test_mistake_of_a_pool(pool: dict[t.Any, t.Any], message: str) -> None:
    problems = validate(CLUSTER, {}, [{"name": "p", **pool}])
    assert len(problems) == 1
    assert problems[0].startswith(f"gpu_pools[0]{message}")
    assert "; " in problems[0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Note Books", "\"Note Books\" is not a DNS label (RFC 1123); use a-z, 0-9 and '-'"),
        ("-", '"-" is not a DNS label'),
        ("", '"" is empty; set a value or omit it'),
        ("x" * 64, "has 64 characters; a DNS label has at most 63"),
        (5, "5 is a number, not a string; put it in quotes"),
        (None, "is missing; every pool needs its own name"),
    ],
)
def test_name_of_a_pool(name: t.Any, message: str) -> None:
    (problem,) = validate(CLUSTER, {}, [{"name": name}])
    assert message in problem


FLEET_MISTAKES: list[tuple[list[Document], list[str]]] = [
    (
        [{"name": "a"}, {"name": "a"}],
        ['gpu_pools[1].name: "a" is already the name of gpu_pools[0]; use a unique name for each pool'],
    ),
    (
        [{"name": "a", "match": {"model": "T4"}}, {"name": "b", "match": {"model": "Tesla-T4"}}],
        ["gpu_pools[1].match: is the same as that of gpu_pools[0] (a); distinguish them"],
    ),
    (
        [{"name": "a", "match": {"model": "T4", "labels": {"x": "1"}}}, {"name": "b", "match": {"model": "T4"}}],
        ["gpu_pools[1].match: also matches every node of gpu_pools[0] (a); distinguish them"],
    ),
    (
        [
            {"name": "a", "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-T4-SHARED"}}},
            {"name": "b", "match": {"model": "T4", "labels": {"x": "1"}}},
        ],
        ["gpu_pools[0].match: also matches every node of gpu_pools[1] (b); distinguish them"],
    ),
    (
        [{"name": "a", "match": {"labels": {"x": "1"}}}]
        + [{"name": f"b{i}", "match": {"model": "T4", "labels": {"x": "1", "y": str(i)}}} for i in range(7)],
        [
            "gpu_pools[0].match: also matches every node of gpu_pools[1] (b0), gpu_pools[2] (b1), gpu_pools[3] (b2), "
            "gpu_pools[4] (b3), gpu_pools[5] (b4) and 2 more; distinguish them"
        ],
    ),
]


@pytest.mark.parametrize(("pools", "messages"), FLEET_MISTAKES)
def test_mistakes_between_pools(pools: list[Document], messages: list[str]) -> None:
    problems = validate(CLUSTER, {}, pools)
    assert len(problems) == len(messages)
    assert all(problem.startswith(message) for problem, message in zip(problems, messages, strict=True))


@pytest.mark.parametrize(
    "pools",
    [
        LAB_POOLS,
        [],
        [{"name": "a"}, {"name": "b"}],
        [{"name": "a", "match": {"model": "T4"}}, {"name": "b"}],
        [{"name": v, "match": {"model": "T4", "labels": {"x": v}}} for v in "ab"],
        [{"name": "a", "match": {"labels": {"x": "1"}}}, {"name": "b", "match": {"labels": {"y": "1"}}}],
        [{"name": "a", "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-TITAN-V"}}, "labels": {"team": ""}}],
        [{"name": "a", "labels": None, "taints": None, "sharing": None, "match": None, "gpus_per_node": None}],
    ],
)
def test_good_pools(pools: list[Document]) -> None:
    assert validate(CLUSTER, {}, pools) == []


def test_defaults_have_their_own_path_and_are_reported_once() -> None:
    defaults = {"name": "x", "labels": {"a": 1}, "sharing": {"mode": "time-slicing", "replicas": 1}}
    problems = validate(CLUSTER, defaults, [{"name": "a"}, {"name": "b", "sharing": {"mode": "none"}}])
    assert [problem.partition(":")[0] for problem in problems] == [
        "gpu_defaults.name",
        "gpu_defaults.labels.a",
        "gpu_defaults.sharing.replicas",
    ]


def test_defaults_may_say_what_a_pool_then_switches_off() -> None:
    assert validate(CLUSTER, {"sharing": SLICED}, [{"name": "a", "sharing": {"mode": "none"}}]) == []


def test_what_a_pool_needs_may_stand_in_the_defaults() -> None:
    assert validate(CLUSTER, {"sharing": {"replicas": 4}}, [{"name": "a", "sharing": {"mode": "time-slicing"}}]) == []


def test_ten_mistakes_are_ten_messages_in_the_order_of_the_documents() -> None:
    problems = validate(
        {"operator": {"chart": "a/b"}, "color": 1},
        {"sharing": {"mode": "vgpu"}},
        [
            {"name": "A", "match": {"model": "T9"}, "taints": [{"key": "a"}]},
            {"name": "b", "sharing": {"mode": "time-slicing", "replicas": "4 pods"}},
            5,
            {"name": "b"},
        ],
    )
    assert [problem.partition(": ")[0] for problem in problems] == [
        "gpu_cluster.operator.chart",
        "gpu_cluster.color",
        "gpu_cluster.name",
        "gpu_defaults.sharing.mode",
        "gpu_pools[0].name",
        "gpu_pools[0].match.model",
        "gpu_pools[0].taints[0].effect",
        "gpu_pools[1].sharing.replicas",
        "gpu_pools[2]",
        "gpu_pools[3].name",
    ]
