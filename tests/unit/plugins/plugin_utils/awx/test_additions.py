# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of others stay, unless they lead around the approval; what a run leaves has no way around it, and a second run changes nothing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.accel.gpu.plugins.plugin_utils.awx.additions import StepPlan, plan_steps
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.objects import desired_objects
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.settings import read_settings

(WORKFLOW,) = [
    item
    for item in desired_objects(read_settings({"project": {"url": "https://git.example.com/gpu.git"}}))
    if item.kind == "workflow_job_templates"
]
TEMPLATES = {"GPU plan": 1, "GPU site": 2, "GPU report": 3, "GPU share": 4}
CHANGING = {2, 4}
# The template of each step that a run creates; 9 is that of the approval.
OWN = {"plan": 1, "approval": 9, "site": 2, "report": 3}
PATHS = ("success", "failure", "always")
Links = dict[str, dict[str, list[str]]]
DECLARED: Links = {
    "plan": {"success": ["approval"]},
    "approval": {"success": ["site"]},
    "site": {"success": ["report"]},
    "report": {},
}


def rows(foreign: dict[str, int], links: Links, **more: Any) -> list[dict[str, Any]]:
    """The steps as AWX shows them. more: other fields of a step, by its identifier."""
    numbers = {name: index for index, name in enumerate([*OWN, *foreign], 100)}
    return [
        {
            "id": numbers[name],
            "identifier": name,
            "unified_job_template": template,
            "summary_fields": {"unified_job_template": {"name": f"template {template}"}},
            "related": {
                "unified_job_template": f"/api/v2/{'workflow_approval' if template == OWN['approval'] else 'job'}_templates/{template}/"
            },
            **{f"{path}_nodes": [numbers[other] for other in links.get(name, {}).get(path, [])] for path in PATHS},
            **more.get(name, {}),
        }
        for name, template in {**OWN, **foreign}.items()
    ]


@pytest.mark.parametrize(("name", "number"), [("approval", 7), ("plan", 7), ("site", 3)])
def test_a_step_that_runs_something_else_is_created_again(name: str, number: int) -> None:
    """In place of the approval, a job template would let everything through, and the module would rename it."""
    address = {"related": {"unified_job_template": f"/api/v2/job_templates/{number}/"}, "unified_job_template": number}
    plan = plan_steps(WORKFLOW, rows({}, DECLARED, **{name: address}), TEMPLATES, CHANGING)
    assert plan.deleted == [name]
    assert plan.removed == [f"workflow_job_templates/GPU rollout: the step {name} runs template {OWN[name]}"]


def merged(*parts: Links) -> Links:
    result: Links = {}
    for name, path in itertools.product({name for part in parts for name in part}, PATHS):
        result.setdefault(name, {})[path] = list(
            dict.fromkeys(other for part in parts for other in part.get(name, {}).get(path, []))
        )
    return result


def planned(actual: list[dict[str, Any]]) -> StepPlan:
    return plan_steps(WORKFLOW, actual, TEMPLATES, CHANGING)


def applied(foreign: dict[str, int], links: Links, plan: StepPlan) -> tuple[dict[str, int], Links]:
    """The steps of others, and all links, after a run."""
    names = {name: template for name, template in foreign.items() if name not in plan.deleted}
    # Deleting a step removes its links.
    left = {
        name: {path: [other for other in others if other not in plan.deleted] for path, others in paths.items()}
        for name, paths in links.items()
        if name not in plan.deleted
    }
    return names, {**left, **{each["identifier"]: {path: each[path] for path in PATHS} for each in plan.links}}


def without_approval(foreign: dict[str, int], links: Links) -> set[str]:
    """Walk all ways from the first steps that do not pass the success of the approval."""
    every = {*OWN, *foreign}
    ways = [(name, path, other) for name in every for path in PATHS for other in links.get(name, {}).get(path, [])]
    reached = every - {other for _name, _path, other in ways}
    for _round in every:
        reached |= {other for name, path, other in ways if name in reached and (name, path) != ("approval", "success")}
    return reached


