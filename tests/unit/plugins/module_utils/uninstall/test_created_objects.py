# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of created objects: which objects are found, and how they are deleted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.core.waits import Progress
from ansible_collections.accel.gpu.plugins.module_utils.kube.client import Client
from ansible_collections.accel.gpu.plugins.module_utils.kube.lease import Lease
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    AFTER_OPERANDS,
    CREATED,
    DRIVERS,
    NEW_NODES,
    NEW_NODES_PERMISSIONS,
    OF_OPERATORS,
    VALIDATION_PODS,
    CreatedKind,
    created_removals,
)
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.removal import COPIED
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.stages import NewNodes

Object = dict[str, Any]

DRIVER = {"app.kubernetes.io/managed-by": "accel.gpu"}
OWN = [{"manager": "accel.gpu", "fieldsV1": {"f:data": {"f:a": {}}}}]
CREATED_HERE: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN}
BOTH = [*OWN, {"manager": "kubectl", "fieldsV1": {"f:data": {"f:b": {}}}}]


class FakeClient:
    """Objects by the path of their collection; a selector of names is applied."""

    def __init__(self, **objects: list[Object]) -> None:
        self.objects = objects
        self.sent: list[tuple[str, Object | None, bool]] = []
        self.read: list[str] = []

    def get(self, path: str) -> None:
        self.read.append(path)

    def list(self, path: str, **options: Any) -> list[Object]:
        selector = options.get("field_selector", "")
        name = selector.removeprefix("metadata.name=") if selector.startswith("metadata.name=") else ""
        actual = self.objects.get(path.rpartition("/")[2], [])
        return [item for item in actual if not name or item["metadata"]["name"] == name]

    def delete(self, path: str, *, body: Object | None = None, dry_run: bool = False) -> None:
        self.sent.append((path, body, dry_run))


def item(name: str, namespace: str | None = "gpus", **metadata: Any) -> Object:
    scope = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **scope, **metadata}}


def removed(client: Any, kinds: tuple[CreatedKind, ...]) -> list[str]:
    labels = []
    for removal in created_removals(client, kinds):
        labels.append(f"{removal.label}: {removal.action}")
        if removal.check is not None:
            removal.check()
        if removal.send is not None:
            removal.send()
    return labels


def test_only_objects_of_the_name_and_with_a_mark_are_deleted() -> None:
    client = FakeClient(
        cronjobs=[item("accel-gpu-new-nodes", **CREATED_HERE), item("other", **CREATED_HERE)],
        serviceaccounts=[item("accel-gpu-new-nodes", annotations={"accel.gpu/created": "true"})],
    )
    assert removed(client, NEW_NODES) == ["CronJob gpus/accel-gpu-new-nodes: deleted"]
    body = {"preconditions": {"uid": "uid-accel-gpu-new-nodes"}}
    path = "/apis/batch/v1/namespaces/gpus/cronjobs/accel-gpu-new-nodes"
    assert client.sent == [(path, body, True), (path, body, False)], "check mode sends the same request as a dry run"


def test_cluster_wide_objects_have_no_namespace() -> None:
    client = FakeClient(clusterroles=[item("accel-gpu-new-nodes", None, **CREATED_HERE)])
    assert removed(client, NEW_NODES_PERMISSIONS) == ["ClusterRole accel-gpu-new-nodes: deleted"]
    assert client.sent[0][0] == "/apis/rbac.authorization.k8s.io/v1/clusterroles/accel-gpu-new-nodes"
    drivers = FakeClient(
        nvidiadrivers=[item("a", None, labels=DRIVER, managedFields=OWN), item("copy", None, labels=DRIVER), item("b")]
    )
    assert removed(drivers, (DRIVERS,)) == ["NVIDIADriver a: deleted"]
    assert drivers.sent[0][0] == "/apis/nvidia.com/v1alpha1/nvidiadrivers/a"


