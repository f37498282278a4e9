# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube_object on a real API server: check mode predicts the run, and equal objects cost no write."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.accel.gpu.plugins.modules import kube_object
from tests.faults.api_proxy import Answer, Request
from tests.helpers.kube import Kube
from tests.helpers.polling import until

Object = dict[str, Any]


def configmap(namespace: str, **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": namespace, "labels": {"team": "a"}},
        "data": data,
    }


def deployment(namespace: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "hostNetwork": False,
                    "tolerations": [{"key": "gpu", "operator": "Exists"}],
                    "containers": [
                        {
                            "name": "main",
                            "image": "registry.example/web:1",
                            "ports": [{"containerPort": 80}],
                            "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                            "resources": {"limits": {"cpu": "1500m", "memory": "1024Mi", "nvidia.com/gpu": 1}},
                        }
                    ],
                    "volumes": [{"name": "v", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}}],
                },
            },
        },
    }


def cluster_role(name: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}],
    }


def crd(prefix: str) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{prefix}.example.com"},
        "spec": {
            "group": f"{prefix}.example.com",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {
                                        "size": {"type": "integer", "default": 3},
                                        "name": {"type": "string"},
                                    },
                                }
                            },
                        }
                    },
                }
            ],
        },
    }


def thing(prefix: str, namespace: str) -> Object:
    return {
        "apiVersion": f"{prefix}.example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "one", "namespace": namespace},
        "spec": {"name": "x"},
    }


def actions(result: Object) -> list[str]:
    return [entry["action"] for entry in result["kube_object"]["objects"]]


def converge(kube: Kube, definitions: list[Object], **options: Any) -> Object:
    """Check mode, run, run again: the first two have the same result, the last one changes nothing and writes nothing."""
    predicted = kube.run(kube_object.main, check=True, definitions=definitions, **options)
    done = kube.run(kube_object.main, definitions=definitions, **options)
    assert predicted == done
    with kube.watched() as watched:
        again = kube.run(kube_object.main, definitions=definitions, kubeconfig=watched.kubeconfig, **options)
        assert again["changed"] is False
        assert {line.split()[0] for line in watched.new_requests()} <= {"GET"}
    assert kube.run(kube_object.main, check=True, definitions=definitions, **options) == again
    return done


