# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for AWX accepts and answers what AWX's published API describes (tests/helpers/awx_contract.json)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.awx.runs import PROMPTED, RUNS
from lab.awx.server import Awx
from lab.awx.store import KINDS
from tests.helpers.awx import StandIn, stand_in
from tests.helpers.awx_contract import Exchange, contract, field_problem, fields, problems

QUESTION = {"type": "text", "question_name": "x", "variable": "x", "required": True, "min": 1, "max": 9}
SURVEY = {"name": "", "description": "", "spec": [QUESTION]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_fields_of_a_kind(kind: str) -> None:
    definition, described = KINDS[kind], contract()["kinds"][kind]
    writable = described["writable"]
    assert definition.fields.keys() <= writable.keys()
    assert {*definition.ignored, *definition.read_only} <= {*described["read_only"], "type"}
    # awx.awx always sends these, and AWX itself has a default for the others.
    assert {name for name, field in writable.items() if field.get("required")} <= {*definition.required}
    for name, default in definition.fields.items():
        if name not in definition.required and default is not None:
            assert field_problem(writable[name], default) == "", name
        if name in definition.references:
            # The second description does not distinguish ids from other integers.
            assert writable[name]["type"] in ("id", "integer"), name


def test_every_kind_of_run_is_described() -> None:
    assert RUNS.keys() <= contract()["kinds"].keys()
    assert PROMPTED.keys() <= contract()["bodies"]["POST job_templates/{id}/launch"].keys()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    """A stand-in with a project, a job template with a survey, and a workflow whose only step is an approval."""
    with stand_in(tmp_path_factory.mktemp("awx")) as started:
        send = started.request
        (started.repository / "nothing.yml").write_text("- hosts: all\n  gather_facts: false\n  tasks: []\n")
        started.commit()
        assert send("POST", "organizations/", {"name": "o"})[0] == 201
        numbers = {"organization": started.named("organizations", "o")["id"]}
        project = {"name": "p", "scm_type": "git", "scm_url": str(started.repository), **numbers}
        assert send("POST", "projects/", project)[0] == 201
        assert send("POST", "inventories/", {"name": "i", **numbers})[0] == 201
        template = {
            "name": "t",
            "playbook": "nothing.yml",
            "project": started.named("projects", "p")["id"],
            "inventory": started.named("inventories", "i")["id"],
            "survey_enabled": True,
        }
        assert send("POST", "job_templates/", template)[0] == 201
        assert send("POST", "workflow_job_templates/", {"name": "w", **numbers})[0] == 201
        yield started


# A request, its body, the status, and the keys of the answer; numbers are those of named objects.
REQUESTS: list[tuple[str, Any, int, set[str]]] = [
    ("GET organizations/", None, 200, {"count", "next", "previous", "results"}),
    ("GET organizations/?nothing=1", None, 400, {"detail"}),
    ("GET organizations/?name__in=", None, 400, {"detail"}),
    ("GET organizations/99999/", None, 404, {"detail"}),
    ("GET nothing/", None, 404, {"detail"}),
    ("PUT organizations/{o}/", {"name": "o"}, 405, {"detail"}),
    ("POST organizations/", {}, 400, {"name"}),
    ("POST organizations/", {"name": "o"}, 400, {"__all__"}),
    ("POST organizations/", {"name": "n" * 513}, 400, {"name"}),
    ("POST projects/", {"name": "q", "organization": 99999}, 400, {"organization"}),
    ("PATCH job_templates/{t}/", {"verbosity": "loud"}, 400, {"verbosity"}),
    ("PATCH job_templates/{t}/", {"job_type": "scan"}, 400, {"job_type"}),
    ("PATCH job_templates/{t}/", {"forks": -1}, 400, {"forks"}),
    ("PATCH job_templates/{t}/", {"allow_simultaneous": "often"}, 400, {"allow_simultaneous"}),
    ("POST job_templates/{t}/survey_spec/", {"name": "", "description": "", "spec": []}, 400, {"error"}),
    ("POST job_templates/{t}/survey_spec/", SURVEY, 200, set()),
    ("GET job_templates/{t}/survey_spec/", None, 200, {"name", "description", "spec"}),
    ("POST job_templates/{t}/launch/", {}, 400, {"variables_needed_to_start"}),
    ("POST job_templates/{t}/launch/", {"extra_vars": {"x": "1"}}, 201, {"job", "ignored_fields", "id", "status", "type"}),
    ("POST job_templates/{t}/credentials/", {"id": 99999}, 404, {"detail"}),
    ("POST schedules/", {"name": "s", "unified_job_template": "{t}", "rrule": "FREQ=DAILY"}, 400, {"rrule"}),
    ("POST workflow_job_template_nodes/", {"workflow_job_template": "{w}", "identifier": "a"}, 201, {"id", "identifier", "success_nodes"}),
    ("POST workflow_job_template_nodes/", {"workflow_job_template": "{w}", "identifier": "a"}, 400, {"__all__"}),
    ("POST workflow_job_template_nodes/{a}/create_approval_template/", {"name": "go", "timeout": 0}, 201, {"id", "name", "timeout"}),
    ("POST workflow_job_template_nodes/{a}/success_nodes/", {"id": "{a}"}, 400, {"Error"}),
    ("POST workflow_job_templates/{w}/launch/", {}, 201, {"workflow_job", "id", "ignored_fields"}),
    ("GET workflow_jobs/{workflow_job}/workflow_nodes/", None, 200, {"count", "next", "previous", "results"}),
    ("POST workflow_approvals/{approval}/approve/", {}, 204, set()),
    ("POST workflow_approvals/{approval}/deny/", {}, 400, {"error"}),
    ("POST jobs/{job}/relaunch/", {}, 201, {"id", "status"}),
    ("POST jobs/{job}/cancel/", {}, 405, {"detail"}),
    ("POST projects/{p}/update/", {}, 202, {"id", "project", "status"}),
    ("DELETE job_templates/{t}/survey_spec/", None, 200, set()),
    ("DELETE schedules/99999/", None, 404, {"detail"}),
    ("DELETE workflow_job_template_nodes/{a}/", None, 204, set()),
]  # fmt: skip


@pytest.mark.usual(10)
def test_requests(running: StandIn) -> None:
    """In this order, because some requests need what others have created."""
    runs, numbers = running.awx.runs, dict[str, int]()

    def number(name: str) -> int:
        if name == "approval":
            return int(runs.wait_for(lambda: next(iter(runs.rows["workflow_approvals"].values()), None), 10)["id"])
        if name in ("job", "workflow_job"):
            row = next(iter(runs.rows[f"{name}s"].values()))
            return int(row["id"] if name == "workflow_job" else runs.wait(row, 60)["id"])
        if name == "a":
            return next(iter(running.awx.store.tables["workflow_job_template_nodes"]))
        kinds = {"o": "organizations", "p": "projects", "t": "job_templates", "w": "workflow_job_templates"}
        return int(running.named(kinds[name], name)["id"])

    def filled(text: str) -> str:
        for name in re.findall(r"\{(\w+)\}", text):
            if name not in numbers:
                numbers[name] = number(name)
        return text.format(**numbers)

    for line, body, status, keys in REQUESTS:
        method, _, path = line.partition(" ")
        body = (
            {
                key: int(filled(value)) if isinstance(value, str) and value.startswith("{") else value
                for key, value in body.items()
            }
            if body
            else body
        )
        actual, answer = running.request(method, filled(path), body)
        assert (line, actual) == (line, status), answer
        assert keys <= (answer or {}).keys(), line
        exchange = Exchange(method, f"/api/v2/{filled(path)}", body, actual, answer)
        assert problems(exchange) == [], line


def test_an_error_of_the_stand_in_is_noticed() -> None:
    row = {"id": 1, "type": "team", "url": "/api/v2/teams/1/", "name": "a", "color": "red"}
    cases = [
        (Exchange("POST", "/api/v2/teams/", {"name": "a", "organization": 1}, 201, row), "teams have no field color"),
        (
            Exchange("POST", "/api/v2/teams/", {"name": "a", "organization": 1}, 200, {}),
            "the status is 200 instead of [201]",
        ),
        (Exchange("POST", "/api/v2/teams/", {"name": "a"}, 201, {}), "the field organization is required"),
        (
            Exchange("POST", "/api/v2/teams/", {"name": "a", "organization": 1, "color": "red"}, 201, {}),
            "the field color does not exist",
        ),
        (Exchange("PATCH", "/api/v2/teams/1/", {"name": 1}, 200, {}), "1 is not of the type string"),
        (Exchange("PATCH", "/api/v2/job_templates/1/", {"job_type": "scan"}, 200, {}), "'scan' is not one of"),
        (Exchange("PATCH", "/api/v2/teams/1/", {"name": "n" * 513}, 200, {}), "more than 512"),
        (Exchange("GET", "/api/v2/teams/?color=red", None, 200, {"results": []}), "the filter color names no field"),
        (Exchange("GET", "/api/v2/teams/", None, 200, {"results": []}), "the page has the key"),
        (Exchange("GET", "/api/v2/teams/1/", None, 404, {"error": "x"}), "does not have the form of AWX"),
        (Exchange("GET", "/api/v2/colors/", None, 200, {}), "AWX has no such request"),
        (Exchange("DELETE", "/api/v2/teams/1/", None, 204, {}), "an answer without content has content"),
        (Exchange("POST", "/api/v2/roles/1/users/", {"name": "x"}, 204, None), "the field name does not exist"),
    ]
    for exchange, expected in cases:
        assert any(expected in line for line in problems(exchange)), expected
    assert "color" not in fields("teams")


def test_the_stand_in_serves_only_described_requests(tmp_path: Path) -> None:
    described = {request.split("/")[0].split(" ")[1] for request in contract()["requests"]}
    assert {*KINDS, *RUNS} - {"workflow_approval_templates"} <= described
    assert Awx(tmp_path).store.tables.keys() == KINDS.keys()
