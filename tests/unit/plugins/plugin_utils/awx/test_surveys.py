# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The surveys obey AWX's rules, ask only for variables that their playbooks read, and their answers are values that the roles accept."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.role_options import role_options
from ansible_collections.accel.gpu.plugins.module_utils.core.types import find_secrets
from ansible_collections.accel.gpu.plugins.plugin_utils.argument_specs import all_roles, role_variables, roles_of
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.operations import DEFAULT, OPERATIONS, REMOVES, STEPS
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.surveys import survey
from lab.awx.rules import answer_problems, survey_problems
from tests.programs import REPO

PLAYBOOKS = {path.stem: path.read_text(encoding="utf-8") for path in (REPO / "playbooks").glob("*.yml")}
# The playbooks without a job template: others import the first three, and the last one creates the job templates.
WITHOUT = {"kubeconfigs", "require_approval", "require_hosts", "require_pool", "awx"}
QUESTIONS = [
    (name, question) for name, operation in OPERATIONS.items() for question in survey(name, operation).get("spec", [])
]
IDS = [f"{name} {question['variable']}" for name, question in QUESTIONS]
# What the playbooks check themselves.
OF_PLAYBOOKS = {"gpu_pool": [], "gpu_node_count": 0}


def test_every_playbook_is_an_operation() -> None:
    assert set(PLAYBOOKS) - WITHOUT == set(OPERATIONS)


@pytest.mark.parametrize("name", OPERATIONS)
def test_awx_accepts_and_handles_the_survey(name: str) -> None:
    spec = survey(name, OPERATIONS[name])
    assert not spec or survey_problems(spec) == []
    assert json.loads(json.dumps(spec)) == spec, "AWX returns what was sent, so that a second run changes nothing"


def text_of_roles(playbook: str) -> str:
    """The playbook, the tasks and the variables of its roles, and of the roles that they depend on."""
    paths = [REPO / "roles" / role / part for role in (*roles_of(playbook), "pools") for part in ("tasks", "vars")]
    return PLAYBOOKS[playbook] + "".join(file.read_text() for path in paths for file in path.glob("*.yml"))


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_the_playbook_reads_the_answer(name: str, question: dict[str, Any]) -> None:
    variable = question["variable"]
    text = text_of_roles(name)
    if "require_pool.yml" in text:
        text += PLAYBOOKS["require_pool"]
    assert re.search(rf"\b{variable}\b", text)
    # A variable that the playbook sets has precedence over nothing: the answer would change what the operation is.
    assert not re.search(rf"^    {variable}:", PLAYBOOKS[name], re.MULTILINE)


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_the_question_describes_its_answer(name: str, question: dict[str, Any]) -> None:
    assert question["question_description"].endswith(".")
    assert not re.search(r"\b[CEMOPUV]\(", question["question_description"])
    assert question["question_name"]
    labels = [other["question_name"] for other in survey(name, OPERATIONS[name])["spec"]]
    assert labels.count(question["question_name"]) == 1


def answers(question: dict[str, Any]) -> list[Any]:
    """The default, the limits, and each choice."""
    if question["type"] == "multiplechoice":
        return list(question["choices"])
    if question["type"] == "integer":
        return [question["min"], question["max"], *([question["default"]] if question["default"] != "" else [])]
    return [question["default"]]


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_the_role_accepts_what_awx_accepts(name: str, question: dict[str, Any]) -> None:
    """The default of the survey is the role's own default, so that a job with an untouched survey does what the command line does."""
    variable = question["variable"]
    role = next((role for role in (*roles_of(name), *all_roles()) if variable in role_variables(role)), "")
    default = role_variables(role)[variable].get("default") if role else OF_PLAYBOOKS[variable]
    if role and role_variables(role)[variable].get("choices"):
        assert question["choices"] == role_variables(role)[variable]["choices"]
        assert question["default"] == default
        return
    for answer in answers(question):
        assert question["required"] or answer_problems(question, {variable: answer}) == []
        assert type(role_options({variable: answer}, {variable: default})[variable]) is type(default)
    if not question["required"]:
        assert role_options({variable: question["default"]}, {variable: default}) == {variable: default}
    assert role_options({variable: ""}, {variable: default}) == {variable: default}


