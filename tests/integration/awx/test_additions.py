# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What others have added to the role's objects, with the real modules of awx.awx: each row of the table in the README of the role awx.

All additions are made at once, and check mode, a run and a second run follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.helpers.awx import HOOK, HOST, StandIn, stand_in
from tests.helpers.playbook import PlaybookRun

NODES = "workflow_job_template_nodes"
ROLLOUT = "workflow_job_templates/GPU rollout: the step"


def settings(running: StandIn) -> dict[str, Any]:
    return {
        "project": {"url": str(running.repository)},
        "execution_environment": {"image": "registry.example.com/accel-gpu:1"},
        "credentials": [{"name": "clusters", "type": "kubeconfig", "inputs": {"kubeconfig": "apiVersion: v1"}}],
        "operations": ["plan", "site", "report"],
        "approvers": {"teams": ["Owners"]},
        "notifications": [{"name": "hook", "type": "webhook", "configuration": HOOK, "events": ["error"]}],
    }


@dataclass(frozen=True)
class Played:
    """A stand-in with additions, and the runs after them."""

    running: StandIn
    checked: PlaybookRun
    applied: PlaybookRun
    again: PlaybookRun
    steps: dict[str, int]

    def links(self, step: str) -> dict[str, list[int]]:
        store = self.running.awx.store
        return {
            path: store.linked(NODES, self.steps[step], f"{path}_nodes") for path in ("success", "failure", "always")
        }


def add(running: StandIn) -> dict[str, int]:
    """Make all additions; return the ids of the steps."""
    store = running.awx.store
    organization, site = (
        running.named("organizations", "GPU clusters")["id"],
        running.named("job_templates", "GPU site")["id"],
    )
    workflow = running.named("workflow_job_templates", "GPU rollout")["id"]
    template = {
        "project": running.named("projects", "accel.gpu")["id"],
        "inventory": running.named("inventories", "GPU clusters")["id"],
    }
    mail = store.create("job_templates", {"name": "Mail", "playbook": "export.yml", **template})["id"]
    steps = {row["identifier"]: row["id"] for row in store.tables[NODES].values()}
    for identifier, number in (("mail", mail), ("second", site), ("before", mail)):
        body = {"identifier": identifier, "workflow_job_template": workflow, "unified_job_template": number}
        steps[identifier] = store.create(NODES, body)["id"]

    def link(first: str, path: str, second: str, **more: Any) -> None:
        store.link(NODES, steps[first], f"{path}_nodes", {"id": steps[second], **more})

    link("report", "success", "mail")
    link("before", "success", "site")
    link("approval", "success", "site", disassociate=True)
    link("approval", "failure", "site")
    store.change(NODES, steps["site"], {"extra_data": {"gpu_confirm": "true"}})
    kind = next(row["id"] for row in store.tables["credential_types"].values() if row["name"] == "OpenStack")
    cloud = store.create("credentials", {"name": "cloud", "organization": organization, "credential_type": kind})["id"]
    store.link("job_templates", site, "credentials", {"id": cloud})
    rule = "DTSTART:20260101T060000Z RRULE:FREQ=DAILY;INTERVAL=1"
    store.create("schedules", {"name": "night\x1b[31mly", "unified_job_template": site, "rrule": rule})
    store.create("schedules", {"name": "weekly", "unified_job_template": workflow, "rrule": rule, "enabled": False})
    chat = store.create(
        "notification_templates",
        {
            "name": "chat",
            "organization": organization,
            "notification_type": "webhook",
            "notification_configuration": HOOK,
        },
    )
    store.link("job_templates", site, "notification_templates_success", {"id": chat["id"]})
    ann, others = (
        store.create("users", {"username": "ann"})["id"],
        store.create("teams", {"name": "Others", "organization": organization})["id"],
    )
    store.members[store.role("job_templates", site, "execute")]["users"].append(ann)
    store.members[store.role("workflow_job_templates", workflow, "approval")]["teams"].append(others)
    opened = {
        "webhook_service": "github",
        "host_config_key": "key",
        "ask_credential_on_launch": True,
        "scm_branch": "other",
    }
    store.change("job_templates", site, opened)
    return steps


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with stand_in(tmp_path_factory.mktemp("awx")) as running:
        running.apply(settings(running)).require_success()
        steps, store = add(running), running.awx.store
        running.awx.changes.clear()
        checked = running.apply(settings(running), "--check").require_success()
        assert running.awx.changes == []
        applied = running.apply(settings(running)).require_success()
        steps |= {row["identifier"]: row["id"] for row in store.tables[NODES].values()}
        yield Played(running, checked, applied, running.apply(settings(running)).require_success(), steps)


