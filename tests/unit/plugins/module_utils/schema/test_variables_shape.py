# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that are not even of the right kind."""

from __future__ import annotations

import time
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import (
    InvalidVariables,
    split_variables,
    validate,
)
from tests.helpers.variables import CLUSTER


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"name": "a"}, "gpu_pools: is a map, not a list; begin each entry with a dash"),
        ("", 'gpu_pools: "" is an empty string, not a list; begin each entry with a dash'),
        ("{{ pools }}", 'gpu_pools: "{{ pools }}" still contains a template'),
    ],
)
def test_pools_that_are_no_list(pools: t.Any, message: str) -> None:
    (problem,) = validate(CLUSTER, {}, pools)
    assert problem.startswith(message)


def test_empty_defaults() -> None:
    (problem,) = validate(CLUSTER, "", [])
    assert problem.startswith('gpu_defaults: "" is an empty string, not a map')


def test_document_that_contains_itself() -> None:
    pools: list[t.Any] = []
    pools.append(pools)
    (problem,) = validate(CLUSTER, {}, pools)
    assert "contains itself" in problem


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "the input: is a list, not a map of gpu_cluster, gpu_defaults and gpu_pools"),
        (
            {"gpu_cluster": {}, "pool": []},
            '"pool": is not one of gpu_cluster, gpu_defaults and gpu_pools',
        ),
    ],
)
def test_filters_want_one_map(documents: t.Any, message: str) -> None:
    with pytest.raises(InvalidVariables) as raised:
        split_variables(documents)
    assert raised.value.problems == [message]


def test_a_thousand_pools_are_checked_in_a_moment() -> None:
    pools = [{"name": f"p{n}", "match": {"model": "T4", "labels": {"rack": str(n)}}} for n in range(1000)]
    started = time.process_time()
    assert validate(CLUSTER, {}, pools) == []
    assert time.process_time() - started < 2
