# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in refuses what AWX refuses in credential types and schedules, and what AWX accepts although it does not work; its lists and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.awx.injectors import inject
from lab.awx.rules import credential_type_problems, schedule_problems
from lab.awx.server import Awx
from lab.awx.store import ENCRYPTED, Refused, Store

FIELD = {"id": "name", "label": "Name"}
RULE = "DTSTART;TZID=Europe/Zurich:20260101T060000 RRULE:FREQ=DAILY;INTERVAL=1"


@pytest.mark.parametrize(
    ("kind", "fields", "injectors", "problem"),
    [
        ("cloud", [FIELD], {"env": {"GPU_NAME": "{{ name }}"}}, None),
        ("cloud", [FIELD], {"file": {"template.a": "{{ name }}"}, "env": {"A": "{{ tower.filename.a }}"}}, None),
        ("ssh", [FIELD], {}, "kind 'ssh'"),
        ("cloud", [FIELD], {"env": {"ANSIBLE_X": "{{ name }}"}}, "ANSIBLE_X is not allowed"),
        ("cloud", [FIELD], {"env": {"PATH": "{{ name }}"}}, "PATH is not allowed"),
        ("cloud", [FIELD], {"env": {"HOME": "{{ name }}"}}, "HOME is not allowed"),
        ("cloud", [FIELD], {"env": {"A": "{{ nam }}"}}, "'nam' is undefined"),
        ("cloud", [FIELD], {"env": {"A": "{{ tower.filename.b }}"}, "file": {"template.a": "x"}}, "no attribute 'b'"),
        ("cloud", [FIELD], {"file": {"template": "x", "template.a": "y"}}, "several files need names"),
        ("cloud", [FIELD], {"file": {"other": "x"}}, "not template"),
        ("cloud", [FIELD], {"extra_vars": {"a": 5}}, "not text, a list or a map"),
        ("cloud", [FIELD, FIELD], {}, "declared twice"),
        ("cloud", [{**FIELD, "type": "integer"}], {}, "unknown type integer"),
        ("cloud", [{**FIELD, "type": "boolean", "secret": True}], {}, "boolean with keys of a string"),
        ("cloud", [{"id": "api_key", "label": "Key"}], {}, "not declared as one"),
        ("cloud", [{"id": "tower", "label": "T"}], {}, "no valid id"),
    ],
)
def test_credential_types(
    kind: str, fields: list[dict[str, Any]], injectors: dict[str, Any], problem: str | None
) -> None:
    problems = credential_type_problems(kind, {"fields": fields}, injectors)
    assert not problems if problem is None else problem in " ".join(problems)


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (RULE, None),
        (RULE.replace(";TZID=Europe/Zurich", "").replace("T060000", "T060000Z"), None),
        (RULE.replace("Europe/Zurich", "Europe/Bern"), "unknown"),
        (RULE.replace(";TZID=Europe/Zurich", ""), "naive"),
        (RULE.replace(";INTERVAL=1", ""), "INTERVAL"),
        ("RRULE:FREQ=DAILY;INTERVAL=1", "DTSTART"),
        (RULE.replace("DAILY", "SECONDLY"), "not supported"),
    ],
)
def test_schedules(rule: str, problem: str | None) -> None:
    problems = schedule_problems(rule)
    assert not problems if problem is None else problem in " ".join(problems)


@pytest.fixture
def store() -> Store:
    """Two organizations, and a credential of a custom type."""
    filled = Store(lambda project: ["site.yml"])
    for name in ("one", "two"):
        filled.create("organizations", {"name": name})
    inputs = {"fields": [{"id": "token", "label": "Token", "secret": True}, {"id": "region", "label": "Region"}]}
    injectors = {
        "file": {"template": "{{ token }}"},
        "env": {"TOKEN_FILE": "{{ tower.filename }}", "REGION": "{{ region }}"},
    }
    kind = filled.create("credential_types", {"name": "own", "kind": "cloud", "inputs": inputs, "injectors": injectors})
    filled.create("credentials", {"name": "c", "credential_type": kind["id"], "inputs": {"token": "secret"}})
    return filled


def test_a_secret_is_not_shown_and_stays_if_its_placeholder_is_sent(store: Store) -> None:
    (credential,) = store.tables["credentials"].values()
    assert store.shown(credential)["inputs"] == {"token": ENCRYPTED}
    store.change("credentials", credential["id"], {"inputs": {"token": ENCRYPTED, "region": "here"}})
    assert store.row("credentials", credential["id"])["inputs"] == {"token": "secret", "region": "here"}


def test_unset_inputs_are_injected_as_empty_text(store: Store) -> None:
    (number,) = store.tables["credentials"]
    injected = inject(store, [number])
    assert injected.environment == {"TOKEN_FILE": f"/runner/env/tmp{number}", "REGION": ""}
    assert list(injected.files.values()) == ["secret"]


