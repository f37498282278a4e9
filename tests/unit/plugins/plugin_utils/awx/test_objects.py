# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects that settings describe obey AWX's rules; settings are refused whole; objects of others are left alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.accel.gpu.plugins.filter.awx_objects import awx_objects
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.credential_types import ALTERNATIVES, CREDENTIAL_TYPES
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.objects import KINDS, desired_objects, is_marked
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.operations import ACCESS, DEFAULT, OPERATIONS
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.settings import SETTINGS, read_settings
from lab.awx.rules import credential_type_problems, schedule_problems, survey_problems
from lab.awx.store import KINDS as STORED
from tests.programs import REPO

MARK = "Managed by accel.gpu.awx for GPU clusters: "
PROJECT = {"url": "https://git.example.com/gpu.git"}
IMAGE = {"image": "registry.example.com/accel-gpu:1"}
SMALL: dict[str, Any] = {"project": PROJECT, "execution_environment": IMAGE}
PEOPLE = {"operators": {"teams": ["Operators"]}, "approvers": {"teams": ["Owners"], "users": ["ann"]}}
LARGE: dict[str, Any] = {
    **SMALL,
    **PEOPLE,
    "operations": list(OPERATIONS),
    "credentials": [
        {"name": kind, "type": kind, "inputs": {field["id"]: "x" for field in CREDENTIAL_TYPES[kind].inputs}}
        for kind in CREDENTIAL_TYPES
        if kind not in dict(ALTERNATIVES)
    ],
    "inventory": {"sources": [{"name": "fleet", "path": "inventory/magnum.clusters.yml", "credential": "clouds"}]},
    "schedules": {name: {"start": "2026-01-01 06:00"} for name in OPERATIONS if OPERATIONS[name].scheduled},
    "notifications": [
        {"name": "hook", "type": "webhook", "configuration": {"url": "https://hook.example.com", "headers": {}}}
    ],
}


def existing(settings: dict[str, Any], *, marked: bool = True) -> dict[str, list[dict[str, Any]]]:
    """What AWX contains after a run with these settings."""
    rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for item in desired_objects(read_settings(settings)):
        above = (
            {"inventory": {"name": item.parent}, "unified_job_template": {"name": item.parent}} if item.parent else {}
        )
        organization = {} if item.kind == "credential_types" else {"organization": {"name": "GPU clusters"}}
        description = item.description if marked else "Somebody's."
        rows[item.kind].append(
            {"name": item.name, "description": description, "summary_fields": {**organization, **above}}
        )
    return rows


@pytest.mark.parametrize("settings", [SMALL, LARGE], ids=["small", "large"])
def test_the_objects_obey_awx(settings: dict[str, Any]) -> None:
    objects = desired_objects(read_settings(settings))
    keys = [item.key for item in objects]
    assert len(set(keys)) == len(keys)
    assert [KINDS.index(item.kind) for item in objects] == sorted(KINDS.index(item.kind) for item in objects)
    for item in objects:
        assert all(keys.index(need) < keys.index(item.key) for need in item.needs), item
        if item.kind == "credential_types":
            assert credential_type_problems(**item.options) == []
        if item.options.get("survey_spec"):
            assert survey_problems(item.options["survey_spec"]) == []
        if item.kind == "schedules":
            assert schedule_problems(item.options["rrule"]) == []


def test_a_job_template_has_at_most_one_credential_of_a_type() -> None:
    for item in desired_objects(read_settings(LARGE)):
        if item.kind == "job_templates":
            operation = OPERATIONS[item.options["playbook"].removesuffix(".yml")]
            assert item.options["credentials"] == [
                entry["name"] for entry in LARGE["credentials"] if entry["type"] in operation.credential_types
            ]


