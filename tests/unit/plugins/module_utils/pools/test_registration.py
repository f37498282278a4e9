# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node that is created with its pool's `registration` is as declared, and no run has to change it."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given

from ansible_collections.accel.gpu.plugins.module_utils.nodes.node import parse_node
from ansible_collections.accel.gpu.plugins.module_utils.nodes.pool_edit import membership_edit
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import PoolPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.helpers.variables import CLUSTER, Document, pool_lists

TAINT: Document = {"key": "restricted-access", "value": "yes", "effect": "NoSchedule"}
MIG: Document = {"mode": "mig", "layout": {"3g.40gb": 2}}


def planned(*pools: Document, defaults: Document | None = None) -> tuple[PoolPlan, ...]:
    return derive(CLUSTER, defaults, list(pools)).pools


def registered(pool: PoolPlan, *, labels: dict[str, str] | None = None) -> t.Any:
    """A node that was created with the pool's registration."""
    return parse_node(
        {
            "metadata": {
                "name": "new",
                "labels": {**pool.registration.node_labels, **(labels or {})},
                "resourceVersion": "1",
            },
            "spec": {"taints": [dict(taint) for taint in pool.registration.taints]},
            "status": {},
        }
    )


@pytest.mark.parametrize(
    ("written", "labels"),
    [
        ({}, {"nvidia.com/device-plugin.config"}),
        ({"labels": {"team": "x"}}, {"nvidia.com/device-plugin.config", "team"}),
        ({"sharing": MIG}, {"nvidia.com/device-plugin.config", "nvidia.com/mig.config"}),
    ],
)
def test_labels(written: Document, labels: set[str]) -> None:
    (pool,) = planned({"name": "p", "match": {"model": "A100-SXM4-80GB"}, "taints": [TAINT], **written})
    assert set(pool.registration.node_labels) == {"accel.gpu/pool", *labels}
    assert pool.registration.node_labels["accel.gpu/pool"] == "p"
    assert pool.registration.taints == (TAINT,)


@given(pool_lists())
def test_node_with_correct_registration_needs_no_edit(pools: list[Document]) -> None:
    for pool in planned(*pools):
        assert membership_edit(registered(pool), pool) is None


def test_registration_metadata_stays_when_a_node_leaves_its_pool() -> None:
    (pool,) = planned({"name": "p", "taints": [TAINT], "labels": {"team": "x"}})
    assert membership_edit(registered(pool), None) is None


def test_labels_of_the_plan_and_of_the_registration_are_distinct_objects() -> None:
    (pool,) = planned({"name": "p"})
    assert pool.registration.node_labels == pool.node_labels
    assert pool.registration.node_labels is not pool.node_labels


STARTUP: Document = {"key": "startup-taint.cluster-autoscaler.kubernetes.io/accel-gpu", "effect": "NoSchedule"}
TOLERATED: Document = {**STARTUP, "operator": "Exists"}
CUT: Document = {"name": "cut", "match": {"model": "A100-SXM4-80GB"}, "sharing": MIG}


def test_startup_taint_is_set_only_at_registration() -> None:
    (pool,) = planned({**CUT, "taints": [TAINT], "startup_taint": True})
    assert pool.registration.taints == (TAINT, STARTUP)
    assert pool.taints == (TAINT,)
    # Nothing restores the taint after its removal, and workloads have to wait for the removal.
    assert membership_edit(registered(pool), pool) is None
    assert TOLERATED not in pool.tolerations


@pytest.mark.parametrize(
    ("written", "tolerated"), [({"startup_taint": True}, True), ({"startup_taint": False}, False), ({}, False)]
)
def test_pods_that_make_a_node_right_tolerate_the_startup_taint(written: Document, tolerated: bool) -> None:
    plan = derive(CLUSTER, {}, [{**CUT, **written}, {"name": "whole"}])
    assert (TOLERATED in plan.policy.tolerations) == tolerated
    assert (TOLERATED in plan.nfd.values["worker"]["tolerations"]) == tolerated


def test_startup_taint_of_the_defaults_is_for_pools_that_are_cut() -> None:
    defaults = {"startup_taint": True}
    pools: list[Document] = [CUT, {"name": "whole"}, {**CUT, "name": "other", "match": {}, "startup_taint": False}]
    assert validate(CLUSTER, defaults, pools) == []
    assert [STARTUP in pool.registration.taints for pool in planned(*pools, defaults=defaults)] == [True, False, False]
