# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the CronJob with the answers of a survey: empty text is the default, and for the user id the cluster's choice."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from ansible_collections.accel.gpu.plugins.module_utils.core.yaml_text import render_yaml
from ansible_collections.accel.gpu.plugins.module_utils.schema.cluster import CLUSTER
from tests.helpers.playbook import run_playbook
from tests.helpers.restricted import violations
from tests.programs import REPO, environment, run

ROLE = REPO / "roles" / "new_nodes"
TASK = {
    "name": "Render",
    "ansible.builtin.copy": {
        "content": "{{ lookup('ansible.builtin.template', role_path ~ '/templates/objects.yaml.j2') }}",
        "dest": "{{ playbook_dir }}/objects.yml",
        "mode": "0600",
    },
}
GIVEN: dict[str, Any] = {
    "role_path": str(ROLE),
    "role_name": ROLE.name,
    "__new_nodes_rights": [],
    "gpu_cluster": {"name": "one"},
    "gpu_defaults": {},
    "gpu_pools": [],
}


def rendered(tmp_path: Path, answers: dict[str, Any], *more: str) -> dict[str, Any]:
    """The objects by their kind."""
    files = [str(ROLE / "defaults/main.yml"), str(ROLE / "vars/main.yml"), str(REPO / "roles/pools/vars/main.yml")]
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars_files": files, "tasks": [TASK]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    arguments = ["-e", json.dumps(GIVEN | answers), *more]
    run_playbook(str(tmp_path / "play.yml"), environ=environment(), arguments=arguments).require_success()
    return {item["kind"]: item for item in yaml.safe_load_all((tmp_path / "objects.yml").read_text())}


@pytest.mark.sampled(1)
@pytest.mark.usual(4)
@pytest.mark.parametrize(
    ("user", "context"),
    [("", {}), (None, {}), ("2000", {"runAsUser": 2000, "runAsGroup": 2000}), (0, {"runAsUser": 0, "runAsGroup": 0})],
)
def test_answers_of_a_survey(tmp_path: Path, user: Any, context: dict[str, int]) -> None:
    answers = {"gpu_new_nodes_run_as_user": user, "gpu_new_nodes_schedule": "", "gpu_new_nodes_namespace": None}
    objects = rendered(tmp_path, answers)
    assert objects["Namespace"]["metadata"]["name"] == "accel-gpu-new-nodes"
    assert objects["CronJob"]["metadata"]["namespace"] == "accel-gpu-new-nodes"
    assert objects["CronJob"]["spec"]["schedule"] == "*/2 * * * *"
    security = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]["securityContext"]
    assert {
        key: value for key, value in security.items() if key.startswith("runAs") and key != "runAsNonRoot"
    } == context


@pytest.mark.sampled(1)
@pytest.mark.usual(4)
@pytest.mark.parametrize(
    ("distribution", "answers", "problems"),
    [
        ("openshift", {}, []),
        ("openshift", {"gpu_new_nodes_run_as_user": 2000}, ["runAsUser 2000 is outside the range of the namespace"]),
        ("kubeadm", {}, ["runAsUser 1000 is outside the range of the namespace"]),
    ],
)
def test_openshift_admits_its_pods(
    tmp_path: Path, distribution: str, answers: dict[str, Any], problems: list[str]
) -> None:
    cluster = {"gpu_cluster": {"name": "one", "distribution": distribution}}
    template = rendered(tmp_path, cluster | answers)["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    assert violations(template) == problems
    required = (template["metadata"].get("annotations") or {}).get("openshift.io/required-scc")
    assert required == ("restricted-v2" if distribution == "openshift" else None)


@pytest.mark.usual(4)
def test_its_runs_have_the_settings_of_the_lease_and_no_connection(tmp_path: Path) -> None:
    kept = {"name": "one", "uid": "u", "distribution": "kubeadm", "cloud": {"vks": {}}, "lease": {"wait_timeout": 0}}
    others: dict[str, Any] = {key: {} for key in CLUSTER.fields if key not in kept}
    cluster = {**kept, **others, "kubeconfig": "/k", "operator": {"version": "v25.10.1", "values": {"a": 1}}}
    inventory = rendered(tmp_path, {"gpu_cluster": cluster})["ConfigMap"]["data"]["inventory.yml"]
    host = yaml.safe_load(inventory)["gpu_clusters"]["hosts"]["one"]
    assert host["gpu_cluster"] == {**kept, "operator": {"version": "v25.10.1"}}


def test_data_that_looks_like_a_template_is_not_evaluated_in_the_pods(tmp_path: Path) -> None:
    canary, given = tmp_path / "canary", tmp_path / "given.yml"
    template = f"{{{{ lookup('pipe', 'touch {canary}') }}}}"
    pools = [{"name": "a", "nodes": {"machineset": {"provider_spec": {template: template, "emoji": "🚀"}}}}]
    given.write_text(render_yaml({"gpu_pools": pools}, for_ansible=True))
    config = rendered(tmp_path, {}, "-e", f"@{given}")["ConfigMap"]
    path = tmp_path / "inventory.yml"
    path.write_text(config["data"]["inventory.yml"])
    trusted = (
        {"trusted_as_template": True}
        if "trusted_as_template" in signature(DataLoader.load_from_file).parameters
        else {}
    )
    host = DataLoader().load_from_file(str(path), **trusted)["gpu_clusters"]["hosts"]["one"]
    assert Templar(DataLoader(), variables=host).template(host)["gpu_pools"] == pools
    listed = run("ansible-inventory", "-i", path, "--list", env=environment())
    assert [*json.loads(listed)["_meta"]["hostvars"]] == ["one"]
    assert not canary.exists()
