# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's OpenStack: real services, whose node groups have nodes. The tests depend on each other, in this order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import cloud_requests
from lab.api import Api
from lab.lifecycle import say
from lab.nodes import NODES, is_ready
from lab.openstack.node_sync import GROUP_LABEL
from tests.helpers.openstack import Cloud
from tests.helpers.polling import until

from .conftest import OwnLab

pytestmark = [pytest.mark.lab, pytest.mark.sampled(8, group="OpenStack in the lab")]


@pytest.fixture(scope="module", autouse=True)
def up(own: OwnLab, request: pytest.FixtureRequest) -> None:
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        say("tests: building the lab and OpenStack if necessary")
    own.command("build")
    own.command("build", "openstack")
    own.command("up", "--part", "openstack")


@pytest.fixture
def cloud(own: OwnLab) -> Cloud:
    return Cloud(own.lab)


@pytest.fixture
def faults(own: OwnLab) -> Iterator[OwnLab]:
    """The lab; all faults are cleared after the test."""
    yield own
    own.command("cloud", "fault", "clear")


@pytest.mark.usual(40)
def test_own_cluster_has_its_nodes(own: OwnLab) -> None:
    status = own.status()
    assert status["up"]
    assert {"keystone", "glance", "nova", "magnum"} <= {service["name"] for service in status["services"]}
    listed = own.shell("openstack coe cluster list -f value -c name -c status")
    assert listed.split() == [own.name, "CREATE_COMPLETE"]
    assert len(nodes(own, "default-master")) == 1
    assert len(nodes(own, "default-worker")) == 2


def test_api_server_accepts_the_kubeconfig(own: OwnLab, tmp_path: Path) -> None:
    # The client prints a line for the user's shell, and fails without SHELL.
    own.shell(f"SHELL=/bin/sh openstack coe cluster config {own.name} --dir {tmp_path}")
    output = own.shell(f"kubectl --kubeconfig {tmp_path}/config auth whoami -o jsonpath='{{.status.userInfo.groups}}'")
    assert "system:masters" in output


@pytest.mark.usual(20)
def test_node_group_with_gpus(own: OwnLab, cloud: Cloud) -> None:
    """CERN's workflow, with the client that its users have."""
    own.shell(
        f"openstack coe nodegroup create {own.name} gpu-t4 --flavor g2.5xlarge --node-count 1 --role gpu"
        " --node-labels accel.gpu/pool=t4 --node-taints nvidia.com/gpu=present:NoSchedule"
    )
    group = cloud.settled(own.name, "gpu-t4")
    assert (group["status"], len(group["node_addresses"])) == ("CREATE_COMPLETE", 1)
    [node] = nodes(own, "gpu-t4")
    assert node["metadata"]["labels"]["magnum.openstack.org/role"] == "gpu"
    assert node["metadata"]["labels"]["accel.gpu/pool"] == "t4"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["spec"]["providerID"].startswith("openstack:///")
    assert node["status"]["addresses"][0]["address"] == group["node_addresses"][0]
    hardware = json.loads(node["metadata"]["annotations"]["lab.accel.gpu/hardware"])
    assert (hardware["product"], hardware["gpus"]) == ("Tesla T4", 1)
    own.shell(f"openstack coe cluster resize --nodegroup gpu-t4 {own.name} 3")
    until(lambda: len(nodes(own, "gpu-t4")) == 3)
    assert "outside the allowed range" not in own.shell(f"openstack coe nodegroup list {own.name}")
    cloud.settled(own.name, "gpu-t4")
    before = {node["metadata"]["name"] for node in nodes(own, "gpu-t4")}
    removed = f"{node['metadata']['name']}"
    body = {"nodegroup": group["uuid"], "node_count": 2, "nodes_to_remove": [removed]}
    assert cloud.send("POST", f"/clusters/{own.name}/actions/resize", body).status_code == 202
    until(lambda: {node["metadata"]["name"] for node in nodes(own, "gpu-t4")} == before - {removed})
    cloud.settled(own.name, "gpu-t4")
    cloud.resize(own.name, "gpu-t4", 0)
    until(lambda: nodes(own, "gpu-t4") == [])
    cloud.settled(own.name, "gpu-t4")


def test_requests_are_logged_without_secrets(own: OwnLab, cloud: Cloud) -> None:
    since = cloud_requests.mark(own.lab)
    assert cloud.get(f"/clusters/{own.name}/nodegroups")
    assert cloud_requests.count(own.lab, since)["magnum GET"] == 1
    assert cloud_requests.writes(own.lab, since) == []
    cloud.create(own.name, "logged", "m2.medium", 0)
    cloud.settled(own.name, "logged")
    cloud.delete(own.name, "logged")
    written = cloud_requests.writes(own.lab, since)
    assert [(request.service, request.method, request.status) for request in written] == [
        ("magnum", "POST", 202),
        ("magnum", "DELETE", 204),
    ]
    text = cloud_requests.path_of(own.lab).read_text()
    assert '"internal": true' in text
    token = cloud.connection.session.get_token()
    assert token
    assert token not in text
    assert "labpass" not in text


