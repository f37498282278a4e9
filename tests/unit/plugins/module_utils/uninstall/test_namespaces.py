# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Foreign objects in a namespace."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.helm.release import is_written_by_helm
from ansible_collections.accel.gpu.plugins.module_utils.kube.errors import ApiError
from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import helm_release_of
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import CREATED as CREATED_KINDS
from ansible_collections.accel.gpu.plugins.module_utils.uninstall.objects import (
    DepartingObjects,
    UnknownContents,
    foreign_objects,
    namespace_objects,
)

Object = dict[str, Any]


DEPARTING = DepartingObjects(
    frozenset({("nfd", "nfd-ns")}),
    objects=frozenset({("Lease.coordination.k8s.io", "accel-gpu-helm-nfd")}),
    contains=lambda _kind, item: helm_release_of(item) == ("nfd", "nfd-ns") and is_written_by_helm(item),
    created=CREATED_KINDS,
)
OWN_ENTRY = [{"manager": "accel.gpu", "fieldsV1": {"f:rules": {}}}]
CREATED_NEW_NODES: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN_ENTRY}
FOREIGN_ENTRY = [{"manager": "kubectl", "fieldsV1": {"f:data": {"f:own": {}}}}]
POLICY = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "uid": "elsewhere"}
HELM = {"meta.helm.sh/release-name": "nfd", "meta.helm.sh/release-namespace": "nfd-ns"}


def entry(kind: str, name: str, **metadata: Any) -> tuple[str, Object]:
    return kind, {"name": name, "namespace": "nfd-ns", "uid": f"uid-{name}", **metadata}