@pytest.mark.parametrize(
    ("foreign", "links", "deleted", "removed", "kept"),
    [
        ({}, {}, [], [], []),
        ({"mail": 7}, {"report": {"success": ["mail"]}}, [], [], ["mail (template 7) runs after the approval"]),
        ({"mail": 7}, {"plan": {"success": ["mail"]}}, [], [], ["mail (template 7) runs without an approval"]),
        ({"mail": 7}, {"approval": {"failure": ["mail"]}}, [], [], ["runs even if approval fails, so that the workflow is successful"]),
        ({"mail": 7}, {"site": {"always": ["mail"]}}, [], [], ["runs even if site fails"]),
        ({"backup": 7}, {"approval": {"success": ["backup"]}, "backup": {"success": ["site"]}}, [], [], ["backup (template 7) runs after the approval"]),
        ({"check": 7}, {"plan": {"success": ["check"]}, "check": {"success": ["approval"]}}, [], [], ["check (template 7) runs without an approval"]),
        ({"second": 2}, {}, ["second"], ["second (template 2) changes clusters without an approval"], []),
        ({"second": 4}, {"plan": {"always": ["second"]}}, ["second"], ["second (template 4) changes"], []),
        ({"second": 4}, {"approval": {"failure": ["second"]}}, ["second"], ["second (template 4) changes"], []),
        ({"second": 4}, {"site": {"success": ["second"]}}, [], [], ["second (template 4) runs after the approval"]),
        ({"first": 7}, {"first": {"success": ["site"]}}, [], ["first (template 7) leads to site without an approval"], ["first (template 7) runs without"]),
        ({"other": 3}, {"other": {"success": ["report"]}}, [], [], ["other (template 3) runs without an approval"]),
        # What followed a deleted step starts the workflow, and may be a way to site itself.
        ({"a": 2, "b": 7}, {"a": {"success": ["b"]}, "b": {"always": ["site"]}}, ["a"], ["a (template 2) changes", "b (template 7) leads to site"], ["b (template 7)"]),
        # The approval of somebody else is another approval.
        ({"own": 8, "second": 2}, {"own": {"success": ["second"]}}, ["second"], ["second (template 2) changes"], ["own (template 8)"]),
        # The steps of the role have only the declared links.
        ({}, {"plan": {"always": ["site"]}}, [], [], []),
    ],
)  # fmt: skip
def test_steps_of_others(
    foreign: dict[str, int], links: Links, deleted: list[str], removed: list[str], kept: list[str]
) -> None:
    before = merged(DECLARED, links)
    plan = planned(rows(foreign, before))
    assert plan.deleted == deleted
    for lines, texts in ((plan.removed, removed), (plan.kept, kept)):
        assert len(lines) == len(texts), lines
        assert all(text in line for text, line in zip(texts, lines, strict=True)), lines
        assert all(line.startswith("workflow_job_templates/GPU rollout: the step ") for line in lines)
    names, after = applied(foreign, before, plan)
    assert {"site"} | {name for name, template in names.items() if template in CHANGING} & without_approval(
        names, after
    ) == {"site"}
    assert "site" not in without_approval(names, after)


def test_a_step_that_waits_for_the_approval_and_another_step_does_not_lead_around_it() -> None:
    links = merged(DECLARED, {"approval": {"success": ["second"]}, "plan": {"success": ["second"]}})
    assert planned(rows({"second": 2}, links)).deleted == ["second"]
    assert planned(rows({"second": 2}, links, second={"all_parents_must_converge": True})).deleted == []


@pytest.mark.parametrize(
    "override",
    [
        {"extra_data": {"gpu_operator_allow_driver_rollout": "true"}},
        {"limit": "prod"},
        {"job_type": "check"},
        {"all_parents_must_converge": True},
    ],
)
def test_a_step_with_answers_of_its_own_is_created_again(override: dict[str, Any]) -> None:
    links = merged(DECLARED, {"backup": {"success": ["site"]}, "approval": {"success": ["backup"]}})
    plan = planned(rows({"backup": 7}, links, site=override))
    assert plan.deleted == ["site"]
    assert plan.removed == ["workflow_job_templates/GPU rollout: the step site has answers or prompts of its own"]
    # The deletion removes the links of the step, also those of others.
    _names, after = applied({"backup": 7}, links, plan)
    assert after == merged(links)


def require_order(foreign: dict[str, int], links: Links) -> None:
    """Fail if the links have a circle."""
    left = {name: {other for others in links.get(name, {}).values() for other in others} for name in {*OWN, *foreign}}
    while left:
        last = [name for name, others in left.items() if not others & left.keys()]
        assert last, left
        left = {name: others for name, others in left.items() if name not in last}


@st.composite
def workflows(draw: st.DrawFn) -> tuple[dict[str, int], Links]:
    """Steps of others with any templates, and any links without a circle, which AWX refuses."""
    foreign = {f"f{index}": draw(st.sampled_from([1, 2, 3, 4, 7])) for index in range(draw(st.integers(0, 4)))}
    order = draw(st.permutations([*foreign, *OWN]))
    pairs = [(first, second) for first, second in itertools.combinations(order, 2)]
    links: Links = {}
    for first, second in draw(st.lists(st.sampled_from(pairs), max_size=8, unique=True)):
        links.setdefault(first, {}).setdefault(draw(st.sampled_from(PATHS)), []).append(second)
    return foreign, links


@given(workflows())
def test_no_way_leads_around_the_approval(drawn: tuple[dict[str, int], Links]) -> None:
    foreign, links = drawn
    plan = planned(rows(foreign, merged(links)))
    for each in plan.left:
        assert all(
            {*each[path]} < {*links[each["identifier"]].get(path, [])}
            or each[path] == links[each["identifier"]].get(path, [])
            for path in PATHS
        )
    names, after = applied(foreign, merged(links), plan)
    require_order(names, after)
    early = without_approval(names, after)
    assert not {name for name in early if {**OWN, **names}[name] in CHANGING}
    # Only what changes clusters is deleted, and each line of the report names one step.
    assert all(foreign[name] in CHANGING for name in plan.deleted)
    assert len(plan.kept) == len(names)
    again = planned(rows(names, merged(after)))
    assert (again.deleted, again.removed, again.kept) == ([], [], plan.kept)
    assert applied(names, merged(after), again)[1] == merged(after)
