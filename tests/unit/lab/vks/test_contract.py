# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contract of the fake VKS: every line has a source, and the contract is enforced."""

from __future__ import annotations

from typing import Any

import pytest

from lab.errors import LabError
from lab.vks import contract, contract_docs, rules
from tests.helpers.vks import group

CONTRACT = contract.load()
KINDS = {"string", "integer", "number", "boolean", "object", "any"}


def test_all_sources_exist() -> None:
    named = {
        f"{schema}.{name}": one.sources
        for schema, fields in CONTRACT.schemas.named.items()
        for name, one in fields.items()
    }
    named |= {name: one.sources for name, one in CONTRACT.operations.items()}
    named |= {f"behavior {name}": one.sources for name, one in CONTRACT.behaviors.items()}
    named |= {
        f"{name}={value}": sources
        for name, one in CONTRACT.guesses.items()
        for value, sources in one.alternatives.items()
    }
    assert {
        name for name, sources in named.items() if not sources or not set(sources) <= CONTRACT.sources.keys()
    } == set()
    assert len(named) > 250


def test_every_guess_has_alternatives_and_a_default() -> None:
    for name, guess in CONTRACT.guesses.items():
        assert len(guess.alternatives) > 1, name
        assert guess.text, name
        assert contract.settings()[f"{name}"].default == guess.default


def test_all_kinds_exist() -> None:
    kinds = [one.kind for fields in CONTRACT.schemas.named.values() for one in fields.values()]
    kinds += [kind for one in CONTRACT.operations.values() for kind in (one.body, one.answer, one.rows) if kind]
    assert {kind.strip("[]{}") for kind in kinds} - KINDS <= CONTRACT.schemas.named.keys()


def test_route() -> None:
    actual = CONTRACT.route("vks", "GET", "/v1/clusters/k8s-1/node-groups/ng-2")
    assert actual
    assert (actual[0].name, actual[1]) == ("get-group", {"CLUSTER": "k8s-1", "GROUP": "ng-2"})
    assert CONTRACT.route("vks", "PATCH", "/v1/clusters") is None
    assert CONTRACT.route("vserver", "GET", "/v1/clusters") is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, None),
        ({"name": "Abc-1"}, "name: 'Abc-1' does not match"),
        ({"name": "abcd"}, "name: 'abcd' does not match"),
        ({"name": "a" * 16}, "does not match"),
        ({"numNodes": -1}, "numNodes: -1 is less than 0"),
        ({"numNodes": True}, "numNodes: True is not an integer"),
        ({"numNodes": "1"}, "numNodes: '1' is not an integer"),
        ({"numNodes": None}, "numNodes: must not be null"),
        ({"os": "windows"}, "os: 'windows' is not one of ubuntu, linux, rocky"),
        ({"diskSize": 19}, "diskSize: 19 is less than 20"),
        ({"diskSize": 5001}, "diskSize: 5001 is more than 5000"),
        ({"labels": {"a": 1}}, "labels.a: 1 is not a string"),
        ({"labels": {f"k{number}": "" for number in range(51)}}, "labels: 51 entries is more than 50"),
        ({"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}, None),
        ({"taints": [{"key": "a", "effect": "NoScheduleXX"}]}, r"taints[0].effect: 'NoScheduleXX' is not one of"),
        ({"taints": [{"key": "a/b/c", "effect": "NoSchedule"}]}, "taints[0].key: 'a/b/c' does not match"),
        ({"autoScaleConfig": {"minSize": 1}}, "autoScaleConfig.maxSize: is required"),
        ({"autoScaleConfig": None}, None),
        ({"upgradeConfig": {"strategy": "BLUE"}}, "upgradeConfig.strategy: 'BLUE' is not one of SURGE"),
        ({"flavor": "x"}, "flavor: unknown field; known: name"),
    ],
)
def test_body_checks(change: dict[str, Any], problem: str | None) -> None:
    problems = CONTRACT.schemas.problems("CreateNodeGroup", group(**change))
    assert problems == [] if problem is None else problem in "\n".join(problems)


def test_undocumented_fields_can_be_allowed() -> None:
    assert CONTRACT.schemas.problems("CreateNodeGroup", group(flavor="x"), closed=False) == []


@pytest.mark.parametrize(
    ("name", "group_name", "value", "problem"),
    [
        ("busy", "a", "3", None),
        ("busy", None, "often", "requires a number"),
        ("busys", None, None, "unknown fault 'busys'"),
        ("slow", "a", "1", "cannot be limited to a group"),
        ("locked-out", None, "1", "accepts no value"),
        ("unknown-status", "a", "RECONCILING", None),
    ],
)
def test_fault_checks(name: str, group_name: str | None, value: str | None, problem: str | None) -> None:
    if problem is None:
        rules.check_fault(name, group_name, value)
    else:
        with pytest.raises(LabError, match=problem):
            rules.check_fault(name, group_name, value)


def test_setting_checks() -> None:
    rules.check_setting("duplicate-names", "allowed")
    rules.check_setting("delay", "1..2")
    with pytest.raises(LabError, match="invalid value 'both' for duplicate-names; choose from refused, allowed"):
        rules.check_setting("duplicate-names", "both")
    with pytest.raises(LabError, match="unknown setting 'x'"):
        rules.check_setting("x", "y")


def test_page_is_up_to_date() -> None:
    text = contract_docs.PAGE.read_text()
    assert contract_docs.page(text) == text