DEPARTING_OBJECTS = [
    entry("ConfigMap", "kube-root-ca.crt"),
    entry("ServiceAccount", "default"),
    entry("Event", "x.123"),
    entry("Lease.coordination.k8s.io", "53822513.nvidia.com"),
    entry("Lease.coordination.k8s.io", "accel-gpu-helm-nfd"),
    entry("ConfigMap", "accel-gpu-device-plugin", managedFields=OWN_ENTRY),
    entry("Pod", "validation-x", labels={"accel.gpu/validation": "p"}, managedFields=OWN_ENTRY),
    entry("DaemonSet.apps", "worker", annotations=HELM, managedFields=[{"manager": "helm"}]),
    entry("Pod", "worker-1", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("ControllerRevision.apps", "worker-abc", ownerReferences=[{"kind": "DaemonSet", "uid": "uid-worker"}]),
    entry("DaemonSet.apps", "driver", ownerReferences=[POLICY]),
    entry("Secret", "sh.helm.release.v1.nfd.v1", labels={"owner": "helm", "name": "nfd", "version": "1"}),
    entry("Secret", "default-dockercfg-x", annotations={"kubernetes.io/service-account.name": "default"}),
    entry("Secret", "registry-login", annotations={"accel.gpu/created": "true"}, managedFields=OWN_ENTRY),
    entry("NodeFeature.nfd.k8s-sigs.io", "t4-1", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
    entry("Role.rbac.authorization.k8s.io", "accel-gpu-new-nodes", uid="role", **CREATED_NEW_NODES),
    entry("RoleBinding.rbac.authorization.k8s.io", "accel-gpu-new-nodes", uid="binding", **CREATED_NEW_NODES),
    entry("Pod", "going", deletionTimestamp="2026-01-01T00:00:00Z"),
]
FOREIGN = [
    entry("ConfigMap", "dashboards"),
    entry("Lease.coordination.k8s.io", "foreign"),
    entry("Role.rbac.authorization.k8s.io", "accel-gpu-new-nodes", uid="role"),
    entry("RoleBinding.rbac.authorization.k8s.io", "accel-gpu-new-nodes", uid="binding", managedFields=OWN_ENTRY),
    entry("ConfigMap", "accel-gpu-device-plugin", uid="other", managedFields=[*OWN_ENTRY, *FOREIGN_ENTRY]),
    entry("Secret", "of-a-user"),
    entry("Secret", "sh.helm.release.v1.other.v1", labels={"owner": "helm", "name": "other"}),
    entry("Secret", "backup-of-a-record", labels={"owner": "helm", "name": "nfd", "version": "1"}),
    entry("Deployment.apps", "copy", annotations=HELM, managedFields=FOREIGN_ENTRY),
    entry("Deployment.apps", "web", annotations={**HELM, "meta.helm.sh/release-name": "other"}),
    entry("Pod", "of-a-job-elsewhere", ownerReferences=[{"kind": "Workflow", "uid": "elsewhere"}]),
    # Kinds of other tools with the name of a kind of Kubernetes, NVIDIA or NFD.
    entry("Event.example.com", "kube-root-ca.crt"),
    entry("ConfigMap.example.com", "kube-root-ca.crt", uid="other"),
    entry("Lease.example.com", "accel-gpu-helm-nfd", uid="other"),
    entry("Lease.example.com", "53822513.nvidia.com", uid="other"),
    entry("Pod.example.com", "validation-x", labels={"accel.gpu/validation": "p"}, managedFields=OWN_ENTRY),
    entry("Secret.example.com", "default-dockercfg-x", annotations={"kubernetes.io/service-account.name": "default"}),
    entry("NodeFeature.example.com", "t4-1", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
    entry("DaemonSet.apps", "of-kyverno", ownerReferences=[{**POLICY, "apiVersion": "kyverno.io/v1"}]),
    entry("NodeFeature.nfd.k8s-sigs.io", "my-fpga", labels={"nfd.node.kubernetes.io/node-name": "t4-1"}),
]


def test_departing_objects_are_not_foreign() -> None:
    assert foreign_objects(DEPARTING_OBJECTS, DEPARTING) == []


@pytest.mark.parametrize("actual", FOREIGN, ids=[name["name"] for _kind, name in FOREIGN])
def test_foreign_objects_are_named(actual: tuple[str, Object]) -> None:
    others = [entry for entry in DEPARTING_OBJECTS if entry[1]["name"] != actual[1]["name"]]
    assert foreign_objects([*others, actual], DEPARTING) == [f"{actual[0].partition('.')[0]} {actual[1]['name']}"]


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
    assert foreign_objects([entry("ReplicaSet.apps", "web"), pod], DEPARTING) == ["ReplicaSet web"]


CREATED: Object = {"annotations": {"accel.gpu/created": "true"}, "managedFields": OWN_ENTRY}
OF_PACKAGE = {"operators.coreos.com/nfd.openshift-nfd": ""}


@pytest.mark.parametrize(
    ("item", "departs"),
    [
        (entry("OperatorGroup.operators.coreos.com", "openshift-nfd", **CREATED), True),
        (entry("Subscription.operators.coreos.com", "nfd", **CREATED, labels=OF_PACKAGE), True),
        (entry("ClusterServiceVersion.operators.coreos.com", "nfd.v4.18.0", labels=OF_PACKAGE), True),
        (entry("Role.rbac.authorization.k8s.io", "prometheus-k8s", labels={"olm.managed": "true"}), True),
        # An operator of another tool, which stays.
        (
            entry(
                "Subscription.operators.coreos.com", "other", labels={"operators.coreos.com/other.openshift-nfd": ""}
            ),
            False,
        ),
        (entry("OperatorGroup.operators.coreos.com", "theirs"), False),
        (entry("OperatorGroup.operators.coreos.com", "copy", **{**CREATED, "managedFields": FOREIGN_ENTRY}), False),
        (entry("ConfigMap", "theirs"), False),
    ],
)
def test_objects_of_an_operator_of_olm(item: tuple[str, Object], departs: bool) -> None:
    assert bool(foreign_objects([item], DepartingObjects(by_olm=True))) != departs
    assert foreign_objects([item], DepartingObjects()), "without OLM, all of them are foreign"


def api(group: str, *versions: str) -> Object:
    """An API group; its first version is the preferred one."""
    entries = [{"groupVersion": f"{group}/{version}"} for version in versions]
    return {"name": group, "preferredVersion": entries[0], "versions": entries}


def resource(kind: str, *, verbs: tuple[str, ...] = ("list", "delete")) -> Object:
    return {"kind": kind, "name": f"{kind.lower()}s", "namespaced": True, "verbs": [*verbs]}


class Apis:
    """Kinds by path of their version. Each listing has one object, whose name is the path; a path of `broken` fails."""

    GROUPS: tuple[Object, ...] = (
        api("monitoring.coreos.com", "v1", "v1alpha1"),
        api("gateway.networking.k8s.io", "v1", "v1beta1"),
        api("events.k8s.io", "v1"),
    )
    KINDS: dict[str, list[Object]] = {
        "/api/v1": [resource("ConfigMap"), resource("Endpoints")],
        "/apis/monitoring.coreos.com/v1": [resource("PodMonitor")],
        "/apis/monitoring.coreos.com/v1alpha1": [resource("ScrapeConfig")],
        # A kind whose preferred version cannot be listed, and one that both versions serve.
        "/apis/gateway.networking.k8s.io/v1": [resource("Gateway"), resource("TCPRoute", verbs=("get",))],
        "/apis/gateway.networking.k8s.io/v1beta1": [resource("Gateway"), resource("TCPRoute")],
        "/apis/events.k8s.io/v1": [resource("Event")],
    }

    def __init__(self, broken: str = "") -> None:
        self._broken = broken

    def get(self, path: str) -> Object | None:
        if path == self._broken:
            raise ApiError("no backend", status=503)
        return {"groups": self.GROUPS} if path == "/apis" else {"resources": self.KINDS[path]}

    def list(self, path: str, *, metadata_only: bool) -> list[Object]:
        assert metadata_only
        return [{"metadata": {"name": path}}]


def test_kinds_of_all_versions_are_listed_once() -> None:
    kinds = {kind: metadata["name"] for kind, metadata in namespace_objects(cast(Any, Apis()), "n")}
    assert kinds == {
        "ConfigMap": "/api/v1/namespaces/n/configmaps",
        "PodMonitor.monitoring.coreos.com": "/apis/monitoring.coreos.com/v1/namespaces/n/podmonitors",
        "ScrapeConfig.monitoring.coreos.com": "/apis/monitoring.coreos.com/v1alpha1/namespaces/n/scrapeconfigs",
        "Gateway.gateway.networking.k8s.io": "/apis/gateway.networking.k8s.io/v1/namespaces/n/gateways",
        "TCPRoute.gateway.networking.k8s.io": "/apis/gateway.networking.k8s.io/v1beta1/namespaces/n/tcproutes",
        "Event": "/apis/events.k8s.io/v1/namespaces/n/events",
    }


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
def test_a_version_that_does_not_respond(version: str) -> None:
    with pytest.raises(UnknownContents, match=f"monitoring.coreos.com/{version} does not respond"):
        namespace_objects(cast(Any, Apis(f"/apis/monitoring.coreos.com/{version}")), "n")
