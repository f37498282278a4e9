# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's own known issues: their form, and when a plan shows them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.pools.derive import derive, needs_pods, plan_warnings
from ansible_collections.accel.gpu.plugins.module_utils.schema.variables import validate

POOLS = [{"name": "p", "match": {"model": "T4"}}]
TEXT = "On our image it breaks (ticket 12)"


def shown(issue: dict[str, t.Any], conditions: t.Collection[str] = (), **cluster: t.Any) -> bool:
    plan = derive({"name": "c", "known_issues": [{"text": TEXT, **issue}], **cluster}, {}, POOLS)
    return any(text.endswith(TEXT) for text in plan_warnings(plan, conditions))


@pytest.mark.parametrize(
    ("issue", "conditions", "cluster", "expected"),
    [
        ({}, (), {}, True),
        ({"releases": ["v25.10"]}, (), {}, True),
        ({"releases": ["25.10.1"]}, (), {}, True),
        ({"releases": ["v25.1"]}, (), {}, False),
        ({"releases": ["v26.3", "v25"]}, (), {}, True),
        ({"conditions": ["cri-o"]}, (), {}, False),
        ({"conditions": ["cri-o"]}, ("cri-o",), {}, True),
        ({"conditions": ["cri-o", "mig"]}, ("cri-o",), {}, False),
        ({"conditions": ["model T4"]}, (), {}, True),
        ({"conditions": ["rke2"]}, (), {"distribution": "rke2"}, True),
        ({"conditions": ["gds"]}, (), {"operator": {"gds": {"enabled": True}}}, True),
        ({"conditions": ["rdma"]}, (), {"operator": {"values": {"driver": {"rdma": {"enabled": True}}}}}, True),
        # A release that the catalog does not have.
        ({"releases": ["v27.1"]}, (), {"operator": {"version": "v27.1.0"}}, True),
    ],
)
def test_when_it_is_shown(
    issue: dict[str, t.Any], conditions: t.Collection[str], cluster: dict[str, t.Any], expected: bool
) -> None:
    assert shown(issue, conditions, **cluster) == expected


@pytest.mark.parametrize(
    ("version", "conditions", "expected"),
    [("v26.3.1", [], True), ("v25.10.1", [], False), ("v25.10.1", ["host-users"], True), ("v26.3.2", ["mig"], False)],
)
def test_pods_are_read_only_for_issues_that_need_them(version: str, conditions: list[str], expected: bool) -> None:
    issue = {"text": TEXT, "conditions": conditions}
    declared = {"name": "c", "operator": {"version": version}, "known_issues": [issue]}
    assert needs_pods(derive(declared, {}, POOLS)) == expected


@pytest.mark.parametrize(
    ("issue", "words"),
    [
        ({"text": TEXT}, []),
        ({}, ["known_issues[0].text: is missing"]),
        ({"text": TEXT, "releases": ["newest"]}, ['releases[0]: "newest" is not the beginning of a release']),
        ({"text": TEXT, "conditions": ["mgi"]}, ['conditions[0]: "mgi" is not a known condition; did you mean mig?']),
        ({"text": TEXT, "conditions": ["model "]}, ["is not a known condition"]),
        ({"text": TEXT, "since": "v26"}, ["known_issues[0].since: is not a known key"]),
    ],
)
def test_form(issue: dict[str, t.Any], words: list[str]) -> None:
    actual = validate({"name": "c", "known_issues": [issue]}, {}, POOLS)
    assert len(actual) == len(words), actual
    assert all(word in text for word, text in zip(words, actual, strict=True)), actual
