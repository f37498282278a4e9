# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pull_secret: Secrets with which a node pulls from a registry that asks for a login."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import pull_secret
from tests.helpers.kube import Kube
from tests.helpers.modules import run_module
from tests.helpers.playbook import run_playbook
from tests.helpers.polling import until
from tests.helpers.registries import Object, Registries
from tests.helpers.registry_images import push_image
from tests.programs import REPO

pytestmark = [pytest.mark.lab, pytest.mark.usual(5), pytest.mark.timeout(300)]


class Secrets:
    """A namespace, and the module with the login of the registry with TLS."""

    def __init__(self, registries: Registries, kube: Kube) -> None:
        self.registries, self.kube, self.namespace = registries, kube, kube.namespace()

    def run(self, *names: str, check: bool = False, **options: Any) -> Object:
        lab = self.registries.lab
        login = {"username": lab.env["LAB_REGISTRY_USER"], "password": self.registries.password}
        given: Object = {
            "gpu_cluster": {"name": lab.name, "kubeconfig": str(lab.kubeconfig)},
            "names": list(names),
            "namespaces": [self.namespace],
            "registries": [{"registry": self.registries.tls, **login}],
            **options,
        }
        environment = {"HOME": str(self.registries.folder)}
        return run_module(pull_secret.main, given, check=check, diff=True, env=environment)

    def done(self, *names: str, **options: Any) -> Object:
        """A successful run, which check mode predicts and which a second one does not repeat."""
        predicted = self.run(*names, check=True, **options)
        result = self.run(*names, **options)
        assert not result.get("failed"), result["msg"]
        assert (predicted["changed"], predicted["pull_secrets"], predicted["diff"]) == (
            result["changed"],
            result["pull_secrets"],
            result["diff"],
        )
        assert not self.run(*names, **options)["changed"]
        return result

    def auths(self, name: str) -> Object:
        """The logins of a Secret by registry."""
        actual = self.kube.require(f"/api/v1/namespaces/{self.namespace}/secrets/{name}")
        assert actual["type"] == "kubernetes.io/dockerconfigjson"
        document: Object = json.loads(base64.b64decode(actual["data"][".dockerconfigjson"]))
        return dict(document["auths"])

    def create(self, name: str, kind: str, **data: str) -> None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data}
        self.kube.client.create(f"/api/v1/namespaces/{self.namespace}/secrets", body)


@pytest.fixture
def secrets(registries: Registries, tmp_path: Path) -> Iterator[Secrets]:
    kube = Kube(registries.lab.kubeconfig, tmp_path)
    yield Secrets(registries, kube)
    kube.close()


def test_a_node_pulls_with_the_secret(secrets: Secrets) -> None:
    made = secrets.done("login", "other")
    assert [one["action"] for one in made["pull_secrets"]] == ["created", "created"]
    assert made["pull_secrets"][0]["registries"] == [secrets.registries.tls]
    assert secrets.registries.password not in json.dumps(made)
    encoded = secrets.auths("login")[secrets.registries.tls]["auth"]
    assert encoded not in json.dumps(made)

    repository = f"{secrets.registries.unique}/app"
    push_image(secrets.registries.client("LAB_REGISTRY_TLS"), repository, "1")
    container = {"name": "c", "image": f"{secrets.registries.tls}/{repository}:1"}
    body: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pulls"},
        "spec": {"containers": [container], "imagePullSecrets": [{"name": "login"}]},
    }
    pods = f"/api/v1/namespaces/{secrets.namespace}/pods"
    secrets.kube.client.create(pods, body)
    until(lambda: secrets.kube.require(f"{pods}/pulls")["status"].get("phase") == "Running", limit=60)


def test_logins_of_others_stay(secrets: Secrets) -> None:
    foreign = {
        "auths": {"registry.example.com": {"username": "a", "password": "b"}, secrets.registries.tls: {"auth": "eDp5"}}
    }
    secrets.create("login", "kubernetes.io/dockerconfigjson", **{".dockerconfigjson": json.dumps(foreign)})
    changed = secrets.done("login")
    assert changed["pull_secrets"][0]["action"] == "updated"
    auths = secrets.auths("login")
    assert auths["registry.example.com"] == foreign["auths"]["registry.example.com"]
    assert base64.b64decode(auths[secrets.registries.tls]["auth"]).decode().endswith(secrets.registries.password)


def test_without_a_login_secrets_are_only_verified(secrets: Secrets) -> None:
    missing = secrets.run("login", registries=[])
    assert missing["code"] == "invalid"
    assert f"Secret {secrets.namespace}/login does not exist, and no login is set" in missing["msg"]
    secrets.done("login")
    assert not secrets.run("login", registries=[])["changed"]


def test_secrets_of_another_type_are_not_changed(secrets: Secrets) -> None:
    secrets.create("login", "Opaque", token="x")
    refused = secrets.run("login")
    assert "has the type Opaque, not kubernetes.io/dockerconfigjson" in refused["msg"]


@pytest.mark.parametrize("as_text", [False, True])
def test_validation_pods_in_a_namespace_of_their_own(secrets: Secrets, as_text: bool) -> None:
    """The login may also be JSON text, as from a survey."""
    lab = secrets.registries.lab
    logins = secrets.registries.options()
    variables = {
        "gpu_cluster": {
            "name": lab.name,
            "operator": {"image_pull_secrets": ["login"]},
            "validation": {"namespace": secrets.namespace},
        },
        "gpu_pools": [{"name": "empty", "match": {"labels": {"no": "node"}}, "sharing": {"mode": "none"}}],
        "gpu_registries": json.dumps(logins) if as_text else logins,
    }
    inventory = REPO / "inventories" / "lab"
    arguments = ("--tags", "validation")
    for changed in (1, 0):
        done = run_playbook(
            "accel.gpu.site", environ=lab.env, inventory=inventory, variables=variables, arguments=arguments
        )
        assert done.require_success().changed() == changed
        assert secrets.registries.password not in done.stdout + done.stderr
    assert secrets.registries.tls in secrets.auths("login")