def test_create_update_delete(kube: Kube) -> None:
    namespace = kube.namespace()
    definitions = [configmap(namespace, a="1", b="2"), deployment(namespace), cluster_role(kube.prefix)]
    kube.delete_afterwards(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{kube.prefix}")
    created = converge(kube, definitions)
    assert actions(created) == ["created"] * 3
    assert [diff["before"] for diff in created["diff"]] == [{}, {}, {}]

    edited = copy.deepcopy(definitions)
    edited[0]["data"] = {"b": "3"}
    del edited[0]["metadata"]["labels"]
    updated = converge(kube, edited)
    assert actions(updated) == ["updated", "unchanged", "unchanged"]
    live = kube.require(f"/api/v1/namespaces/{namespace}/configmaps/settings")
    assert (live["data"], live["metadata"].get("labels")) == ({"b": "3"}, None)

    deleted = converge(kube, edited, state="absent", confirm=[kube.client.connection.cluster_name])
    assert actions(deleted) == ["deleted"] * 3


def test_other_notations_of_equal_values_cost_no_request(kube: Kube) -> None:
    namespace = kube.namespace()
    converge(kube, [configmap(namespace, a="1"), deployment(namespace)])
    other = deployment(namespace)
    pod = other["spec"]["template"]["spec"]
    pod["containers"][0]["resources"]["limits"] = {"cpu": 1.5, "memory": "1Gi", "nvidia.com/gpu": "1"}
    pod["containers"][0]["ports"][0]["protocol"] = "TCP"
    with kube.watched() as watched:
        result = kube.run(kube_object.main, definitions=[other], kubeconfig=watched.kubeconfig)
        assert result["changed"] is False
        assert watched.new_requests() == [f"GET /apis/apps/v1/namespaces/{namespace}/deployments/web"]


def test_foreign_fields_stay(kube: Kube) -> None:
    namespace = kube.namespace()
    converge(kube, [configmap(namespace, a="1")])
    path = f"/api/v1/namespaces/{namespace}/configmaps/settings"
    kube.client.apply(
        path, {**configmap(namespace, foreign="x"), "metadata": {"name": "settings"}}, manager="other-manager"
    )
    converge(kube, [configmap(namespace, b="2")])
    assert kube.require(path)["data"] == {"b": "2", "foreign": "x"}


def test_an_element_of_an_atomic_list_loses_a_field(kube: Kube) -> None:
    namespace = kube.namespace()
    first = deployment(namespace)
    first["spec"]["template"]["spec"]["tolerations"][0]["effect"] = "NoSchedule"
    converge(kube, [first])
    assert actions(converge(kube, [deployment(namespace)])) == ["updated"]


def test_without_force_a_conflict_names_the_other_owner(kube: Kube) -> None:
    namespace = kube.namespace()
    path = f"/api/v1/namespaces/{namespace}/configmaps/settings"
    kube.client.apply(path, configmap(namespace, a="theirs"), manager="other-manager")
    for check in (True, False):
        result = kube.run(kube_object.main, check=check, definitions=[configmap(namespace, a="managed")], force=False)
        assert result["failed"]
        assert "other-manager" in result["msg"]
        assert result["code"] == 409
    assert kube.run(kube_object.main, definitions=[configmap(namespace, a="managed")])["changed"]


def test_a_kind_that_is_defined_in_the_same_list(kube: Kube) -> None:
    prefix = kube.prefix
    kube.delete_afterwards(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{prefix}.example.com")
    kube.delete_afterwards(f"/api/v1/namespaces/{prefix}")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": prefix}}
    definitions = [thing(prefix, prefix), crd(prefix), namespace]
    predicted = kube.run(kube_object.main, check=True, definitions=definitions)
    done = kube.run(kube_object.main, definitions=definitions)
    assert actions(predicted) == actions(done) == ["created"] * 3
    assert [entry["kind"] for entry in done["kube_object"]["objects"]][-1] == "Thing"
    again = kube.run(kube_object.main, definitions=definitions)
    assert again["changed"] is False
    # The schema's default is set now and is no difference.
    live = kube.require(f"/apis/{prefix}.example.com/v1/namespaces/{prefix}/things/one")
    assert live["spec"] == {"name": "x", "size": 3}


@pytest.mark.parametrize("check", [True, False])
def test_a_missing_kind_or_namespace_fails_in_both_modes(kube: Kube, check: bool) -> None:
    namespace = kube.namespace()
    misspelt = {**deployment(namespace), "kind": "Deploiment"}
    result = kube.run(
        kube_object.main,
        check=check,
        definitions=[
            configmap(namespace, a="1"),
            misspelt,
            thing("nowhere", namespace),
            {**configmap(namespace), "metadata": {"name": "x"}},
        ],
    )
    assert result["failed"]
    assert result["code"] == "invalid"
    kind, group, place = result["details"]["problems"]
    assert "has no kind 'Deploiment'" in kind
    assert "Did you mean Deployment?" in kind
    assert "no API 'nowhere.example.com/v1'" in group
    assert "metadata.namespace is missing" in place
    assert kube.client.get(f"/api/v1/namespaces/{namespace}/configmaps/settings") is None

    elsewhere = kube.run(kube_object.main, check=check, definitions=[configmap("no-such-namespace", a="1")])
    assert "Namespace 'no-such-namespace' does not exist" in elsewhere["msg"]


def test_expected_objects_are_previewed(kube: Kube) -> None:
    expected = {
        "namespaces": ["comes-later"],
        "kinds": [{"api_version": "nowhere.example.com/v1", "kind": "Thing"}],
    }
    definitions = [configmap("comes-later", a="1"), thing("nowhere", "comes-later")]
    result = kube.run(kube_object.main, check=True, definitions=definitions, expected=expected)
    assert actions(result) == ["created", "created"]
    assert all(diff["before"] == {} for diff in result["diff"])
    real = kube.run(kube_object.main, definitions=definitions, expected=expected)
    assert real["failed"]


def test_a_user_with_read_access_gets_a_marked_preview(kube: Kube) -> None:
    namespace = kube.namespace()
    reader = kube.limited_user([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}])
    definitions = [configmap(namespace, a="1")]
    result = kube.run(kube_object.main, check=True, definitions=definitions, kubeconfig=reader)
    assert result["kube_object"]["objects"][0]["unchecked"].startswith("not checked by the server")
    real = kube.run(kube_object.main, definitions=definitions, kubeconfig=reader)
    assert real["code"] == 403
    assert 'verbs: ["' in real["msg"]


@pytest.mark.parametrize("check", [True, False])
def test_a_quota_that_refuses_an_object_fails_in_both_modes(kube: Kube, check: bool) -> None:
    namespace = kube.namespace()
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/none"
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
    kube.client.apply(path, {**quota, "spec": {"hard": {"count/services": "0"}}})
    until(lambda: "hard" in ((kube.client.get(path) or {}).get("status") or {}))
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"ports": [{"port": 80}]},
    }
    refused = kube.run(kube_object.main, definitions=[service], check=check)
    assert refused["failed"] is True
    assert "exceeded quota: none" in refused["msg"]


def test_an_unknown_field_is_refused(kube: Kube) -> None:
    namespace = kube.namespace()
    wrong = deployment(namespace)
    wrong["spec"]["replicaz"] = 1
    for check in (True, False):
        first = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"c-{check}".lower(), "namespace": namespace},
        }
        result = kube.run(kube_object.main, check=check, definitions=[first, wrong])
        assert result["failed"]
        assert "replicaz" in result["msg"]
        assert actions(result) == ["created"]


def test_a_lost_response_has_no_effect(kube: Kube) -> None:
    namespace = kube.namespace()
    with kube.watched() as watched:
        fails = iter([Answer(503, headers={"Retry-After": "0"}), Answer(429, headers={"Retry-After": "0"})])

        def before(request: Request) -> Answer | None:
            return next(fails, None) if request.method == "PATCH" else None

        watched.proxy.before = before
        result = kube.run(kube_object.main, definitions=[configmap(namespace, a="1")], kubeconfig=watched.kubeconfig)
        assert actions(result) == ["created"]
        assert next(fails, None) is None


def test_a_secret_is_not_shown(kube: Kube) -> None:
    namespace = kube.namespace()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
        "stringData": {"token": "very-secret-token"},
    }
    result = converge(kube, [secret])
    shown = str(result)
    assert "very-secret-token" not in shown
    assert "dmVyeS1zZWNyZXQtdG9rZW4=" not in shown