@pytest.mark.parametrize("user", ["lab", "lab-admin", "lab-other", "lab-reader", "lab-appcred"])
def test_permissions_of_users(own: OwnLab, user: str) -> None:
    cloud = Cloud(own.lab, user)
    actual = cloud.get("/clusters")
    assert actual is not None
    assert [cluster["name"] for cluster in actual["clusters"]] == ([] if user == "lab-other" else [own.name])
    answer = cloud.send(
        "POST", f"/clusters/{own.name}/nodegroups", {"name": user, "flavor_id": "nodisk", "node_count": 0}
    )
    # The flavor is invalid for all users, but permissions are checked first. An administrator can list the clusters of
    # all projects, but change only those of its own.
    assert answer.status_code == {"lab-other": 404, "lab-admin": 404, "lab-reader": 403}.get(user, 400), answer.text


@pytest.mark.sampled(1)
@pytest.mark.usual(8)
@pytest.mark.parametrize("operation", ["create", "update", "delete"])
def test_failed_operation(faults: OwnLab, cloud: Cloud, operation: str) -> None:
    name = f"fails-{operation}"
    if operation != "create":
        cloud.create(faults.name, name, "g4.p2.40g")
        cloud.settled(faults.name, name)
    faults.command("cloud", "fault", "inject", f"{operation}-failed", "--group", name, "--value", "No hosts")
    if operation == "create":
        cloud.create(faults.name, name, "g4.p2.40g")
    elif operation == "update":
        cloud.resize(faults.name, name, 2)
    else:
        assert cloud.send("DELETE", f"/clusters/{faults.name}/nodegroups/{name}").status_code == 204
    group = until(lambda: (actual := cloud.settled(faults.name, name))["status"].endswith("FAILED") and actual)
    assert (group["status"], group["status_reason"]) == (f"{operation.upper()}_FAILED", "No hosts")
    assert len(nodes(faults, name)) == (0 if operation == "create" else 1)
    # A periodic job of Magnum updates the status of the cluster.
    until(lambda: (cloud.get(f"/clusters/{faults.name}") or {})["status"] == "UPDATE_FAILED")
    faults.command("cloud", "fault", "clear", f"magnum.{operation}-failed")
    cloud.delete(faults.name, name)
    until(lambda: (cloud.get(f"/clusters/{faults.name}") or {})["status"] == "UPDATE_COMPLETE")
    assert nodes(faults, name) == []


def test_in_progress(faults: OwnLab, cloud: Cloud) -> None:
    faults.command("cloud", "fault", "inject", "magnum.in-progress", "--group", "stuck")
    cloud.create(faults.name, "stuck", "m2.medium")
    cloud.create(faults.name, "second", "m2.medium", 0)
    assert cloud.settled(faults.name, "second")["status"] == "CREATE_COMPLETE"
    assert (cloud.group(faults.name, "stuck") or {})["status"] == "CREATE_IN_PROGRESS"
    faults.command("cloud", "fault", "clear", "in-progress")
    assert cloud.settled(faults.name, "stuck")["status"] == "CREATE_COMPLETE"
    for name in ("stuck", "second"):
        cloud.delete(faults.name, name)


def test_request_faults(faults: OwnLab, cloud: Cloud) -> None:
    faults.command("cloud", "fault", "inject", "unavailable", "--value", "2")
    once: dict[str, Any] = {"connect_retries": 0, "status_code_retries": 0}
    assert [cloud.send("GET", "/clusters", **once).status_code for dummy in range(3)] == [503, 503, 200]
    faults.command("cloud", "fault", "inject", "slow", "--value", "1.5")
    started = time.monotonic()
    assert cloud.send("GET", "/clusters").ok
    assert time.monotonic() - started >= 1.5
    faults.command("cloud", "fault", "clear", "slow")
    faults.command("cloud", "fault", "inject", "lost-reply", "--value", "1")
    with pytest.raises(Exception, match=r"(?i)connection|remote end"):
        cloud.send("POST", f"/clusters/{faults.name}/nodegroups", {"name": "lost", "flavor_id": "m2.medium"}, **once)
    assert cloud.settled(faults.name, "lost")["status"] == "CREATE_COMPLETE"
    assert faults.command("cloud", "fault", "list") == ""
    cloud.delete(faults.name, "lost")


def test_token_expiry(faults: OwnLab) -> None:
    faults.command("cloud", "fault", "inject", "token-expiry", "--value", "3")
    cloud = Cloud(faults.lab)
    token = cloud.connection.session.get_token()
    url = f"{cloud.magnum.get_endpoint()}/clusters"

    def answer() -> int:
        return int(
            cloud.connection.session.get(
                url, headers={"X-Auth-Token": token}, authenticated=False, raise_exc=False
            ).status_code
        )

    assert answer() == 200
    until(lambda: answer() == 401, limit=15)
    # A client with a new token can continue.
    assert cloud.get("/clusters")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("limit", "words"), [("instances=3", "instances"), ("cores=10", "cores")])
