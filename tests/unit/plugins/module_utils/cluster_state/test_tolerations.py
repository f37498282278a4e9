# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose tolerations count, and which taints they leave in the way."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.cluster_state.tolerations import (
    of_policy,
    singleton,
    untolerated,
)

Object = dict[str, Any]


def test_the_oldest_policy_counts_whatever_its_name() -> None:
    def made(name: str, when: str) -> Object:
        return {"metadata": {"name": name, "creationTimestamp": when}}

    found = [made("b", "2026-02-01T00:00:00Z"), made("z", "2026-01-01T00:00:00Z"), made("y", "2026-01-01T00:00:00Z")]
    assert singleton(found) == found[2]
    assert singleton([]) is None


@pytest.mark.parametrize("policy", [{}, {"spec": {}}, {"spec": {"daemonsets": {"tolerations": None}}}])
def test_a_policy_that_says_nothing_tolerates_nothing(policy: Object) -> None:
    assert of_policy(policy) == []


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"key": "team", "value": "a"}, True),
        ({"key": "team", "value": "b"}, False),
        ({"key": "team"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "a"}, False),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, True),
        ({"key": "team", "operator": "Equal", "value": "a", "effect": "NoExecute"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_scheduler_sees_it(toleration: Object, tolerated: bool) -> None:
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    assert untolerated([toleration], [taint]) == ([] if tolerated else [taint])


def test_a_taint_that_only_discourages_keeps_nothing_away() -> None:
    assert untolerated([], [{"key": "team", "effect": "PreferNoSchedule"}]) == []