def wrong_answers(question: dict[str, Any]) -> list[Any]:
    """Answers outside the limits and of other types."""
    if question["type"] == "multiplechoice":
        return ["", "maybe", True, None, question["choices"]]
    if question["type"] == "integer":
        return [question["min"] - 1, question["max"] + 1, str(question["min"]), 1.5, True, "", None]
    return ["x" * (question["max"] + 1), 5, True, None, *([""] if question["required"] else [])]


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_awx_refuses_wrong_answers(name: str, question: dict[str, Any]) -> None:
    variable = question["variable"]
    assert [answer for answer in wrong_answers(question) if not answer_problems(question, {variable: answer})] == []
    assert bool(answer_problems(question, {})) == question["required"]


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_the_role_refuses_wrong_texts_that_awx_accepts(name: str, question: dict[str, Any]) -> None:
    variable = question["variable"]
    role = next((role for role in (*roles_of(name), *all_roles()) if variable in role_variables(role)), "")
    default = role_variables(role)[variable].get("default") if role else OF_PLAYBOOKS[variable]
    wrong = {"list": [",", " , ", "\n,"], "dict": ["{broken", "[1]", "train=1", "{{ x }}", '"x"']}
    for text in wrong.get(type(default).__name__, []):
        assert answer_problems(question, {variable: text}) == []
        with pytest.raises(AnsibleFilterError, match=variable):
            role_options({variable: text}, {variable: default})


@pytest.mark.parametrize(("name", "question"), QUESTIONS, ids=IDS)
def test_no_question_asks_for_a_secret(name: str, question: dict[str, Any]) -> None:
    """The answer would stand in the job's files and in AWX's database in clear text."""
    assert question["type"] != "password"
    assert not list(find_secrets({question["variable"]: "Zq3vX8mK2pLw9RtY5bNc"}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"default": None}, "default is null"),
        ({"default": "5"}, "does not have the type integer"),
        ({"default": True}, "does not have the type integer"),
        ({"default": 99}, "dropped at launch"),
        ({"min": "0"}, "min is not an integer"),
        ({"required": "true"}, "required is not bool"),
        ({"variable": "a b"}, "not the name of a variable"),
        ({"type": "boolean"}, "type boolean is unknown"),
        ({"type": "multiselect", "choices": ["a"], "default": "a"}, "never reaches the job"),
        ({"type": "multiplechoice", "choices": "abc\nb", "default": "b"}, "not a list"),
        ({"type": "multiplechoice", "choices": ["abc"], "default": "b"}, "dropped at launch"),
        ({"type": "text", "default": "", "required": True, "min": 0}, "min must be at least 1"),
        ({"type": "password", "default": "x"}, "changed by every run"),
        ({"required": True}, "has a default"),
    ],
)
def test_the_checker_finds_what_awx_gets_wrong(change: dict[str, Any], problem: str) -> None:
    question = {
        "type": "integer",
        "question_name": "N",
        "variable": "n",
        "required": False,
        "min": 0,
        "max": 9,
        "default": 5,
    }
    assert survey_problems({"name": "", "description": "", "spec": [question]}) == []
    problems = survey_problems({"name": "", "description": "", "spec": [{**question, **change}]})
    assert problem in " ".join(problems)
    assert "asked twice" in survey_problems({"name": "", "description": "", "spec": [question, question]})[0]


def test_a_required_answer_must_not_be_empty() -> None:
    (pool, *_) = survey("scale", OPERATIONS["scale"])["spec"]
    assert pool["variable"] == "gpu_pool"
    assert answer_problems(pool, {})
    assert answer_problems(pool, {"gpu_pool": ""})
    assert not answer_problems(pool, {"gpu_pool": "train"})


def test_the_survey_of_a_workflow_asks_each_question_once() -> None:
    steps = STEPS
    spec = survey("rollout", *steps)
    assert survey_problems(spec) == []
    assert {question["variable"] for question in spec["spec"]} == {name for step in steps for name in step.questions}


def test_what_removes_something_is_not_offered_by_default() -> None:
    assert {name for name in OPERATIONS if OPERATIONS[name].effect == REMOVES} == set(OPERATIONS) - set(DEFAULT)
    for operation in OPERATIONS.values():
        assert operation.effect != REMOVES or "gpu_confirm" in operation.questions
        assert not (operation.scheduled and operation.effect == REMOVES)


def test_an_operation_that_only_reads_says_so() -> None:
    for name, operation in OPERATIONS.items():
        comment = PLAYBOOKS[name].partition("\n- ")[0]
        reads = "Changes nothing." in comment or "only read permissions" in " ".join(comment.replace("#", "").split())
        assert reads == (operation.effect == "reads"), name
        assert yaml.safe_load(PLAYBOOKS[name])
