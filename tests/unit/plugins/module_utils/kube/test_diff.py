# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cases of the comparison: changes that the API server makes to objects are no difference, all others are."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.accel.gpu.plugins.module_utils.kube.fields import difference, normalized, shown

Object = dict[str, t.Any]

DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "nginx:1",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": "1000m", "memory": "1Gi", "nvidia.com/gpu": 1}},
                    }
                ],
                "tolerations": [{"key": "gpu", "operator": "Exists"}],
            },
        },
    },
}

_MANAGED = {
    "f:metadata": {"f:labels": {"f:app": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:selector": {},
        "f:template": {
            "f:metadata": {"f:labels": {"f:app": {}}},
            "f:spec": {
                "f:containers": {
                    'k:{"name":"main"}': {
                        ".": {},
                        "f:name": {},
                        "f:image": {},
                        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
                        "f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}, "f:nvidia.com/gpu": {}}},
                    }
                },
                "f:tolerations": {},
            },
        },
    },
}


def live_deployment() -> Object:
    """As the API server gives it back: with defaults, quantities in its own form, and a foreign container."""
    live = copy.deepcopy(DEPLOYMENT)
    live["metadata"].update(
        resourceVersion="7",
        uid="u",
        generation=1,
        creationTimestamp="2026-01-01T00:00:00Z",
        managedFields=[
            {"manager": "accel.gpu", "operation": "Apply", "fieldsV1": copy.deepcopy(_MANAGED)},
            {
                "manager": "mesh",
                "operation": "Update",
                "fieldsV1": {
                    "f:spec": {
                        "f:template": {"f:spec": {"f:containers": {'k:{"name":"proxy"}': {".": {}, "f:name": {}}}}}
                    }
                },
            },
        ],
    )
    live["spec"]["strategy"] = {"type": "RollingUpdate"}
    pod = live["spec"]["template"]["spec"]
    pod["restartPolicy"] = "Always"
    pod["containers"][0].update(imagePullPolicy="IfNotPresent")
    pod["containers"][0]["ports"] = [{"containerPort": 80, "protocol": "TCP"}]
    pod["containers"][0]["resources"] = {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    pod["containers"].insert(0, {"name": "proxy", "image": "mesh:1"})
    live["status"] = {"readyReplicas": 2}
    return live


def pod(body: Object) -> t.Any:
    """The pod spec of a Deployment."""
    return body["spec"]["template"]["spec"]


def test_as_the_server_gives_it_back_is_equal() -> None:
    assert not difference(live_deployment(), DEPLOYMENT, "accel.gpu").changed


CHANGES: dict[str, t.Callable[[Object], t.Any]] = {
    "scalar": lambda body: body["spec"].update(replicas=3),
    "managed label removed": lambda body: body["metadata"].pop("labels"),
    "image": lambda body: pod(body)["containers"][0].update(image="nginx:2"),
    "limit": lambda body: pod(body)["containers"][0]["resources"]["limits"].update(cpu="1500m"),
    "limit taken out": lambda body: pod(body)["containers"][0]["resources"]["limits"].pop("memory"),
    "port added": lambda body: pod(body)["containers"][0]["ports"].append({"containerPort": 81}),
    "port taken out": lambda body: pod(body)["containers"][0].pop("ports"),
    "container added": lambda body: pod(body)["containers"].append({"name": "more", "image": "x:1"}),
    "toleration gets an effect": lambda body: pod(body)["tolerations"][0].update(effect="NoSchedule"),
    "toleration added": lambda body: pod(body)["tolerations"].append({"operator": "Exists"}),
    "tolerations taken out": lambda body: pod(body).pop("tolerations"),
    "field that was not there": lambda body: pod(body).update(priorityClassName="high"),
    "true where nothing was": lambda body: pod(body).update(hostNetwork=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_difference_is_seen(change: t.Callable[[Object], t.Any]) -> None:
    expected = copy.deepcopy(DEPLOYMENT)
    change(expected)
    assert difference(live_deployment(), expected, "accel.gpu").changed


SAME: dict[str, t.Callable[[Object], t.Any]] = {
    "quantity in another form": lambda body: pod(body)["containers"][0]["resources"]["limits"].update(cpu=1),
    "memory in another form": lambda body: pod(body)["containers"][0]["resources"]["limits"].update(memory="1024Mi"),
    "the default said": lambda body: pod(body)["containers"][0]["ports"][0].update(protocol="TCP"),
    "a zero that is left out": lambda body: pod(body).update(hostNetwork=False),
    "nothing": lambda body: body["metadata"].update(annotations={}, creationTimestamp=None),
    "a status": lambda body: body.update(status={"readyReplicas": 0}),
    "null where nothing is": lambda body: body["spec"].update(paused=None),
}


@pytest.mark.parametrize("change", SAME.values(), ids=SAME.keys())
def test_another_form_is_no_difference(change: t.Callable[[Object], t.Any]) -> None:
    expected = copy.deepcopy(DEPLOYMENT)
    change(expected)
    assert not difference(live_deployment(), expected, "accel.gpu").changed


def test_an_element_of_an_atomic_list_that_lost_a_field_is_seen() -> None:
    live = live_deployment()
    pod(live)["tolerations"] = [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    plan = difference(live, DEPLOYMENT, "accel.gpu")
    assert plan.changed
    assert pod(plan.after)["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


def test_the_predicted_object_keeps_foreign_fields() -> None:
    expected = copy.deepcopy(DEPLOYMENT)
    expected["spec"]["replicas"] = 3
    del pod(expected)["containers"][0]["ports"]
    after = difference(live_deployment(), expected, "accel.gpu").after
    names = [container["name"] for container in pod(after)["containers"]]
    assert (names, after["spec"]["replicas"], after["spec"]["strategy"]) == (
        ["proxy", "main"],
        3,
        {"type": "RollingUpdate"},
    )
    assert "ports" not in pod(after)["containers"][1]
    assert "status" not in after
    assert "resourceVersion" not in after["metadata"]


@pytest.mark.parametrize("live", ["1000m", "1"])
def test_text_that_looks_like_a_quantity_is_text_in_a_configmap(live: str) -> None:
    def body(value: str) -> Object:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"limits": value}}

    assert difference(body(live), body("1"), "accel.gpu").changed is (live != "1")


def test_false_in_a_custom_resource_is_not_the_same_as_nothing() -> None:
    live: Object = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "p"},
        "spec": {"mig": {}},
    }
    expected = {**live, "spec": {"mig": {"enabled": False}}}
    assert difference(live, expected, "accel.gpu").changed


def test_text_of_a_secret_is_compared_encoded_and_never_shown() -> None:
    live: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"token": "c2VjcmV0"}}
    expected: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"token": "secret"},
    }
    assert not difference(live, expected, "accel.gpu").changed
    other = difference(live, {**expected, "stringData": {"token": "other"}}, "accel.gpu")
    assert other.changed
    assert "c2VjcmV0" not in str((other.before, other.after))
    assert "stringData" not in other.patch_body


