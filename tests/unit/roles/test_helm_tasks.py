# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of kubernetes.core.helm use the cluster that a module has verified: their options override the environment and module_defaults.

They pass every setting of the release.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.utils.unsafe_proxy import wrap_var

from ansible_collections.accel.gpu.plugins.module_utils.pools.plan import ComponentPlan
from ansible_collections.accel.gpu.plugins.module_utils.schema.cluster import helm_fields
from tests.programs import REPO

HELM_FILE = REPO / "roles" / "pools" / "tasks" / "helm.yml"
# Since ansible-core 2.19, only text with this mark is a template.
TRUSTED = (
    {"trusted_as_template": True} if "trusted_as_template" in signature(DataLoader.load_from_file).parameters else {}
)
HELM = "kubernetes.core.helm"
# Options that select a cluster or a user. A kubeconfig reaches helm by KUBECONFIG, which may contain several paths.
GIVEN = {"kubeconfig", "validate_certs"}
# Options that the module reads from the environment of the task, which the modules of this collection read too.
OF_ENVIRONMENT = {"host", "api_key", "context", "ca_cert"}


def tasks(listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for task in listed:
        yield task
        yield from tasks(task.get("block") or [])


HELM_TASKS = [
    (path.parent.parent.name, task)
    for path in sorted((REPO / "roles").glob("*/tasks/*.yml"))
    for task in tasks(yaml.safe_load(path.read_text(encoding="utf-8")))
    if HELM in task
]
each_task = pytest.mark.parametrize(
    ("role", "task"), HELM_TASKS, ids=[f"{role}: {task['name']}" for role, task in HELM_TASKS]
)


def connection_options() -> set[str]:
    """The options of the installed kubernetes.core, so that new ones are detected."""
    module = import_module("ansible_collections.kubernetes.core.plugins.module_utils.helm_args_common")
    return set(module.HELM_AUTH_ARG_SPEC) - {"binary_path"}


def action_groups() -> set[str]:
    """The groups of kubernetes.core that set defaults for the module."""
    module = import_module("ansible_collections.kubernetes.core.plugins.module_utils.helm_args_common")
    assert module.__file__ is not None
    runtime = yaml.safe_load((Path(module.__file__).parents[2] / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    return {f"group/kubernetes.core.{name}" for name, actions in runtime["action_groups"].items() if "helm" in actions}


def test_there_are_helm_tasks() -> None:
    assert [role for role, _task in HELM_TASKS] == ["pools"]


def test_the_task_passes_every_setting_of_the_release() -> None:
    """The settings in the schema that only Helm reads; the plan has the release's name as `name`."""
    ((_role, task),) = HELM_TASKS
    fields = {"name" if key == "release" else key for key in (*helm_fields("operator"), *helm_fields("nfd"))}
    assert fields <= {field.name for field in dataclasses.fields(ComponentPlan)}
    passed = set(re.findall(r"__pools_helm\.release\.(\w+)", str(task[HELM])))
    assert passed == {*fields, "namespace", "version"}


def test_every_connection_option_is_known() -> None:
    assert connection_options() == GIVEN | OF_ENVIRONMENT


@each_task
def test_no_default_of_the_play_reaches_the_module(role: str, task: dict[str, Any]) -> None:
    """The entry of the innermost module_defaults replaces the others, including aliases of options."""
    assert task["module_defaults"] == {key: {} for key in (HELM, *action_groups())}


@each_task
def test_all_possible_options_are_set(role: str, task: dict[str, Any]) -> None:
    options = task[HELM]
    assert options["kubeconfig"] == ""
    assert set(options) & connection_options() == GIVEN
    assert task["environment"] == "{{ __pools_helm.environment }}"
    assert task["environment"].removesuffix(" }}") in options["validate_certs"]
    assert task["no_log"] == "{{ __pools_helm.secure_logging is not false }}"


def test_the_message_of_helm_cannot_change_the_terminal() -> None:
    """Helm's message contains text of the API server, and Ansible shows it as it is."""
    (task,) = (
        task for task in DataLoader().load_from_file(str(HELM_FILE), **TRUSTED) if "ansible.builtin.fail" in task
    )
    message = "Fehler: é 🚀\n\x1b[2J\x9b\u202e\u2066\u200b\ufeff\r\x07a\tb"
    rendered = task["ansible.builtin.fail"]["msg"]
    result = {"msg": message, "module_stderr": "{{ 1 }}"}
    templar = Templar(DataLoader(), variables={**task["vars"], "__pools_helm_result": wrap_var(result)})
    assert templar.template(rendered) == "Fehler: é 🚀\n?[2J???????a\tb {{ 1 }}"
