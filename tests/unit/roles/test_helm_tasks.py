# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of kubernetes.core.helm reach the cluster that a module has verified: its options win over the environment, and module_defaults over none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.programs import REPO

HELM = "kubernetes.core.helm"


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


def test_there_are_some() -> None:
    assert {role for role, _task in HELM_TASKS} == {"gpu_operator", "nfd", "uninstall"}


@pytest.mark.parametrize(("role", "task"), HELM_TASKS, ids=[f"{role}: {task['name']}" for role, task in HELM_TASKS])
def test_module_defaults_lead_to_no_other_cluster(role: str, task: dict[str, Any]) -> None:
    options = task[HELM]
    assert options["kubeconfig"] == ""
    assert {"host", "api_key"} <= set(options)
    assert not {"context", "ca_cert", "validate_certs"} & set(options), (
        "mutually exclusive with what the environment says"
    )
    assert "helm_environment" in task["environment"]
    assert task["no_log"] == f"{{{{ {role}_secure_logging is not false }}}}"
