# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook awx against the stand-in, with the real modules of awx.awx: predicted, created, unchanged, brought back, and left alone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.plugin_utils.awx.objects import KINDS, desired_objects
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.settings import read_settings
from lab.awx.store import KINDS as STORED
from tests.helpers.awx import HOOK, HOST, StandIn, stand_in
from tests.helpers.playbook import PlaybookRun

SECRET = "apiVersion: v1 # kubeconfig-of-the-test"


def settings(running: StandIn) -> dict[str, Any]:
    """One object of each kind, and the workflow."""
    return {
        "project": {"url": str(running.repository)},
        "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
        "inventory": {"sources": [{"name": "clusters", "path": "inventory/hosts.yml"}]},
        "credentials": [{"name": "clusters", "type": "kubeconfig", "inputs": {"kubeconfig": SECRET}}],
        "operations": ["plan", "site", "report", "scale"],
        "operators": {"teams": ["Operators"]},
        "approvers": {"teams": ["Owners"]},
        "schedules": {"report": {"start": "2026-01-01 06:00", "timezone": "Europe/Zurich"}},
        "notifications": [{"name": "hook", "type": "webhook", "configuration": HOOK}],
    }


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIn]:
    with stand_in(tmp_path_factory.mktemp("awx")) as started:
        yield started


@pytest.fixture(scope="module")
def created(running: StandIn) -> tuple[StandIn, PlaybookRun, PlaybookRun]:
    """The stand-in after the first run, the result of check mode before it, and that of the run."""
    checked = running.apply(settings(running), "--check").require_success()
    assert running.awx.changes == [], "check mode sends no change"
    return running, checked, running.apply(settings(running)).require_success()


def state(running: StandIn) -> Any:
    store = running.awx.store
    # The stand-in numbers the roles of an object when it is first read.
    members = {number: people for number, people in store.members.items() if any(people.values())}
    return copy.deepcopy((store.tables, store.links, store.surveys, members))


def changed_items(played: PlaybookRun) -> set[str]:
    """The names of the objects that a run has changed or would change, as KIND/NAME without the kind."""
    labels = set()
    for _name, result in played.results(HOST):
        for item in result.get("results", []):
            # The items of a task with no_log are censored.
            if item.get("changed") and "item" in item:
                value = item["item"]
                labels.add(
                    value.partition("/")[2]
                    if isinstance(value, str)
                    else str(value.get("name") or value.get("identifier") or value.get("role"))
                )
    return labels


@pytest.mark.usual(150)
def test_everything_is_created_and_check_mode_predicts_it(created: tuple[StandIn, PlaybookRun, PlaybookRun]) -> None:
    running, checked, applied = created
    for item in desired_objects(read_settings(settings(running))):
        row = running.named(item.kind, item.name)
        assert row["description"] == item.description
    # The steps of a workflow that does not exist are part of it. Secrets are censored in the result of a task with no_log.
    assert changed_items(applied) - {"plan", "approval", "site", "report"} <= changed_items(checked)
    assert (
        running.awx.store.survey(running.named("job_templates", "GPU scale")["id"])["spec"][0]["variable"] == "gpu_pool"
    )


def stored(running: StandIn) -> dict[str, Any]:
    """The fields of each marked object and of each step, with names in place of ids."""
    store = running.awx.store
    names = {
        number: row.get("name") or row.get("identifier") or row.get("username")
        for rows in store.tables.values()
        for number, row in rows.items()
    }
    objects: dict[str, Any] = {}
    for kind in (*KINDS, "workflow_job_template_nodes"):
        for number, row in store.tables[kind].items():
            if row.get("managed") or (
                kind != "workflow_job_template_nodes" and "Managed by accel.gpu.awx" not in row["description"]
            ):
                continue
            named = {*STORED[kind].references, "organization", "unified_job_template"}
            fields = {name: names.get(value, value) if name in named else value for name, value in row.items()}
            links = {
                name: sorted(str(names[each]) for each in store.links.get((kind, number, name), ()))
                for name in STORED[kind].links
            }
            objects[f"{kind}/{names[number]}"] = {**fields, **links, "id": 0, "survey": store.surveys.get(number)}
    return objects


@pytest.mark.usual(150)
def test_the_tests_of_jobs_have_the_same_objects(
    created: tuple[StandIn, PlaybookRun, PlaybookRun], tmp_path: Path
) -> None:
    """They do not run the role, which takes a minute."""
    running = created[0]
    with stand_in(tmp_path) as other:
        other.fill(settings(running))
        actual, expected = stored(other), stored(running)
        assert actual.keys() == expected.keys()
        assert {
            (name, key, str(actual[name][key]), str(fields[key]))
            for name, fields in expected.items()
            for key in fields
            if actual[name][key] != fields[key]
        } == set()


@pytest.mark.usual(150)
def test_a_second_run_changes_nothing(created: tuple[StandIn, PlaybookRun, PlaybookRun]) -> None:
    running = created[0]
    before = state(running)
    running.awx.changes.clear()
    for arguments in ([], ["--check"]):
        again = running.apply(settings(running), *arguments).require_success()
        assert again.changed(HOST) == 0, changed_items(again)
        assert running.awx.changes == []
    assert state(running) == before


