# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Valid variables with a few hostile values in them: messages in a moment, never a traceback, and what is accepted can be derived."""

from __future__ import annotations

import contextlib
import copy
import json
import time
import typing as t

import pytest
from ansible.errors import AnsibleFilterError
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.filter.mig_fit import mig_fit
from ansible_collections.accel.gpu.plugins.filter.mig_layouts import mig_layouts
from ansible_collections.accel.gpu.plugins.filter.with_node_counts import with_node_counts
from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, plan_warnings
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate
from tests.unit.plugins.module_utils.schema.test_whole_schema_fuzzed import DOCUMENTS

HOSTILE: list[t.Any] = [
    *(None, True, False, 0, 1, -1, 4, 7, 64, 10**9, 10**30, -(10**30), 10**4000, 2**63),
    *(0.0, 4.0, 0.5, 1e308, float("inf"), float("nan")),
    *("", " ", "4", "04", "-1", "4 nodes", "true", "No", "٤", "²", "9" * 4000, "9" * 19, "x" * 5000),
    *("{{ x }}", "{% if %}", "a,b", "[a", "[1, 2]", '{"a": 1}', "- a\n- b", "a\nb", "a\tb", "\x00", "\x1b[31m", "\x9b"),
    *("\u202eabc", "a\u200bb", "\ud800", "\u2028", "é", "名", "\U0001f600", "../../etc/passwd", "a/b/c", "-", "."),
    *("v" + "9" * 900 + ".1.1", "9" * 300 + "g.5gb", "1g.5gb", "3g.20gb", "T4", "A100-SXM4-40GB", "NoSchedule", "mig", "100%"),
    *([], {}, [[]], [{}], {"": ""}, {0: 1}, {True: 1}, {None: None}, {"²": {"1g.5gb": 1}}, {0: {"1g.5gb": 1}, "0": {"1g.5gb": 1}}),
    *({"1g.5gb": 10**9}, {"1g.5gb": "7"}, {"1g.5gb": 10**4000}, ["1g.5gb"] * 3000, [{"1g.5gb": 10**9}] * 3, ["a"] * 2),
]  # fmt: skip

KEYS = [value for value in HOSTILE if not isinstance(value, (dict, list))]


def _inner(place: t.Any) -> t.Iterator[tuple[t.Any, t.Any]]:
    """Every place of a document: what holds it, and its key there."""
    for key in list(place) if isinstance(place, dict) else range(len(place)):
        yield place, key
        if isinstance(place[key], (dict, list)):
            yield from _inner(place[key])


@st.composite
def mutated(draw: st.DrawFn) -> list[t.Any]:
    """One to four places replaced, removed, doubled, renamed, or moved to another place."""
    documents = copy.deepcopy(draw(st.sampled_from(DOCUMENTS)))
    for _time in range(draw(st.integers(1, 4))):
        places = list(_inner(documents))
        holder, key = draw(st.sampled_from(places))
        way = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double", "rename", "move"]))
        if holder is documents or way == "replace":
            holder[key] = copy.deepcopy(draw(st.sampled_from(HOSTILE)))
        elif way == "remove":
            del holder[key]
        elif way == "double" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif way == "rename" and isinstance(holder, dict):
            name = draw(st.sampled_from(KEYS))
            holder[name] = holder.pop(key)
        else:
            other, existing = draw(st.sampled_from(places))
            holder[key] = (
                copy.deepcopy(other[existing])
                if existing in other or (isinstance(other, list) and existing < len(other))
                else None
            )
    return list(documents.values())


def _judge(documents: list[t.Any]) -> None:
    started = time.process_time()
    problems = validate(*documents)
    for problem in problems:
        assert problem.startswith("gpu_")
        assert ": " in problem
        assert problem.isprintable(), problem
        problem.encode()
    if not problems:
        plan = derive(*documents)
        json.dumps(plan.as_dict())
        plan_warnings(plan)
    with contextlib.suppress(AnsibleFilterError):
        with_node_counts(documents[2], {"made": "2"}, documents[1])
    assert time.process_time() - started < 2


@settings(max_examples=200)
@given(mutated())
def test_200_mutations(documents: list[t.Any]) -> None:
    _judge(documents)


@pytest.mark.soak
@settings(max_examples=20000)
@given(mutated())
def test_many_mutations(documents: list[t.Any]) -> None:
    _judge(documents)


def test_many_wrong_values_in_one_list() -> None:
    """Each value is checked once or twice, not once for each rule about the cluster."""
    for entry in ({"conditions": ["1g.5gb"] * 3000}, ["1g.5gb"] * 3000):
        _judge([{"name": "prod", "known_issues": [entry] if isinstance(entry, dict) else entry}, None, []])


@pytest.mark.parametrize("value", HOSTILE, ids=[f"value{number}" for number in range(len(HOSTILE))])
def test_mig_filters(value: t.Any) -> None:
    started = time.process_time()
    for profiles, model in (
        (value, "A100-SXM4-40GB"),
        ({"1g.5gb": value}, "A100-SXM4-40GB"),
        ([value], "T4"),
        (["1g.5gb"], value),
    ):
        with contextlib.suppress(AnsibleFilterError):
            assert mig_fit(profiles, model)["fits"] in (True, False)
    with contextlib.suppress(AnsibleFilterError):
        mig_layouts(value)
    assert time.process_time() - started < 2
