# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Managed MachineSets that their pool no longer declares are an error, because a run would pay for other machines in addition."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.clouds.machinesets import LABELS, undeclared_problems
from ansible_collections.accel.gpu.plugins.module_utils.core.values import set_nested
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from tests.helpers.machine_api import Object, marked, worker_machineset

ZONES = ["us-east-2a", "us-east-2b"]


def managed(name: str, pool: str | None = "extra", group: str | None = "", replicas: int = 1) -> Object:
    machineset = worker_machineset(name)
    if group is not None:
        marked(machineset, group or name)
    if pool:
        set_nested(machineset, LABELS, {"accel.gpu/pool": pool})
    machineset["spec"]["replicas"] = replicas
    return machineset


def groups(zones: Any, name: str = "extra") -> list[dict[str, Any]]:
    """The option `nodegroups` of a pool with these zones."""
    nodes = {"flavor": "g4dn.xlarge", "count": 2, "zones": zones}
    cluster = {"name": "c", "distribution": "openshift", "cloud": {"machineset": {}}}
    return list(derive(cluster, {}, [{"name": name, "model": "T4", "nodes": nodes}]).nodegroups)


def problems(machinesets: list[Object], declared: list[dict[str, Any]]) -> list[str]:
    return undeclared_problems(machinesets, declared, [group["name"] for group in declared])


@pytest.mark.parametrize("zones", ["", None])
def test_zones_that_become_empty_create_no_group_beside_those_of_the_zones(zones: Any) -> None:
    live = [worker_machineset(), managed("extra-us-east-2a", replicas=3), managed("extra-us-east-2b")]
    (problem,) = problems(live, groups(zones))
    assert problem.startswith(
        "Pool extra: MachineSets extra-us-east-2a (3 node(s)) and extra-us-east-2b (1 node(s)) belong to it, but the pool no longer declares them "
        "(declared: extra)."
    )


@pytest.mark.parametrize(
    ("zones", "undeclared"),
    [
        (ZONES, []),
        (["us-east-2a"], ["extra-us-east-2b"]),
        (["us-east-2b", "us-east-2c"], ["extra-us-east-2a"]),
    ],
)
def test_each_removed_zone_is_named(zones: list[str], undeclared: list[str]) -> None:
    live = [managed("extra-us-east-2a"), managed("extra-us-east-2b")]
    messages = problems(live, groups(zones))
    assert [f"MachineSet {name} (" in text for name, text in zip(undeclared, messages, strict=True)] == [True] * len(
        undeclared
    )


@pytest.mark.parametrize(
    "machineset",
    [
        managed("extra-us-east-2c", group=None),
        managed("extra-us-east-2c", pool="another"),
        managed("extra-us-east-2c", pool=None),
        managed("extra-us-east-2a-1f3e", group="extra-us-east-2a"),
    ],
    ids=["foreign", "another pool's", "without a pool", "a replacement of a declared group"],
)
def test_other_machinesets_are_no_problem(machineset: Object) -> None:
    assert problems([machineset], groups(ZONES)) == []


def test_a_machineset_that_is_being_deleted_is_no_problem() -> None:
    leaving = managed("extra-us-east-2c")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-12T08:00:00Z"
    assert problems([leaving], groups(ZONES)) == []


def test_a_deletion_of_the_pool_is_not_prevented() -> None:
    declared = [{**group, "state": "absent"} for group in groups("")]
    assert problems([managed("extra-us-east-2a")], declared) == []