def test_a_credential_may_be_for_some_operations() -> None:
    """Reports get one that may only read."""
    credentials: list[dict[str, Any]] = [
        {"name": "reads", "type": "kubeconfig", "operations": ["plan", "report"]},
        {"name": "changes", "type": "kubeconfig", "operations": ["site"]},
        {"name": "cloud", "type": "vks"},
    ]
    settings = read_settings({**SMALL, "operations": ["plan", "site", "report"], "credentials": credentials})
    given = {
        item.name: item.options["credentials"] for item in desired_objects(settings) if item.kind == "job_templates"
    }
    assert given == {
        "GPU plan": ["reads", "cloud"],
        "GPU site": ["changes", "cloud"],
        "GPU report": ["reads", "cloud"],
    }
    credentials[1]["operations"] = ["site", "report"]
    with pytest.raises(
        AnsibleFilterError, match="the operations report get several credentials of the type kubeconfig"
    ):
        awx_objects({**SMALL, "credentials": credentials})


@pytest.mark.parametrize(("sent", "lines"), [(False, ["credentials/kubeconfig"]), (True, [])])
def test_contents_that_are_not_sent_again_are_named(sent: bool, lines: list[str]) -> None:
    credentials = [{"name": "kubeconfig", "type": "kubeconfig", "inputs": {"kubeconfig": "x"}}]
    settings = {**SMALL, "credentials": credentials, "update_secrets": sent}
    assert awx_objects(settings)["unsent"] == []
    assert awx_objects(settings, existing(settings))["unsent"] == lines


def test_the_role_passes_every_option_to_its_module() -> None:
    """Otherwise, a new option would be described here and have no effect."""
    files = sorted((REPO / "roles" / "awx" / "tasks").glob("*.yml"))
    tasks = [task for path in files for task in yaml.safe_load(path.read_text(encoding="utf-8"))]
    # The tasks of steps.yml get the workflow in this variable.
    marks = {kind: (f"__awx_apply.{kind} ",) for kind in KINDS} | {
        "workflow_job_templates": ("__awx_apply.workflow_job_templates ", "__awx_workflow.")
    }
    for item in desired_objects(read_settings({**LARGE, "galaxy_credentials": ["galaxy"]})):
        texts = [str(task) for task in tasks if any(mark in str(task) for mark in marks[item.kind])]
        read = {name for text in texts for name in re.findall(r"\.options\.(\w+)", text)}
        assert item.exists or read >= item.options.keys(), item.kind


def test_every_credential_type_is_used_by_an_operation() -> None:
    used = {*ACCESS, *(kind for operation in OPERATIONS.values() for kind in operation.credentials)}
    assert used == set(CREDENTIAL_TYPES)


@pytest.mark.parametrize("kind", [kind for kind in CREDENTIAL_TYPES if CREDENTIAL_TYPES[kind].is_custom])
def test_the_collection_reads_the_environment_of_a_credential(kind: str) -> None:
    custom = CREDENTIAL_TYPES[kind]
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("module_utils", "doc_fragments", "modules")
        for path in (REPO / "plugins" / folder).rglob("*.py")
    )
    for name in custom.injectors["env"]:
        # openstacksdk itself reads this variable.
        assert name == "OS_CLIENT_CONFIG_FILE" or re.search(rf"\b{name}\b", code), name
    templates = str(custom.injectors)
    assert all(field["id"] in templates for field in custom.inputs)