def test_objects_of_another_owner_that_an_earlier_run_wrote_are_kept_and_named() -> None:
    """The namespace and the cluster-wide objects of the CronJob, whose names are fixed."""
    name = "accel-gpu-new-nodes"
    client = FakeClient(
        cronjobs=[item(name, **CREATED_HERE)],
        configmaps=[item(name, managedFields=BOTH), item(name, "unrelated")],
        serviceaccounts=[item(name, managedFields=OWN), item(name, "copied", annotations=CREATED_HERE["annotations"])],
        clusterroles=[item(name, None, managedFields=OWN)],
        clusterrolebindings=[
            {**item(name, None, managedFields=OWN), "subjects": [{"kind": "ServiceAccount", "namespace": "theirs"}]}
        ],
    )
    stage = NewNodes(client=cast(Client, client), progress=cast(Progress, None), waiting=None)
    stage.read()
    assert stage.planned() == ["CronJob gpus/accel-gpu-new-nodes"]
    assert client.read == ["/api/v1/namespaces/gpus"], "only the namespaces of own objects may be deleted"
    stage.send(stage.removals, cast(Lease, SimpleNamespace(check=lambda: None)))
    assert [path for path, dummy, dry_run in client.sent] == [f"/apis/batch/v1/namespaces/gpus/cronjobs/{name}"]
    foreign = "this collection did not create it"
    assert stage.result.kept == [
        f"ConfigMap gpus/{name}: {foreign}",
        f"ServiceAccount gpus/{name}: {foreign}",
        f"ServiceAccount copied/{name}: {COPIED}",
        f"ClusterRole {name}: {foreign}",
        f"ClusterRoleBinding {name}: {foreign}",
    ]


def test_a_kind_may_have_its_own_removal() -> None:
    configmap = {**item("accel-gpu-mig-parted", managedFields=BOTH), "data": {"a": "1", "b": "2"}}
    (removal,) = created_removals(cast(Client, FakeClient(configmaps=[configmap])), AFTER_OPERANDS)
    assert (removal.label, removal.action) == ("ConfigMap gpus/accel-gpu-mig-parted", "managed entries removed")
    labels = {"accel.gpu/validation": "p"}
    client = FakeClient(pods=[item("x", labels=labels, managedFields=OWN), item("copy", labels=labels)])
    assert removed(client, VALIDATION_PODS) == ["validation pods: deleted"]
    assert client.sent == [("/api/v1/namespaces/gpus/pods/x", None, False)]


@pytest.mark.parametrize(
    ("kind", "metadata", "deleted"),
    [
        ("ConfigMap", {"name": "accel-gpu-mig-parted", "managedFields": OWN}, True),
        ("ConfigMap", {"name": "accel-gpu-mig-parted", "managedFields": BOTH}, False),
        ("ConfigMap", {"name": "accel-gpu-mig-parted"}, False),
        ("ConfigMap", {"name": "other", "managedFields": OWN}, False),
        ("CronJob.batch", {"name": "accel-gpu-new-nodes", **CREATED_HERE}, True),
        ("CronJob.batch", {"name": "accel-gpu-new-nodes", "managedFields": OWN}, False),
        ("CronJob.of-a-user", {"name": "accel-gpu-new-nodes", **CREATED_HERE}, False),
        ("ServiceAccount", {"name": "accel-gpu-new-nodes", "managedFields": OWN}, False),
        ("Deployment.apps", {"name": "accel-gpu-new-nodes", **CREATED_HERE}, False),
        ("Pod", {"name": "any"}, False),
    ],
)
def test_what_keeps_no_namespace(kind: str, metadata: Object, deleted: bool) -> None:
    assert any(created.is_deleted(kind, metadata) for created in CREATED) == deleted


def test_a_copied_secret_is_not_deleted() -> None:
    """`kubectl get -o yaml`, an editor and `kubectl apply` carry labels and annotations to a copy, but not the record of the field manager."""
    created = {"accel.gpu/created": "true"}
    copy = item("copy", annotations=created, managedFields=[{"manager": "kubectl-client-side-apply"}])
    client = FakeClient(secrets=[item("token", annotations=created, managedFields=OWN), copy])
    assert removed(client, OF_OPERATORS) == ["Secret gpus/token: deleted"]
