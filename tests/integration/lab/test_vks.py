# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part vks of a lab: node groups with nodes in the lab's Kubernetes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import cloud_requests
from lab.api import Api, Object
from lab.fleet import HARDWARE_ANNOTATION
from lab.systems import KUBELET
from lab.vks.iam import CLIENTS
from lab.vks.part import Vks
from tests.helpers.vks import Client, group, until

from .conftest import OwnLab, temporary_lab

pytestmark = pytest.mark.lab

TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnLab]:
    for own in temporary_lab("own-vks", tmp_path_factory.mktemp("home")):
        own.command("up", "--part", "vks")
        yield own


class Tenant(Client):
    """The account of a lab, from the environment of `lab/lab env`."""

    def __init__(self, lab: OwnLab) -> None:
        environment = json.loads(lab.shell("python3 -c 'import json, os; print(json.dumps(dict(os.environ)))'"))
        super().__init__(environment["VKS_URL"], environment["GRN_CLIENT_ID"], environment["GRN_CLIENT_SECRET"])
        assert environment["VKS_IAM_URL"].endswith("/accounts-api/v2/auth/token")
        assert environment["VKS_VSERVER_URL"].startswith("http://127.0.0.1:")
        assert self.login().status == 200
        actual = self.vks("GET", f"/clusters?name={lab.name}").body["items"][0]
        assert actual["version"] == KUBELET
        self.path = f"/clusters/{actual['id']}/node-groups"

    def path_of(self, name: str) -> str:
        """Return the path of a group."""
        return (
            f"{self.path}/{next(one['id'] for one in self.vks('GET', self.path).body['items'] if one['name'] == name)}"
        )

    def settled(self, path: str) -> Any:
        """Wait until a group is ACTIVE, and return it."""
        return until(lambda: self.vks("GET", path).body, lambda body: bool(body.get("status") == "ACTIVE"), 60)

    def created(self, **more: Any) -> str:
        """Create a group, wait until it is ACTIVE, and return its path."""
        answer = self.vks("POST", self.path, group(**more))
        assert answer.status == 202, answer
        path = f"{self.path}/{answer.body['id']}"
        self.settled(path)
        return path


@pytest.fixture
def tenant(lab: OwnLab) -> Tenant:
    return Tenant(lab)


def nodes(lab: OwnLab, path: str) -> dict[str, Object]:
    """Return the nodes of a group in the lab's Kubernetes, by name."""
    desired = path.rpartition("/")[2]
    actual = Api(lab.lab).list("/api/v1/nodes", labelSelector="lab.accel.gpu/cloud=vks")
    return {
        node["metadata"]["name"]: node
        for node in actual
        if node["metadata"]["annotations"]["lab.accel.gpu/node-group"] == desired
    }


def test_own_cluster_has_initial_nodes(lab: OwnLab, tenant: Tenant) -> None:
    path = tenant.path_of("default-worker")
    live = nodes(lab, path)
    listed = tenant.vks("GET", f"{path}/nodes").body["items"]
    assert sorted(live) == sorted(node["name"] for node in listed)
    assert [node["ready"] for node in listed] == [True, True]
    assert lab.status()["nodes_ready"] == 2
    for node in listed:
        assert live[node["name"]]["spec"]["providerID"] == f"vngcloud://{node['id']}"
        assert live[node["name"]]["status"]["addresses"][0]["address"] == node["fixedIp"]


def test_nodes_have_labels_and_taints_of_their_group(lab: OwnLab, tenant: Tenant) -> None:
    path = tenant.created(name="gpus-a", labels={"pool": "a"}, taints=[TAINT])
    ((name, node),) = nodes(lab, path).items()
    assert node["metadata"]["labels"]["pool"] == "a"
    assert TAINT in node["spec"]["taints"]
    assert json.loads(node["metadata"]["annotations"][HARDWARE_ANNOTATION])["product"] == "NVIDIA L40S"
    Api(lab.lab).merge(
        f"/api/v1/nodes/{name}", {"metadata": {"labels": {"mine": "kept"}}, "spec": {"unschedulable": True}}
    )
    tenant.vks("PATCH", f"{path}/metadata", {"labels": {"pool": "b", "more": "1"}, "taints": []})
    tenant.settled(path)
    live = until(lambda: nodes(lab, path)[name], lambda node: bool(node["metadata"]["labels"]["pool"] == "b"))
    assert live["metadata"]["labels"].items() >= {"mine": "kept", "more": "1"}.items()
    assert live["spec"]["unschedulable"] is True
    assert TAINT not in live["spec"].get("taints", [])
    tenant.vks("DELETE", path)
    until(lambda: tenant.vks("GET", path).status, lambda status: bool(status == 404), 60)
    assert nodes(lab, path) == {}