def test_quota_of_machines(faults: OwnLab, cloud: Cloud, limit: str, words: str) -> None:
    faults.command("cloud", "fault", "inject", "no-quota", "--value", limit)
    limits = cloud.connection.compute.get("/limits").json()["limits"]["absolute"]
    assert limits[f"maxTotal{words.capitalize()}"] == int(limit.partition("=")[2])
    cloud.create(faults.name, "greedy", "m2.large")
    group = cloud.settled(faults.name, "greedy")
    assert group["status"] == "CREATE_FAILED"
    assert group["status_reason"].startswith(f"Quota exceeded for {words}")
    faults.command("cloud", "fault", "clear")
    assert cloud.connection.compute.get("/limits").json()["limits"]["absolute"][f"maxTotal{words.capitalize()}"] > 3
    cloud.delete(faults.name, "greedy")


def test_quota_of_clusters(faults: OwnLab, cloud: Cloud) -> None:
    faults.command("cloud", "fault", "inject", "no-quota", "--value", "clusters=1")
    templates = (cloud.get("/clustertemplates") or {})["clustertemplates"]
    answer = cloud.send(
        "POST", "/clusters", {"name": "more", "cluster_template_id": templates[0]["uuid"], "keypair": "lab"}
    )
    assert answer.status_code == 403
    assert "maximum clusters per project, 1" in answer.text


def test_driver_settings(own: OwnLab, cloud: Cloud) -> None:
    own.command("cloud", "set", "magnum.node-labels=ignored")
    newest = Cloud(own.lab, version="1.14")
    newest.create(own.name, "plain", "m2.medium", node_labels={"example.org/a": "b"})
    assert newest.settled(own.name, "plain")["node_labels"] == {"example.org/a": "b"}
    [node] = nodes(own, "plain")
    assert "example.org/a" not in node["metadata"]["labels"]
    own.command("cloud", "set", "magnum.scale-to-zero=impossible")
    labels = {"auto_scaling_enabled": "true"}
    cloud.create(own.name, "scaled", "m2.medium", min_node_count=0, max_node_count=3, labels=labels)
    assert "must be at least 1" in cloud.settled(own.name, "scaled")["status_reason"]
    refused = own.execute("cloud", "set", "magnum.node-labels=never")
    assert "choose from applied, ignored" in refused.stderr
    for name in ("plain", "scaled"):
        cloud.delete(own.name, name)


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(40)
def test_save_and_reset(own: OwnLab, cloud: Cloud) -> None:
    own.command("cloud", "set", "magnum.node-labels=ignored")
    cloud.create(own.name, "kept", "g2.5xlarge")
    cloud.settled(own.name, "kept")
    own.command("save", "clouds")
    own.command("reset")
    assert "applied" in own.command("cloud", "show").partition("magnum.node-labels=")[2].splitlines()[0]
    assert Cloud(own.lab).group(own.name, "kept") is None
    assert (len(nodes(own, "kept")), len(nodes(own, "default-worker"))) == (0, 2)
    own.command("reset", "--to", "clouds")
    group = Cloud(own.lab).group(own.name, "kept") or {}
    assert (group["status"], len(nodes(own, "kept"))) == ("CREATE_COMPLETE", 1)


@pytest.mark.soak
@pytest.mark.usual(40)
def test_cluster_with_the_operator_of_the_cloud(own: OwnLab) -> None:
    own.command("reset")
    own.shell(f"openstack coe cluster delete {own.name}")
    cloud = Cloud(own.lab)
    until(lambda: cloud.get(f"/clusters/{own.name}") is None)
    assert list(Api(own.lab).list(NODES)) == []
    own.shell(
        f"openstack coe cluster create {own.name} --cluster-template k8s --node-count 1 --keypair lab"
        " --merge-labels --labels nvidia_gpu_enabled=true"
    )
    until(lambda: (cloud.get(f"/clusters/{own.name}") or {}).get("status") == "CREATE_COMPLETE")
    cloud.create(own.name, "gpu-a100", "g4.p2.40g")
    cloud.settled(own.name, "gpu-a100")
    releases = own.shell("helm list --namespace kube-system --short").split()
    assert "cern-magnum-nvidia-gpu" in releases
    until(lambda: nodes(own, "gpu-a100")[0]["status"]["allocatable"].get("nvidia.com/gpu") == "2", limit=120)


def nodes(own: OwnLab, group: str) -> list[dict[str, Any]]:
    """Return the ready nodes of a node group."""
    return [node for node in Api(own.lab).list(NODES, labelSelector=f"{GROUP_LABEL}={group}") if is_ready(node)]
