# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No document, however wrong, gives a traceback; and what is accepted can be derived."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.pools.documents import InvalidDocuments, load, validate
from tests.helpers.documents import CLUSTER, LAB_POOLS, Document, anything, pool_lists


@given(anything, anything, anything)
def test_whatever_is_written_gives_messages_and_no_traceback(cluster: t.Any, defaults: t.Any, pools: t.Any) -> None:
    for documents in ((cluster, defaults, pools), (CLUSTER, defaults, [{"name": "p", **LAB_POOLS[0], "match": pools}])):
        problems = validate(*documents)
        assert all(problem.startswith("gpu_") and "\n" not in problem for problem in problems)
        if problems:
            with pytest.raises(InvalidDocuments):
                load(*documents)
        else:
            load(*documents)


@st.composite
def spoilt(draw: st.DrawFn) -> list[Document]:
    """The lab's pools with one place, at any depth, replaced by anything."""
    pools = copy.deepcopy(LAB_POOLS)
    place: t.Any = draw(st.sampled_from(pools))
    while True:
        key = draw(st.sampled_from(sorted(place)) if isinstance(place, dict) else st.integers(0, len(place) - 1))
        if not isinstance(place[key], (dict, list)) or not place[key] or draw(st.booleans()):
            place[key] = draw(anything)
            return pools
        place = place[key]


def _judge(pools: list[Document]) -> None:
    problems = validate(CLUSTER, {}, pools)
    assert all(problem.startswith("gpu_pools[") and "\n" not in problem for problem in problems)
    if not problems:
        derive(CLUSTER, {}, pools)


@given(spoilt())
def test_one_spoilt_place_gives_messages_about_its_pool(pools: list[Document]) -> None:
    _judge(pools)


@pytest.mark.soak
@settings(max_examples=20000, suppress_health_check=list(HealthCheck))
@given(spoilt())
def test_many_spoilt_places(pools: list[Document]) -> None:
    _judge(pools)


@given(pool_lists())
def test_good_documents_have_no_mistake(pools: list[Document]) -> None:
    assert validate(CLUSTER, {}, pools) == []
