# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When evidence stays valid, and unreadable evidence."""

from __future__ import annotations

import json
import typing as t
from types import SimpleNamespace

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.nodes.ownership import assign_pools
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.validation import evaluation
from tests.helpers.fleet import node, pool
from tests.helpers.validation import DEFAULTS

SHARED = pool(replicas=4)
IMAGES = {"0.0": "image:1"}


def test_evidence_depends_on_kinds_of_nodes() -> None:
    one = evaluation.fingerprint_inputs(pool(), [node("a"), node("b")], IMAGES)
    assert evaluation.fingerprint(one) == evaluation.fingerprint(
        evaluation.fingerprint_inputs(pool(), [node("c")], IMAGES)
    )


@pytest.mark.parametrize(
    "other",
    [
        evaluation.fingerprint_inputs(pool(), [node("a")], {"0.0": "image:2"}),
        evaluation.fingerprint_inputs(SHARED, [node("a")], IMAGES),
        evaluation.fingerprint_inputs(pool(), [node("a"), node("b", gpus=2)], IMAGES),
        evaluation.fingerprint_inputs(
            pool(), [node("a", labels={"nvidia.com/cuda.driver-version.full": "595.1"})], IMAGES
        ),
        evaluation.fingerprint_inputs(pool(tolerations=({"key": "a", "operator": "Exists"},)), [node("a")], IMAGES),
    ],
)
def test_evidence_changes_with_its_inputs(other: dict[str, t.Any]) -> None:
    assert evaluation.fingerprint(other) != evaluation.fingerprint(
        evaluation.fingerprint_inputs(pool(), [node("a")], IMAGES)
    )


def test_unreadable_evidence_is_left_out() -> None:
    assert evaluation.read_evidence({"data": {"a": "{", "b": "[]", "c": '{"evidence": "1"}'}}) == {
        "c": {"evidence": "1"}
    }
    assert evaluation.read_evidence(None) == {}


def test_evidence_depends_on_the_image_that_is_used() -> None:
    labels = {"nvidia.com/cuda.runtime-version.full": "12.2"}
    hashes = [
        evaluation.fingerprint(evaluation.fingerprint_inputs(pool(), [node("a", labels=labels)], images))
        for images in ({"11.7": "a:1"}, {"11.7": "a:1", "12.5": "a:2"}, {"11.7": "a:1", "12.1": "a:3"})
    ]
    assert hashes[0] == hashes[1] != hashes[2]


INPUTS = evaluation.fingerprint_inputs(pool(), [node("a")], IMAGES)
PASSED = evaluation.verified_entry(INPUTS, "a", {"GPU-1": 1}, {"kernel": "passed"})
FAILURE = evaluation.failed_entry(INPUTS, "a", {"GPU-1": 1}, ["p on GPU-1:\n hung"], 0.0)


def test_entries() -> None:
    mark = evaluation.fingerprint(INPUTS)
    expected = {"evidence": mark, "inputs": INPUTS, "node": "a", "devices": {"GPU-1": 1}, "kernel": "passed"}
    assert expected == PASSED
    assert {key: FAILURE[key] for key in ("evidence", "status", "problems", "time", "node", "devices")} == {
        "evidence": mark,
        "status": "failed",
        "problems": ["p on GPU-1: hung"],
        "time": "1970-01-01T00:00:00Z",
        "node": "a",
        "devices": {"GPU-1": 1},
    }


@pytest.mark.parametrize(
    ("entry", "inputs", "verified"),
    [
        (PASSED, INPUTS, True),
        (FAILURE, INPUTS, False),
        (None, INPUTS, False),
        (PASSED, {**INPUTS, "mode": "mps"}, False),
    ],
)
def test_only_current_entries_of_verified_pools_are_evidence(
    entry: dict[str, t.Any] | None, inputs: dict[str, t.Any], verified: bool
) -> None:
    assert evaluation.is_verified(entry, inputs) is verified


@pytest.mark.parametrize(
    ("entry", "image", "expected"),
    [
        (
            {**PASSED, "node": "gone"},
            "",
            {"status": "verified", "current": True, "kernel": "passed", "node": "gone", "in_pool": False},
        ),
        (PASSED, "", {"status": "verified", "current": True, "kernel": "passed"}),
        (PASSED, "other:1", {"status": "verified", "current": False, "kernel": "passed"}),
        (
            FAILURE,
            "",
            {"status": "failed", "current": True, "problems": ["p on GPU-1: hung"], "time": "1970-01-01T00:00:00Z"},
        ),
        (
            FAILURE,
            "other:1",
            {"status": "failed", "current": False, "problems": ["p on GPU-1: hung"], "time": "1970-01-01T00:00:00Z"},
        ),
    ],
)
def test_the_last_validation_of_a_pool(entry: dict[str, t.Any], image: str, expected: dict[str, t.Any]) -> None:
    document = {"name": "notebooks", "match": {"model": "Tesla-T4"}}
    cluster = {"name": "lab", **({"validation": {"image": image}} if image else {})}
    plan, nodes = derive({"name": "lab"}, {}, [document]), [node("a", labels={"accel.gpu/pool": "notebooks"})]
    membership = assign_pools(plan.pools, nodes)
    inputs = evaluation.inputs_by_pool(plan, {"a": nodes[0]}, membership)["notebooks"]
    stored = {**entry, "evidence": evaluation.fingerprint(inputs)}
    configmap = {"data": {"notebooks": json.dumps(stored)}}
    client = t.cast("Client", SimpleNamespace(get=lambda path: configmap))
    actual = evaluation.validated_pools(client, derive(cluster, {}, [document]), nodes, membership)
    assert actual == {"notebooks": {"node": "a", "devices": {"GPU-1": 1}, "in_pool": True, **expected}}


MEASURED = {"nodes": ["a"], "gpus": 8, "bus_bandwidth": 350.0}
NODE, NETWORK = "all_reduce", "network_all_reduce"


@pytest.mark.parametrize(
    ("entry", "options", "covered"),
    [
        ({}, {}, True),
        ({}, {"load_seconds": 60}, False),
        ({"load": {"seconds": 60}}, {"load_seconds": 60}, True),
        ({"load": {"seconds": 60}}, {"load_seconds": 61}, False),
        ({}, {NODE: True}, False),
        ({NODE: MEASURED}, {NODE: True}, True),
        ({NODE: MEASURED}, {NODE: True, "min_bandwidth": 360}, False),
        ({NODE: {"skipped": "shared"}}, {NODE: True, "min_bandwidth": 360}, True),
        ({NODE: MEASURED}, {NODE: True, "all_reduce_nodes": 2}, False),
        ({NETWORK: {**MEASURED, "nodes": ["a", "b"]}}, {"all_reduce_nodes": 2}, True),
        ({NETWORK: {**MEASURED, "nodes": ["a", "b"]}}, {"all_reduce_nodes": 3}, False),
        ({NETWORK: {"skipped": "too few"}}, {"all_reduce_nodes": 3}, True),
    ],
)
def test_evidence_covers_what_is_requested(entry: dict[str, t.Any], options: dict[str, t.Any], covered: bool) -> None:
    verified = {"kernel": "passed", **entry}
    assert evaluation.evidence_covers(verified, {**DEFAULTS, **options}) is covered
    assert evaluation.evidence_covers(verified, DEFAULTS)
    assert not evaluation.evidence_covers(entry, {**DEFAULTS, **options})
