# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects with a fixed name that a role creates: an object of another owner that already has the name is not taken over."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.objects import InvalidObjects, ObjectWriter

Object = dict[str, Any]

NAME = "accel-gpu-new-nodes"
CREATED = {"annotations": {"accel.gpu/created": "true"}}
# A takeover with force may leave only the collection's record.
TAKEN_OVER = {"managedFields": [{"manager": "accel.gpu", "operation": "Apply"}]}
BY_KUBECTL = {"managedFields": [{"manager": "kubectl-create", "operation": "Update"}, *TAKEN_OVER["managedFields"]]}
BY_HELM = {"annotations": {"meta.helm.sh/release-name": "tools", "meta.helm.sh/release-namespace": "apps"}}


class Server:
    """Objects by path; applies are recorded."""

    def __init__(self, live: dict[str, Object]) -> None:
        self.live = live
        self.applied: list[str] = []
        self.reads = 0

    def get(self, path: str) -> Object | None:
        self.reads += 1
        return self.live.get(path)

    def apply(self, path: str, body: Object, **dummy: Any) -> Object:
        self.applied.append(path)
        return body


def definition(kind: str, api_version: str = "v1", namespace: str | None = NAME) -> Object:
    scope = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": NAME, **scope, "labels": {"own": "yes"}}}


NAMESPACE = definition("Namespace", namespace=None)
ACCOUNT, CONFIGMAP = definition("ServiceAccount"), definition("ConfigMap")
JOB = definition("CronJob", "batch/v1")
ROLE = definition("ClusterRole", "rbac.authorization.k8s.io/v1", None)
BINDING = definition("ClusterRoleBinding", "rbac.authorization.k8s.io/v1", None)
PATHS = {
    "Namespace": f"/api/v1/namespaces/{NAME}",
    "ServiceAccount": f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}",
    "ConfigMap": f"/api/v1/namespaces/{NAME}/configmaps/{NAME}",
    "CronJob": f"/apis/batch/v1/namespaces/{NAME}/cronjobs/{NAME}",
    "ClusterRole": f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}",
    "ClusterRoleBinding": f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{NAME}",
}
DEFINITIONS = [NAMESPACE, ACCOUNT, CONFIGMAP, JOB, ROLE, BINDING]


def existing(body: Object, metadata: Object) -> Object:
    scope = {key: value for key, value in body["metadata"].items() if key != "labels"}
    return {**body, "metadata": {**scope, "uid": "u", "resourceVersion": "7", **metadata}}


def apply(server: Server, *, check: bool, record: bool = True) -> None:
    writer = ObjectWriter(cast(Client, server), check, lambda: None, record_creation=record)
    writer.apply(DEFINITIONS)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("body", DEFINITIONS[1:], ids=lambda body: str(body["kind"]))
@pytest.mark.parametrize(
    ("metadata", "owner"),
    [({}, ""), (TAKEN_OVER, ""), (BY_KUBECTL, "field manager kubectl-create"), (BY_HELM, "Helm release apps/tools")],
)
def test_a_foreign_object_of_the_name_fails_before_any_change(
    body: Object, metadata: Object, owner: str, check: bool
) -> None:
    server = Server({PATHS[body["kind"]]: existing(body, metadata)})
    with pytest.raises(InvalidObjects) as raised:
        apply(server, check=check)
    message = str(raised.value)
    scope = f"{NAME}/" if "namespace" in body["metadata"] else ""
    assert f"{body['kind']} {scope}{NAME}" in message
    assert "this collection did not create it" in message
    assert owner in message
    assert "accel.gpu/created=true" in message, "how to hand it over, or to restore a lost mark"
    assert server.applied == []


def test_an_object_that_appears_while_the_run_waits_for_the_lease_fails_too() -> None:
    server = Server({})

    def wait() -> None:
        server.live[PATHS["ConfigMap"]] = existing(CONFIGMAP, {})

    with pytest.raises(InvalidObjects, match="ConfigMap"):
        ObjectWriter(cast(Client, server), False, wait, record_creation=True).apply(DEFINITIONS)
    assert server.applied == []


@pytest.mark.parametrize(
    ("live", "record"),
    [
        ({}, True),
        ({PATHS["Namespace"]: existing(NAMESPACE, {})}, True),
        # Also after a restore from a backup, which has no record of field managers.
        ({PATHS[body["kind"]]: existing(body, CREATED) for body in DEFINITIONS}, True),
        ({PATHS[body["kind"]]: existing(body, {}) for body in DEFINITIONS}, False),
    ],
)
def test_own_objects_and_namespaces_are_applied(live: dict[str, Object], record: bool) -> None:
    server = Server(live)
    apply(server, check=False, record=record)
    assert sorted(server.applied) == sorted(PATHS.values())