def test_the_default_operations_remove_nothing() -> None:
    names = [item.name for item in desired_objects(read_settings(SMALL)) if item.kind == "job_templates"]
    assert names == [f"GPU {OPERATIONS[name].title}" for name in DEFAULT]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"project": None}, "gpu_awx.project: is missing; set project.url"),
        ({"projct": PROJECT}, "did you mean project?"),
        ({"slices": "many"}, 'gpu_awx.slices: "many" is a string'),
        ({"slices": 0}, "the minimum is 1"),
        ({"organization": "12"}, "takes for an ID"),
        ({"organization": "a++b"}, "have a meaning in requests"),
        ({"operations": ["sit"]}, "did you mean site?"),
        ({"operations": ["site", "site"]}, '"site" is declared 2 times'),
        ({"operations": ["site"], **PEOPLE}, "the workflow needs the operations plan and report"),
        ({"operations": ["site"], "schedules": {"report": {"start": "2026-01-01 06:00"}}}, "has no job template"),
        ({"schedules": {"site": {"start": "2026-01-01 06:00"}}}, "nobody would approve its changes"),
        ({"schedules": {"report": {"start": "tomorrow"}}}, "YYYY-MM-DD HH:MM"),
        ({"schedules": {"report": {"start": "2026-01-01 06:00", "timezone": "CEST"}}}, "not the name of a time zone"),
        ({"credentials": [{"name": "a", "type": "vks"}, {"name": "b", "type": "vks"}]}, "one credential of a type"),
        (
            {"credentials": [{"name": "a", "type": "clouds"}, {"name": "b", "type": "openstack"}]},
            "the types openstack and clouds, but a job reads only",
        ),
        (
            {"credentials": [{"name": "a", "type": "kubernetes"}, {"name": "b", "type": "kubeconfig"}]},
            "Keep kubeconfig",
        ),
        ({"credentials": [{"name": "a", "type": "vks", "inputs": {"key": "s3cret"}}]}, "inputs.key: is not an input"),
        ({"credentials": [{"name": "a", "type": "kubeconfig", "inputs": {}}]}, "inputs.kubeconfig: is missing"),
        ({"credentials": [{"name": "a", "type": "kubeconfg"}]}, "did you mean kubeconfig?"),
        ({"project": {"branch": "main"}}, "gpu_awx.project.url: is missing"),
    ],
)
def test_settings_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        awx_objects({**SMALL, **change})
    assert problem in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        awx_objects({"slices": 0, "forks": 0, "organisation": "x"})
    assert len(str(caught.value).splitlines()) == 5


def test_strings_are_converted() -> None:
    settings = read_settings({**SMALL, "slices": "5", "operations": "plan, site", "operators": {"teams": "a\nb"}})
    assert (settings["slices"], settings["operations"], settings["operators"]["teams"]) == (
        5,
        ["plan", "site"],
        ["a", "b"],
    )


def test_a_second_run_creates_nothing() -> None:
    plan = awx_objects(LARGE, existing(LARGE))
    assert (plan["creates"], plan["waiting"], plan["left_alone"], plan["missing"], plan["undeclared"]) == (
        [],
        [],
        [],
        [],
        [],
    )


def test_check_mode_asks_awx_only_about_objects_whose_needs_exist() -> None:
    empty, checked = awx_objects(LARGE), awx_objects(LARGE, check_mode=True)
    assert [row["name"] for row in checked["apply"]["organizations"]] == ["GPU clusters"]
    assert not checked["apply"]["job_templates"]
    assert not checked["grants"]
    names = {f"{kind}/{row['name']}" for kind, rows in empty["apply"].items() for row in rows}
    shown = {f"{kind}/{row['name']}" for kind, rows in checked["apply"].items() for row in rows}
    assert shown | set(checked["waiting"]) >= names
    assert checked["creates"] == empty["creates"]


def test_objects_of_others_are_left_alone() -> None:
    plan = awx_objects(LARGE, existing(LARGE, marked=False))
    assert not any(plan["apply"].values())
    assert len(plan["left_alone"]) == sum(map(len, plan["names"].values()))
    assert not plan["grants"]


@pytest.mark.parametrize(
    ("kind", "name", "held"),
    [
        ("organizations", "GPU clusters", False),
        ("execution_environments", "accel.gpu", False),
        ("teams", "Owners", False),
        ("projects", "accel.gpu", True),
        ("job_templates", "GPU site", True),
        ("credential_types", "accel.gpu VNG Cloud", True),
    ],
)
def test_what_decides_what_a_job_runs_must_not_belong_to_somebody_else(kind: str, name: str, held: bool) -> None:
    rows = existing(LARGE)
    for row in rows[kind]:
        if row["name"] == name:
            row["description"] = "Somebody's."
    plan = awx_objects(LARGE, rows)
    assert f"{kind}/{name}: belongs to somebody else" in plan["left_alone"][0]
    assert ("workflow_job_templates/GPU rollout" in "\n".join(plan["left_alone"])) == held
    assert plan["creates"] == []


