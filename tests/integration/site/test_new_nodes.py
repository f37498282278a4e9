# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CronJob of the role new_nodes: its files and permissions are sufficient for its command in a pod, and it can be removed."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab import audit, rbac, sandbox
from lab.layout import Lab as LabLayout
from tests.helpers.cluster import Cluster
from tests.helpers.playbook import run_playbook
from tests.labs import Lab
from tests.programs import REPO, environment

NAMESPACE, NAME = "accel-gpu-new-nodes", "accel-gpu-new-nodes"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"
IMAGE = {"gpu_new_nodes_image": "registry.example.com/accel-gpu:1", "gpu_new_nodes_schedule": "0 0 29 2 *"}
TOKENS = "/run/secrets/kubernetes.io/serviceaccount"

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def cluster(lab: Lab) -> Cluster:
    return Cluster(lab).install()


def managed_objects(cluster: Cluster) -> set[str]:
    """The kinds of objects with the CronJob's name, and its namespace."""
    kinds = "cronjobs,configmaps,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
    actual = cluster.get(kinds, "-A", "--field-selector", f"metadata.name={NAME}")["items"]
    namespaces = cluster.get("namespaces", "--field-selector", f"metadata.name={NAMESPACE}")["items"]
    return {
        f"{item['kind']} {item['metadata'].get('namespace', '')}".strip()
        for item in actual + namespaces
        if "deletionTimestamp" not in item["metadata"]
    }


def in_a_pod(cluster: Cluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the CronJob's command as in its pod: its service account's token, its inventory, a read-only root, no files of this user."""
    account, inventory = folder / "account", folder / "inventory"
    account.mkdir()
    inventory.mkdir()
    config = cluster.get("configmap", NAME, "-n", NAMESPACE)
    (inventory / "inventory.yml").write_text(config["data"]["inventory.yml"])
    (account / "token").write_text(cluster.kubectl("-n", NAMESPACE, "create", "token", NAME).strip())
    known = json.loads(cluster.kubectl("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    (server,) = (entry["cluster"] for entry in known["clusters"])
    (account / "ca.crt").write_bytes(base64.b64decode(server["certificate-authority-data"]))
    (container,) = cluster.get("cronjob", NAME, "-n", NAMESPACE)["spec"]["jobTemplate"]["spec"]["template"]["spec"][
        "containers"
    ]
    host, port = server["server"].removeprefix("https://").split(":")
    message = {entry["name"]: entry["value"] for entry in container["env"]}
    service = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    return pod(container["command"], {**message, **service}, account, inventory)


def pod(
    command: list[str], environ: Mapping[str, str], account: Path, inventory: Path
) -> subprocess.CompletedProcess[str]:
    """Run a command as in a pod: with a read-only root, a service account's files, and no files of this user."""
    own_environment = environment()
    call = [sandbox.require(), "--unshare-pid", "--die-with-parent", "--clearenv"]
    for name, value in {
        **{key: own_environment[key] for key in ("PATH", "ANSIBLE_COLLECTIONS_PATH")},
        **environ,
    }.items():
        call += ["--setenv", name, value]
    call += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]
    # The checkout itself can be in /tmp.
    call += ["--ro-bind", str(REPO), str(REPO)]
    call += ["--ro-bind", str(account), TOKENS, "--ro-bind", str(inventory), "/run/inventory", "--chdir", "/", "--"]
    words = [word.replace("/inventory/", "/run/inventory/") for word in command]
    return subprocess.run([*call, *words], capture_output=True, text=True, check=False)


