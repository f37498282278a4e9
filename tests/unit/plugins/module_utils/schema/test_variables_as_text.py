# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables whose values came as text: from a survey, from -e key=value, or from a template before ansible-core 2.19."""

from __future__ import annotations

import copy
import time
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import CLUSTER, Document

from .test_whole_schema_fuzzed import DOCUMENTS

T4: Document = {"name": "p", "match": {"model": "T4"}}
A100: Document = {"name": "p", "match": {"model": "A100-SXM4-40GB"}}
MADE: Document = {"name": "p", "nodes": {"flavor": "f"}}
MAGNUM: Document = {"name": "lab", "cloud": {"magnum": {}}}
VKS: Document = {"name": "lab", "cloud": {"vks": {}}}


def _mig(**sharing: t.Any) -> Document:
    return {**A100, "sharing": {"mode": "mig", **sharing}}


def _rollout(**rollout: t.Any) -> Document:
    return {**T4, "rollout": rollout}


# A cluster and a pool as a user types them, and the same as YAML parses them.
SAME: list[tuple[Document, Document, Document, Document]] = [
    (CLUSTER, {**T4, "gpus_per_node": "4"}, CLUSTER, {**T4, "gpus_per_node": 4}),
    (
        CLUSTER,
        {**T4, "sharing": {"mode": "time-slicing", "replicas": "4", "rename": "true"}},
        CLUSTER,
        {**T4, "sharing": {"mode": "time-slicing", "replicas": 4, "rename": True}},
    ),
    (
        CLUSTER,
        {**T4, "sharing": {"mode": "time-slicing", "replicas": 4, "fail_requests_greater_than_one": "No"}},
        CLUSTER,
        {**T4, "sharing": {"mode": "time-slicing", "replicas": 4, "fail_requests_greater_than_one": False}},
    ),
    (CLUSTER, _mig(layout={"1g.5gb": "7"}), CLUSTER, _mig(layout={"1g.5gb": 7})),
    (CLUSTER, _mig(layout="3g.20gb, 3g.20gb"), CLUSTER, _mig(layout=["3g.20gb", "3g.20gb"])),
    (CLUSTER, _mig(layout='["3g.20gb"]'), CLUSTER, _mig(layout=["3g.20gb"])),
    (CLUSTER, _mig(demand={"1g.5gb": "3"}), CLUSTER, _mig(demand={"1g.5gb": 3})),
    (
        CLUSTER,
        {**_mig(layout={"0": {"1g.5gb": "7"}}), "gpus_per_node": "1", "startup_taint": "yes"},
        CLUSTER,
        {**_mig(layout={0: {"1g.5gb": 7}}), "gpus_per_node": 1, "startup_taint": True},
    ),
    (CLUSTER, _rollout(max_unavailable="2", force="no"), CLUSTER, _rollout(max_unavailable=2, force=False)),
    (CLUSTER, _rollout(grace_period="", drain_timeout=" 60 "), CLUSTER, _rollout(drain_timeout=60)),
    (
        CLUSTER,
        _rollout(reboot={"command": '["ssh", "{node}", "reboot, now"]', "timeout": "9"}),
        CLUSTER,
        _rollout(reboot={"command": ["ssh", "{node}", "reboot, now"], "timeout": 9}),
    ),
    (
        CLUSTER,
        {**T4, "taints": '[{"key": "a", "value": "yes", "effect": "NoSchedule"}]'},
        CLUSTER,
        {**T4, "taints": [{"key": "a", "value": "yes", "effect": "NoSchedule"}]},
    ),
    (
        {"name": "lab", "operator": {"image_pull_secrets": "one, two\nthree", "driver": {"enabled": "false"}}},
        T4,
        {"name": "lab", "operator": {"image_pull_secrets": ["one", "two", "three"], "driver": {"enabled": False}}},
        T4,
    ),
    (
        {"name": "lab", "operator": {"version": "", "release": "", "image_pull_secrets": "", "registry": " "}},
        T4,
        {"name": "lab", "operator": {}},
        T4,
    ),
    (
        {"name": "lab", "operator": {"proxy": {"http": "http://p:1", "no_proxy": "[.svc, 10.0.0.0/8]"}}},
        T4,
        {"name": "lab", "operator": {"proxy": {"http": "http://p:1", "no_proxy": [".svc", "10.0.0.0/8"]}}},
        T4,
    ),
    (
        MAGNUM,
        {**MADE, "nodes": {"flavor": "f", "count": "3", "merge_labels": "true", "image": ""}},
        MAGNUM,
        {**MADE, "nodes": {"flavor": "f", "count": 3, "merge_labels": True}},
    ),
    (MAGNUM, {**MADE, "autoscale": {"min": "0", "max": "3"}}, MAGNUM, {**MADE, "autoscale": {"min": 0, "max": 3}}),
    (
        VKS,
        {**MADE, "name": "pools", "nodes": {"flavor": "f", "count": 1, "security_groups": "a,b", "secondary_subnets": ""}},
        VKS,
        {**MADE, "name": "pools", "nodes": {"flavor": "f", "count": 1, "security_groups": ["a", "b"]}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "pool", "meant", "meant_pool"), SAME)
def test_text_that_is_clear_gives_the_same_plan(
    cluster: Document, pool: Document, meant: Document, meant_pool: Document
) -> None:
    given = copy.deepcopy((cluster, pool))
    assert derive(cluster, {}, [pool]) == derive(meant, {}, [meant_pool])
    assert derive(cluster, {key: value for key, value in pool.items() if key == "rollout"}, [pool]) == derive(
        meant, {key: value for key, value in meant_pool.items() if key == "rollout"}, [meant_pool]
    )
    assert given == (cluster, pool)


def _as_text(value: t.Any) -> t.Any:
    """Every number and boolean of the schema as text, as templates gave them; `values` are fields of others, with types of their own."""
    if isinstance(value, dict):
        return {key: item if key == "values" else _as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_text(item) for item in value]
    return str(value) if isinstance(value, (bool, int)) else value


@pytest.mark.parametrize("documents", DOCUMENTS)
def test_every_number_and_boolean_of_the_schema_may_be_text(documents: Document) -> None:
    as_text = {part: _as_text(document) for part, document in documents.items()}
    as_text["pools"] = [
        {**pool, **({"sharing": {**pool["sharing"], "layout": documents["pools"][index]["sharing"]["layout"]}} if "layout" in pool.get("sharing", {}) else {})}
        for index, pool in enumerate(as_text["pools"])
    ]  # fmt: skip
    assert derive(*as_text.values()) == derive(*documents.values())


# What stays a mistake of a pool, and how the message begins.
AMBIGUOUS: list[tuple[Document, str]] = [
    ({**T4, "gpus_per_node": "4 nodes"}, 'gpu_pools[0].gpus_per_node: "4 nodes" is a string, not a whole number; use only decimal'),
    ({**T4, "gpus_per_node": "4.0"}, 'gpu_pools[0].gpus_per_node: "4.0" is a string, not a whole number'),
    ({**T4, "gpus_per_node": 4.0}, "gpu_pools[0].gpus_per_node: 4.0 is a number with a fraction"),
    ({**T4, "gpus_per_node": "04"}, 'gpu_pools[0].gpus_per_node: "04" is a string, not a whole number'),
    ({**T4, "gpus_per_node": "0"}, "gpu_pools[0].gpus_per_node: 0 is not allowed"),
    ({**T4, "startup_taint": "maybe"}, 'gpu_pools[0].startup_taint: "maybe" is a string, not a boolean'),
    ({**T4, "labels": {"a": 4}}, "gpu_pools[0].labels.a: 4 is a number, not a string"),
    ({**T4, "match": {"model": ""}}, 'gpu_pools[0].match.model: "" is empty'),
    ({**T4, "match": ""}, 'gpu_pools[0].match: "" is an empty string, not a map'),
    ({**T4, "taints": ""}, 'gpu_pools[0].taints: "" is an empty string, not a list'),
    ({**T4, "labels": ""}, 'gpu_pools[0].labels: "" is an empty string, not a map'),
    ({**T4, "sharing": ""}, 'gpu_pools[0].sharing: "" is an empty string, not a map'),
    ({**T4, "sharing": {"mode": ""}}, 'gpu_pools[0].sharing.mode: "" is empty'),
    ({**T4, "sharing": {"mode": "time-slicing", "replicas": ""}}, 'gpu_pools[0].sharing.replicas: "" is an empty string, not a whole'),
    (_mig(layout=""), 'gpu_pools[0].sharing.layout: "" is a string, not a layout'),
    (_mig(layout="seven"), 'gpu_pools[0].sharing.layout: "seven" is a string, not a layout'),
    (_rollout(drain=""), 'gpu_pools[0].rollout.drain: "" is empty'),
    (_rollout(limit=""), 'gpu_pools[0].rollout.limit: "" is not a number of nodes'),
    (_rollout(reboot={"command": "ssh {node}"}), 'gpu_pools[0].rollout.reboot.command: "ssh {node}" is a string, not a list'),
]  # fmt: skip


@pytest.mark.parametrize(("pool", "message"), AMBIGUOUS)
def test_text_that_is_not_clear_stays_a_mistake(pool: Document, message: str) -> None:
    problems = validate(CLUSTER, {}, [pool])
    assert [problem for problem in problems if problem.startswith(message)] == problems[:1], problems


@pytest.mark.parametrize("pools", ["", "[]", "- name: p", '[{"name": "p"}]'])
def test_a_text_is_not_the_list_of_pools(pools: str) -> None:
    (problem,) = validate(CLUSTER, {}, pools)
    assert problem.startswith("gpu_pools: ")


# Values that no cluster has, and their messages.
ABSURD: list[tuple[Document, Document, str]] = [
    (CLUSTER, _mig(layout={"1g.5gb": 10**9}), ".sharing.layout['1g.5gb']: 1000000000 is not allowed: no GPU has"),
    (CLUSTER, _mig(layout={"1g.5gb": 10**6000}), "a number of more than 60 digits is not allowed: no GPU has"),
    (CLUSTER, _mig(layout={0: {"1g.5gb": 10**9}}), ".sharing.layout[0]['1g.5gb']: 1000000000 is not allowed"),
    (CLUSTER, _mig(layout=["1g.5gb"] * 100_000), ".sharing.layout: names 100000 devices; no GPU has more"),
    (CLUSTER, _mig(layout={"²": {"1g.5gb": 1}}), '"²" is not a MIG profile'),
    (CLUSTER, {**_mig(layout={0: {"1g.5gb": 1}, "0": {"1g.5gb": 1}}), "gpus_per_node": 1}, "names GPU 0 twice"),
    (CLUSTER, _mig(layout={"9" * 5000: {"1g.5gb": 1}}), '.sharing.layout'),
    (CLUSTER, _mig(layout={"9" * 5000 + "g.5gb": 1}), "is not a MIG profile"),
    (CLUSTER, _mig(demand={"1g.5gb": 10**30}), "is not allowed: no cluster has more than 560000 MIG devices"),
    (CLUSTER, _rollout(max_unavailable=10**30), ".rollout.max_unavailable: 1000000000000000000000000000000 is not allowed"),
    (CLUSTER, _rollout(limit=5001), ".rollout.limit: 5001 is not allowed: no cluster has more than 5000 nodes"),
    (CLUSTER, _rollout(drain_timeout=10**6000), ".rollout.drain_timeout: a number of more than 60 digits is not allowed"),
    (CLUSTER, {**T4, "gpus_per_node": -(10**6000)}, ".gpus_per_node: a number of more than 60 digits is not allowed"),
    (CLUSTER, {"name": "a\x07b"}, '.name: "a\\u0007b" is not a DNS label'),
    ({"name": "pr\u200bod"}, T4, 'gpu_cluster.name: "pr\\u200bod" contains the character U+200B, which is invisible'),
    ({"name": "prod\n"}, T4, "gpu_cluster.name: \"prod\\n\" contains the character U+000A"),
    ({"name": "prod\ud800"}, T4, 'gpu_cluster.name: "prod\\ud800" contains the character U+D800'),
    ({"name": "\u202eprod"}, T4, "contains the character U+202E"),
    ({"name": "lab", "operator": {"values": {"a": [{"b": 10**6000}]}}}, T4, "operator.values.a[0].b: a number of more than 60"),
    ({"name": "lab", "nfd": {"values": {"a": float("nan")}}}, T4, "nfd.values.a: nan is not a number that Helm can read"),
    ({"name": "lab", "nfd": {"values": {"a": "\x00"}}}, T4, "contains a character that a YAML file cannot contain"),
    ({"name": "x" * 2000}, T4, "has 2000 characters; the limit is 1024"),
    ({"name": "lab", "kubeconfig": "/a\x00b"}, T4, "gpu_cluster.kubeconfig: \"/a\\u0000b\" contains the character U+0000"),
    (MAGNUM, {**MADE, "nodes": {"flavor": "a\x1bb", "count": 1}}, '.nodes.flavor: "a\\u001bb" contains the character U+001B'),
    (MAGNUM, {**MADE, "nodes": {"flavor": "f", "count": 1, "labels": {"a\x07": "b"}}}, "contains the character U+0007"),
]  # fmt: skip


@pytest.mark.parametrize(("cluster", "pool", "message"), ABSURD)
def test_what_cannot_be_is_refused_at_once(cluster: Document, pool: Document, message: str) -> None:
    started = time.process_time()
    problems = validate(cluster, {}, [pool])
    assert time.process_time() - started < 1
    assert [problem for problem in problems if message in problem], problems
    assert all(problem.isprintable() for problem in problems)


def _aliased(levels: int) -> t.Any:
    """A few lines of YAML with aliases, each of which expands to ten of the line before."""
    value: t.Any = ["x"]
    for _level in range(levels):
        value = [value] * 10
    return value


def _nested(levels: int) -> t.Any:
    value: t.Any = {}
    for _level in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"a": _aliased(12)}, "gpu_cluster: has more than 1000000 values"),
        (_nested(400), "gpu_cluster: is nested more than 50 levels deep"),
        (_nested(5000), "gpu_cluster: is nested more than 50 levels deep"),
    ],
)
def test_documents_without_end(values: t.Any, message: str) -> None:
    started = time.process_time()
    (problem,) = validate({"name": "lab", "operator": {"values": values}}, {}, [T4])
    assert time.process_time() - started < 5
    assert problem.startswith(message)


@pytest.mark.parametrize(("installer", "rejected"), [("helm", True), ("olm", False)])
@pytest.mark.parametrize("value", ["Y", "1e3"])
def test_only_helm_converts_values(installer: str, rejected: bool, value: object) -> None:
    """OLM's ClusterPolicy gets the values as JSON."""
    operator = {"installer": installer, "values": {"toolkit": {"env": [{"name": "ACCEPT_EULA", "value": value}]}}}
    problems = validate({"name": "c", "distribution": "openshift", "operator": operator}, {}, [])
    assert any("operator.values.toolkit.env[0].value: " in text for text in problems) is rejected, problems
