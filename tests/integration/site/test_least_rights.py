# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles in `examples/rbac` are enough: the playbooks run with them alone, and are refused nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit
from lab.layout import Lab as LabLayout
from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import REPO, run

RBAC = REPO / "examples" / "rbac"
RBAC_API = "rbac.authorization.k8s.io"

pytestmark = pytest.mark.timeout(600)


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of one of the shipped files."""
    document = yaml.safe_load((RBAC / f"{name}.yaml").read_text())
    return list(document["items"]) if document["kind"] == "List" else [document]


def bindings(name: str) -> Iterator[dict[str, Any]]:
    """Yield a ServiceAccount with the name of the file, and what binds each of the file's roles to it."""
    account = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    for role in documents(name):
        if role["kind"] != "Namespace":
            yield {
                "apiVersion": f"{RBAC_API}/v1",
                "kind": f"{role['kind']}Binding",
                "metadata": role["metadata"],
                "roleRef": {"apiGroup": RBAC_API, "kind": role["kind"], "name": role["metadata"]["name"]},
                "subjects": [account],
            }


def as_account(lab: Lab, name: str, folder: Path) -> dict[str, str]:
    """Apply a shipped file and return the lab's environment as an account that has its rights and no other."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(bindings(name))}
    (folder / "bindings.json").write_text(json.dumps(listed))
    for path in (RBAC / f"{name}.yaml", folder / "bindings.json"):
        run("kubectl", "apply", "-f", path, env=lab.env)
    document = yaml.safe_load(lab.kubeconfig.read_text())
    token = run("kubectl", "create", "token", name, env=lab.env).strip()
    document["users"][0]["user"] = {"token": token}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    return lab.env_through(kubeconfig)


def asked(lab: Lab, name: str, since: int) -> list[audit.Request]:
    """Return what an account has asked since a mark, of which nothing may have been refused."""
    user = f"system:serviceaccount:default:{name}"
    found = [request for request in audit.requests(LabLayout.named(lab.name), since) if request.user == user]
    assert [(r.verb, r.uri) for r in found if r.status == 403] == []
    assert found
    return found


def test_plan_has_no_right_to_change_anything() -> None:
    verbs = {verb for role in documents("plan") for rule in role["rules"] for verb in rule["verbs"]}
    assert verbs <= {"get", "list", "watch"}


def test_no_right_is_a_wildcard() -> None:
    for role in [*documents("plan"), *documents("site")]:
        for rule in role.get("rules", []):
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


@pytest.mark.usual(75)
def test_the_playbooks_run_with_the_shipped_rights_alone(lab: Lab, tmp_path: Path) -> None:
    lab.reset()
    layout = LabLayout.named(lab.name)
    environs = {}
    for name in ("plan", "site"):
        (tmp_path / name).mkdir()
        environs[name] = as_account(lab, name, tmp_path / name)
    since = audit.mark(layout)

    run_playbook("accel.gpu.site", environ=environs["site"]).require_success()
    assert {"accel.gpu", "Helm"} <= {request.agent.partition("/")[0] for request in asked(lab, "site", since)}

    second = audit.mark(layout)
    assert run_playbook("accel.gpu.site", environ=environs["site"]).require_success().changed() == 0
    assert [request.uri for request in asked(lab, "site", second) if request.mutating] == []

    planned = run_playbook("accel.gpu.plan", environ=environs["plan"]).require_success()
    (fleet,) = planned.module_results("accel.gpu.gpu_info")
    assert fleet["gpu_info"]["reachable"]
    assert fleet["gpu_info"]["drift"] == []
    assert not [request for request in asked(lab, "plan", since) if request.mutating]
