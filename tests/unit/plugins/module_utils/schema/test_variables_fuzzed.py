# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No document, however wrong, gives a traceback; and what is accepted can be derived."""

from __future__ import annotations

import copy
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive
from ansible_collections.accel.gpu.plugins.module_utils.schema.validators import MatchTerms, resolve_match
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import InvalidVariables, load, validate
from tests.helpers.variables import CLUSTER, LAB_POOLS, Document, anything, pool_lists


@given(anything, anything, anything)
def test_whatever_is_written_gives_messages_and_no_traceback(cluster: t.Any, defaults: t.Any, pools: t.Any) -> None:
    for documents in ((cluster, defaults, pools), (CLUSTER, defaults, [{"name": "p", **LAB_POOLS[0], "match": pools}])):
        problems = validate(*documents)
        assert all(problem.startswith("gpu_") and "\n" not in problem for problem in problems)
        if problems:
            with pytest.raises(InvalidVariables):
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
@settings(max_examples=5000)
@given(spoilt())
def test_many_spoilt_places(pools: list[Document]) -> None:
    _judge(pools)


matches = st.fixed_dictionaries(
    {"model": st.sampled_from(["T4", "L4", None])},
    optional={"labels": st.dictionaries(st.sampled_from("xy"), st.sampled_from("12"), max_size=2)},
)


@given(st.lists(matches, max_size=6))
def test_certain_overlaps_are_those_that_every_pair_shows(expected: list[Document]) -> None:
    pools = [{"name": f"p{number}", "match": match} for number, match in enumerate(expected)]
    asked = [MatchTerms.of(resolve_match(match)) for match in expected]
    real = [own for own in asked if own != MatchTerms(frozenset(), frozenset())]
    overlapping = {
        f"gpu_pools[{number}].match"
        for number, own in enumerate(asked)
        if own in real and (own in asked[:number] or any(other != own and other.implies(own) for other in real))
    }
    assert {problem.partition(":")[0] for problem in validate(CLUSTER, {}, pools)} == overlapping


@given(pool_lists())
def test_good_documents_have_no_mistake(pools: list[Document]) -> None:
    assert validate(CLUSTER, {}, pools) == []
