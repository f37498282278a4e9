# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign objects in a namespace."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import CREATED as CREATED_KINDS
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import DepartingObjects, foreign_objects

Object = dict[str, Any]


DEPARTING = DepartingObjects(
    frozenset({("nfd", "nfd-ns")}),
    frozenset({("Lease", "accel-gpu-helm-nfd")}),
    created=CREATED_KINDS,
)
OWN_ENTRY = [{"manager": "accel.gpu", "fieldsV1": {"f:rules": {}}}]
CREATED_NEW_NODES: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN_ENTRY}
FOREIGN_ENTRY = [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:own": {}}}}]
HELM = {"meta.helm.sh/release-name": "nfd", "meta.helm.sh/release-namespace": "nfd-ns"}


def entry(kind: str, name: str, **metadata: Any) -> tuple[str, Object]:
    return kind, {"name": name, "namespace": "nfd-ns", "uid": f"uid-{name}", **metadata}


DEPARTING_OBJECTS = [
    entry("ConfigMap", "kube-root-ca.crt"),
    entry("ServiceAccount", "default"),
    entry("Event", "x.123"),
    entry("Lease", "53822513.nvidia.com"),
    entry("Lease", "accel-gpu-helm-nfd"),
    entry("ConfigMap", "accel-gpu-device-plugin", managedFields=OWN_ENTRY),
    entry("Pod", "validation-x", labels={"accel.gpu/validation": "p"}, managedFields=OWN_ENTRY),
    entry("DaemonSet", "worker", annotations=HELM),
    entry("Pod", "worker-1", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("ControllerRevision", "worker-abc", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("DaemonSet", "driver", ownerReferences=[{"kind": "ClusterPolicy", "uid": "elsewhere"}]),
    entry("Secret", "sh.helm.release.v1.nfd.v1", labels={"owner": "helm", "name": "nfd"}),
    entry("Secret", "default-dockercfg-x", annotations={"kubernetes.io/service-account.name": "default"}),
    entry("Secret", "registry-login", annotations={"accel.gpu/created": "true"}, managedFields=OWN_ENTRY),
    entry("NodeFeature", "t4-1", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
    entry("Role", "accel-gpu-new-nodes", uid="role", **CREATED_NEW_NODES),
    entry("RoleBinding", "accel-gpu-new-nodes", uid="binding", **CREATED_NEW_NODES),
    entry("Pod", "going", deletionTimestamp="2026-01-01T00:00:00Z"),
]
FOREIGN = [
    entry("ConfigMap", "dashboards"),
    entry("Lease", "foreign"),
    entry("Role", "accel-gpu-new-nodes", uid="role"),
    entry("RoleBinding", "accel-gpu-new-nodes", uid="binding", managedFields=OWN_ENTRY),
    entry("ConfigMap", "accel-gpu-device-plugin", uid="other", managedFields=[*OWN_ENTRY, *FOREIGN_ENTRY]),
    entry("Secret", "of-a-user"),
    entry("Secret", "sh.helm.release.v1.other.v1", labels={"owner": "helm", "name": "other"}),
    entry("Deployment", "web", annotations={**HELM, "meta.helm.sh/release-name": "other"}),
    entry("Pod", "of-a-job-elsewhere", ownerReferences=[{"kind": "Workflow", "uid": "elsewhere"}]),
    entry("NodeFeature", "my-fpga", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
]


def test_departing_objects_are_not_foreign() -> None:
    assert foreign_objects(DEPARTING_OBJECTS, DEPARTING) == []


@pytest.mark.parametrize("actual", FOREIGN, ids=[name["name"] for _kind, name in FOREIGN])
def test_foreign_objects_are_named(actual: tuple[str, Object]) -> None:
    others = [entry for entry in DEPARTING_OBJECTS if entry[1]["name"] != actual[1]["name"]]
    assert foreign_objects([*others, actual], DEPARTING) == [f"{actual[0]} {actual[1]['name']}"]


def test_objects_of_licensing() -> None:
    """The stage before Helm deletes them, unless a kept object names them; in check mode, they still exist."""
    made: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN_ENTRY}
    token, login = entry("ConfigMap", "licensing-config", **made), entry("Secret", "token", **made)
    assert foreign_objects([token, login], DEPARTING) == ["ConfigMap licensing-config"]
    named = DepartingObjects(
        objects=frozenset({("ConfigMap", "licensing-config")}), kept=frozenset({("Secret", "token")})
    )
    assert foreign_objects([token, login], named) == ["Secret token"]


def test_an_owned_object_is_reported_by_its_owner() -> None:
    pod = entry("Pod", "web-1", ownerReferences=[{"kind": "ReplicaSet", "uid": "uid-web"}])
    assert foreign_objects([entry("ReplicaSet", "web"), pod], DEPARTING) == ["ReplicaSet web"]


CREATED: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN_ENTRY}
OF_PACKAGE = {"operators.coreos.com/nfd.openshift-nfd": ""}


@pytest.mark.parametrize(
    ("item", "departs"),
    [
        (entry("OperatorGroup", "openshift-nfd", **CREATED), True),
        (entry("Subscription", "nfd", **CREATED, labels=OF_PACKAGE), True),
        (entry("ClusterServiceVersion", "nfd.v4.18.0", labels=OF_PACKAGE), True),
        (entry("Role", "prometheus-k8s", labels={"olm.managed": "true"}), True),
        # An operator of another tool, which stays.
        (entry("Subscription", "other", labels={"operators.coreos.com/other.openshift-nfd": ""}), False),
        (entry("OperatorGroup", "theirs"), False),
        (entry("OperatorGroup", "copy", **{**CREATED, "managedFields": FOREIGN_ENTRY}), False),
        (entry("ConfigMap", "theirs"), False),
    ],
)
def test_objects_of_an_operator_of_olm(item: tuple[str, Object], departs: bool) -> None:
    assert bool(foreign_objects([item], DepartingObjects(by_olm=True))) != departs
    assert foreign_objects([item], DepartingObjects()), "without OLM, all of them are foreign"
