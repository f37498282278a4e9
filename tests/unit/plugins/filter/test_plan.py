# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters give the plan and the mistakes as plain data, from whatever ansible-core hands them."""

from __future__ import annotations

import json
import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from ansible.parsing.dataloader import DataLoader

from ansible_collections.accel.gpu.plugins.filter.plan import FilterModule as Plan
from ansible_collections.accel.gpu.plugins.filter.plan import plan
from ansible_collections.accel.gpu.plugins.filter.plan_problems import FilterModule as PlanProblems
from ansible_collections.accel.gpu.plugins.filter.plan_problems import plan_problems
from tests.helpers.variables import CLUSTER, LAB_POOLS

DOCUMENTS = {"gpu_cluster": CLUSTER, "gpu_defaults": {"labels": {"site": "a"}}, "gpu_pools": LAB_POOLS}
TEXT = """
gpu_cluster: {name: lab}
gpu_defaults: {labels: {site: a}}
gpu_pools:
  - {name: notebooks, match: {model: Tesla-T4}, sharing: {mode: time-slicing, replicas: 4}}
"""


def types_of(value: t.Any) -> set[type]:
    """All types in a value, at every depth."""
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return {type(value)}.union(*(types_of(item) for item in inner))


def test_names() -> None:
    assert Plan().filters() == {"plan": plan}
    assert PlanProblems().filters() == {"plan_problems": plan_problems}


def test_plan() -> None:
    planned = plan(DOCUMENTS)
    assert [pool["name"] for pool in planned["pools"]] == [pool["name"] for pool in LAB_POOLS]
    assert planned["pools"][0]["labels"] == {"site": "a", "team": "teaching"}
    assert json.loads(json.dumps(planned)) == planned


def test_documents_that_ansible_has_read_leave_no_tagged_value() -> None:
    """Strings read by ansible-core carry their origin; what is derived from them must not depend on it."""
    documents = DataLoader().load(TEXT, "/inventory/gpu_clusters.yml")
    assert types_of(plan(documents)) <= {dict, list, str, int, bool, type(None)}
    assert plan_problems(documents) == []


def test_plan_of_no_pools() -> None:
    assert plan({"gpu_cluster": CLUSTER, "gpu_pools": []})["pools"] == []


@pytest.mark.parametrize("documents", [{}, {"gpu_pools": None}])
def test_pools_that_are_not_set_are_no_empty_list(documents: dict[str, t.Any]) -> None:
    (problem,) = plan_problems({"gpu_cluster": CLUSTER, **documents})
    assert problem.startswith("gpu_pools: is not set (or null); ")
    assert "An explicit [] means that there are no pools" in problem
    assert "released" in problem
    with pytest.raises(AnsibleFilterError, match="gpu_pools: is not set"):
        plan({"gpu_cluster": CLUSTER, **documents})


def test_a_map_of_pools_is_no_list() -> None:
    (problem,) = plan_problems({"gpu_cluster": CLUSTER, "gpu_pools": {}})
    assert problem.startswith("gpu_pools: is a map, not a list")


def test_mistakes() -> None:
    documents = {"gpu_cluster": {}, "gpu_pools": [{"name": "A"}]}
    problems = plan_problems(documents)
    assert [problem.partition(":")[0] for problem in problems] == ["gpu_cluster.name", "gpu_pools[0].name"]
    assert {problem.__class__ for problem in problems} == {str}
    with pytest.raises(AnsibleFilterError, match="2 errors") as raised:
        plan(documents)
    assert all(problem in str(raised.value) for problem in problems)


@pytest.mark.parametrize("documents", [None, [], "x", {"pool": []}])
def test_input_of_another_shape(documents: t.Any) -> None:
    assert len(plan_problems(documents)) == 1
    with pytest.raises(AnsibleFilterError):
        plan(documents)
