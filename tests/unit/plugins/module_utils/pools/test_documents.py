# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every mistake of a document has its path, its rule and its remedy, and all of them are told at once."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.documents import (
    validate,
)
from tests.helpers.documents import CLUSTER, LAB_POOLS, Document

SLICED: Document = {"mode": "time-slicing", "replicas": 4}

# A pool (beside its name) and the one message about it, which begins with gpu_pools[0].
POOL_MISTAKES: list[tuple[dict[t.Any, t.Any], str]] = [
    ({"shraing": {}}, ".shraing: is not known here; did you mean sharing?"),
    ({"gpusPerNode": 1}, ".gpusPerNode: is not known here; did you mean gpus_per_node?"),
    ({"replicas": 4}, ".replicas: is not known here; it belongs under sharing"),
    ({"model": "T4"}, ".model: is not known here; it belongs under match"),
    ({"xyz": "red"}, ".xyz: is not known here; known: name, match, gpus_per_node, labels, taints, sharing, rollout"),
    ({5: "x"}, "[5]: is not known here; keys are text, and 5 is a number"),
    ({"gpus_per_node": "4"}, '.gpus_per_node: "4" is text, not a number; write it without quotes'),
    ({"gpus_per_node": 1.5}, ".gpus_per_node: 1.5 is a number with a fraction, not a whole number"),
    ({"gpus_per_node": True}, ".gpus_per_node: true is a boolean, not a whole number"),
    ({"gpus_per_node": 0}, ".gpus_per_node: 0 is not allowed: without a GPU there is nothing to drive or to share"),
    ({"gpus_per_node": 65}, ".gpus_per_node: 65 is not allowed: no node has more than 64 GPUs"),
    ({"labels": ["a"]}, ".labels: is a list, not a map; write it as `key: value` lines"),
    ({"labels": {"gpu": True}}, ".labels.gpu: true is a boolean, not text; put it in quotes"),
    ({"labels": {"tier": 1}}, ".labels.tier: 1 is a number, not text; put it in quotes"),
    ({"labels": {"tier": None}}, '.labels.tier: has no value; write "" for an empty one'),
    ({"labels": {"a b": "c"}}, ".labels['a b']: the key \"a b\" is not a label key"),
    ({"labels": {"-/a": "c"}}, ".labels['-/a']: the key \"-/a\" is not a label key; before the one '/'"),
    ({"labels": {"a/b/c": "d"}}, ".labels['a/b/c']: the key"),
    ({"labels": {"a": "b c"}}, '.labels.a: "b c" is not a label value; use a-z'),
    ({"labels": {"a": "x" * 64}}, ".labels.a: "),
    ({"labels": {"a": "{{ team }}"}}, '.labels.a: "{{ team }}" still holds a template'),
    ({"labels": {"accel.gpu/pool": "x"}}, ".labels['accel.gpu/pool']: the key \"accel.gpu/pool\" is reserved: this"),
    ({"labels": {"nvidia.com/mig.config": "x"}}, ".labels['nvidia.com/mig.config']: the key"),
    ({"labels": {"kubernetes.io/hostname": "x"}}, ".labels['kubernetes.io/hostname']: the key"),
    ({"match": {"model": "T9"}}, '.match.model: "T9" is no GPU model of the catalog; did you mean T4?'),
    ({"match": {"model": ["T4"]}}, ".match.model: is a list, not text; give one value"),
    ({"match": "T4"}, '.match: "T4" is text, not a map; write it as `key: value` lines'),
    ({"match": {"labels": {"accel.gpu/pool": "x"}}}, ".match.labels['accel.gpu/pool']: the key"),
    ({"match": {"labels": {"a": "1"}}, "labels": {"a": "2"}}, '.labels.a: "2" contradicts match.labels'),
    ({"taints": {"key": "a"}}, ".taints: is a map, not a list; begin each entry with a dash"),
    ({"taints": [{"key": "a"}]}, ".taints[0].effect: is missing; choose one of NoSchedule"),
    ({"taints": [{"effect": "NoSchedule"}]}, ".taints[0].key: is missing; a taint has a key and an effect"),
    ({"taints": [{"key": "a", "effect": "noschedule"}]}, '.taints[0].effect: "noschedule" is not known here; did you'),
    ({"taints": [{"key": "a", "effect": "NoExecute", "value": True}]}, ".taints[0].value: true is a boolean, not text"),
    ({"taints": [{"key": "a", "effect": "NoExecute", "value": "y"}]}, ".taints[0].value: "),
    ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, ".taints[0].key: "),
    (
        {"taints": [{"key": "startup-taint.cluster-autoscaler.kubernetes.io/x", "effect": "NoSchedule"}]},
        '.taints[0].key: "startup-taint.cluster-autoscaler.kubernetes.io/x" is reserved: it goes once',
    ),
    ({"startup_taint": True}, ".startup_taint: has no effect with mode: none; only GPUs that are still to be cut"),
    ({"startup_taint": True, "sharing": SLICED}, ".startup_taint: has no effect with mode: time-slicing; only GPUs"),
    ({"startup_taint": "yes"}, '.startup_taint: "yes" is text, not a boolean; write true or false'),
    (
        {"taints": [{"key": "a", "effect": "NoExecute"}] * 2},
        ".taints[1]: repeats key a and effect NoExecute of taints[0]",
    ),
    ({"taints": ["a=b:NoSchedule"]}, '.taints[0]: "a=b:NoSchedule" is text, not a map'),
    (
        {"sharing": {"mode": "timeSlicing"}},
        '.sharing.mode: "timeSlicing" is not known here; did you mean time-slicing?',
    ),
    ({"sharing": {"mode": "vgpu"}}, '.sharing.mode: "vgpu" is not known here; known: none, time-slicing, mps, mig'),
    ({"sharing": {"mode": "mps"}}, ".sharing.replicas: is missing; mps needs the shares of a GPU"),
    ({"sharing": {"mode": "mig"}}, ".sharing.layout: is missing; say what each GPU is cut into"),
    ({"sharing": {"layout": {"1g.5gb": 1}}}, ".sharing.mode: is missing beside layout; say mode: mig"),
    ({"sharing": {"demand": {"1g.5gb": 1}}}, ".sharing.mode: is missing beside demand; say mode: mig"),
    (
        {"sharing": {**SLICED, "demand": {"1g.5gb": 1}}},
        ".sharing.demand: has no effect with mode: time-slicing; take it",
    ),
    ({"sharing": {"mode": "mig", "demand": {}}}, ".sharing.demand: asks for nothing; say mode: none"),
    (
        {"sharing": {"mode": "mig", "demand": {"1g5gb": 1}}},
        ".sharing.demand['1g5gb']: the key \"1g5gb\" is not a MIG profile",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 0}}},
        ".sharing.demand['1g.5gb']: 0 is not allowed: a demand is of one device at least; leave",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 1}, "layout": {"1g.5gb": 1}}},
        ".sharing.demand: stands beside a layout; take one out",
    ),
    (
        {"sharing": {"mode": "mig", "demand": {"1g.5gb": 1}, "strategy": "single"}},
        '.sharing.strategy: "single" needs one profile on every GPU',
    ),
    (
        {"match": {"model": "A30"}, "sharing": {"mode": "mig", "demand": {"3g.24gb": 1}}},
        ".sharing.demand: a A30 has no profile 3g.24gb; it has 1g.6gb,",
    ),
    (
        {"match": {"model": "T4"}, "sharing": {"mode": "mig", "demand": {"1g.5gb": 1}}},
        ".sharing.mode: mig does not exist on a T4",
    ),
    (
        {"sharing": {**SLICED, "layout": {"1g.5gb": 1}}},
        ".sharing.layout: has no effect with mode: time-slicing; take it",
    ),
    (
        {"sharing": {"mode": "mps", "replicas": 4, "fail_requests_greater_than_one": False}},
        ".sharing.fail_requests_greater_than_one: MPS always refuses a request for two shares",
    ),
    (
        {"sharing": {"mode": "mps", "replicas": 49}},
        ".sharing.replicas: 49 is not allowed: the MPS control daemon lets 48",
    ),
    (
        {"match": {"model": "V100-SXM2-16GB"}, "sharing": {"mode": "mps", "replicas": 17}},
        ".sharing.replicas: 17 is not allowed: the MPS control daemon lets 16 clients share a V100-SXM2-16GB",
    ),
    ({"sharing": {"mode": "mig", "layout": 3}}, ".sharing.layout: 3 is a number, not a layout"),
    ({"sharing": {"mode": "mig", "layout": []}}, ".sharing.layout: is empty; write"),
    (
        {"sharing": {"mode": "mig", "layout": {"3g20gb": 1}}},
        ".sharing.layout['3g20gb']: \"3g20gb\" is not a MIG profile",
    ),
    ({"sharing": {"mode": "mig", "layout": {"3g.20gb": 0}}}, ".sharing.layout['3g.20gb']: 0 is not a count"),
    (
        {"sharing": {"mode": "mig", "layout": [{"3g.20gb": 1}, "x"]}},
        ".sharing.layout[1]: is text, not what a GPU is cut into",
    ),
    (
        {"sharing": {"mode": "mig", "layout": {0: {"3g.20gb": 1}, "1g.5gb": 1}}},
        '.sharing.layout: mixes GPU indices with "1g.5gb"',
    ),
    (
        {"gpus_per_node": 4, "sharing": {"mode": "mig", "layout": {4: {"3g.20gb": 1}}}},
        ".sharing.layout: names GPU 4, but gpus_per_node is 4; the last GPU of a node is 3",
    ),
    (
        {"gpus_per_node": 1, "sharing": {"mode": "mig", "layout": {0: {}}}},
        ".sharing.layout: cuts no GPU; say mode: none",
    ),
    (
        {"sharing": {"mode": "mig", "layout": {0: {"3g.20gb": 1}}}},
        ".gpus_per_node: is missing beside a layout by GPU index",
    ),
    (
        {
            "match": {"model": "RTX-PRO-6000-Max-Q"},
            "sharing": {"mode": "mig", "strategy": "single", "layout": {"1g.24gb": 4}},
        },
        '.sharing.strategy: "single" makes the label nvidia.com/gpu.product of a RTX-PRO-6000-Max-Q "NVIDIA-RTX-PRO-6000-',
    ),
    (
        {
            "match": {"model": "RTX-PRO-6000-Workstation"},
            "sharing": {"mode": "mig", "strategy": "single", "layout": {"1g.24gb": 4}, "replicas": 2},
        },
        '.sharing.strategy: "single" makes the label nvidia.com/gpu.product of a RTX-PRO-6000-Workstation '
        '"NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition-MIG-1g.24gb-SHARED", and NFD drops',
    ),
    (
        {"sharing": {"mode": "mig", "strategy": "single", "layout": ["1g.5gb", "2g.10gb"]}},
        '.sharing.strategy: "single" needs one profile on every GPU of a node',
    ),
    (
        {"match": {"model": "T4"}, "sharing": {"mode": "mig", "layout": {"1g.5gb": 1}}},
        ".sharing.mode: mig does not exist on a T4; use time-slicing or mps",
    ),
    (
        {"match": {"model": "A30"}, "sharing": {"mode": "mig", "layout": {"3g.20gb": 1}}},
        ".sharing.layout: a A30 has no profile 3g.20gb; it has 1g.6gb",
    ),
    (
        {"match": {"model": "A100-SXM4-40GB"}, "sharing": {"mode": "mig", "layout": ["4g.20gb", "3g.20gb", "1g.5gb"]}},
        ".sharing.layout: a A100-SXM4-40GB has no room for 1 x 1g.5gb + 1 x 3g.20gb + 1 x 4g.20gb together: 4g.20gb on 0-3 and "
        "3g.20gb on 4-7 (memory slices) leave no place for 1g.5gb, which needs one of 0 to 6; the nearest layouts that fit: 1 x",
    ),
    ({"sharing": {"mode": "time-slicing"}}, ".sharing.replicas: is missing; time-slicing needs the shares of a GPU"),
    ({"sharing": {"replicas": 4}}, ".sharing.mode: is missing beside replicas; say mode: time-slicing"),
    ({"sharing": {"mode": "none", "replicas": 4}}, ".sharing.replicas: has no effect with mode: none"),
    ({"sharing": {"mode": "none", "rename": True}}, ".sharing.rename: has no effect with mode: none"),
    (
        {"sharing": {**SLICED, "replicas": 1}},
        ".sharing.replicas: 1 is not allowed: sharing needs at least 2 (NVIDIA device plugin); leave it out, with mode: none",
    ),
    ({"sharing": {**SLICED, "replicas": 251}}, ".sharing.replicas: 251 is not allowed: more than 250 pods"),
    ({"sharing": {**SLICED, "rename": "yes"}}, '.sharing.rename: "yes" is text, not a boolean; write true or false'),
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
        ("", '"" is empty; say something or leave it out'),
        ("x" * 64, "has 64 characters; a DNS label has at most 63"),
        (5, "5 is a number, not text; put it in quotes"),
        (None, "is missing; every pool has a name"),
    ],
)
def test_name_of_a_pool(name: t.Any, message: str) -> None:
    (problem,) = validate(CLUSTER, {}, [{"name": name}])
    assert message in problem