def test_what_is_new_is_shown_whole() -> None:
    plan = difference(None, DEPLOYMENT, "accel.gpu")
    assert (plan.changed, plan.before, plan.after) == (True, {}, shown(normalized(DEPLOYMENT)))


def service(*ports: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "dns"}, "spec": {"ports": list(ports)}}


def live_service() -> Object:
    """Two ports of one number, as the server returns them after an apply without the default protocol of the second."""
    udp, tcp = {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}
    owned: Object = {
        f'k:{{"port":53,"protocol":"{port["protocol"]}"}}': {".": {}, "f:name": {}, "f:port": {}} for port in (udp, tcp)
    }
    entry = {"manager": "accel.gpu", "operation": "Apply", "fieldsV1": {"f:spec": {"f:ports": owned}}}
    actual = service(udp, tcp)
    actual["metadata"]["managedFields"] = [entry]
    return actual


def test_an_element_without_a_key_is_compared_with_the_element_that_has_the_default() -> None:
    expected = service({"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53})
    assert not difference(live_service(), expected, "accel.gpu").changed
    expected["spec"]["ports"][1]["name"] = "dns-stream"
    after = difference(live_service(), expected, "accel.gpu").after
    assert [(port["name"], port["protocol"]) for port in after["spec"]["ports"]] == [
        ("dns", "UDP"),
        ("dns-stream", "TCP"),
    ]