def test_group_waits_for_its_nodes(lab: OwnLab, tenant: Tenant) -> None:
    path = tenant.created(name="gpus-b", numNodes=2)
    lab.command("fault", "inject", "node-not-ready", "--nodes", ",".join(nodes(lab, path)))
    listed = until(
        lambda: tenant.vks("GET", f"{path}/nodes").body["items"], lambda rows: not any(row["ready"] for row in rows)
    )
    assert len(listed) == 2
    lab.command("fault", "clear")
    tenant.vks("PUT", path, {"numNodes": 1})
    tenant.settled(path)
    assert len(nodes(lab, path)) == 1


def test_faults_and_guesses_of_the_command_line(lab: OwnLab, tenant: Tenant) -> None:
    lab.command("cloud", "fault", "inject", "vks.create-failed", "--group", "gpus-c")
    lab.command("cloud", "set", "vks.create-response=empty")
    answer = tenant.vks("POST", tenant.path, group(name="gpus-c"))
    assert (answer.status, answer.body) == (202, None)
    path = tenant.path_of("gpus-c")
    until(lambda: tenant.vks("GET", path).body["status"], lambda status: bool(status == "ERROR"), 60)
    assert "requires a number" in lab.execute("cloud", "fault", "inject", "vks.busy", "--value", "often").stderr
    assert "choose from group, empty, uid" in lab.execute("cloud", "set", "vks.create-response=none").stderr
    lab.command("cloud", "fault", "clear")
    lab.command("cloud", "set", "vks.create-response=group")
    tenant.vks("DELETE", path)


def test_api_server_accepts_the_kubeconfig(lab: OwnLab, tenant: Tenant, tmp_path: Path) -> None:
    path = f"{tenant.path.removesuffix('/node-groups')}/kubeconfig"
    tenant.vks("POST", path, {"expirationDays": 1})
    actual = until(lambda: tenant.vks("GET", path).body, lambda body: bool(body["status"] == "ACTIVE"), 30)
    file = tmp_path / "kubeconfig"
    file.write_text(actual["kubeConfig"])
    assert "vks-admin" in lab.shell(f"KUBECONFIG={file} kubectl auth whoami")
    assert "yes" in lab.shell(f"KUBECONFIG={file} kubectl auth can-i delete nodes")


def test_requests_are_logged_without_secrets(lab: OwnLab, tenant: Tenant) -> None:
    mark = cloud_requests.mark(lab.lab)
    tenant.vks("GET", "/quota")
    tenant.vserver("GET", "/v1/projects")
    assert cloud_requests.count(lab.lab, mark, "test") == {"vks GET": 1, "vserver GET": 1}
    assert cloud_requests.writes(lab.lab, mark) == []
    tenant.vks("PUT", f"{tenant.path}/ng-none", {"numNodes": 1})
    assert [(one.method, one.status) for one in cloud_requests.writes(lab.lab, mark)] == [("PUT", 404)]
    written = cloud_requests.path_of(lab.lab).read_text()
    assert not [secret for secret in (tenant.token, *Vks().clients(lab.lab).values()) if secret in written]
    assert Vks().clients(lab.lab).keys() == CLIENTS.keys()


@pytest.mark.sampled(1, group="lifecycles of a lab")
@pytest.mark.usual(30)
def test_restored_cluster_has_its_groups(lab: OwnLab, tenant: Tenant) -> None:
    path = tenant.created(name="saved-1")
    before = sorted(nodes(lab, path))
    lab.command("save", "with-gpus")
    tenant.vks("DELETE", path)
    until(lambda: tenant.vks("GET", path).status, lambda status: bool(status == 404), 60)
    lab.command("reset", "--to", "with-gpus")
    again = Tenant(lab)
    assert again.settled(path)["numNodes"] == 1
    assert sorted(nodes(lab, path)) == before
    lab.command("reset")
    clean = Tenant(lab)
    assert [one["name"] for one in clean.vks("GET", clean.path).body["items"]] == ["default-worker"]
    assert lab.status()["nodes_ready"] == 2