@pytest.mark.usual(60)
@pytest.mark.sampled(1, group="whole runs")
def test_the_cron_job_is_created_works_and_is_removed(cluster: Cluster, tmp_path: Path) -> None:
    environ = cluster.lab.env
    seen: dict[str, Any] = {}
    for mode in (["--check", "--diff"], []):
        played = run_playbook("accel.gpu.new_nodes", environ=environ, variables=IMAGE, arguments=mode).require_success()
        (seen[str(mode)],) = played.module_results("accel.gpu.kube_object")
    previewed, created = list(seen.values())
    assert previewed["changed"] is created["changed"] is True
    assert previewed["kube_object"] == created["kube_object"]
    kinds = {
        "Namespace",
        "ServiceAccount accel-gpu-new-nodes",
        "ConfigMap accel-gpu-new-nodes",
        "CronJob accel-gpu-new-nodes",
        "ClusterRole",
        "ClusterRoleBinding",
    }
    within = {
        f"{kind} {namespace}" for kind in ("Role", "RoleBinding") for namespace in ("kube-system", "gpu-operator")
    }
    assert managed_objects(cluster) == kinds | within
    assert run_playbook("accel.gpu.new_nodes", environ=environ, variables=IMAGE).require_success().changed() == 0
    shipped = {
        item["kind"] + item["metadata"].get("namespace", ""): item["rules"] for item in rbac.objects("new_nodes")
    }
    options = cluster.get("roles,clusterroles", "-A", "--field-selector", f"metadata.name={NAME}")["items"]
    assert {item["kind"] + item["metadata"].get("namespace", ""): item["rules"] for item in options} == shipped

    # A node that has lost its labels is new to its pool.
    cluster.kubectl("label", "node", "t4-1", "accel.gpu/pool-", "nvidia.com/device-plugin.config-")
    since = audit.mark(LabLayout.named(cluster.lab.name))
    done = in_a_pod(cluster, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    sent = [request for request in audit.requests(LabLayout.named(cluster.lab.name), since) if request.user == ACCOUNT]
    assert [(request.verb, request.uri) for request in sent if request.status == 403] == []
    assert [request for request in sent if request.mutating and "/nodes/t4-1" in request.uri]
    assert cluster.nodes()["t4-1"]["metadata"]["labels"]["accel.gpu/pool"] == "notebooks"

    absent = {"gpu_new_nodes_state": "absent", "gpu_confirm": [cluster.lab.name]}
    run_playbook("accel.gpu.new_nodes", environ=environ, variables=absent, arguments=["--check"]).require_success()
    assert managed_objects(cluster) == kinds | within
    assert run_playbook("accel.gpu.new_nodes", environ=environ, variables=absent).require_success().changed() == 1
    assert managed_objects(cluster) == set()
    assert run_playbook("accel.gpu.new_nodes", environ=environ, variables=absent).require_success().changed() == 0


@pytest.mark.sampled(1, group="views of a site")
@pytest.mark.usual(20)
def test_a_namespace_with_foreign_objects_stays(cluster: Cluster) -> None:
    environ = cluster.lab.env
    run_playbook("accel.gpu.new_nodes", environ=environ, variables=IMAGE).require_success()
    cluster.kubectl("-n", NAMESPACE, "create", "secret", "generic", "pull")
    absent = {"gpu_new_nodes_state": "absent", "gpu_confirm": [cluster.lab.name]}
    gone = run_playbook("accel.gpu.new_nodes", environ=environ, variables=absent).require_success()
    (result,) = gone.module_results("accel.gpu.uninstall")
    assert result["uninstall"]["kept"] == [f"Namespace {NAMESPACE}: it contains Secret pull"]
    assert managed_objects(cluster) == {"Namespace"}
    cluster.kubectl("delete", "namespace", NAMESPACE)


@pytest.mark.sampled(1, group="views of a site")
@pytest.mark.usual(30)
def test_objects_of_another_owner_are_neither_taken_over_nor_deleted(cluster: Cluster, tmp_path: Path) -> None:
    """`kubectl create serviceaccount` leaves no record of a field manager."""
    environ = cluster.lab.env
    cluster.kubectl("create", "namespace", NAMESPACE)
    cluster.kubectl("-n", NAMESPACE, "create", "serviceaccount", NAME)
    foreign = {"Namespace", f"ServiceAccount {NAMESPACE}"}
    for mode in (["--check"], []):
        refused = run_playbook("accel.gpu.new_nodes", environ=environ, variables=IMAGE, arguments=mode)
        assert (
            f"ServiceAccount {NAMESPACE}/{NAME} already exists, and this collection did not create it"
            in refused.failure()
        )
        assert managed_objects(cluster) == foreign
    # An earlier version has taken it over.
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "labels": {"a": "b"}}}
    (tmp_path / "account.json").write_text(json.dumps(account))
    how = ("--server-side", "--field-manager=accel.gpu", "-f", str(tmp_path / "account.json"))
    cluster.kubectl("-n", NAMESPACE, "apply", *how)
    absent = {"gpu_new_nodes_state": "absent", "gpu_confirm": [cluster.lab.name]}
    gone = run_playbook("accel.gpu.new_nodes", environ=environ, variables=absent).require_success()
    (result,) = gone.module_results("accel.gpu.uninstall")
    kept = f"ServiceAccount {NAMESPACE}/{NAME}: this collection did not create it"
    assert (result["changed"], result["uninstall"]["kept"]) == (False, [kept])
    assert managed_objects(cluster) == foreign
    cluster.kubectl("delete", "namespace", NAMESPACE)


@pytest.mark.usual(3)
def test_an_unusable_service_account_has_a_clear_message(tmp_path: Path) -> None:
    """A pod with a token, but without the API server's address in its environment."""
    account, inventory = tmp_path / "account", tmp_path / "inventory"
    account.mkdir()
    inventory.mkdir()
    (account / "token").write_text("x")
    hosts = {"a": {"gpu_cluster": {"name": "a"}, "gpu_pools": [{"name": "p"}]}}
    (inventory / "inventory.yml").write_text(yaml.safe_dump({"gpu_clusters": {"hosts": hosts}}))
    command = ["ansible-playbook", "accel.gpu.new_nodes", "--inventory", "/inventory/inventory.yml"]
    done = pod(command, {"HOME": "/tmp", "ANSIBLE_REMOTE_TMP": "/tmp/.ansible/tmp"}, account, inventory)
    assert done.returncode != 0
    assert "The service account of this pod cannot be used: Service host/port is not set." in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