@pytest.mark.usual(150)
def test_what_was_changed_by_hand_is_brought_back(created: tuple[StandIn, PlaybookRun, PlaybookRun]) -> None:
    running = created[0]
    store, before = running.awx.store, state(running)
    site, report = running.named("job_templates", "GPU site"), running.named("job_templates", "GPU report")
    workflow = running.named("workflow_job_templates", "GPU rollout")
    steps = {row["identifier"]: row for row in store.tables["workflow_job_template_nodes"].values()}
    store.change(
        "job_templates",
        site["id"],
        {"limit": "prod", "extra_vars": '{"gpu_operator_allow_driver_rollout": true}', "ask_variables_on_launch": True},
    )
    store.set_survey(
        report["id"],
        {
            "name": "",
            "description": "",
            "spec": [{"type": "text", "question_name": "x", "variable": "x", "required": False, "max": 9}],
        },
    )
    store.change("projects", running.named("projects", "accel.gpu")["id"], {"scm_branch": "other"})
    store.change("schedules", running.named("schedules", "GPU report daily")["id"], {"enabled": False})
    # Somebody has led the workflow around the approval.
    store.link("workflow_job_template_nodes", steps["plan"]["id"], "success_nodes", {"id": steps["site"]["id"]})
    store.link(
        "workflow_job_template_nodes",
        steps["plan"]["id"],
        "success_nodes",
        {"id": steps["approval"]["id"], "disassociate": True},
    )
    store.delete("job_templates", running.named("job_templates", "GPU scale")["id"])
    # Somebody has added a credential.
    kind = running.named("credential_types", "VMware vCenter")["id"]
    stray = store.create("credentials", {"name": "stray", "credential_type": kind})["id"]
    store.link("job_templates", report["id"], "credentials", {"id": stray})
    store.change("workflow_job_templates", workflow["id"], {"allow_simultaneous": True})
    edited = state(running)
    checked = running.apply(settings(running), "--check").require_success()
    assert state(running) == edited
    applied = running.apply(settings(running)).require_success()
    assert changed_items(checked) == changed_items(applied)
    assert {
        "GPU site",
        "GPU report",
        "accel.gpu",
        "GPU report daily",
        "plan",
        "GPU scale",
        "GPU rollout",
    } <= changed_items(applied)
    tables, _links, surveys, _members = before
    for kind in KINDS:
        for row in tables[kind].values():
            if row.get("name") != "GPU scale":
                assert store.row(kind, row["id"]) == row
    assert surveys[report["id"]] == store.survey(report["id"])
    assert store.linked("workflow_job_template_nodes", steps["plan"]["id"], "success_nodes") == [
        steps["approval"]["id"]
    ]
    assert running.named("job_templates", "GPU scale")["description"]
    assert stray not in store.linked("job_templates", report["id"], "credentials")


@pytest.mark.usual(120)
def test_objects_of_others_are_left_alone(tmp_path: Path) -> None:
    """The names are taken: a job template of the workflow, and the organization, which is used."""
    with stand_in(tmp_path) as running:
        store = running.awx.store
        organization = store.create("organizations", {"name": "GPU clusters", "description": "Ann's."})["id"]
        environment = store.create(
            "execution_environments", {"name": "accel.gpu", "image": "ann/image:1", "organization": organization}
        )["id"]
        project = store.create(
            "projects",
            {"name": "other", "organization": organization, "scm_type": "git", "scm_url": str(running.repository)},
        )
        running.awx.runs.update_project(project)
        inventory = store.create("inventories", {"name": "other", "organization": organization})["id"]
        foreign = store.create(
            "job_templates",
            {"name": "GPU site", "project": project["id"], "inventory": inventory, "playbook": "export.yml"},
        )
        kept = [
            copy.deepcopy(row)
            for row in (
                store.row("organizations", organization),
                store.row("execution_environments", environment),
                foreign,
            )
        ]
        small = {
            key: value
            for key, value in settings(running).items()
            if key not in ("notifications", "schedules", "operators")
        }
        played = running.apply(small).require_success()
        assert [
            store.row("organizations", organization),
            store.row("execution_environments", environment),
            store.row("job_templates", foreign["id"]),
        ] == kept
        assert played.shown("job_templates/GPU site: belongs to somebody else")
        assert played.shown(
            "workflow_job_templates/GPU rollout: needs job_templates/GPU site, which this run leaves alone"
        )
        assert store.tables["workflow_job_templates"] == {}
        assert running.named("job_templates", "GPU plan")["organization"] == organization
        # Nobody gets rights on the template of somebody else.
        assert not any(
            members["teams"]
            for number, members in store.members.items()
            if number == store.role("job_templates", foreign["id"], "execute")
        )


def test_nothing_is_changed_if_something_is_missing(tmp_path: Path) -> None:
    with stand_in(tmp_path) as running:
        played = running.apply({**settings(running), "credentials": [{"name": "cloud", "type": "openstack"}]})
        assert played.rc
        assert "credentials/cloud: does not exist" in played.failure(HOST)
        assert running.awx.changes == []


def test_secrets_do_not_reach_the_output(created: tuple[StandIn, PlaybookRun, PlaybookRun]) -> None:
    running, checked, applied = created
    for played in (checked, applied):
        assert "kubeconfig-of-the-test" not in played.stdout + played.stderr
    number = running.named("credentials", "clusters")["id"]
    assert running.awx.store.row("credentials", number)["inputs"] == {"kubeconfig": SECRET}
    assert running.request("GET", f"credentials/{number}/")[1]["inputs"] == {"kubeconfig": "$encrypted$"}
