# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every entry point of a role, which tasks_from selects, has an argument specification with the role's variables that it uses; options of all tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.programs import REPO

SOURCES = [*sorted((REPO / "playbooks").glob("*.yml")), *sorted((REPO / "roles").glob("*/tasks/*.yml"))]


def imports(value: Any) -> Iterator[tuple[str, str]]:
    """The roles that tasks import with tasks_from, and its value."""
    if isinstance(value, dict):
        if "tasks_from" in value:
            yield value["name"].rpartition(".")[2], value["tasks_from"]
        for each in value.values():
            yield from imports(each)
    elif isinstance(value, list):
        for each in value:
            yield from imports(each)


ENTRY_POINTS = sorted(
    {
        *(entry for path in SOURCES for entry in imports(yaml.safe_load(path.read_text()))),
        # Described in the page of the role.
        ("licensing", "rotate"),
    }
)


def specs(role: str) -> dict[str, Any]:
    path = REPO / "roles" / role / "meta" / "argument_specs.yml"
    actual: dict[str, Any] = yaml.safe_load(path.read_text())["argument_specs"]
    return actual


def used_variables(role: str, tasks: Path) -> set[str]:
    """The variables of a role that a task file uses, by their own names or with their types."""
    options = specs(role)["main"]["options"]
    return set(re.findall(r"\bgpu_\w+", tasks.read_text())) & set(options)


def test_entry_points_are_found() -> None:
    assert {name for role, name in ENTRY_POINTS if role == "licensing"} == {"objects", "report", "rotate", "verify"}


@pytest.mark.parametrize(("role", "name"), ENTRY_POINTS)
def test_an_entry_point_is_specified(role: str, name: str) -> None:
    # Ansible validates nothing if tasks_from has an extension, because the specification has the name without it.
    assert "." not in name
    spec = specs(role)[name]
    options = spec.get("options") or {}
    assert set(options) == used_variables(role, REPO / "roles" / role / "tasks" / f"{name}.yml")
    main = specs(role)["main"]
    assert options == {key: main["options"][key] for key in options}
    assert spec["short_description"]
    assert spec["description"]
    assert (spec["author"], spec["version_added"]) == (main["author"], main["version_added"])


def tasks_of(value: Any) -> Iterator[dict[str, Any]]:
    """All tasks of a task file, also those in blocks."""
    for task in value or ():
        yield task
        for part in ("block", "rescue", "always"):
            yield from tasks_of(task.get(part))


DELETING_TASKS = [
    (path, name, task[name])
    for path in SOURCES
    for task in tasks_of(yaml.safe_load(path.read_text()) if path.parent.name == "tasks" else ())
    for name in task
    if name.startswith("accel.gpu.")
    and re.search("CONFIRM|FIELDS.argument_spec", (REPO / "plugins/modules" / f"{name[10:]}.py").read_text())
]


@pytest.mark.parametrize(("path", "module", "options"), DELETING_TASKS, ids=lambda value: str(value)[-40:])
def test_a_task_that_can_delete_passes_the_confirmation(path: Path, module: str, options: dict[str, Any]) -> None:
    """A task that neither has a state nor a stage in which its module deletes something needs none."""
    if module.endswith(("kube_object", "olm_subscription", "magnum_cluster")) and options.get("state") != "absent":
        return
    if options.get("state") in ("new_nodes", "repaired"):
        return
    role = path.parent.parent.name
    assert options["confirm"] == f"{{{{ __{role}_options.gpu_confirm }}}}"


def test_all_states_that_delete_something_are_confirmed() -> None:
    """Every module with the state absent has the option; a role decides nothing for the module."""
    for path in sorted((REPO / "plugins/modules").glob("*.py")):
        text = path.read_text()
        if '"absent"]' in text:
            assert "**CONFIRM" in text, path
    assert {module.rpartition(".")[2] for dummy, module, dummy in DELETING_TASKS} >= {
        "uninstall", "gpu_sharing", "machineset", "magnum_nodegroup", "vks_nodegroup", "olm_subscription", "autoscaling",
    }  # fmt: skip
    assert not list(REPO.glob("roles/*/tasks/confirm.yml"))


def module_options(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The collection's modules in tasks, and their options."""
    if isinstance(value, dict):
        for name, each in value.items():
            if str(name).startswith("accel.gpu.") and isinstance(each, dict):
                yield name, each
            yield from module_options(each)
    elif isinstance(value, list):
        for each in value:
            yield from module_options(each)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(REPO)))
def test_every_task_for_a_cluster_gets_the_previous_name(path: Path) -> None:
    """Until the run that renames a cluster has changed something, each module finds the previous name there."""
    tasks = module_options(yaml.safe_load(path.read_text()))
    assert [name for name, options in tasks if "gpu_cluster" in options and "renamed_from" not in options] == []