@pytest.mark.parametrize(
    ("description", "marked"),
    [
        (f"Reports. {MARK}job_templates/GPU report", True),
        (f"{MARK}job_templates/GPU report\n", True),
        ("Reports.", False),
        # A copy has the description of the original.
        (f"{MARK}job_templates/GPU site", False),
        (f"{MARK}job_templates/GPU report, changed by Ann", False),
        (f"{MARK}projects/GPU report", False),
    ],
)
def test_a_mark_names_its_own_object(description: str, marked: bool) -> None:
    assert is_marked("job_templates", "GPU report", "GPU clusters", description) == marked


def test_two_organizations_share_an_awx() -> None:
    """The second one uses the execution environment and the credential types of the first, changes nothing of it, and calls nothing of it a leftover."""
    first = {**LARGE, "credentials": [], "notifications": [], "inventory": {"name": "A"}}
    second = {**first, "organization": "B", "inventory": {"name": "B"}}
    plan = awx_objects(second, existing(first))
    assert plan["apply"]["execution_environments"] == []
    assert [line.partition(":")[0] for line in plan["left_alone"]] == ["execution_environments/accel.gpu"]
    assert (plan["missing"], plan["undeclared"]) == ([], [])
    assert {item["name"] for item in plan["apply"]["job_templates"]} == {
        f"GPU {name.replace('_', ' ')}" for name in OPERATIONS
    }
    # awx.awx finds an inventory only by its name.
    (line,) = awx_objects({**second, "inventory": {"name": "A"}}, existing(first))["missing"]
    assert line.startswith("inventories/A: another owner has one with this name")


def test_an_object_of_another_organization_is_another_object() -> None:
    rows = existing(SMALL, marked=False)
    for row in rows["job_templates"]:
        row["summary_fields"]["organization"]["name"] = "Elsewhere"
    assert "job_templates" in awx_objects(SMALL, {**existing(SMALL), "job_templates": rows["job_templates"]})["creates"]


def test_what_is_no_longer_declared_stays_and_is_named() -> None:
    plan = awx_objects({**SMALL, "operations": ["plan"]}, existing({**SMALL, "operations": ["plan", "export"]}))
    assert plan["undeclared"] == ["job_templates/GPU export"]


def test_a_credential_that_is_only_named_must_exist() -> None:
    settings = {**SMALL, "credentials": [{"name": "cloud", "type": "openstack"}]}
    assert awx_objects(settings)["missing"] == [
        "credentials/cloud: does not exist; create it in AWX, or declare its contents in gpu_awx"
    ]
    assert awx_objects(settings, {"credentials": [{"name": "cloud", "description": "Ann's"}]})["missing"] == []


def test_nobody_but_approvers_applies_a_change_that_nobody_has_approved() -> None:
    grants = awx_objects(LARGE)["grants"]
    (operators,) = [grant for grant in grants if grant["teams"] == ["Operators"]]
    assert operators["workflows"] == ["GPU rollout"]
    assert not {"GPU site", "GPU uninstall", "GPU scale"} & set(operators["job_templates"])
    assert {grant["role"] for grant in grants if grant["users"] == ["ann"]} == {"execute", "approval"}
    (alone,) = awx_objects({**SMALL, "operators": {"users": ["ann"]}, "operations": list(OPERATIONS)})["grants"]
    assert "GPU site" in alone["job_templates"]
    assert "GPU uninstall" not in alone["job_templates"]


def test_the_stand_in_knows_every_kind() -> None:
    assert set(KINDS) <= set(STORED)


def test_the_readme_describes_every_key() -> None:
    text = (REPO / "roles" / "awx" / "README.md").read_text(encoding="utf-8")
    for key in SETTINGS.fields:
        assert f"| `{key}" in text, key


def test_the_example_is_valid() -> None:
    example = yaml.safe_load((REPO / "examples" / "awx" / "awx.yml").read_text(encoding="utf-8"))
    settings = read_settings(example["gpu_awx"])
    project = REPO / "examples" / "awx" / "project"
    assert all((project / source["path"]).is_file() for source in settings["inventory"]["sources"])
    for item in desired_objects(settings):
        if item.kind == "job_templates":
            assert (project / item.options["playbook"]).is_file()