pytestmark = pytest.mark.usual(150)


@pytest.mark.parametrize(
    "line",
    [
        f"{ROLLOUT} second (GPU site) changes clusters without an approval",
        f"{ROLLOUT} before (Mail) leads to site without an approval",
        f"{ROLLOUT} site has answers or prompts of its own",
    ],
)
def test_what_leads_around_the_approval_is_named_before_and_brought_back(played: Played, line: str) -> None:
    assert played.checked.shown(line)
    assert played.applied.shown(line)
    assert not played.again.shown(line)


@pytest.mark.parametrize(
    "line",
    [
        f"{ROLLOUT} mail (Mail) runs after the approval",
        f"{ROLLOUT} before (Mail) runs without an approval",
        "schedules/night\\u001b[31mly: runs job_templates/GPU site without an approval",
        "schedules/weekly: runs workflow_job_templates/GPU rollout, but is disabled",
        "job_templates/GPU site: the user ann may run it without an approval",
        "workflow_job_templates/GPU rollout: the team Others may approve",
    ],
)
def test_what_others_have_added_is_kept_and_listed(played: Played, line: str) -> None:
    for run in (played.checked, played.applied, played.again):
        assert run.shown(line), run.stderr
        assert run.stderr.count(line.rpartition(": ")[2]) == 1


def test_the_steps_after_a_run(played: Played) -> None:
    store, steps = played.running.awx.store, played.steps
    identifiers = {row["identifier"] for row in store.tables[NODES].values()}
    assert identifiers == {"plan", "approval", "site", "report", "mail", "before"}
    expected = {
        "plan": ["approval"],
        "approval": ["site"],
        "site": ["report"],
        "report": ["mail"],
        "mail": [],
        "before": [],
    }
    for name, following in expected.items():
        assert played.links(name) == {"success": [steps[other] for other in following], "failure": [], "always": []}, (
            name
        )
    assert store.row(NODES, steps["site"])["extra_data"] == {}


def test_credentials_notifications_and_ways_to_launch_are_brought_back(played: Played) -> None:
    store = played.running.awx.store
    site = played.running.named("job_templates", "GPU site")
    names = [
        store.row("credentials", number)["name"] for number in store.linked("job_templates", site["id"], "credentials")
    ]
    assert names == ["clusters"]
    assert store.linked("job_templates", site["id"], "notification_templates_success") == []
    assert (site["webhook_service"], site["host_config_key"], site["ask_credential_on_launch"], site["scm_branch"]) == (
        "",
        "",
        False,
        "",
    )


def test_members_and_schedules_stay(played: Played) -> None:
    store = played.running.awx.store
    names = [row["name"] for row in store.tables["schedules"].values()]
    assert names == ["night\x1b[31mly", "weekly"]
    site = played.running.named("job_templates", "GPU site")["id"]
    users = store.members[store.role("job_templates", site, "execute")]["users"]
    assert [store.row("users", number)["username"] for number in users] == ["ann"]


def test_a_second_run_changes_nothing(played: Played) -> None:
    assert played.again.changed(HOST) == 0, [
        name for name, result in played.again.results(HOST) if result.get("changed")
    ]
    assert played.checked.changed(HOST) > 0
