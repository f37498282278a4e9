# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings with any mistake are refused before a request, with the key, the value and the rule; what is accepted obeys AWX's contract. Secrets are not shown."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.errors import InvalidOptions
from ansible_collections.accel.gpu.plugins.module_utils.core.messages import printable
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.credential_types import ALTERNATIVES, CREDENTIAL_TYPES
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.objects import desired_objects
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.operations import OPERATIONS
from ansible_collections.accel.gpu.plugins.plugin_utils.awx.settings import read_settings
from lab.awx.store import KINDS as STORED
from tests.helpers.awx_contract import contract, field_problem

SECRET = "s3cret-of-the-test"
LARGE: dict[str, Any] = {
    "organization": "Zürich 機",
    "galaxy_credentials": ["galaxy"],
    "prefix": "GPU ",
    "execution_environment": {"name": "ee", "image": "registry.example.com/accel-gpu:1", "credential": "registry", "pull": "always"},
    "project": {"name": "p", "url": "ssh://git@git.example.com/gpu.git", "branch": "main", "credential": "git", "update_on_launch": True},
    "inventory": {"name": "i", "update_on_launch": False, "sources": [{"name": "s", "path": "inventory/hosts.yml", "credential": "clouds"}]},
    "credentials": [
        {"name": kind, "type": kind, "inputs": {field["id"]: SECRET for field in CREDENTIAL_TYPES[kind].inputs} or {"password": SECRET}}
        for kind in CREDENTIAL_TYPES
        # A job reads only one of two alternatives.
        if kind not in dict(ALTERNATIVES)
    ],
    "operations": ["plan", "site", "report", "scale"],
    "slices": 5,
    "forks": 5,
    "operators": {"teams": ["Operators"], "users": ["bob"]},
    "approvers": {"teams": ["Owners"], "users": ["ann"]},
    "approval_timeout": 3600,
    "schedules": {"report": {"start": "2026-01-01 06:00", "frequency": "weekly", "interval": 2, "timezone": "Europe/Zurich"}},
    "notifications": [
        {"name": "hook", "type": "webhook", "configuration": {"url": "https://hook.example.com", "headers": {"Authorization": SECRET}}, "events": ["error"]},
        {"name": "chat", "type": "slack", "configuration": {"token": SECRET, "channels": ["gpu"]}, "events": ["started"]},
    ],
}  # fmt: skip
WRONG: list[Any] = [
    None,
    "",
    " ",
    5,
    -1,
    2**40,
    1.5,
    True,
    [],
    {},
    [None],
    [{}],
    {"key": "value"},
    {5: "value"},
    "{{ lookup('pipe', 'id') }}",
    "{% if x %}",
    "a\x00b",
    "\x1b[31mred",
    "two\nlines",
    "a\u202eb",
    "\ud800",
    "n" * 513,
    "n" * 5000,
    " name ",
    "12",
    "a,b",
    "a++b",
    "no such value",
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each part of a document, also of the document itself."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield from places(item, (*path, key))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a document with another value at a path."""
    if not path:
        return copy.deepcopy(value)
    copied = copy.deepcopy(document)
    parent = copied
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = copy.deepcopy(value)
    return copied


def shown_path(path: tuple[Any, ...]) -> str:
    return "gpu_awx" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


def refusal(document: Any) -> str | None:
    """The message; None if the settings are accepted and all objects obey the contract. Any other exception fails the test."""
    try:
        objects = desired_objects(read_settings(document))
    except InvalidOptions as error:
        return str(printable(str(error)))
    kinds = contract()["kinds"]
    names = [(item.kind, item.name.strip(), item.parent) for item in objects]
    assert len(set(names)) == len(names)
    for item in objects:
        for name, value in {"name": item.name, "description": item.description, **item.options}.items():
            field = kinds[item.kind]["writable"].get(name, {"type": "json"})
            # The module converts the names of other objects to ids.
            if name not in STORED[item.kind].references and field["type"] != "json":
                assert field_problem(field, value) == "", (item.key, name, value)
        for node in item.options.get("nodes", ()):
            approval = contract()["bodies"]["POST workflow_job_template_nodes/{id}/create_approval_template"]
            assert all(field_problem(approval[name], value) == "" for name, value in node.get("approval", {}).items())
    return None


def test_the_document_is_valid() -> None:
    assert refusal(LARGE) is None


@pytest.mark.parametrize("path", list(places(LARGE)), ids=shown_path)
def test_mutations(path: tuple[Any, ...]) -> None:
    for wrong in WRONG:
        message = refusal(replaced(LARGE, path, wrong))
        if message is None:
            continue
        assert "Traceback" not in message
        assert SECRET not in message
        # One problem stands alone; several have a title.
        lines = [line for line in message.splitlines() if line != "Invalid settings for AWX; nothing was sent:"]
        assert lines, (path, wrong)
        # Each line has a key of the settings and a rule after it. A wrong value may contradict other keys, whose lines then name those.
        assert all(line.startswith("gpu_awx") and ": " in line for line in lines), lines
        assert all(character.isprintable() for line in lines for character in line)


@pytest.mark.parametrize(
    "path", [path for path in places(LARGE) if not path or isinstance(path[-1], (str, int))], ids=shown_path
)
def test_an_unknown_key_is_refused_where_it_stands(path: tuple[Any, ...]) -> None:
    value: Any = LARGE
    for key in path:
        value = value[key]
    free = "configuration" in path or (
        path[-1:] == ("inputs",) and not CREDENTIAL_TYPES[LARGE["credentials"][path[1]]["type"]].is_custom
    )
    if not isinstance(value, dict) or free:
        return
    message = refusal(replaced(LARGE, path, {**value, "colour": SECRET}))
    assert message is not None
    assert f"{shown_path(path)}.colour: is not" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("organization",), "n" * 513, "has 513 characters; the limit of AWX is 512"),
        (("approvers", "users", 0), "n" * 151, "the limit of AWX is 150"),
        (("project", "branch"), "n" * 257, "the limit of AWX is 256"),
        (("prefix",), "n" * 449, "the limit of AWX is 448"),
        (("prefix",), "GPU, ", "contains a comma"),
        (("organization",), " GPU", "begins or ends with a space"),
        (("project", "url"), f"https://ann:{SECRET}@git.example.com/gpu.git", "contains a login"),
        (("inventory", "sources", 0, "path"), "../hosts.yml", "is not a path in the project"),
        (("schedules", "report", "start"), "2026-02-30 06:00", "does not exist in the calendar"),
        (("credentials", 0, "inputs", "kubeconfig"), 5, "is a number, not a string"),
        (("credentials", 0, "inputs"), SECRET, "is a string, not a map"),
        (("notifications", 0, "configuration"), SECRET, "is a string, not a map"),
        (("notifications", 0, "configuration"), {"url": SECRET}, "configuration.headers: is missing; the type webhook needs it"),
        (("notifications", 1, "configuration", "channels"), [], "channels: has no element"),
        (("notifications", 1, "configuration", "token"), 5, "token: is a number, not a string"),
        (("galaxy_credentials",), ["a", "a"], '"a" is declared 2 times'),
        (("operators", "teams"), ["a", "a"], '"a" is declared 2 times'),
        (("credentials", 1, "name"), "kubeconfig", '"kubeconfig" is declared 2 times'),
    ],
)  # fmt: skip
def test_rules(path: tuple[Any, ...], value: Any, rule: str) -> None:
    message = refusal(replaced(LARGE, path, value))
    assert message is not None
    assert rule in message
    assert SECRET not in message


def test_names_that_differ_only_in_case_are_two_objects() -> None:
    """AWX compares names exactly."""
    objects = desired_objects(read_settings({**LARGE, "operators": {"teams": ["owners"]}}))
    assert [item.name for item in objects if item.kind == "teams"] == ["owners", "Owners"]


def test_the_longest_names_fit() -> None:
    longest = {**LARGE, "prefix": "n" * 448, "organization": "n" * 512, "operations": list(OPERATIONS), "schedules": {name: {"start": "2026-01-01 06:00", "frequency": "minutely"} for name in OPERATIONS if OPERATIONS[name].scheduled}}  # fmt: skip
    assert refusal(longest) is None
