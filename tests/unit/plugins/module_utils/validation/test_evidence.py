# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When evidence stays valid, and unreadable evidence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation import evidence
from tests.helpers.fleet import node, pool
from tests.helpers.validation import DEFAULTS

SHARED = pool(replicas=4)
IMAGES = {"0.0": "image:1"}


def test_evidence_depends_on_kinds_of_nodes() -> None:
    one = evidence.pool_facts(pool(), [node("a"), node("b")], IMAGES)
    assert evidence.fingerprint(one) == evidence.fingerprint(evidence.pool_facts(pool(), [node("c")], IMAGES))


@pytest.mark.parametrize(
    "other",
    [
        evidence.pool_facts(pool(), [node("a")], {"0.0": "image:2"}),
        evidence.pool_facts(SHARED, [node("a")], IMAGES),
        evidence.pool_facts(pool(), [node("a"), node("b", gpus=2)], IMAGES),
        evidence.pool_facts(pool(), [node("a", labels={"nvidia.com/cuda.driver-version.full": "595.1"})], IMAGES),
        evidence.pool_facts(pool(tolerations=({"key": "a", "operator": "Exists"},)), [node("a")], IMAGES),
    ],
)
def test_evidence_changes_with_its_facts(other: dict[str, t.Any]) -> None:
    assert evidence.fingerprint(other) != evidence.fingerprint(evidence.pool_facts(pool(), [node("a")], IMAGES))


def test_unreadable_evidence_is_left_out() -> None:
    assert evidence.read_evidence({"data": {"a": "{", "b": "[]", "c": '{"evidence": "1"}'}}) == {"c": {"evidence": "1"}}
    assert evidence.read_evidence(None) == {}


def test_evidence_depends_on_the_image_that_is_used() -> None:
    labels = {"nvidia.com/cuda.runtime-version.full": "12.2"}
    facts = [
        evidence.fingerprint(evidence.pool_facts(pool(), [node("a", labels=labels)], images))
        for images in ({"11.7": "a:1"}, {"11.7": "a:1", "12.5": "a:2"}, {"11.7": "a:1", "12.1": "a:3"})
    ]
    assert facts[0] == facts[1] != facts[2]


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
    assert evidence.covers(verified, {**DEFAULTS, **options}) is covered
    assert evidence.covers(verified, DEFAULTS)
    assert not evidence.covers(entry, {**DEFAULTS, **options})