CLOUD = {"auth": {"auth_url": "", "username": "", "password": "", "project_name": ""}, "verify": True}
LOGIN = {"host": "https://keystone", "username": "u", "password": "p", "project": "gpu"}
KUBERNETES, TOKEN = "OpenShift or Kubernetes API Bearer Token", {"host": "https://api", "bearer_token": "t"}
LOGGED_IN = {"K8S_AUTH_HOST": "https://api", "K8S_AUTH_API_KEY": "t", "K8S_AUTH_VERIFY_SSL": "False"}


@pytest.mark.parametrize(
    ("name", "inputs", "environment", "files"),
    [
        ("OpenStack", {}, {"OS_CLIENT_CONFIG_FILE": "FILE"}, [{"clouds": {"devstack": CLOUD}}]),
        (
            "OpenStack",
            {**LOGIN, "project_domain_name": "d", "domain": "e", "region": "r", "verify_ssl": False},
            {"OS_CLIENT_CONFIG_FILE": "FILE"},
            [{"clouds": {"devstack": {"auth": {"auth_url": "https://keystone", "username": "u", "password": "p", "project_name": "gpu", "project_domain_name": "d", "domain_name": "e"}, "region_name": "r", "verify": False}}}],
        ),
        (KUBERNETES, {}, {"K8S_AUTH_HOST": "", "K8S_AUTH_API_KEY": "", "K8S_AUTH_VERIFY_SSL": "False"}, []),
        (KUBERNETES, TOKEN, LOGGED_IN, []),
        (KUBERNETES, {**TOKEN, "verify_ssl": True}, LOGGED_IN, []),
        (KUBERNETES, {**TOKEN, "ssl_ca_cert": "CA"}, {**LOGGED_IN, "K8S_AUTH_VERIFY_SSL": "True", "K8S_AUTH_SSL_CA_CERT": "FILE"}, ["CA"]),
        (KUBERNETES, {**TOKEN, "verify_ssl": False, "ssl_ca_cert": "CA"}, LOGGED_IN, []),
        ("VMware vCenter", {}, {"VMWARE_HOST": "", "VMWARE_USER": "", "VMWARE_PASSWORD": "", "VMWARE_VALIDATE_CERTS": "False"}, []),
        (
            "VMware vCenter",
            {"host": "v", "username": "u", "password": "p"},
            {"VMWARE_HOST": "v", "VMWARE_USER": "u", "VMWARE_PASSWORD": "p", "VMWARE_VALIDATE_CERTS": "False"},
            [],
        ),
        ("Container Registry", {"host": "r", "username": "u", "password": "p"}, {}, []),
        ("Ansible Galaxy/Automation Hub API Token", {"url": "g", "token": "t"}, {}, []),
    ],
)  # fmt: skip
def test_types_of_awx(
    tmp_path: Path, name: str, inputs: dict[str, Any], environment: dict[str, str], files: list[Any]
) -> None:
    """The inputs that AWX accepts, and what a job gets: files are in the container, below /runner/env."""
    store = Awx(tmp_path).store
    (kind,) = [row for row in store.tables["credential_types"].values() if row["name"] == name]
    row = store.create("credentials", {"name": "c", "credential_type": kind["id"], "inputs": inputs})
    injected = inject(store, [row["id"]])
    paths = {f"/runner/env/{file}" for file in injected.files}
    assert {key: "FILE" if value in paths else value for key, value in injected.environment.items()} == environment
    assert [yaml.safe_load(content) for content in injected.files.values()] == files
    assert injected.variables == {}


@pytest.mark.parametrize(
    ("kind", "body", "field"),
    [
        ("organizations", {"name": "one"}, "__all__"),
        ("organizations", {"description": "x"}, "name"),
        ("organizations", {"name": "x", "colour": "red"}, "colour"),
        ("projects", {"name": "x", "organization": 99}, "organization"),
        ("projects", {"name": "x", "scm_update_on_launch": "yes"}, "scm_update_on_launch"),
        ("schedules", {"name": "x", "unified_job_template": 1, "rrule": RULE}, "unified_job_template"),
    ],
)
def test_wrong_objects_are_refused(store: Store, kind: str, body: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as caught:
        store.create(kind, body)
    assert caught.value.status == 400
    assert field in caught.value.body


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["one", "two"]),
        ({"name": "two"}, ["two"]),
        ({"or__name__in": "one,three", "or__description__contains": "mark"}, ["one"]),
        ({"name": "one", "or__name__in": "two"}, []),
    ],
)
def test_filters(store: Store, query: dict[str, str], names: list[str]) -> None:
    assert [row["name"] for row in store.listed("organizations", query)] == names


@pytest.mark.parametrize("query", [{"nam": "one"}, {"or__name__in": ""}, {"name__regex": "o"}])
def test_unknown_filters_are_refused(store: Store, query: dict[str, str]) -> None:
    with pytest.raises(Refused):
        store.listed("organizations", query)
