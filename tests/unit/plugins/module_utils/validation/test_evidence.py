# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When evidence stays valid, and unreadable evidence."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.validation import evidence
from tests.helpers.fleet import node, pool

SHARED = pool(replicas=4)


def test_evidence_depends_on_kinds_of_nodes() -> None:
    one = evidence.pool_facts(pool(), [node("a"), node("b")], "image:1")
    assert evidence.fingerprint(one) == evidence.fingerprint(evidence.pool_facts(pool(), [node("c")], "image:1"))


@pytest.mark.parametrize(
    "other",
    [
        evidence.pool_facts(pool(), [node("a")], "image:2"),
        evidence.pool_facts(SHARED, [node("a")], "image:1"),
        evidence.pool_facts(pool(), [node("a"), node("b", gpus=2)], "image:1"),
        evidence.pool_facts(pool(), [node("a", labels={"nvidia.com/cuda.driver-version.full": "595.1"})], "image:1"),
        evidence.pool_facts(pool(tolerations=({"key": "a", "operator": "Exists"},)), [node("a")], "image:1"),
    ],
)
def test_evidence_changes_with_its_facts(other: dict[str, t.Any]) -> None:
    assert evidence.fingerprint(other) != evidence.fingerprint(evidence.pool_facts(pool(), [node("a")], "image:1"))


def test_unreadable_evidence_is_left_out() -> None:
    assert evidence.read_evidence({"data": {"a": "{", "b": "[]", "c": '{"evidence": "1"}'}}) == {"c": {"evidence": "1"}}
    assert evidence.read_evidence(None) == {}