FLEET_MISTAKES: list[tuple[list[Document], list[str]]] = [
    (
        [{"name": "a"}, {"name": "a"}],
        ['gpu_pools[1].name: "a" is the name of gpu_pools[0] already; give each pool its own'],
    ),
    (
        [{"name": "a", "match": {"model": "T4"}}, {"name": "b", "match": {"model": "Tesla-T4"}}],
        ["gpu_pools[1].match: is the same as that of gpu_pools[0] (a); tell them apart"],
    ),
    (
        [{"name": "a", "match": {"model": "T4", "labels": {"x": "1"}}}, {"name": "b", "match": {"model": "T4"}}],
        ["gpu_pools[1].match: takes every node of gpu_pools[0] (a) too; tell them apart"],
    ),
    (
        [
            {"name": "a", "match": {"labels": {"nvidia.com/gpu.product": "NVIDIA-T4-SHARED"}}},
            {"name": "b", "match": {"model": "T4", "labels": {"x": "1"}}},
        ],
        ["gpu_pools[0].match: takes every node of gpu_pools[1] (b) too; tell them apart"],
    ),
    (
        [{"name": "a", "match": {"labels": {"x": "1"}}}]
        + [{"name": f"b{i}", "match": {"model": "T4", "labels": {"x": "1", "y": str(i)}}} for i in range(5)],
        [
            "gpu_pools[0].match: takes every node of gpu_pools[1] (b0), gpu_pools[2] (b1), gpu_pools[3] (b2) "
            "and 2 more too; tell them apart"
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


def test_defaults_have_their_own_path_and_are_told_once() -> None:
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
        {"operator": {"chart": "a/b"}, "colour": 1},
        {"sharing": {"mode": "vgpu"}},
        [
            {"name": "A", "match": {"model": "T9"}, "taints": [{"key": "a"}]},
            {"name": "b", "sharing": {"mode": "time-slicing", "replicas": "4"}},
            5,
            {"name": "b"},
        ],
    )
    assert [problem.partition(": ")[0] for problem in problems] == [
        "gpu_cluster.operator.chart",
        "gpu_cluster.colour",
        "gpu_cluster.name",
        "gpu_defaults.sharing.mode",
        "gpu_pools[0].name",
        "gpu_pools[0].match.model",
        "gpu_pools[0].taints[0].effect",
        "gpu_pools[1].sharing.replicas",
        "gpu_pools[2]",
        "gpu_pools[3].name",
    ]
